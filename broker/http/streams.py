"""`/api/streams`: the streams of a node, where their partitions stand, and what is in them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.http.admin import Admin, Call, bad_request
from broker.http.auth import not_authorised
from broker.http.message_json import plain_value
from broker.http.messages import Response, json_response
from broker.http.queue_calls import PAGE_MAX, query_number
from broker.http.record_json import record_json
from broker.http.staged_rows import add_staged_rows
from broker.http.stream_calls import Asker, find_stream, offsets_at
from broker.management.listing import answer_rows, by_place
from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.protocol.chunk import Record
    from broker.streams.service import StreamService
    from broker.vhost import VHost
    from queues.stream.reading import Batch

READ_BYTES: Final = 256 * 1024  # of one partition for one answer; a chunk is read whole
WAIT_MS_MAX: Final = 20_000  # for the next record; whoever wants to wait longer asks again


def add_streams(admin: Admin, service: StreamService) -> None:
    asker = Asker(service)

    async def offsets(call: Call) -> Response:
        """Where the partitions begin, end, or stand at a time: `at`."""
        find_stream(call)
        at = call.request.query.get("at", ["next"])[-1]
        found = await offsets_at(asker, call, call.parameter("name"), at)
        return json_response([{"partition": n, "offset": found[n]} for n in sorted(found)])

    admin.add("GET", "/api/streams", _list_all, lists=True)
    admin.add("GET", "/api/streams/{vhost}", _list, lists=True)
    admin.add("GET", "/api/streams/{vhost}/{name}", _describe)
    admin.add("GET", "/api/streams/{vhost}/{name}/offsets", offsets)
    admin.add("GET", "/api/streams/{vhost}/{name}/records", _records)
    add_staged_rows(admin)


async def _list_all(call: Call) -> Response:
    rows = [row for vhost in call.vhosts() for row in _rows(vhost)]
    return await answer_rows(call.request, rows, by_place)


async def _list(call: Call) -> Response:
    return await answer_rows(call.request, _rows(call.vhost()), by_place)


def _rows(vhost: VHost) -> list[dict[str, Any]]:
    return [_row(vhost, queue) for queue in vhost.queues.values() if isinstance(queue, Stream)]


def _row(vhost: VHost, stream: Stream) -> dict[str, Any]:
    sound = stream.damaged is None
    return {
        "vhost": vhost.name,
        "name": stream.name,
        "partitions": stream.options.partitions,
        "messages": stream.ready,
        "size_bytes": sum(each.size_bytes for each in stream.partitions) if sound else 0,
        "readers": stream.consumer_count,
        "damaged": stream.damaged,
    }


async def _describe(call: Call) -> Response:
    stream = find_stream(call)
    statistics = stream.statistics()
    partitions = [
        {
            "partition": found.number,
            "first_offset": found.first_offset,
            "next_offset": found.next_offset,
            "stable_offset": partition.stable_end,
            "size_bytes": found.size_bytes,
            "segments": [segment._asdict() for segment in partition.segments()],
            "trouble": found.trouble,
        }
        for found, partition in zip(statistics.partitions, stream.partitions, strict=True)
    ]
    row = _row(call.vhost(), stream) | {
        "arguments": plain_value(dict(stream.arguments)),
        "policy": stream.policy,
        "operator_policy": stream.operator_policy,
        "partitions": partitions,
        "readers": [asdict(each) for each in statistics.readers],
    }
    return json_response(row)


async def _records(call: Call) -> Response:
    """Some records `from` these offsets on (0:17,1:5 for two partitions), and where to go on."""
    stream = find_stream(call)
    if not call.user.may(call.vhost().name, "read", stream.name):
        raise not_authorised(f"read access to {stream.name!r} refused")
    positions = _positions(call, stream)
    count = query_number(call, "count", 100, least=1, most=PAGE_MAX)
    wait_ms = query_number(call, "wait_ms", 0, most=WAIT_MS_MAX)
    rows = await _read_all(call, stream, positions, count)
    if not rows and wait_ms:
        await _more(stream, positions, wait_ms)
        rows = await _read_all(call, stream, positions, count)
    following = {str(number): offset for number, offset in positions.items()}
    return json_response({"records": rows, "next": following})


def _positions(call: Call, stream: Stream) -> dict[int, int]:
    text = call.request.query.get("from", [""])[-1]
    try:
        pairs = [part.split(":") for part in text.split(",") if part]
        found = {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise bad_request(f"from: {text!r} is not like 0:17,1:5") from None
    for number, offset in found.items():
        if not 0 <= number < len(stream.partitions) or offset < 0:
            raise bad_request(f"from: there is no offset {number}:{offset}")
    return found or {n: each.first_offset for n, each in enumerate(stream.partitions)}


async def _read_all(
    call: Call, stream: Stream, positions: dict[int, int], count: int
) -> list[dict[str, Any]]:
    """Of each partition its share; `positions` move behind what was read."""
    rows: list[dict[str, Any]] = []
    share = max(1, count // len(positions))
    for number, offset in list(positions.items()):
        if stream.deleted or len(rows) >= count:
            break
        partition = stream.partitions[number]
        start = min(max(offset, partition.first_offset), partition.stable_end)
        batch = await _read(call, stream, number, start)
        if isinstance(batch, OffsetOutOfRangeError):
            positions[number] = batch.first_offset
            continue
        if isinstance(batch, StreamError):
            raise bad_request(str(batch))
        records, positions[number] = _first(batch, start, share)
        rows += [record_json(number, record) for record in records]
    return rows


def _first(batch: Batch, start: int, count: int) -> tuple[list[Record], int]:
    """The first so many records from an offset on, and where to go on."""
    records: list[Record] = []
    for chunk in batch.chunks:
        for record in chunk.slice(start, batch.next_offset):
            if len(records) == count:
                return records, record.offset
            records.append(record)
    return records, batch.next_offset


async def _read(call: Call, stream: Stream, number: int, offset: int) -> Batch | StreamError:
    found: list[Batch | StreamError] = []

    def ask(then: Callable[[], None]) -> None:
        def answer(batch: Batch | StreamError) -> None:
            found.append(batch)
            then()

        stream.partitions[number].reader.read(offset, READ_BYTES, answer)

    await call.happens(ask)
    return found[0]


async def _more(stream: Stream, positions: dict[int, int], wait_ms: int) -> None:
    """Wait until there is more than this, or the time is over."""
    woken = trio.Event()
    ends = [stream.watch(number, offset, woken.set) for number, offset in positions.items()]
    try:
        with trio.move_on_after(wait_ms / 1000):
            await woken.wait()
    finally:
        for end in ends:
            end()
