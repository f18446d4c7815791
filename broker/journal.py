"""Durable definitions: changes to exchanges, queues, bindings, users and so on, in a log.

An entry is a CBOR array: [version, change, change, …]. A change is an array too, its kind first:

    ["exchange",    vhost, name, type, auto_delete, internal, arguments]
    ["-exchange",   vhost, name]
    ["queue",       vhost, name, uid (16 bytes), auto_delete, queue type, arguments]
    ["-queue",      vhost, name]
    ["settings",    vhost, name, uid, arguments altered since it was declared]
    ["binding",     vhost, source, destination kind, destination, key, arguments]
    ["-binding",    vhost, source, destination kind, destination, key, arguments]
    ["policy",      vhost, name, pattern, apply-to, priority, definition]
    ["-policy",     vhost, name]
    ["operator-policy",   vhost, name, pattern, apply-to, priority, definition]
    ["-operator-policy",  vhost, name]
    ["global-parameter",  name, value]          ["-global-parameter", name]
    Users, vhosts, permissions, limits: see broker.security.registry
    Schemas and subjects: see broker.registry.state
    ["stopped"]     the node came to its end in good order, and all queues said so before
    ["started"]     it is running again

A checkpoint is an entry that builds the whole state. Only what is durable is written: a binding if
both its ends are, a queue if no connection owns it.

In a cluster (see broker.cluster.catalog) everything is in the log, what is transient too, and
changes are requests: each is made, or refused, when it is applied. Changes have fields more:

    ["ask", node, boot, number, low, change]    a change that the node, started for the boot-th
                    time, asked for; applied if the number is above all that it asked for before.
                    Of those under `low` it knows what became of them.
    ["exchange", …, durable]    ["-exchange", …, if_unused]
    ["queue", …, durable, owner, placement, settings]   owner: nobody, or [node, boot, connection];
                    placement: [home or null, boot, [members of each group, …], [former members …]]
    ["-queue", …, uid]          ["binding", …, who binds: an owner, or null]
    ["-owner", node, boot, connection]          a connection ended
    ["boot", node, boot, {node: boot, …}]       a node was started; which others are up
    ["gone", node, boot]                        a node is lost, and what it had in memory
    ["node", number or 0, name, uuid, address, amqp, http]      ["-node", number]
    ["draining", number, on]    ["leaving", number, on]         ["rebalance", on]
    ["place", uid, group, members]      who should be the members of a group of a queue
    ["moved", uid, group, members]      they are
    ["lead", uid, group, node]          who should lead it
    ["led", uid, group, node]           that one does
    ["members", uid, members]           of a group that is no queue's

and in checkpoints ["booted", node, boot], ["removed-node", number], ["next-node", number] and
["asked", node, boot, last number, [[number, code, text] or [number], …]].
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import cbor2

from broker.protocol.errors import precondition_failed

FORMAT_VERSION: Final = 1
DEFINITIONS_UID: Final = b"leveret metadata"  # sixteen bytes, as every log's name
STOPPED: Final = "stopped"
STARTED: Final = "started"
# Changes above the last checkpoint that are replayed at a start: a second's worth.
CHECKPOINT_CHANGES: Final = 50_000
# CBOR's reader goes 400 deep, and entries and requests put a few levels around a change. Tables of
# AMQP are 64 deep at most; those that come as JSON meet this.
DEPTH_MAX: Final = 128
CHANGE_BYTES_MAX: Final = 4 * 1024 * 1024  # a schema has 1 MiB at most, and is the longest by far
# What users make many of: arguments of real queues have some hundred bytes, tags of SQS 80 KiB.
_BYTES_MAX: Final[dict[object, int]] = {
    "binding": 16 * 1024,
    "exchange": 256 * 1024,
    "queue": 256 * 1024,
    "settings": 256 * 1024,
}


class Log(Protocol):
    """The metadata log."""

    def changed(self, *, urgent: bool, size_bytes: int = 0) -> None: ...
    def release(self, indexes: list[int]) -> None: ...
    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None: ...


class Journal:
    """Takes changes in the order they were made, and says when they are durable.

    It is a machine for the log as `queues.durable.DurableStore` is; changes are made before they
    are proposed, so that applying an entry only means that they are safe.
    """

    def __init__(self, log: Log, state: "Callable[[], Iterable[list[Any]]]") -> None:
        self._log = log
        self._state = state  # changes that build all that is there now
        self._changes: list[bytes] = []
        self._waiting: list[Callable[[], None]] = []
        self._proposed: deque[list[Callable[[], None]]] = deque()
        self._indexes: list[int] = []  # entries above the checkpoint
        self._since_checkpoint = 0
        self._checkpointing = False
        self._stopped = False

    @property
    def pending(self) -> bool:
        """Changes were made that are not durable yet."""
        return bool(self._changes or self._proposed)

    def record(self, *change: object) -> None:
        """Write a change. One that cannot be written is the client's mistake, and not made."""
        self._changes.append(encode_change(change))
        self._since_checkpoint += 1
        self._stopped = change[0] == STOPPED
        self._log.changed(urgent=True)

    def when_durable(self, action: Callable[[], None]) -> None:
        """Call back when everything recorded so far is durable; at once if it is."""
        if self._changes:
            self._waiting.append(action)
        elif self._proposed:
            self._proposed[-1].append(action)
        else:
            action()

    def next_entry(self) -> bytes | None:
        if not self._changes:
            return None
        entry = array([cbor2.dumps(FORMAT_VERSION), *self._changes])
        self._changes = []
        self._proposed.append(self._waiting)
        self._waiting = []
        return entry

    def applied(self, index: int) -> None:
        self._indexes.append(index)
        for action in self._proposed.popleft():
            action()
        due = self._since_checkpoint >= CHECKPOINT_CHANGES
        if due and not self._checkpointing and not self._stopped:  # it would hide that we stopped
            self._checkpoint(index)

    def _checkpoint(self, index: int) -> None:
        """The state may hold changes that are not applied yet: replaying them changes nothing."""
        self._checkpointing = True
        covered, self._indexes = self._indexes, []
        self._since_checkpoint = 0

        def durable() -> None:
            self._checkpointing = False
            self._log.release(covered)

        state = array([cbor2.dumps(FORMAT_VERSION), *map(encode_known, self._state())])
        self._log.checkpoint(index, state, durable)

    def damaged(self, reason: str) -> None:
        """Definitions are read at a start only, where damage to them stops the node."""
        raise AssertionError(reason)

    def recover(self, entries: Iterable[tuple[int, bytes]]) -> Iterable[list[Any]]:
        """The changes of a checkpoint and the entries above it, in order."""
        for index, entry in entries:
            version, *changes = cbor2.loads(entry)
            if version != FORMAT_VERSION:
                raise ValueError(f"definitions of format {version}, expected {FORMAT_VERSION}")
            self._indexes.append(index)
            self._since_checkpoint += len(changes)
            yield from changes


