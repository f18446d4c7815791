"""What a stream tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    number: int
    first_offset: int
    next_offset: int
    size_bytes: int
    segments: int
    trouble: str | None  # why nothing is compacted any more

    @property
    def messages(self) -> int:
        """As many as there are offsets; compaction leaves some of them without."""
        return self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    tag: str
    positions: dict[int, int]  # partition → the offset to be delivered next
    unacked: int


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    partitions: tuple[PartitionStatistics, ...]
    readers: tuple[ReaderStatistics, ...]

    @property
    def messages(self) -> int:
        return sum([partition.messages for partition in self.partitions])

    @property
    def size_bytes(self) -> int:
        return sum([partition.size_bytes for partition in self.partitions])
