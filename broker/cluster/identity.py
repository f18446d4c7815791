"""Who this node is: a small file in its data directory that is never written in place.

    identity := "LVRTNODE" version u8 | length u32 | crc32 u32 of the rest | map in CBOR

    map: name, uuid, boot, cluster (16 bytes, none while the node is fresh), number (0 while it is),
         table {number: [name, uuid, address]}, seen {number: [highest boot, run of that boot]},
         store (16 bytes: the id of the store that has this node's logs; none before it has any,
         and missing in files of earlier versions, which take the store that they find)

A boot number tells the starts of a node apart, a run (random, never on the node's own disk) tells
apart two starts that claim the same boot number. A peer that shows less than what was seen of it
came back from a backup: it may have forgotten votes and entries that others count on.
"""

import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import cbor2
import trio

from broker.cluster.table import (
    NUMBER_MAX,
    UUID_BYTES,
    PeerInfo,
    Table,
    from_plain,
    peer_info,
    to_plain,
)
from broker.off_loop import OffLoop
from broker.startup import StartupError
from queues.raft.messages import NodeId

FILE_NAME: Final = "identity"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024  # some thousand nodes
_MAGIC: Final = b"LVRTNODE"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">8sBII")


class IdentityError(StartupError):
    """The identity file cannot be used."""


class Start(NamedTuple):
    """One start of a node."""

    boot: int
    run: bytes


@dataclass(slots=True)
class Identity:
    """What the file holds, and this start's own run. Change it by its methods, then `save`."""

    path: Path
    name: str
    uuid: bytes
    boot: int = 0
    cluster: bytes | None = None
    number: NodeId = 0
    table: Table = field(default_factory=dict)
    seen: dict[NodeId, Start] = field(default_factory=dict)
    store: bytes | None = None
    run: bytes = field(default_factory=lambda: os.urandom(UUID_BYTES))

    @classmethod
    def open(cls, directory: Path, name: str) -> "Identity":
        """Read it, or make it where there is none, and make its next boot number durable.

        To be called before anything else of this node is read or said.
        """
        path = directory / FILE_NAME
        try:
            data: bytes | None = path.read_bytes()
        except FileNotFoundError:
            data = None
        except OSError as error:
            raise IdentityError(f"cannot read {path}: {error.strerror}") from error
        identity = cls(path, name, os.urandom(UUID_BYTES)) if data is None else _read(path, data)
        if identity.name != name:
            raise IdentityError(
                f"{path} belongs to node {identity.name!r}, but this node is called {name!r}: "
                f"is this another node's data directory?"
            )
        identity.boot += 1
        identity.save()
        return identity

    @property
    def fresh(self) -> bool:
        return self.cluster is None

    def become(self, cluster: bytes, number: NodeId, table: Mapping[NodeId, PeerInfo]) -> None:
        """Take a place in a cluster: once, and for good."""
        assert self.fresh, "a node has one number in one cluster"
        assert table[number].uuid == self.uuid
        self.cluster, self.number, self.table = cluster, number, dict(table)

    def set_table(self, table: Mapping[NodeId, PeerInfo]) -> None:
        """Numbers are not given twice, so what was seen of one that is gone is kept."""
        self.table = dict(table)

    def bind(self, store_id: bytes) -> bool:
        """Belong to the store that was found, for good; whether that is news, to be saved.

        IdentityError if it is another one.
        """
        if self.store == store_id:
            return False
        if self.store is not None:
            raise IdentityError(
                f"{self.path} belongs to logs that are not in this directory any more: this node "
                f"has forgotten what it voted for and acknowledged. Bring its files back, or empty "
                f"the directory, remove the old number from the cluster and add the node anew"
            )
        self.store = store_id
        return True

    def staleness(self, number: NodeId, start: Start) -> str | None:
        """Why a start of a node cannot be its present one, if so."""
        known = self.seen.get(number)
        if known is None or start.boot > known.boot or start == known:
            return None
        return (
            f"boot number {start.boot} of node {number} is not above {known.boot}, which was seen "
            f"before: its data directory is a copy or was restored from a backup"
        )

    def see(self, number: NodeId, start: Start) -> bool:
        """Remember a start; whether that is news, to be saved before the node is let in."""
        assert self.staleness(number, start) is None
        if self.seen.get(number) == start:
            return False
        self.seen[number] = start
        return True

    def save(self) -> None:
        """Durable when this returns. Whenever the process dies, the old file or the new is there.

        An IdentityError says what the disk would not do.
        """
        write(self.path, self.encode())

    def encode(self) -> bytes:
        body = cbor2.dumps(
            {
                "name": self.name,
                "uuid": self.uuid,
                "boot": self.boot,
                "cluster": self.cluster,
                "number": self.number,
                "table": to_plain(self.table),
                "seen": {number: list(start) for number, start in self.seen.items()},
                "store": self.store,
            }
        )
        return _HEAD.pack(_MAGIC, _VERSION, len(body), zlib.crc32(body)) + body


