"""Ours beyond RabbitMQ: `PATCH /api/queues/…` gives a queue other arguments while it is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.http.admin import bad_request
from broker.http.messages import Response, json_response
from broker.management import queues
from broker.management.access import must
from broker.management.fields import need, table
from broker.management.queue_rows import shown_arguments
from broker.management.topology import up_to_date
from broker.protocol.errors import access_refused
from broker.security.checks import check_new_queue
from broker.sqs.attributes import SQS
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from broker.http.admin import Admin, Call


def add_altering(admin: Admin) -> None:
    admin.add("PATCH", "/api/queues/{vhost}/{name}", _alter)


async def _alter(call: Call) -> Response:
    """`arguments` are changed one by one: a value is set, null takes an argument away."""
    vhost, body = call.vhost(), call.json()
    need(body, "arguments")
    changes = table(body)
    if SQS in changes:
        raise bad_request(f"{SQS} is what SQS keeps for itself: use SetQueueAttributes")
    await up_to_date(call, vhost)
    queue = queues.find(call)
    if queue.name in INTERNAL:
        raise access_refused(f"queue '{queue.name}' is the broker's own")
    must(call, "configure", queue.name)
    check_new_queue(call.user, vhost.name, queue.name, changes)
    vhost.queue_of(queue.name, user_of=call)
    settings = {**queue.settings, **changes}
    for name in settings.keys() - queue.arguments.keys():
        if settings[name] is None:
            del settings[name]
    if vhost.catalog is not None:
        change = ["settings", vhost.name, queue.name, queue.uid, settings]
        await call.changes(vhost.catalog, change)
    else:
        vhost.policies.alter(queue, settings)
        await call.happens(vhost.when_durable)
    return json_response({"arguments": shown_arguments(queue.arguments, settings)})
