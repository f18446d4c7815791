"""Writes that become visible all at once or never, and the offsets that go with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from clients.stream_batches import BATCH_BYTES
from clients.stream_connection import StreamConnection
from clients.stream_group import GroupConsumer
from clients.stream_plans import Alone, Plan
from clients.stream_processing import commit_with
from clients.stream_questions import partition_counts
from clients.stream_transaction_core import Staging, TransactionsCore, merge_parts

__all__ = ["Output", "StagedWriter", "TransactionalProducer", "merge_parts"]


class Output:
    """Where the rows of a transaction go."""

    def __init__(self, staging: Staging, run: Callable[[Plan[None]], None]) -> None:
        self.staging = staging
        self._run = run

    def send(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, object] | None = None,
        partition: int | None = None,
    ) -> None:
        """Into a batch; a full one is staged. Nobody sees it before the transaction commits."""
        full = self.staging.add(stream, value, key, headers, partition)
        if full is not None:
            self._run(self.staging.stage(stream, full))


class StagedWriter(Output):
    """One attempt to write rows of a transaction, anywhere: a task of a Spark job, say."""

    def __init__(
        self,
        connection: StreamConnection,
        key: wire.Key,
        partitions: Mapping[str, int],
        *,
        writer: str = "",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """`partitions`: how many each stream has that is written to."""
        staging = Staging(key, partitions, writer=writer, batch_bytes=batch_bytes)
        super().__init__(staging, connection.run)
        self._connection = connection

    @property
    def key(self) -> wire.Key:
        return self.staging.key

    @property
    def writer(self) -> str:
        return self.staging.writer

    def finish(self) -> tuple[wire.PartitionPart, ...]:
        """Stage the rest. The parts of the commit that are this writer's."""
        return self._connection.run(self.staging.finish())


class TransactionalProducer:
    """Opening one fences older ones of that name and aborts what they have not committed."""

    def __init__(self, connection: StreamConnection, name: str) -> None:
        self._connection = connection
        self._core = TransactionsCore(name)
        connection.run(self._core.open())

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def last(self) -> int:
        """The last sequence that was committed; -1 if none."""
        return self._core.last

    @contextmanager
    def transaction(
        self, *streams: str, offsets_of: GroupConsumer | None = None
    ) -> Iterator[StagedWriter]:
        """What is sent in the block becomes visible at its end, or nothing if it raises.

        With it, what `offsets_of` was given is committed; if nothing is, `rewind` it.
        """
        core, run = self._core, self._connection.run
        writer = self.writer(run(core.begin()), *streams)
        try:
            yield writer
            writer.finish()
        except BaseException:
            with suppress(StreamError):  # the next of this name does it as well
                run(core.abort(writer.key, writer.staging.parts()))
            raise
        if offsets_of is None:
            run(core.commit(writer.key, writer.staging.parts()))
        else:
            offsets_of.run(_alone(commit_with(core, writer.staging, offsets_of.core)))

    # Step by step, by several processes too

    def key(self, sequence: int | None = None) -> wire.Key:
        """Of the transaction with this sequence; without one, of the next."""
        return self._core.key(sequence)

    def writer(self, key: wire.Key, *streams: str) -> StagedWriter:
        """For rows of this transaction, written by this thread."""
        counts = self._connection.run(partition_counts(streams)) if streams else {}
        return StagedWriter(self._connection, key, counts)

    def commit(
        self,
        key: wire.Key,
        parts: Iterable[wire.PartitionPart],
        groups: Iterable[wire.GroupPart] = (),
    ) -> wire.Committed:
        """All of it is visible, or RefusedError: TRANSACTION_ABORTED means that nothing is."""
        return self._connection.run(self._core.commit(key, parts, groups))

    def abort(self, key: wire.Key, parts: Iterable[wire.PartitionPart] = ()) -> None:
        """Drop what is staged. What was committed stays committed."""
        self._connection.run(self._core.abort(key, parts))


def _alone(plan: Plan[Any]) -> Plan[None]:
    yield Alone(plan)
