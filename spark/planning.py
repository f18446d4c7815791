"""How much of each partition a micro-batch takes, and how ranges of offsets become tasks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from broker.protocol.stream_messages import Partition, PartitionMetadata
from spark.options import Limits
from spark.places import Offsets

K = TypeVar("K")


@dataclass(frozen=True)
class Range(InputPartition):
    """What one task reads: the records of a partition with these offsets, `end` excluded."""

    partition: Partition
    start: int
    end: int
    uid: str = ""  # of the stream; empty where the broker does not tell

    @property
    def rows(self) -> int:
        return self.end - self.start


def split(ranges: Iterable[Range], tasks_min: int) -> list[Range]:
    """At least so many as long as there are records: larger ranges become more pieces."""
    whole = [each for each in ranges if each.start < each.end]
    if len(whole) >= tasks_min:
        return whole
    extra = share({each: each.rows - 1 for each in whole}, tasks_min - len(whole))
    return [piece for each in whole for piece in _pieces(each, 1 + extra[each])]


def _pieces(whole: Range, count: int) -> list[Range]:
    bounds = [whole.start + whole.rows * place // count for place in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(bounds) if start < end]


def share(wanted: Mapping[K, int], limit: int, turn: int = 0) -> dict[K, int]:
    """Of a limit, to each in proportion to what it wants: all of it if that can be.

    Each gets one before any gets more, so that small ones are not starved by large ones; `turn`
    says who comes first where even that is too much.
    """
    rows = sum(wanted.values())
    if rows <= limit:
        return dict(wanted)
    hungry = _rotated([each for each, want in wanted.items() if want], turn)
    given = dict.fromkeys(wanted, 0)
    for each in hungry[:limit]:
        given[each] = 1
    left = limit - len(hungry)
    if left <= 0:
        return given
    for each in hungry:
        given[each] += left * (wanted[each] - 1) // (rows - len(hungry))
    for each in hungry:  # what rounding left over
        more = min(limit - sum(given.values()), wanted[each] - given[each])
        given[each] += more
    return given


def _rotated(items: list[K], turn: int) -> list[K]:
    place = turn % len(items) if items else 0
    return items[place:] + items[:place]


def limited(
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    known: Mapping[Partition, PartitionMetadata],
    limits: Limits,
) -> Offsets:
    """Where a batch is to end that starts there and may not go beyond `ends`."""
    wanted = {each: max(0, end - starts[each]) for each, end in ends.items()}
    turn = sum(starts.values())
    if limits.max_rows is not None:
        wanted = share(wanted, limits.max_rows, turn)
    if limits.max_bytes is not None:
        wanted = share(wanted, _rows_of(limits.max_bytes, wanted, known), turn)
    return {each: starts[each] + wanted[each] for each in ends}


def _rows_of(
    max_bytes: int, wanted: Mapping[Partition, int], known: Mapping[Partition, PartitionMetadata]
) -> int:
    """As many as fit, by the average size of what each partition holds; one at least."""
    rows = sum(wanted.values())
    size_bytes = sum(count * _record_bytes(known[each]) for each, count in wanted.items())
    return rows if size_bytes <= max_bytes else max(1, int(rows * max_bytes / size_bytes))


def _record_bytes(told: PartitionMetadata) -> float:
    return told.size_bytes / max(1, told.next_offset - told.first_offset)


def total(starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> int:
    """Records between these, at most: offsets may have gaps."""
    return sum(max(0, end - starts[each]) for each, end in ends.items())


def ranges(
    starts: Mapping[Partition, int], ends: Mapping[Partition, int], uids: Mapping[str, str]
) -> Sequence[Range]:
    return [
        Range(each, starts[each], end, uids.get(each.stream, ""))
        for each, end in sorted(ends.items())
    ]
