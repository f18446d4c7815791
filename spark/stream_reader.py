"""spark.readStream: from micro-batch to micro-batch, at the pace that the options set.

All of it but `read` runs in one process for each query, which keeps what it learned; `read` runs in
the executors. Nothing but Spark's checkpoint says what was read.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broker.protocol.stream_messages import Partition, PartitionMetadata
from spark import connections
from spark.errors import OptionError
from spark.losses import Losses
from spark.options import SourceOptions
from spark.pace import Pace
from spark.places import OffsetJson, Offsets, decode, encode, resolve, uids_of
from spark.planning import Range, limited, ranges, split, total
from spark.progress import Progress
from spark.reading import read_range
from spark.subscriptions import Seen, look, look_at


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns = schema.fieldNames()
        self._options = options
        self._losses = Losses(options.fail_on_data_loss)
        self._progress: Progress | None = None
        if options.group is not None:
            question = f"{options.subscription} {options.starting}"
            self._progress = Progress(options.broker, options.group, question)
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None  # at the last look, without limits
        self._uids: dict[str, str] = {}  # of streams, at the last look
        self._initial_uids: dict[str, str] = {}
        self._target: Offsets | None = None  # of a query that reads what is available now
        self._batch_at: float | None = None  # when there last was a reason for a batch
        self._pace = Pace(options.limits)

    # Where to begin

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Asked twice in the first batch, and once more after a crash in it."""
        if self._initial is None:
            self._initial = self._began()
            self._initial_uids = self._uids
        return encode(self._initial, self._initial_uids)

    def _began(self) -> Offsets:
        if self._progress is None:
            return self._starts()
        began = self._progress.began()
        if began is None:
            began = self._starts()
        else:
            self._look_at(began)
        self._progress.begin(began)
        return began

    def _starts(self) -> Offsets:
        seen = self._look()
        for missing in seen.missing:
            raise OptionError(f"there is no stream {missing}")
        now_ms = time.time_ns() // 1_000_000
        return connections.ask(
            self._options.broker,
            lambda client: resolve(
                "startingOffsets", self._options.starting, client, seen.partitions, now_ms
            ),
        )

    # How far to go

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of them, where Spark allows no more; `latestOffset` heeds them all."""
        limits = self._options.limits
        if limits.adaptive is not None:
            return ReadMaxRows(limits.adaptive.most_rows)
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_rows is not None:
            return ReadMinRows(limits.min_rows)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Also where progress is told: `start` is what was done, all of it and for good."""
        reached = decode(start)
        self._pace.reached(reached)
        if self._progress is not None and reached != self._initial:
            self._progress.reached(reached)
        seen = self._look()
        reached = self._of_these(reached, uids_of(start), seen.uids)
        self._must_be_there(reached, seen)
        known = seen.partitions
        self._latest = {each: self._end(each, told, reached) for each, told in known.items()}
        ends = self._latest if self._target is None else self._within(self._target, reached)
        starts = {each: _start(known[each], reached.get(each)) for each in ends}
        if isinstance(limit, ReadAllAvailable):
            return encode(ends, seen.uids)
        if self._too_few(total(starts, ends)):
            return start
        chosen = limited(starts, ends, known, self._pace.limits)
        self._pace.planned(chosen, total(starts, chosen))
        return encode(chosen, seen.uids)

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        return None if self._latest is None else encode(self._latest, self._uids)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {each: told.stable_offset for each, told in self._look().partitions.items()}

    def _end(self, partition: Partition, told: PartitionMetadata, reached: Offsets) -> int:
        start = reached.get(partition, 0)
        if _made_anew(told, start):
            self._losses.made_anew(partition, start, told.next_offset)
            return told.stable_offset
        return max(start, told.stable_offset)  # another node may know less

    def _within(self, target: Offsets, reached: Offsets) -> Offsets:
        assert self._latest is not None
        return {
            each: max(min(end, target[each]), min(end, reached.get(each, 0)))
            for each, end in self._latest.items()
            if each in target
        }

    def _too_few(self, rows: int) -> bool:
        """Whether to wait for more; never for longer than said, nor when no more will come."""
        limits, now = self._options.limits, time.monotonic()
        if limits.min_rows is None or self._target is not None:
            return False
        waited = self._batch_at is None or (now - self._batch_at) * 1000 >= limits.max_delay_ms
        if rows < limits.min_rows and not waited:
            return True
        if rows:
            self._batch_at = now
        return False

    def _of_these(
        self, reached: Offsets, were: Mapping[str, str], are: Mapping[str, str]
    ) -> Offsets:
        """Without those of streams in whose place there are others now, which begin anew."""
        replaced = {each for each, uid in were.items() if are.get(each, uid) != uid}
        for stream in sorted(replaced):
            self._losses.replaced(stream)
        return {each: offset for each, offset in reached.items() if each.stream not in replaced}

    def _must_be_there(self, reached: Offsets, seen: Seen) -> None:
        """Partitions may be read no longer because the options say so; others are lost."""
        left = [each for each in reached if each not in seen.partitions]
        if not left:
            return
        still = self._look_at(left).partitions
        for each in left:
            if each not in still:
                self._losses.no_longer_there(f"{each.stream!r} partition {each.number}")

    # What to read

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        starts, ends = decode(start), decode(end)
        were, planned = uids_of(start), uids_of(end)
        anew = {each for each, uid in planned.items() if were.get(each, uid) != uid}
        starts = {each: offset for each, offset in starts.items() if each.stream not in anew}
        moved = {each: stop for each, stop in ends.items() if starts.get(each) != stop}
        seen = self._look_at(moved)
        moved = self._of_these(moved, planned, seen.uids)
        known = seen.partitions
        found = {
            each: self._from(each, known.get(each), starts, stop) for each, stop in moved.items()
        }
        uids = {**seen.uids, **planned}
        return split(ranges(found, moved, uids), self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return read_range(self._options.broker, self._losses, self._columns, partition)

    def _from(
        self, partition: Partition, told: PartitionMetadata | None, starts: Offsets, stop: int
    ) -> int:
        """Where to read on up to `stop`; that itself if there is nothing."""
        start = starts.get(partition)
        if told is None:
            self._losses.no_longer_there(f"{partition.stream!r} partition {partition.number}")
            return stop
        if _made_anew(told, stop):
            self._losses.made_anew(partition, stop, told.next_offset)
            return stop
        first = min(told.first_offset, stop)
        if start is None or _made_anew(told, start):
            return first
        if start < first:
            self._losses.overtaken(partition, start, first)
        return max(start, first)

    # Asking

    def _look(self) -> Seen:
        return self._saw(
            connections.ask(
                self._options.broker, lambda client: look(self._options.subscription, client)
            )
        )

    def _look_at(self, partitions: Iterable[Partition]) -> Seen:
        streams = sorted({each.stream for each in partitions})
        return self._saw(
            connections.ask(self._options.broker, lambda client: look_at(streams, client))
        )

    def _saw(self, seen: Seen) -> Seen:
        self._uids = {**self._uids, **seen.uids}
        return seen


def _made_anew(told: PartitionMetadata, reached: int) -> bool:
    """It has less than was read of it; a node that only follows may be behind, though."""
    return told.next_offset < reached and not told.address


def _start(told: PartitionMetadata, reached: int | None) -> int:
    if reached is None or _made_anew(told, reached):
        return told.first_offset
    return max(reached, told.first_offset)
