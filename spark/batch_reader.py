"""spark.read: everything between two places, once."""

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from clients.streams import StreamClient
from spark import connections
from spark.errors import OptionError
from spark.losses import Losses
from spark.options import SourceOptions
from spark.places import Given, Offsets, resolve
from spark.planning import Range, ranges, split
from spark.reading import read_range
from spark.subscriptions import look


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns = schema.fieldNames()
        self._options = options
        self._losses = Losses(options.fail_on_data_loss)

    def partitions(self) -> list[InputPartition]:
        found = connections.ask(self._options.broker, self._bounds)
        return [*split(ranges(*found), self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):  # Spark's own, where there is nothing to read
            return iter(())
        return read_range(self._options.broker, self._losses, self._columns, partition)

    def _bounds(self, client: StreamClient) -> tuple[Offsets, Offsets, Mapping[str, str]]:
        options = self._options
        seen = look(options.subscription, client)
        for missing in seen.missing:
            raise OptionError(f"there is no stream {missing}")
        known, now_ms = seen.partitions, time.time_ns() // 1_000_000
        starts = resolve("startingOffsets", options.starting, client, known, now_ms)
        ends = resolve("endingOffsets", options.ending, client, known, now_ms)
        for each, start in starts.items():
            both_said = isinstance(options.starting, Given) and isinstance(options.ending, Given)
            if both_said and start > ends[each]:
                raise OptionError(
                    f"startingOffsets are behind endingOffsets: {each.stream!r} {each.number} "
                    f"would be read from {start} to {ends[each]}"
                )
            first = known[each].first_offset
            if start < min(first, ends[each]):
                self._losses.overtaken(each, start, first)
                starts[each] = first
        return starts, ends, seen.uids
