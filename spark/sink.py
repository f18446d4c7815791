"""Writes the rows of a DataFrame to stream queues, each of them once.

Tasks stage their rows, durable and invisible, each attempt under a name of its own. What the driver
then commits is one transaction over all partitions of all streams, with a key that says which rows
these are: (query, batch) of a streaming query, (txnAppId, txnVersion) of a batch write that has
them. A commit that comes again, since Spark did not get to note the first, is answered as the first
and changes nothing; which rows it names does not matter, for a batch that runs again may well have
others. With deliveryGuarantee=at_least_once tasks append their rows at once.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from clients.stream_transactions import merge_parts
from spark.connections import ask
from spark.errors import OptionError, WriteError
from spark.sink_options import Guarantee, SinkOptions, batch_options, stream_options
from spark.sink_outbox import explained
from spark.sink_schema import check_columns
from spark.sink_task import TaskRows, append_rows, drop_rows, stage_rows

# Nobody opens these producers: there is one for each query, and who commits first is right.
EPOCH: Final = 0
LAST_SEQUENCE: Final = 2**63 - 1  # of a producer that commits only once
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

Messages = list[WriterCommitMessage | None]


def batch_writer(
    schema: StructType, options: Mapping[str, str], *, overwrite: bool
) -> DataSourceArrowWriter:
    """Raises OptionError."""
    if overwrite:
        raise OptionError('rows can be added to a stream, not take its place: use mode("append")')
    read = batch_options(options)
    check_columns(schema, topic=read.topic)
    return BatchWriter(read)


def stream_writer(
    schema: StructType, options: Mapping[str, str], *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Raises OptionError. What output mode "complete" repeats is added again, as with Kafka."""
    del overwrite
    read = stream_options(options)
    check_columns(schema, topic=read.topic)
    return StreamWriter(read)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._attempt = uuid.uuid4().hex
        version = options.version
        if version is None:
            self._key = wire.Key(self._attempt, EPOCH, LAST_SEQUENCE)
        else:
            producer = f"{version.app}\0{options.topic or ''}"
            self._key = wire.Key(producer, EPOCH, version.number)

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            return append_rows(self._options, iterator)
        return stage_rows(self._options, self._key, self._attempt, iterator)

    def commit(self, messages: Messages) -> None:
        try:
            _commit(self._options, _staged(messages))
        except RefusedError as error:
            passed = error.status == Status.TRANSACTION_PASSED
            if not passed or self._options.version is None:
                raise explained(error) from error

    def abort(self, messages: Messages) -> None:
        drop_rows(self._options.broker, *_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._attempt = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            return append_rows(self._options, iterator)
        return stage_rows(self._options, _key_of_task(), self._attempt, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        for each in staged:
            if each.key is not None and each.key.sequence != batchId:
                raise WriteError(f"batch {batchId} has rows of batch {each.key.sequence}")
        try:
            _commit(self._options, staged)
        except RefusedError as error:
            raise explained(error) from error

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        del batchId
        drop_rows(self._options.broker, *_staged(messages))


def _key_of_task() -> wire.Key:
    context = TaskContext.get()
    query = context and context.getLocalProperty(_QUERY_ID)
    batch = context and context.getLocalProperty(_BATCH_ID)
    if not query or not batch:
        raise WriteError(
            f"Spark does not tell which batch of which query this is ({_QUERY_ID}, {_BATCH_ID}): "
            "rows can be written with deliveryGuarantee=at_least_once only"
        )
    return wire.Key(query, EPOCH, int(batch))


def _staged(messages: Messages) -> list[TaskRows]:
    """Of the tasks that were done and had something to write."""
    return [each for each in messages if isinstance(each, TaskRows) and each.parts]


def _commit(options: SinkOptions, staged: list[TaskRows]) -> None:
    if not staged:
        return
    (key,) = {each.key for each in staged}
    assert key is not None
    parts = merge_parts(part for each in staged for part in each.parts)
    request = wire.Commit(key, parts, ())
    ask(options.broker, lambda client: client.connection.ask(request, wire.Committed))
