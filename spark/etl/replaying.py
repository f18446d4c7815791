"""Sends dead letters back to their topics, each replay once.

A replay is a transaction of the broker, with a number. Before it is committed, the store knows its
number and which letters are in it (ETLReplay); behind it, they are counted. Whoever comes after a
crash in between asks the broker for the last number that was committed: that decides whether those
letters were sent. Two who replay at once do no harm: the second one fences the first.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import delete, select

from broker.protocol.stream_errors import StreamError
from clients.stream_address import Address
from clients.stream_transactions import TransactionalProducer
from clients.streams import StreamClient
from spark.etl import letters_table
from spark.etl.database import insert_into
from spark.etl.dead_letters import STRANGER, SUFFIX, replay_headers
from spark.etl.letters_table import DeadLetter, Selection
from spark.etl.originals import Originals
from spark.etl.store import Store
from spark.etl.store_tables import replays
from spark.subscriptions import look_at

# A broker holds 64 MiB of a transaction for a partition.
LETTERS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 16 * 1024 * 1024
Replay = tuple[DeadLetter, dict[str, object]]  # and the headers to send it with


@dataclass(slots=True)
class Replayed:
    """What became of the letters."""

    replayed: list[int] = field(default_factory=list)  # their ids
    left: dict[int, str] = field(default_factory=dict)  # and why
    settled: list[int] = field(default_factory=list)  # sent by a replay that was cut short


class Replayer:
    def __init__(self, url: str, store: Store) -> None:
        self._client = StreamClient(Address.of_url(url), name="etl replay")
        self._originals = Originals(self._client)
        self._store = store
        self._name = f"etl-replay/{store.id}"
        self._partitions: dict[str, int] = {}  # of topics; 0 if there is no such stream

    def replay(self, ids: Sequence[int]) -> Replayed:
        """In the order of their ids. Raises StreamError, SQLAlchemyError: what was not sent by
        then is not counted, and may be asked for again."""
        producer = self._client.transactions(self._name)
        result = Replayed()
        result.settled = self._settle(producer)
        already = set(result.settled)
        wanted = sorted({each for each in ids if each not in already})
        for some in self._batches(wanted, result):
            self._send(producer, some)
            result.replayed += [letter.id for letter, _ in some]
        return result

    def close(self) -> None:
        self._client.close()

    def _settle(self, producer: TransactionalProducer) -> list[int]:
        """What the last replay was at when it ended. Opening the producer has decided it."""
        with self._store.writing() as connection:
            mine = replays.c.producer == self._name
            row = connection.execute(select(replays).where(mine)).first()
            if row is None:
                return []
            connection.execute(delete(replays).where(mine))
            if row.sequence > producer.last:
                return []
            sent: list[int] = json.loads(row.letters)
            letters_table.count_replays(connection, sent, _now_ms())
            return sent

    def _batches(self, ids: Sequence[int], result: Replayed) -> Iterator[list[Replay]]:
        """What can be sent, as many as one transaction takes; the other letters are left."""
        some: list[Replay] = []
        size_bytes = 0
        for letter in self._letters(ids, result):
            if letter.error_type == STRANGER and not letter.job:
                result.left[letter.id] = "no job has read it from a topic"
                continue
            if not self._count_partitions(letter.topic):
                result.left[letter.id] = f"there is no stream {letter.topic!r}"
                continue
            headers = self._headers(letter)
            if headers is None:
                result.left[letter.id] = f"{letter.topic!r} has the dead letter no more"
                continue
            some.append((letter, headers))
            size_bytes += len(letter.raw_message or b"") + len(letter.key or b"")
            if len(some) >= LETTERS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
                yield some
                some, size_bytes = [], 0
        if some:
            yield some

    def _letters(self, ids: Sequence[int], result: Replayed) -> Iterator[DeadLetter]:
        for start in range(0, len(ids), LETTERS_AT_ONCE):
            asked = tuple(ids[start : start + LETTERS_AT_ONCE])
            with self._store.reading() as connection:
                found = letters_table.find(connection, Selection(ids=asked), limit=len(asked))
            there = {letter.id for letter in found}
            result.left |= {each: "there is no such letter" for each in asked if each not in there}
            yield from found

    def _count_partitions(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(look_at([topic], self._client).partitions)
        return self._partitions[topic]

    def _headers(self, letter: DeadLetter) -> dict[str, object] | None:
        """Those of the record itself, with their types, if its topic still has it. What was a dead
        letter would be none without them: then there are none to send."""
        count = letter.replay_count + 1
        record = self._originals.find(letter)
        if record is not None:
            with suppress(ValueError):  # made up by whoever wrote it
                return replay_headers(record.headers, count)
        if letter.topic.endswith(SUFFIX):
            return None
        return replay_headers(letter.headers, count)

    def _send(self, producer: TransactionalProducer, sent: Sequence[Replay]) -> None:
        key = producer.key()
        ids = [letter.id for letter, _ in sent]
        self._intend(key.sequence, ids)
        writer = producer.writer(key, *sorted({letter.topic for letter, _ in sent}))
        try:
            for letter, headers in sent:
                is_there = letter.partition < self._partitions[letter.topic]
                writer.send(
                    letter.topic,
                    letter.raw_message,
                    key=letter.key,
                    headers=headers,
                    partition=letter.partition if is_there else None,
                )
            parts = writer.finish()
        except BaseException:
            with suppress(StreamError):  # the next replay does it as well
                producer.abort(key, writer.staging.parts())
            raise
        producer.commit(key, parts)
        self._count(key.sequence, ids)

    def _intend(self, sequence: int, ids: Sequence[int]) -> None:
        row = {
            "producer": self._name,
            "sequence": sequence,
            "letters": json.dumps(ids),
            "started_at": _now_ms(),
        }
        with self._store.writing() as connection:
            adding = insert_into(connection, replays)
            connection.execute(
                adding.on_conflict_do_update(index_elements=["producer"], set_=row), row
            )

    def _count(self, sequence: int, ids: Sequence[int]) -> None:
        """Unless somebody else has, who found this replay's intention."""
        with self._store.writing() as connection:
            mine = (replays.c.producer == self._name) & (replays.c.sequence == sequence)
            if connection.execute(delete(replays).where(mine)).rowcount:
                letters_table.count_replays(connection, ids, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
