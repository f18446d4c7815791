"""`POST /api/topics/{topic}/produce`: one record, or a batch of them.

`acks` in the query says when the answer comes: `all` (the default) and `1` when the records are on
the disks of a majority of the topic's nodes, `0` when they were taken and before they are anywhere.
A topic that was declared with x-acks 1 tells of less: there `1` means the leader's disk, without
the offset, and `all` is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.messages import Response, json_response
from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Refused
from broker.streams.service import Caller
from broker.topics.asking import allow, find_topic, must_be_sound
from broker.topics.fields import only, text_asked
from broker.topics.problems import UNAVAILABLE, TopicError, bad_request, from_refusal
from broker.topics.records import NewRecord, read_record
from queues.stream.names import INTERNAL
from queues.stream.publishing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.http.admin import Call
    from broker.topics.asking import Asker
    from queues.stream.stream import Stream

RECORDS_MAX: Final = 10_000  # in one batch
# Of records in one chunk, which has at most 8 MiB with all that stands around them.
CHUNK_BYTES: Final = 7 * 1024 * 1024
AROUND_BYTES: Final = 64  # a record, in a chunk, at most
ACKS: Final = frozenset({"all", "1", "0"})
NONE: Final = "0"


class _Part(NamedTuple):
    """What becomes one chunk."""

    partition: int
    places: list[int]  # in the batch
    records: list[NewRecord]


class Producing:
    """One for a node."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._turn = 0  # of records without a key

    async def produce(self, call: Call) -> Response:
        body = call.json()
        _must_be_theirs(call.parameter("topic"))
        stream = find_topic(call)
        allow(call, wire.Append(stream.name, 0, b""))
        must_be_sound(stream)
        acks = _acks(call, stream)
        is_batch = "records" in body
        records = _records(call, stream, body if is_batch else {"records": [body]})
        if call.node.blocked is not None:
            text = f"publishing is blocked: {call.node.blocked}"
            raise TopicError(UNAVAILABLE, text, code="blocked")
        rows = await self._append(call, stream, records, acks)
        if all(isinstance(row, TopicError) for row in rows):
            assert isinstance(rows[0], TopicError)
            raise rows[0]
        shown = [row.as_json() if isinstance(row, TopicError) else row for row in rows]
        return json_response({"topic": stream.name, "records": shown} if is_batch else shown[0])

    async def _append(
        self, call: Call, stream: Stream, records: list[NewRecord], acks: str
    ) -> list[dict[str, Any] | TopicError]:
        """What became of each."""
        now_ms = call.node.timers.now_ms()
        parts = list(self._parts(records, len(stream.partitions)))
        requests = [
            wire.Append(stream.name, each.partition, _chunk(each, now_ms)) for each in parts
        ]
        caller = Caller(call.vhost().name, call.user.name)
        answers: list[wire.Appended | Refused]
        if acks == NONE:
            for request in requests:
                self._asker.service.append(caller, request, _forget)
            call.node.flush()
            answers = [wire.Appended(duplicate=False, offset=UNKNOWN_OFFSET)] * len(parts)
        else:
            answers = await self._asker.ask_all(caller, self._asker.service.append, requests)
        rows: dict[int, dict[str, Any] | TopicError] = {}
        for part, answer in zip(parts, answers, strict=True):
            for index, place in enumerate(part.places):
                rows[place] = _row(stream.name, part.partition, answer, index, now_ms)
        return [rows[place] for place in range(len(records))]

    def _parts(self, records: list[NewRecord], partitions: int) -> Iterator[_Part]:
        """Records of a partition stay in order, in as many chunks as it takes."""
        growing: dict[int, _Part] = {}
        sizes: dict[int, int] = {}
        for place, record in enumerate(records):
            number = self._partition(record, partitions)
            size = record.size_bytes + AROUND_BYTES
            if number in growing and sizes[number] + size > CHUNK_BYTES:
                yield growing.pop(number)
            part = growing.setdefault(number, _Part(number, [], []))
            sizes[number] = size + (sizes[number] if part.records else 0)
            part.places.append(place)
            part.records.append(record)
        yield from growing.values()

    def _partition(self, record: NewRecord, partitions: int) -> int:
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_of(record.key, partitions)
        self._turn = (self._turn + 1) % partitions
        return self._turn


def _must_be_theirs(name: str) -> None:
    """Whether or not it is there yet, as it is once a group has committed something."""
    if name in INTERNAL:
        raise TopicError(403, f"topic '{name}' is the broker's own", code="access_refused")


def _acks(call: Call, stream: Stream) -> str:
    acks = text_asked(call.request, "acks", "all")
    if acks not in ACKS:
        raise bad_request(f"acks: {acks!r} is neither all, 1 nor 0")
    clustered = call.vhost().catalog is not None
    if acks == "all" and clustered and stream.options.storage.leader_acks:
        text = f"topic {stream.name!r} has x-acks 1, by declaration or policy: ask for acks=1"
        raise TopicError(409, text, code="conflict")
    return acks


def _records(call: Call, stream: Stream, body: dict[str, Any]) -> list[NewRecord]:
    only(body, ("records",))
    given = body["records"]
    if not isinstance(given, list) or not 1 <= len(given) <= RECORDS_MAX:
        raise bad_request(f"records: a list of 1 to {RECORDS_MAX} records is needed")
    bytes_max = call.node.config.message_bytes_max
    records = [read_record(each, stream.name, bytes_max) for each in given]
    count = len(stream.partitions)
    for record in records:
        if record.partition is not None and record.partition >= count:
            text = f"topic {stream.name!r} has {count} partitions, and no {record.partition}"
            raise TopicError(404, text, code="partition_not_found")
    return records


def _chunk(part: _Part, now_ms: int) -> bytes:
    records = part.records
    return encode_chunk(
        [each.key for each in records],
        [each.value for each in records],
        [each.properties for each in records],
        now_ms,
    )


def _row(
    topic: str, partition: int, answer: wire.Appended | Refused, index: int, now_ms: int
) -> dict[str, Any] | TopicError:
    if isinstance(answer, Refused):
        return from_refusal(answer)
    known = answer.offset != UNKNOWN_OFFSET
    offset = answer.offset + index if known else None
    return {"topic": topic, "partition": partition, "offset": offset, "timestamp": now_ms}


def _forget(_: wire.Appended | Refused) -> None:
    """Nobody waits for it."""
