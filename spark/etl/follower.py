"""Copies dead letters from their streams to the ETL store, each once.

How far it got is saved with the letters, in one transaction of the store: a crash repeats nothing
and skips nothing. Several may follow at once; they take turns in the store, which knows a letter by
its place and time. A stream that was deleted and declared again has other letters at the same
places: the one that was copied last is looked at to see that.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from broker.protocol.chunk import Record
from broker.protocol.stream_errors import StreamError
from broker.protocol.stream_messages import Partition, PartitionMetadata
from clients.stream_address import Address
from clients.streams import StreamClient
from spark.etl import letters_table
from spark.etl.dead_letters import dlq_of, is_copy, moment_of, read_letter
from spark.etl.letters_table import DeadLetter
from spark.etl.store import Store
from spark.subscriptions import look_at

_LOG: Final = logging.getLogger("leveret.etl")
NAME: Final = "(dead letters)"  # whose checkpoint it is
LETTERS_AT_ONCE: Final = 1000  # in one transaction, at most
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
FETCH_BYTES: Final = 1024 * 1024
_TURN: Final = 0x6C65_7474_6572_73  # an advisory lock of PostgreSQL
Offsets = dict[Partition, int]


class DeadLetterFollower:
    """Of the `.dlq` streams of these topics; one that is not there yet is looked for again."""

    def __init__(self, url: str, store: Store, topics: Iterable[str]) -> None:
        self._client = StreamClient(Address.of_url(url), name="etl dead letters")
        self._store = store
        self._streams = sorted({dlq_of(topic) for topic in topics})

    def run_once(self) -> int:
        """Copy what there is now; how many were new. Raises StreamError, SQLAlchemyError."""
        if not self._streams:
            return 0
        known = look_at(self._streams, self._client).partitions
        done = self._done()
        return sum(self._copy(each, told, done.get(each, 0)) for each, told in known.items())

    def run(self, stop: threading.Event, every_s: float = 1.0) -> None:
        """For a thread: until told to stop, and then once more. What is away is waited for."""
        problem = ""
        last = False
        while not last:
            last = stop.wait(every_s)
            try:
                self.run_once()
            except (StreamError, SQLAlchemyError) as error:
                line = " ".join(str(error).split())
                if line != problem:
                    _LOG.warning("dead letters are not copied to the store now: %s", line)
                problem = line
            else:
                problem = ""

    def close(self) -> None:
        self._client.close()

    def _done(self) -> Offsets:
        saved = self._store.checkpoint(NAME)
        offsets = {} if saved is None else saved["offsets"]
        return {
            Partition(stream, number): offset
            for stream, numbers in offsets.items()
            for number, offset in numbers.items()
        }

    def _copy(self, partition: Partition, told: PartitionMetadata, done: int) -> int:
        """What is behind `done`; all of it if the stream is another one than it was."""
        start = max(done, told.first_offset)
        if done > told.next_offset or not self._is_the_same(partition, told):
            start = told.first_offset
        added = 0
        for letters, reached in self._read(partition, start, told.stable_offset):
            added += self._save(partition, letters, reached)
        return added

    def _is_the_same(self, partition: Partition, told: PartitionMetadata) -> bool:
        """The stream still has the letter that was copied last; there may be none yet."""
        with self._store.reading() as connection:
            last = letters_table.newest_at(connection, *partition)
        if last is None:
            return True
        offset, time_ms = last
        if not told.first_offset <= offset < told.stable_offset:
            return False
        found = self._client.reader(*partition, offset, end=offset + 1, wait_ms=0, fetch_bytes=1)
        return any(moment_of(record) == time_ms for record in found)

    def _read(
        self, partition: Partition, start: int, end: int
    ) -> Iterator[tuple[list[DeadLetter], int]]:
        """Some letters at a time, and the offset behind them."""
        if start >= end:
            return
        reader = self._client.reader(*partition, start, end=end, fetch_bytes=FETCH_BYTES)
        some: list[DeadLetter] = []
        size_bytes = 0
        for record in reader:
            if not is_copy(record):  # the store has the letter already
                some.append(read_letter(partition, record))
                size_bytes += _size_bytes(record)
            if len(some) >= LETTERS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
                yield some, record.offset + 1
                some, size_bytes = [], 0
        yield some, end

    def _save(self, partition: Partition, letters: list[DeadLetter], reached: int) -> int:
        with self._store.writing() as connection:
            _take_turn(connection)
            saved = self._store.checkpoint(NAME, connection)
            added = self._store.add_dead_letters(letters, connection)
            following = 0 if saved is None else saved["batch_id"] + 1
            offsets = {partition.stream: {partition.number: reached}}
            self._store.save_checkpoint(connection, NAME, following, offsets)
        return added


def _take_turn(connection: Connection) -> None:
    """SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _TURN})


def _size_bytes(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"") + len(record.properties)
