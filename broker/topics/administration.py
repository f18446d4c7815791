"""`/api/admin/topics`: topics made, listed, described and deleted. Each is a stream queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.cluster.cluster_streams import ClusterStream
from broker.http.auth import require_entry
from broker.http.messages import Response, json_response
from broker.management import topology
from broker.topics.asking import find_topic
from broker.topics.fields import name_in, number_in, only
from broker.topics.problems import TopicError
from queues.stream.arguments import PARTITIONS_MAX
from queues.stream.names import INTERNAL
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from broker.http.admin import Call

REPLICAS_MAX: Final = 99
RETENTION_MS_MAX: Final = 10**14  # some thousand years
FOR_EVER: Final = -1  # of retentionMs, as in Kafka
_KNOWN: Final = ("name", "partitions", "replicationFactor", "retentionMs")


async def create(call: Call) -> Response:
    """201 if it is new, 200 if it was there just so, 409 if it is another."""
    body = call.json()
    only(body, _KNOWN)
    name = name_in(body, "name")
    is_new = await topology.declare_queue(
        call, name, durable=True, auto_delete=False, arguments=_arguments(body)
    )
    found = call.vhost().queues.get(name)
    if not isinstance(found, Stream):
        raise TopicError(503, f"topic {name!r} was deleted meanwhile", code="unavailable")
    return json_response(_described(call, found), status=201 if is_new else 200)


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"x-queue-type": "stream"}
    partitions = number_in(body, "partitions", 1, least=1, most=PARTITIONS_MAX)
    replicas = number_in(body, "replicationFactor", None, least=1, most=REPLICAS_MAX)
    retention_ms = number_in(body, "retentionMs", None, least=FOR_EVER, most=RETENTION_MS_MAX)
    arguments["x-partitions"] = partitions
    if replicas is not None:
        arguments["x-initial-cluster-size"] = replicas
    if retention_ms is not None and retention_ms != FOR_EVER:
        arguments["x-max-age"] = f"{-(-retention_ms // 1000)}s"
    return arguments


async def list_topics(call: Call) -> Response:
    """Those that the user may read or configure."""
    await call.up_to_date()
    vhost = call.vhost()
    require_entry(call.user, vhost.name)
    rows = [
        _row(call, queue)
        for name, queue in sorted(vhost.queues.items())
        if isinstance(queue, Stream) and name not in INTERNAL and _may_see(call, name)
    ]
    return json_response(rows)


def _may_see(call: Call, name: str) -> bool:
    vhost, user = call.vhost().name, call.user
    return user.may(vhost, "read", name) or user.may(vhost, "configure", name)


async def describe(call: Call) -> Response:
    await call.up_to_date()
    name = call.parameter("topic")
    require_entry(call.user, call.vhost().name)
    if not _may_see(call, name):
        text = f"read access to '{name}' refused for user '{call.user.name}'"
        raise TopicError(403, text, code="access_refused")
    return json_response(_described(call, find_topic(call)))


async def delete(call: Call) -> Response:
    await call.up_to_date()
    require_entry(call.user, call.vhost().name)
    await topology.delete_queue(call, find_topic(call), if_unused=False, if_empty=False)
    return Response(status=204)


def _row(call: Call, stream: Stream) -> dict[str, Any]:
    replicas = len(stream.placement.groups[0]) if isinstance(stream, ClusterStream) else 1
    return {
        "name": stream.name,
        "vhost": call.vhost().name,
        "partitions": stream.options.partitions,
        "replicationFactor": replicas,
        "retentionMs": stream.options.storage.max_age_ms or FOR_EVER,
    }


def _described(call: Call, stream: Stream) -> dict[str, Any]:
    offsets = [
        {
            "partition": number,
            "firstOffset": partition.first_offset,
            "nextOffset": partition.next_offset,
            "sizeBytes": partition.size_bytes,
        }
        for number, partition in enumerate(stream.partitions)
    ]
    found = stream.damaged is None
    return _row(call, stream) | {"offsets": offsets if found else [], "damaged": stream.damaged}