class IdentityKeeper:
    """Keeps the file up with the identity, away from the loop."""

    def __init__(self, identity: Identity, off_loop: OffLoop) -> None:
        self._identity = identity
        self._off_loop = off_loop
        self._version = 0
        self._saved = 0
        self._lock = trio.Lock()

    def changed(self) -> None:
        self._version += 1

    async def become(
        self, cluster: bytes, number: NodeId, table: Mapping[NodeId, PeerInfo]
    ) -> None:
        """Take a place: on disk first, so that nobody is told of a table that a crash undoes."""
        async with self._lock:
            member = replace(self._identity)
            member.become(cluster, number, table)
            await self._off_loop(partial(write, member.path, member.encode()))
            self._identity.become(cluster, number, table)

    async def durable(self) -> None:
        """Until all that has changed so far is on disk; IdentityError if that cannot be."""
        wanted = self._version
        async with self._lock:
            if self._saved >= wanted:
                return
            version, data = self._version, self._identity.encode()
            await self._off_loop(partial(write, self._identity.path, data))
            self._saved = version


def write(path: Path, data: bytes) -> None:
    """Replace a file by one that is whole and durable."""
    new = path.with_name(path.name + ".new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise IdentityError(f"cannot write {path}: {error.strerror}") from error


def _read(path: Path, data: bytes) -> Identity:
    if len(data) > FILE_BYTES_MAX or data[: len(_MAGIC)] != _MAGIC:
        raise IdentityError(f"{path} is no identity file of a node")
    if len(data) < _HEAD.size:
        raise IdentityError(_damaged(path, "it ends too early"))
    _, version, length, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise IdentityError(f"{path} has format {version}, and this version reads {_VERSION}")
    body = data[_HEAD.size :]
    if len(body) != length or zlib.crc32(body) != crc:
        raise IdentityError(_damaged(path, "its checksum does not match"))
    try:
        return _decode(path, cbor2.loads(body))
    except (cbor2.CBORDecodeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise IdentityError(_damaged(path, str(error))) from error


def _damaged(path: Path, why: str) -> str:
    return (
        f"{path} is damaged ({why}). Without it this node must not take part under its old number: "
        f"empty its data directory, remove the old number from the cluster and add the node anew"
    )


def _decode(path: Path, map_: Any) -> Identity:
    uuid, cluster, number = map_["uuid"], map_["cluster"], map_["number"]
    name = peer_info(map_["name"], uuid, "none:1").name
    table = from_plain(map_["table"])
    check_bytes(cluster if cluster is not None else bytes(UUID_BYTES), "cluster id")
    # The node itself may be gone from the table: it was removed, and others refuse it.
    if (cluster is None) != (check_whole(number, "number") == 0):
        raise ValueError("number and cluster id do not belong together")
    seen = {
        check_whole(key, "number"): Start(check_whole(boot, "boot number"), check_bytes(run, "run"))
        for key, (boot, run) in map_["seen"].items()
    }
    boot = check_whole(map_["boot"], "boot number")
    store = map_.get("store")
    if store is not None:
        check_bytes(store, "store id")
    return Identity(path, name, uuid, boot, cluster, number, table, seen, store)


def check_bytes(value: object, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != UUID_BYTES:
        raise ValueError(f"the {what} does not have {UUID_BYTES} bytes")
    return value


def check_whole(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < NUMBER_MAX:
        raise ValueError(f"the {what} is no number that can be")
    return value
