"""Planted bugs: each breaks one promise of the cluster, and must be caught by the simulation."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import queues.live_log
from broker.cluster import recovering
from broker.cluster.desk import Desk
from broker.cluster.identity import Identity
from broker.cluster.leadership import Leadership
from broker.cluster.outgoing import Outgoing
from broker.cluster.publishes import Publishes
from broker.cluster.requests import Requests
from broker.cluster.state import Asked, State
from broker.cluster.subscriptions import Returns, Settled
from broker.log_host import LogHost
from queues.durable import DurableStore
from queues.publishers import Publishers
from queues.queue import Queue
from queues.raft.replica import Replica
from queues.replica import QueueReplica

Mutant = Callable[[], AbstractContextManager[object]]


def _replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> AbstractContextManager[object]:
    return patch.object(owner, name, wrap(getattr(owner, name)))


def confirmed_before_it_is_committed() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def next_entry(self: DurableStore) -> bytes | None:
            entry: bytes | None = real(self)
            if entry is not None:
                for receipt in self._proposed[-1].receipts:
                    receipt.stored([])
                self._proposed[-1].receipts = []
            return entry

        return next_entry

    return _replaced(DurableStore, "next_entry", wrap)


def publishes_are_not_sent_again() -> AbstractContextManager[object]:
    def all_unsent(self: Publishes) -> None:
        self._unsent = []

    return patch.object(Publishes, "all_unsent", all_unsent)


def sessions_are_not_looked_at() -> AbstractContextManager[object]:
    return patch.object(Publishers, "find", lambda self, origin: None)


def claims_are_ignored() -> AbstractContextManager[object]:
    return patch.object(Queue, "claim", lambda self, *_: [])


def dealing_begins_before_fronts_have_attached() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def init(self: Desk, *arguments: Any) -> None:
            real(self, *arguments[:-1], ())

        return init

    return _replaced(Desk, "__init__", wrap)


def a_deposed_leader_goes_on_dealing() -> AbstractContextManager[object]:
    """Nobody tells it; it is replaced when it leads again."""

    def follow(self: QueueReplica) -> None:
        self.queue = self._store = None

    return patch.object(QueueReplica, "follow", follow)


def uncommitted_entries_applied_after_a_restart() -> AbstractContextManager[object]:
    return patch.object(
        recovering, "_known_committed", lambda view, offset: max(offset, view.last_index)
    )


def snapshots_without_the_kept_entries() -> AbstractContextManager[object]:
    async def send_entries(self: Outgoing, gid: int, indexes: list[int]) -> bool:
        return True

    return patch.object(Outgoing, "_send_entries", send_entries)


def definitions_answered_before_they_are_applied() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def request(self: Requests, change: bytes, then: Any, *, lasting: bool) -> None:
            real(self, change, then if lasting else lambda _: None, lasting=lasting)
            if not lasting:
                then(None)

        return request

    return _replaced(Requests, "request", wrap)


def definitions_are_read_without_a_barrier() -> AbstractContextManager[object]:
    return patch.object(Requests, "read", lambda self, then: then(None))


def requests_are_made_as_often_as_they_come() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def apply_asked(self: State, node: Any, boot: Any, number: Any, *rest: Any) -> Any:
            asked = self.asked.get(node)
            if asked is not None:
                self.asked[node] = Asked(asked.boot, 0, asked.results)
            return real(self, node, boot, number, *rest)

        return apply_asked

    return _replaced(State, "apply_asked", wrap)


def uncommitted_settles_are_taken_as_done() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def take(self: Returns) -> Any:
            taken = real(self)
            self._kept.clear()
            return taken

        return take

    stack = ExitStack()
    stack.enter_context(_replaced(Returns, "take", wrap))
    stack.enter_context(patch.object(Settled, "take", lambda self: []))
    return stack


def acknowledged_before_it_is_durable() -> AbstractContextManager[object]:
    def send(self: Replica, message: Any) -> None:
        self._msgs.append(message)
        self._dirty = True

    return patch.object(Replica, "_send", send)


def written_without_waiting_for_the_disk() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def write(self: LogHost, log: Any, write: Any, *, commit: int = 0) -> None:
            real(self, log, write, commit=commit)
            self._filling.writes.pop()
            log.raft.persisted(write.wseq)
            log.touched = False
            log._replication.touch(log)

        return write

    return _replaced(LogHost, "write", wrap)


def leading_before_all_is_applied() -> AbstractContextManager[object]:
    return patch.object(Leadership, "_has_caught_up", lambda self, log, raft: True)


def a_wiped_disk_does_not_cost_the_number() -> AbstractContextManager[object]:
    """A node comes back under its old number though it has forgotten what it voted for."""
    remembered: dict[Any, bytes] = {}

    def wrap(real: Any) -> Any:
        def open_(directory: Any, name: str) -> Identity:
            path = directory / "identity"
            if not path.exists() and name in remembered:
                path.write_bytes(remembered[name])
            identity: Identity = real(directory, name)
            return identity

        return open_

    def wrap_encode(real: Any) -> Any:
        def encode(self: Identity) -> bytes:
            data: bytes = real(self)
            remembered[self.name] = data
            return data

        return encode

    stack = ExitStack()
    stack.enter_context(_replaced(Identity, "open", wrap))
    stack.enter_context(_replaced(Identity, "encode", wrap_encode))
    return stack


MUTANTS: list[Mutant] = [
    confirmed_before_it_is_committed,
    publishes_are_not_sent_again,
    sessions_are_not_looked_at,
    claims_are_ignored,
    dealing_begins_before_fronts_have_attached,
    a_deposed_leader_goes_on_dealing,
    uncommitted_entries_applied_after_a_restart,
    snapshots_without_the_kept_entries,
    definitions_answered_before_they_are_applied,
    definitions_are_read_without_a_barrier,
    requests_are_made_as_often_as_they_come,
    uncommitted_settles_are_taken_as_done,
    acknowledged_before_it_is_durable,
    written_without_waiting_for_the_disk,
    leading_before_all_is_applied,
    a_wiped_disk_does_not_cost_the_number,
]

# Short runs of what most clients do: other kinds of runs have planted bugs of their own.
PLAIN: dict[str, object] = {
    "bursts": (1, 1, 3, 10),
    "seconds": 8.0,
    "pause_s": 0.05,
    "weights": {
        "publish": 10,
        "consume": 3,
        "settle": 15,
        "get": 1,
        "cancel": 1,
        "disconnect": 1,
        "declare": 2,
        "look": 4,
        "delete": 2,
    },
}
_CLIENTS = PLAIN | {"nodes": 3, "clients": 4}
_KILLED = _CLIENTS | {
    "calm": True,
    "faults": {"ambush": 1},
    "ambushes": ("kill", "power"),
    "fault_s": 0.3,
}
# Where few runs would come to the point: what to change of those that are drawn.
FOCUS: dict[Mutant, dict[str, object]] = {
    definitions_are_read_without_a_barrier: _CLIENTS
    | {"calm": False, "faults": {"isolate": 1}, "fault_s": 0.3}
    | {"weights": {"look": 30, "declare": 1, "delete": 1}},
    requests_are_made_as_often_as_they_come: _CLIENTS
    | {"calm": False, "faults": {"slow": 1, "break_link": 3}, "fault_s": 0.3, "delay_s": 0.02}
    | {"weights": {"look": 1, "declare": 5, "delete": 5}},
    uncommitted_entries_applied_after_a_restart: _CLIENTS
    | {"calm": False, "faults": {"strand": 1}, "fault_s": 0.5},
    acknowledged_before_it_is_durable: _CLIENTS
    | {"sync_s": 0.02, "delay_s": 0.0, "faults": {"ambush": 1}, "fault_s": 0.3}
    | {"moments": ("confirmed",), "ambushes": ("all",)},
    confirmed_before_it_is_committed: _KILLED | {"moments": ("confirmed",), "sync_s": 0.02},
    publishes_are_not_sent_again: _KILLED | {"moments": ("confirmed",), "delay_s": 0.02},
    sessions_are_not_looked_at: _KILLED | {"moments": ("confirmed",), "delay_s": 0.02},
    claims_are_ignored: _KILLED | {"moments": ("delivered",)},
    dealing_begins_before_fronts_have_attached: _KILLED | {"moments": ("delivered",)},
    uncommitted_settles_are_taken_as_done: _KILLED | {"moments": ("settled",), "sync_s": 0.02},
    snapshots_without_the_kept_entries: _CLIENTS
    | {"faults": {"kill": 2, "transfer": 2}, "fault_s": 0.4, "seconds": 10.0}
    | {"tunables": {(queues.live_log, "CHECKPOINT_ENTRIES"): 1}},
    a_wiped_disk_does_not_cost_the_number: PLAIN
    | {"nodes": 3, "faults": {"wipe": 1}, "fault_s": 0.7},
    a_deposed_leader_goes_on_dealing: _CLIENTS
    | {"calm": False, "faults": {"isolate": 2, "strand": 1}, "fault_s": 0.5},
    written_without_waiting_for_the_disk: _CLIENTS
    | {"faults": {"power": 1, "kill_all": 2, "ambush": 2}, "fault_s": 0.7, "sync_s": 0.02},
    leading_before_all_is_applied: _CLIENTS
    | {"calm": True, "faults": {"transfer": 3, "kill": 1}, "fault_s": 0.3},
}
