"""The short form: `POST /queue/{name}?Action=…` for curl and scripts, and a queue's configuration.

Parameters come in the URL, in a form, or as a JSON object; any other body of SendMessage is the
message itself. Answers are JSON, or XML for those who accept nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from broker.cluster.front import QueueFront
from broker.http.admin import Admin, Call, LedElsewhereError, not_found
from broker.http.auth import may_see, not_authorised
from broker.http.message_json import plain_value
from broker.http.messages import Response, json_response
from broker.protocol.errors import ChannelError
from broker.sqs import json_protocol, query_protocol
from broker.sqs.attributes import SQS, limits_of
from broker.sqs.errors import BAD_CONTENTS, SqsError
from broker.sqs.names import DEFAULT_VHOST, Place, url_path
from queues.options import QueueOptions

if TYPE_CHECKING:
    from types import ModuleType

    from broker.http.messages import Request
    from broker.http.router import Router
    from broker.sqs.door import Sqs
    from broker.vhost import VHost
    from queues.seams import AnyQueue

JSON_TYPE = "application/json"


def add_short_form(admin: Admin, router: Router, sqs: Sqs) -> None:
    async def answer(request: Request) -> Response:
        return await _answer(sqs, request)

    router.add("POST", "/queue/{name}", answer, listed=False)
    admin.add("GET", "/queues/{name}/config", _config)


async def _answer(sqs: Sqs, request: Request) -> Response:
    request_id = str(uuid4())
    wants_xml = "xml" in request.headers.get("accept", "")
    protocol: ModuleType = query_protocol if wants_xml else json_protocol
    vhost = request.query.get("vhost", [DEFAULT_VHOST])[-1]
    try:
        user, region = await sqs.log_in(request)
        action, values = _parse(request)
        name = request.parameters["name"]
        if action in ("CreateQueue", "GetQueueUrl"):
            values["QueueName"] = name
        else:
            values["QueueUrl"] = url_path(Place(vhost, name))
        result = await sqs.perform(request, user, region, vhost, action, values)
        response: Response = protocol.result(action, result, request_id)
    except SqsError as error:
        response = protocol.error(error, request_id)
    return response


def _parse(request: Request) -> tuple[str, dict[str, Any]]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    is_form = content_type == query_protocol.FORM_TYPE
    action, values = query_protocol.parse(request if is_form else replace(request, body=b""))
    values.pop("vhost", None)
    if not request.body or is_form:
        return action, values
    if content_type in (JSON_TYPE, json_protocol.CONTENT_TYPE):
        return action, values | json_protocol.parse_object(request.body)
    if action == "SendMessage":
        try:
            values["MessageBody"] = request.body.decode()
        except UnicodeDecodeError:
            raise SqsError(BAD_CONTENTS, "The message is not UTF-8.") from None
    return action, values


# A queue's configuration


async def _config(call: Call) -> Response:
    """What a queue is and what is bound to it."""
    name = call.request.query.get("vhost", [DEFAULT_VHOST])[-1]
    vhost = call.node.vhosts.get(name)
    if vhost is None:
        raise not_found(f"there is no vhost {name!r}")
    if not may_see(call.user, name):
        raise not_authorised("User not authorised to access virtual host")
    try:
        queue = vhost.queue_of(call.parameter("name"), user_of=call)
    except ChannelError as error:
        raise not_found(error.text) from None
    leader = queue.leader if isinstance(queue, QueueFront) and queue.queue is None else None
    if leader is not None and not call.passed_on:  # else what is known here has to do
        raise LedElsewhereError(f"queue {queue.name!r}", leader)
    return json_response(_shown(vhost, queue))


def _shown(vhost: VHost, queue: AnyQueue) -> dict[str, object]:
    effective = {
        option: getattr(queue.options, option)
        for option in type(queue.options).__dataclass_fields__
    }
    if isinstance(queue.options, QueueOptions) and SQS in queue.settings:
        limits = limits_of(queue.options, queue.settings)
        effective["visibility_timeout_ms"] = limits.visibility_ms  # with SQS's own default
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue.options.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": plain_value(dict(queue.arguments)),
        "settings": plain_value(dict(queue.settings)),
        "consumers": queue.consumer_count,
        "messages": queue.ready + queue.unacked,
        "messages_ready": queue.ready,
        "messages_unacknowledged": queue.unacked,
        "policy": queue.policy,
        "operator_policy": queue.operator_policy,
        "effective": plain_value(effective),
        "is_fifo": isinstance(queue.options, QueueOptions) and queue.options.message_groups,
        "bindings": _bindings(vhost, queue),
    }


def _bindings(vhost: VHost, queue: AnyQueue) -> list[dict[str, object]]:
    return [
        {
            "source": exchange.name,
            "routing_key": binding.key,
            "arguments": plain_value(dict(binding.arguments)),
        }
        for exchange in vhost.exchanges.values()
        for binding in exchange.bindings()
        if binding.destination is queue
    ]
