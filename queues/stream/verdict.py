"""What a partition asks of its producer table: who wrote what before, and what is visible yet."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from broker.protocol.chunk import Header, Producer


class Verdict(Enum):
    """What becomes of a chunk when it is applied."""

    NEW = "new"  # it gets its offsets
    DUPLICATE = "duplicate"  # it has them already: confirmed and dropped
    FENCED = "fenced"  # of an epoch that is over: refused
    OUT_OF_ORDER = "out of order"  # chunks before it are missing: refused
    FULL = "too many producers"  # to remember one more: refused


class Ruling(NamedTuple):
    verdict: Verdict
    offset: int | None = None  # of the first record of a duplicate, if that is still known


NEW: Ruling = Ruling(Verdict.NEW)


class Producers(Protocol):
    """Part of the partition's machine: changed by applied chunks only, and kept in checkpoints."""

    def apply(self, header: Header, base_offset: int, at_ms: int) -> Ruling:
        """Decide about the next chunk; if it is NEW, it stands at this offset from now on.

        Also called for chunks without a producer and for marks of transactions. The time is the
        leader's, when it proposed the chunk.
        """
        ...

    def expected(self, producer: Producer) -> int:
        """The sequence of the record that is to come next in this producer's epoch."""
        ...

    def first_unstable(self) -> int | None:
        """The first offset of a transaction that is not decided, if there is any."""
        ...

    def hidden(self, first: int, end: int) -> Sequence[tuple[int, int]]:
        """Aborted chunks among these offsets, as ascending ranges (first, end) of offsets."""
        ...

    def forget_before(self, offset: int) -> None:
        """Retention took away everything before this offset."""
        ...

    def checkpoint(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...


class AnyProducer:
    """No producer is known: everything is new, and visible at once."""

    def apply(self, header: Header, base_offset: int, at_ms: int) -> Ruling:  # noqa: ARG002
        return NEW

    def expected(self, producer: Producer) -> int:
        return producer.sequence

    def first_unstable(self) -> int | None:
        return None

    def hidden(self, first: int, end: int) -> Sequence[tuple[int, int]]:  # noqa: ARG002
        return ()

    def forget_before(self, offset: int) -> None:
        pass

    def checkpoint(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        assert not state, "a checkpoint with producers needs their table"
