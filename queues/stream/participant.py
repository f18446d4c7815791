"""What the coordinator of transactions and the participants tell each other, and what these hold.

A participant is a partition or a consumer group. It is asked to *prepare*: if it can carry out its
part it holds on to it, durably, and votes yes; from then on only a marker lets go of it. Markers
are numbered by decision, and each participant gets its own in that order, so one number is enough
to know which it has seen: a marker that comes twice is taken once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from queues.stream.group_records import Positions
from queues.stream.names import GroupId, PartitionId

Payload = TypeVar("Payload")
Participant: TypeAlias = PartitionId | GroupId


class TransactionKey(NamedTuple):
    """A sequence of a producer (a Spark query and its batch, say) in one of its epochs."""

    producer: str
    epoch: int
    sequence: int


class Decision(Enum):
    COMMIT = "commit"
    ABORT = "abort"


class Vote(Enum):
    YES = "yes"
    MISSING = "staged rows are missing"
    FENCED = "the group's member may not commit these offsets"
    BUSY = "another transaction holds these offsets"


class WriterRows(NamedTuple):
    """What one writer staged in one partition: no more and no less becomes visible."""

    writer: str
    rows: int


@dataclass(frozen=True, slots=True)
class PartitionPart:
    partition: PartitionId
    writers: tuple[WriterRows, ...]  # their rows are appended in this order
    uid: bytes = b""  # of the stream; empty where an older version asked for it

    @property
    def participant(self) -> Participant:
        return self.partition


@dataclass(frozen=True, slots=True)
class GroupPart:
    group: GroupId
    member: str  # empty: the group has no members, and the producer itself keeps its offsets
    generation: int
    positions: Positions

    @property
    def participant(self) -> Participant:
        return self.group


Part: TypeAlias = PartitionPart | GroupPart


class Marker(NamedTuple):
    number: int  # of the decision; they grow
    transaction: int
    key: TransactionKey
    decision: Decision
    writers: tuple[str, ...]  # whose staged rows end with this


class Held(Generic[Payload]):
    """The prepared parts of a participant, by transaction."""

    def __init__(self, decided: int = 0, parts: Mapping[int, Payload] | None = None) -> None:
        self.decided = decided  # the last decision that was carried out here
        # Commits of what is not held here: right only if a namesake held it and was deleted.
        self.strays = 0
        self._parts: dict[int, Payload] = dict(parts or {})

    def __contains__(self, transaction: int) -> bool:
        return transaction in self._parts

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def parts(self) -> Mapping[int, Payload]:
        return self._parts

    def hold(self, transaction: int, payload: Payload) -> None:
        assert transaction not in self._parts, transaction
        self._parts[transaction] = payload

    def resolve(self, markers: Iterable[Marker]) -> Iterator[tuple[Marker, Payload | None]]:
        """Those markers that are news, with what was held for them."""
        for marker in markers:
            if marker.number > self.decided:
                payload = self._parts.pop(marker.transaction, None)
                if payload is None and marker.decision is Decision.COMMIT:
                    self.strays += 1
                self.decided = marker.number
                yield marker, payload

    def forget(self, transaction: int) -> Payload | None:
        """The coordinator knows nothing of it: a prepare that came after its own marker."""
        return self._parts.pop(transaction, None)
