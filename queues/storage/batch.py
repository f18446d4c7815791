"""What many groups want written in one go."""

from collections.abc import Callable, Iterable
from typing import Protocol

from queues.storage.frames import CONFIG, DEL, ENTRY, HARD, REG, SNAP, TRUNC, Record, encode_vote

UUID_BYTES = 16


class EntryLike(Protocol):
    """An entry to store; the payload is opaque."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def payload(self) -> bytes: ...


class WriteBatch:
    """Collects writes in order. They take effect, all together, when the batch is submitted."""

    __slots__ = ("_allocate_gid", "records")

    def __init__(self, allocate_gid: Callable[[], int]) -> None:
        self._allocate_gid = allocate_gid
        self.records: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self.records)

    def create_group(self, uuid: bytes) -> int:
        """A new group; its gid is new for ever, even if the uuid was here before."""
        assert len(uuid) == UUID_BYTES
        gid = self._allocate_gid()
        self.records.append((REG, gid, 0, 0, uuid))
        return gid

    def set_hard(self, gid: int, term: int, vote: int | None, *, commit: int = 0) -> None:
        """Term and vote in one record; the commit index rides along when it is known."""
        self.records.append((HARD, gid, term, commit, encode_vote(vote)))

    def truncate_from(self, gid: int, index: int) -> None:
        """This entry and all after it are void and never come back."""
        self.records.append((TRUNC, gid, index, 0, b""))

    def append(self, gid: int, entries: Iterable[EntryLike]) -> None:
        """Indexes ascend, above all that the group has; they may leave holes."""
        self.records += [(ENTRY, gid, e.index, e.term, e.payload) for e in entries]

    def snapshot(self, gid: int, index: int, term: int, payload: bytes) -> None:
        """Replace the group's snapshot. Entries stay until they are released."""
        self.records.append((SNAP, gid, index, term, payload))

    def set_config(self, gid: int, index: int, config: bytes) -> None:
        """Who is in the group as of an index; entries above it may say otherwise."""
        self.records.append((CONFIG, gid, index, 0, config))

    def replace_group(self, old: int, new: int, uuid: bytes) -> None:
        """The new group takes the old one's name, and the old one goes: both or neither."""
        self.records.append((REG, new, 0, 0, uuid))
        self.records.append((DEL, old, 0, 0, b""))

    def delete_group(self, gid: int) -> None:
        self.records.append((DEL, gid, 0, 0, b""))
