"""`/api/stream-groups`: consumer groups of streams: members, offsets, lag; and setting these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.http.admin import Admin, Call, bad_request
from broker.http.auth import not_authorised
from broker.http.messages import Response, json_response
from broker.http.stream_calls import Asker, offsets_at
from broker.protocol import stream_messages as wire

if TYPE_CHECKING:
    from broker.streams.service import StreamService


def add_stream_groups(admin: Admin, service: StreamService) -> None:
    asker = Asker(service)

    async def list_groups(call: Call) -> Response:
        found = await asker.ask(call, service.list_groups, wire.Empty())
        return json_response([each._asdict() for each in found.groups])

    async def describe(call: Call) -> Response:
        request = wire.DescribeGroup(call.parameter("group"))
        found = await asker.ask(call, service.describe_group, request)
        return json_response({"group": request.group, **_description(found)})

    async def reset(call: Call) -> Response:
        """Set offsets of a group without members: `stream`, and `to` or `offsets`."""
        group, stream = call.parameter("group"), call.json().get("stream")
        if not isinstance(stream, str):
            raise bad_request('"stream" is needed')
        _must_read(call, group, stream)
        offsets = await _wanted(asker, call, stream)
        positions = tuple(
            wire.Position(wire.Partition(stream, number), offset)
            for number, offset in sorted(offsets.items())
        )
        await asker.ask(call, service.reset_offsets, wire.ResetOffsets(group, positions))
        rows = [{"partition": number, "offset": offsets[number]} for number in sorted(offsets)]
        return json_response(rows)

    admin.add("GET", "/api/stream-groups/{vhost}", list_groups)
    admin.add("GET", "/api/stream-groups/{vhost}/{group}", describe)
    admin.add("POST", "/api/stream-groups/{vhost}/{group}/offsets", reset)


def _must_read(call: Call, *names: str) -> None:
    vhost = call.vhost().name
    for name in names:
        if not call.user.may(vhost, "read", name):
            raise not_authorised(f"read access to {name!r} refused")


async def _wanted(asker: Asker, call: Call, stream: str) -> dict[int, int]:
    """Offsets by partition: as they are given, or at a place or time in those that are named."""
    body = call.json()
    partitions, to, offset = (body.get(key) for key in ("partitions", "to", "offset"))
    if (to is None) == (offset is None):
        raise bad_request('either "to" or "offset" is needed')
    edges = await offsets_at(asker, call, stream, "next" if to is None else str(to))
    numbers = list(edges) if partitions is None else partitions
    if not isinstance(numbers, list) or not all(number in edges for number in numbers):
        raise bad_request(f"partitions: {partitions!r} is not a list of numbers of partitions")
    if to is not None:
        return {number: edges[number] for number in numbers}
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise bad_request(f"offset: {offset!r} is not an offset")
    return dict.fromkeys(numbers, offset)


def _description(found: wire.GroupDescription) -> dict[str, Any]:
    return {
        "generation": found.generation,
        "members": [
            {
                "member": each.member,
                "instance": each.instance,
                "streams": list(each.streams),
                "assigned": [list(partition) for partition in each.assigned],
                "leaving": [list(partition) for partition in each.leaving],
            }
            for each in found.members
        ],
        "offsets": [
            {
                **each.committed.partition._asdict(),
                "offset": each.committed.offset,
                "next_offset": each.next_offset,
                "lag": max(0, each.next_offset - each.committed.offset),
                "at_ms": each.committed.at_ms,
            }
            for each in found.offsets
        ],
    }
