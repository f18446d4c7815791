"""What a machine offers whose state is not all in its log and checkpoint."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable


@runtime_checkable
class SnapshotSource(Protocol):
    """A machine with files of its own, which its checkpoint refers to."""

    def have(self) -> bytes:
        """Here: what of them is here already. An earlier copy that broke off may be forgotten."""
        ...

    def parts(self, index: int, have: bytes) -> Iterator[bytes]:
        """There, on the leader: what is lacking for the checkpoint at `index`, in pieces.

        Called in the loop's thread; the iterator runs off the loop and may be left at any point.
        No piece is empty or larger than transfers.PART_BYTES_MAX.
        """
        ...

    def take(self, part: bytes) -> None:
        """Here: the next piece. Off the loop, in order; durable on return. Then comes `install`."""
        ...


def source_of(machine: object) -> SnapshotSource | None:
    return machine if isinstance(machine, SnapshotSource) else None