def encode_change(change: Iterable[object]) -> bytes:
    """The one check on the way in: whatever is recorded can be read back at the next start."""
    parts = list(change)
    most = _BYTES_MAX.get(parts[0], CHANGE_BYTES_MAX)
    if not _is_shallow(parts):
        raise precondition_failed(f"{parts[0]} cannot be stored: nested over {DEPTH_MAX} deep")
    try:
        encoded = encode_known(parts)
        if len(encoded) <= most:
            cbor2.loads(encoded)
            return encoded
    except (ValueError, TypeError, UnicodeError, OverflowError) as error:
        raise precondition_failed(f"arguments cannot be stored: {error}") from None
    raise precondition_failed(f"{parts[0]} cannot be stored: over {most} bytes")


def encode_known(change: Iterable[object]) -> bytes:
    """Of what was checked on its way in, or has been read back already."""
    return cbor2.dumps([_plain(part) for part in change])


def _is_shallow(value: object) -> bool:
    """Level by level: a deep value must not exhaust the stack of who measures it."""
    level: list[object] = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [part for parent in level for part in _parts(parent)]
        if not level:
            return True
    return False


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _plain(part: object) -> object:
    return dict(part) if isinstance(part, Mapping) else part


def array(items: list[bytes]) -> bytes:
    """A CBOR array of items that are encoded already."""
    return b"\x9a" + len(items).to_bytes(4, "big") + b"".join(items)
