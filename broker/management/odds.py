"""Small answers that clients of RabbitMQ's management API ask for before they do anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.cluster.front import QueueFront
from broker.http.admin import Admin, Call, LedElsewhereError
from broker.http.auth import ADMINISTRATORS
from broker.http.messages import HttpError, Response, json_response
from broker.management import topology
from broker.management.access import must
from broker.management.getting import take_one
from broker.management.publishing import make_content, publish
from queues.queue import Queue

if TYPE_CHECKING:
    from broker.management.sampler import Sampler
    from queues.seams import AnyQueue

PROBE: Final = "aliveness-test"  # RabbitMQ's name for the queue, and the message


def add_odds(admin: Admin, sampler: Sampler) -> None:
    async def reset(_call: Call) -> Response:
        sampler.forget_all()
        return Response(status=204)

    admin.add("GET", "/api/extensions", _none)
    admin.add("GET", "/api/feature-flags", _none, tags=ADMINISTRATORS)
    admin.add("GET", "/api/auth", _auth)
    admin.add("GET", "/api/aliveness-test/{vhost}", _alive)
    admin.add("DELETE", "/api/reset", reset, tags=ADMINISTRATORS)


async def _none(_call: Call) -> Response:
    return json_response([])


async def _auth(_call: Call) -> Response:
    return json_response({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


async def _alive(call: Call) -> Response:
    """A message goes through a queue of the vhost, with the caller's rights."""
    vhost = call.vhost()
    must(call, "read", PROBE)
    if call.node.blocked is not None:
        raise HttpError(503, call.node.blocked)
    await topology.declare_queue(call, PROBE, durable=False, auto_delete=False, arguments={})
    queue = _here(vhost.queues[PROBE])
    await publish(call, vhost, make_content("", PROBE, b"test_message"))
    if await take_one(call, queue) is None:
        raise HttpError(503, "what was published did not come out")
    return json_response({"status": "ok"})


def _here(queue: AnyQueue) -> Queue:
    if isinstance(queue, QueueFront):
        if queue.queue is None:
            raise LedElsewhereError(f"queue {queue.name!r}", queue.leader)
        return queue.queue
    assert isinstance(queue, Queue)
    return queue
