"""What a task of a write does: rows of Arrow batches into chunks, and these to the broker."""

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from clients.stream_errors import RefusedError
from clients.stream_transactions import merge_parts
from spark.addressing import Broker
from spark.arrow_chunks import Rows, pieces
from spark.connections import ask, client
from spark.sink_options import SinkOptions
from spark.sink_outbox import Outbox, explained
from spark.sink_renewal import Renewal
from spark.sink_rows import Part, Spread, by_topic
from spark.sink_schema import COLUMNS

# Small batches are put together: of what is written at once every partition gets a chunk.
GATHERED_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskRows(WriterCommitMessage):
    """What a task staged: visible once this is committed under the key."""

    key: wire.Key | None  # None: it is visible already
    parts: tuple[wire.PartitionPart, ...]


class RowWriter:
    """Cuts rows into chunks of partitions."""

    def __init__(self, options: SinkOptions, outbox: Outbox, turn: int) -> None:
        self._options = options
        self._outbox = outbox
        self._turn = turn
        self._spreads: dict[str, Spread] = {}
        if options.topic is not None:
            self._spread(options.topic)

    def partitions(self) -> list[wire.Partition]:
        """All of the streams that are known so far."""
        known = list(self._spreads.items())
        return [
            wire.Partition(topic, each) for topic, spread in known for each in range(spread.count)
        ]

    def write(self, batches: Iterable[Any]) -> None:
        for batch in _gathered(batches):
            for topic, part in by_topic(batch, self._options.topic).items():
                self._write_part(topic, part)
        self._outbox.flush()

    def _write_part(self, topic: str, part: Part) -> None:
        sizes_bytes = part.rows.sizes_bytes()
        partitions = self._spread(topic).partitions_of(part, sizes_bytes)
        rows = part.rows
        if len(rows) > 1 and (np.diff(partitions) < 0).any():
            order = np.argsort(partitions, kind="stable")
            rows, partitions = rows.take(order), partitions[order]
            sizes_bytes = sizes_bytes[order]
        ends_bytes = np.cumsum(sizes_bytes)
        starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(starts):
            partition = wire.Partition(topic, int(partitions[start]))
            for first, end in pieces(ends_bytes, start, stop):
                self._put(partition, rows.cut(first, end))

    def _put(self, partition: wire.Partition, rows: Rows) -> None:
        chunk = rows.chunk(time.time_ns() // 1_000_000)
        self._outbox.put(partition, chunk, len(rows))

    def _spread(self, topic: str) -> Spread:
        if topic not in self._spreads:
            try:
                found = ask(self._options.broker, lambda client: client.metadata(topic))
            except RefusedError as error:
                raise explained(error) from None
            self._spreads[topic] = Spread(topic, len(found[topic]), self._turn)
        return self._spreads[topic]


def _gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """The columns that are written, of at least so many rows that chunks are not tiny."""
    waiting: list[Any] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch.select([name for name in batch.schema.names if name in COLUMNS]))
            size_bytes += waiting[-1].nbytes
        if size_bytes >= GATHERED_BYTES:
            yield _one(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def append_rows(options: SinkOptions, batches: Iterable[Any]) -> TaskRows:
    """Visible at once, and again if the task runs again."""

    def request(partition: wire.Partition, _number: int, chunk: bytes) -> wire.Append:
        return wire.Append(*partition, chunk)

    with Outbox(options.broker, request, wire.Appended) as outbox:
        RowWriter(options, outbox, uuid.uuid4().int).write(batches)
    return TaskRows(None, ())


def stage_rows(
    options: SinkOptions, key: wire.Key, attempt: str, batches: Iterable[Any]
) -> TaskRows:
    """Under a name that no other attempt has; `attempt` is that of the whole batch."""
    number = uuid.uuid4()
    writer = f"{attempt}/{number.hex}"

    def request(partition: wire.Partition, place: int, chunk: bytes) -> wire.Stage:
        return wire.Stage(key, *partition, writer, place, chunk)

    outbox = Outbox(options.broker, request, wire.Staged)
    rows = RowWriter(options, outbox, number.int)
    try:
        with outbox, Renewal(options.broker, key, writer, rows.partitions):
            rows.write(batches)
    except BaseException:
        drop_rows(options.broker, TaskRows(key, _parts(writer, outbox)))
        raise
    return TaskRows(key, _parts(writer, outbox))


def _parts(writer: str, outbox: Outbox) -> tuple[wire.PartitionPart, ...]:
    return tuple(
        wire.PartitionPart(partition, (wire.WriterRows(writer, rows),))
        for partition, rows in sorted(outbox.rows.items())
    )


def drop_rows(broker: Broker, *staged: TaskRows) -> None:
    """Early, if the broker is there: what is not committed goes in any case, later."""
    with suppress(StreamError):
        for each in staged:
            if each.key is not None and each.parts:
                request = wire.Abort(each.key, merge_parts(each.parts), ())
                client(broker).connection.ask(request, wire.Empty)
