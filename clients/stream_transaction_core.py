"""Transactions as plans, for the blocking client and for Trio's: stage, commit, abort.

Records are staged under a key (producer, epoch, sequence) by writers, each an attempt with a name
of its own; the commit names the writers and how many rows each has, so that what failed attempts
left is never seen. A commit may be asked again: a key that was committed is answered the same.
"""

import uuid
from collections.abc import Iterable, Mapping

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_batches import BATCH_BYTES, Batches
from clients.stream_errors import RefusedError
from clients.stream_plans import Plan, asked


class Staging:
    """One attempt to write rows of a transaction."""

    def __init__(
        self,
        key: wire.Key,
        partitions: Mapping[str, int],
        *,
        writer: str = "",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """`partitions`: how many each stream has that is written to."""
        self.key = key
        self.writer = writer or uuid.uuid4().hex
        self._batches = {
            stream: Batches(count, batch_bytes) for stream, count in partitions.items()
        }
        self._chunks: dict[wire.Partition, int] = {}
        self._rows: dict[wire.Partition, int] = {}

    def add(
        self,
        stream: str,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, object] | None,
        partition: int | None,
    ) -> int | None:
        """The partition whose batch must be staged now, if one must."""
        batches = self._batches.get(stream)
        if batches is None:
            raise ValueError(f"stream {stream!r} was not named for this transaction")
        return batches.add(value, key, headers, partition)

    def stage(self, stream: str, number: int) -> Plan[None]:
        batch = self._batches[stream].take(number)
        partition = wire.Partition(stream, number)
        place = self._chunks.get(partition, 0)
        request = wire.Stage(self.key, stream, number, self.writer, place, batch.chunk())
        self._chunks[partition] = place + 1
        self._rows[partition] = self._rows.get(partition, 0) + len(batch)
        yield from asked(request, wire.Staged)

    def finish(self) -> Plan[tuple[wire.PartitionPart, ...]]:
        """Stage the rest. The parts of the commit that are this writer's."""
        for stream, batches in self._batches.items():
            for number in batches.open_partitions():
                yield from self.stage(stream, number)
        return self.parts()

    def parts(self) -> tuple[wire.PartitionPart, ...]:
        return tuple(
            wire.PartitionPart(partition, (wire.WriterRows(self.writer, rows),))
            for partition, rows in sorted(self._rows.items())
        )


def merge_parts(parts: Iterable[wire.PartitionPart]) -> tuple[wire.PartitionPart, ...]:
    """Those of several writers as one for each partition, in the order given."""
    merged: dict[wire.Partition, list[wire.WriterRows]] = {}
    for part in parts:
        merged.setdefault(part.partition, []).extend(part.writers)
    return tuple(
        wire.PartitionPart(partition, tuple(writers)) for partition, writers in merged.items()
    )


def commit_plan(
    key: wire.Key, parts: Iterable[wire.PartitionPart], groups: Iterable[wire.GroupPart] = ()
) -> Plan[wire.Committed]:
    """What these writers staged, whoever they are. A producer that nobody opened has epoch 0."""
    request = wire.Commit(key, merge_parts(parts), tuple(groups))
    committed = yield from asked(request, wire.Committed)
    return committed


def abort_plan(key: wire.Key, parts: Iterable[wire.PartitionPart]) -> Plan[None]:
    """Drop what these writers staged, unless it was committed."""
    yield from asked(wire.Abort(key, merge_parts(parts), ()), wire.Empty)


class TransactionsCore:
    """A producer of transactions: one after another, each with the next sequence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.last = -1  # the last sequence that was committed; -1 if none
        self._in_doubt = True  # what became of the last commit, or of those of a former life

    def open(self) -> Plan[None]:
        """Fences older ones of that name and aborts what they have not committed."""
        opened = yield from asked(wire.OpenTransactions(self.name), wire.TransactionsOpened)
        self.epoch, self.last = opened.epoch, opened.last
        self._in_doubt = False

    def begin(self) -> Plan[wire.Key]:
        """The key of the next. A commit that was cut short is decided before, one way or other."""
        if self._in_doubt:
            yield from self.open()
        return self.key()

    def key(self, sequence: int | None = None) -> wire.Key:
        """Of the transaction with this sequence; without one, of the next."""
        return wire.Key(self.name, self.epoch, self.last + 1 if sequence is None else sequence)

    def commit(
        self,
        key: wire.Key,
        parts: Iterable[wire.PartitionPart],
        groups: Iterable[wire.GroupPart] = (),
    ) -> Plan[wire.Committed]:
        """All of it is visible, or RefusedError: TRANSACTION_ABORTED means that nothing is."""
        self._in_doubt = True
        try:
            committed = yield from commit_plan(key, parts, groups)
        except RefusedError as error:
            self._in_doubt = error.status != Status.TRANSACTION_ABORTED
            raise
        self._in_doubt = False
        self.last = max(self.last, key.sequence)
        return committed

    def abort(self, key: wire.Key, parts: Iterable[wire.PartitionPart] = ()) -> Plan[None]:
        """Drop what is staged. What was committed stays committed."""
        yield from abort_plan(key, parts)
