"""What a partition is asked to store, until it is stored, and who is told what became of it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from queues.stream.staged_rows import Lost, Then
from queues.stream.verdict import Verdict


class Receipt(Protocol):
    """Told once about a batch or chunk, when it is durable and applied."""

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        """Where its first record is: if it is NEW, or a DUPLICATE of not too long ago."""
        ...

    def dropped(self) -> None:
        """Or instead: the stream was deleted before."""
        ...

    def lost(self) -> None:
        """Or instead: this node stopped to lead before. It may be stored all the same."""
        ...


class Records(NamedTuple):
    """A batch on its way into a chunk."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    properties: Sequence[bytes]
    size_bytes: int
    receipt: Receipt | None


class Made(NamedTuple):
    """A chunk as its publisher made it."""

    chunk: bytes
    receipt: Receipt | None


class Said(NamedTuple):
    """Something about a transaction; see staged_entries.py."""

    entry: bytes
    receipt: "Asked"


class Asked(NamedTuple):
    """Who said it: told what came of it, or that the stream was deleted before."""

    then: Then

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        raise AssertionError((verdict, first_offset))

    def dropped(self) -> None:
        self.then(None)

    def lost(self) -> None:
        self.then(Lost.LOST)


class Proposal(NamedTuple):
    """An entry on its way through the log, and whom to tell about which of its records."""

    entry: bytes
    receipts: list[tuple[int, Receipt]]


class Source(Protocol):
    """Who has chunks for the partition, where it leads: this node's own publishers, numbered."""

    def next_chunk(self) -> "tuple[bytes, Receipt] | None":
        """The next one to propose, and who is told about it."""
        ...
