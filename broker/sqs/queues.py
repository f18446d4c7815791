"""Queues made, found, listed, changed, tagged, emptied and deleted."""

from __future__ import annotations

import base64
import binascii
import heapq
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from broker.sqs.attributes import (
    COUNTS,
    TAGS_MAX,
    Draft,
    differing,
    may_send_dead_letters,
    new_queue,
    redrive_of,
    set_attributes,
    shown,
    sqs_of,
    wanted_names,
)
from broker.sqs.calls import SqsCall, led_here, options_of
from broker.sqs.errors import (
    BAD_PARAMETER,
    QUEUE_EXISTS,
    UNSUPPORTED,
    SqsError,
    bad_parameter,
    missing,
)
from broker.sqs.names import FIFO_SUFFIX, check_new_name
from queues.options import QueueOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from broker.sqs.parameters import Parameters
    from broker.vhost import VHost
    from queues.seams import AnyQueue

PAGE_MAX: Final = 1000
TAG_KEY_CHARS_MAX: Final = 128
TAG_VALUE_CHARS_MAX: Final = 256


# Made and found


async def create(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    name, attributes = parameters.text("QueueName"), parameters.text_table("Attributes")
    tags = parameters.text_table("tags")
    vhost = call.vhost
    call.authorize("configure", vhost, name)
    if name not in vhost.queues and vhost.catalog is not None:
        await call.http.succeeds(vhost.catalog.read)
    if name not in vhost.queues:
        await _make(call, vhost, name, attributes, tags)
    queue = call.known_queue(vhost, name)  # perhaps another client's, who was first
    there = shown(name, options_of(queue), queue.settings, call.region)
    different = differing(attributes, there)
    if different is not None:
        text = "A queue already exists with the same name and a different value for attribute"
        raise SqsError(QUEUE_EXISTS, f"{text} {different}")
    return {"QueueUrl": call.url_of(vhost, name)}


async def _make(
    call: SqsCall, vhost: VHost, name: str, attributes: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    check_new_name(name)
    draft = new_queue(attributes)
    if draft.fifo != name.endswith(FIFO_SUFFIX):
        text = "The name of a FIFO queue, and of no other, must end with the .fifo suffix."
        raise bad_parameter("QueueName", name, text)
    _check_redrive(call, vhost, name, draft)
    if tags:
        draft.sqs["tags"] = _checked_tags(tags)
    settings = draft.finished(vhost.now_ms())
    vhost.admit_definition()
    if vhost.catalog is None:
        queue = vhost.declare_queue(
            name, durable=True, auto_delete=False, owner=None, arguments={}, user_of=call
        )
        vhost.policies.alter(queue, settings)
        await call.http.happens(vhost.when_durable)
        return
    options = vhost.options_for_new(name, {}, durable=True, auto_delete=False, exclusive=False)
    placement = vhost.catalog.place(options, {}, lasting=True)
    change = [
        *("queue", vhost.name, name, uuid4().bytes, False, options.type, {}),
        *(True, None, placement.encode(), settings),
    ]
    await call.http.changes(vhost.catalog, change)


def _check_redrive(call: SqsCall, vhost: VHost, name: str, draft: Draft) -> None:
    """A dead letter queue must be there, be of the same kind, and let this one use it."""
    if draft.redrive is None:
        return
    call.authorize("read", vhost, name)
    call.authorize("write", vhost, "")
    target = vhost.queues.get(draft.redrive)
    if target is None or not isinstance(target.options, QueueOptions):
        raise bad_parameter("RedrivePolicy", draft.redrive, "Dead letter target does not exist.")
    if target.options.message_groups != draft.fifo:
        text = "Dead-letter queue must be same type of queue as the source."
        raise bad_parameter("RedrivePolicy", draft.redrive, text)
    if not may_send_dead_letters(target.settings, name):
        text = "The RedriveAllowPolicy of the dead letter queue does not allow it."
        raise bad_parameter("RedrivePolicy", draft.redrive, text)


async def get_url(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    queue = await call.queue(call.vhost, parameters.text("QueueName"))
    return {"QueueUrl": call.url_of(call.vhost, queue.name)}


async def list_queues(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    prefix = parameters.optional_text("QueueNamePrefix") or ""
    queues = call.vhost.queues.values()
    names = (q.name for q in queues if q.name.startswith(prefix) and _is_shown(q))
    page, token = _page(names, parameters)
    urls = [call.url_of(call.vhost, name) for name in page]
    return {"QueueUrls": urls, **token} if urls else {}  # as AWS does


def _is_shown(queue: AnyQueue) -> bool:
    return queue.owner is None and isinstance(queue.options, QueueOptions)


def _page(names: Iterable[str], parameters: Parameters) -> tuple[list[str], dict[str, str]]:
    """The names of one page, and what asks for the next one, if there is one."""
    count = parameters.number("MaxResults", PAGE_MAX, least=1, most=PAGE_MAX)
    after = _after(parameters.optional_text("NextToken"))
    behind = (name for name in names if after is None or name > after)
    page = heapq.nsmallest(count + 1, behind)
    if len(page) <= count or "MaxResults" not in parameters:
        return page[:count], {}
    raw = page[count - 1].encode("utf-8", "surrogateescape")
    return page[:count], {"NextToken": base64.urlsafe_b64encode(raw).decode()}


def _after(token: str | None) -> str | None:
    if not token:
        return None
    try:
        raw = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SqsError(BAD_PARAMETER, "Invalid or expired next token.") from None
    return raw.decode("utf-8", "surrogateescape")


async def list_sources(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    """The queues whose dead letters go to this one."""
    vhost, target = await call.find(parameters)
    page, token = _page(sources_of(vhost, target.name), parameters)
    result: dict[str, Any] = {"queueUrls": [call.url_of(vhost, name) for name in page]}
    return result | token


def sources_of(vhost: VHost, target: str) -> list[str]:
    found = []
    for queue in vhost.queues.values():
        if _is_shown(queue):
            redrive = redrive_of(options_of(queue))
            if redrive is not None and redrive[0] == target:
                found.append(queue.name)
    return found


async def delete(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    vhost, name = call.place(parameters)
    call.authorize("configure", vhost, name)
    queue = await call.queue(vhost, name)
    if vhost.catalog is None:
        vhost.delete_queue(name, if_unused=False, if_empty=False, user_of=call)
        await call.http.happens(vhost.when_durable)
    else:
        await call.http.changes(vhost.catalog, ["-queue", vhost.name, name, queue.uid])
    return {}


async def purge(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    vhost, queue = await call.find(parameters)
    call.authorize("read", vhost, queue.name)
    here = led_here(queue)
    call.holders.of(here).purge()
    await call.http.happens(here.when_stored)
    return {}


# Attributes and tags


async def get_attributes(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    _, queue = await call.find(parameters)
    wanted = wanted_names(parameters.texts("AttributeNames"))
    found = shown(queue.name, options_of(queue), queue.settings, call.region)
    if wanted is None or wanted & set(COUNTS):
        here = led_here(queue)
        counts = (here.ready, here.unacked, here.away.delayed_count)
        found |= dict(zip(COUNTS, map(str, counts), strict=True))
    if wanted is not None:
        found = {name: value for name, value in found.items() if name in wanted}
    return {"Attributes": found} if found else {}


async def set_queue_attributes(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    attributes = parameters.text_table("Attributes")
    if not attributes:
        raise missing("Attributes")

    def change(vhost: VHost, name: str, draft: Draft) -> None:
        set_attributes(draft, attributes)
        _check_redrive(call, vhost, name, draft)

    return await _alter(call, parameters, change)


async def tag(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    tags = parameters.text_table("Tags")
    if not tags:
        raise missing("Tags")

    def change(_vhost: VHost, _name: str, draft: Draft) -> None:
        draft.sqs["tags"] = _checked_tags({**draft.sqs.get("tags", {}), **tags})

    return await _alter(call, parameters, change)


async def untag(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    keys = parameters.texts("TagKeys")
    if not keys:
        raise missing("TagKeys")

    def change(_vhost: VHost, _name: str, draft: Draft) -> None:
        tags = draft.sqs.get("tags", {})
        draft.sqs["tags"] = {key: value for key, value in tags.items() if key not in keys}

    return await _alter(call, parameters, change)


async def list_tags(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    _, queue = await call.find(parameters)
    tags = sqs_of(queue.settings).get("tags", {})
    return {"Tags": dict(tags)} if tags else {}


def _checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        raise bad_parameter("Tags", len(tags), f"Too many tags: a queue can have {TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX or len(value) > TAG_VALUE_CHARS_MAX:
            text = f"A key has 1 to {TAG_KEY_CHARS_MAX} characters, a value up to "
            raise bad_parameter("Tags", key, f"{text}{TAG_VALUE_CHARS_MAX}.")
    return dict(tags)


async def _alter(
    call: SqsCall, parameters: Parameters, change: Callable[[VHost, str, Draft], None]
) -> dict[str, Any]:
    """Change a queue's settings: on its leader, one after another, so that none is lost."""
    vhost, queue = await call.find(parameters)
    call.authorize("configure", vhost, queue.name)
    led_here(queue)
    async with call.holders.altering:
        queue = call.known_queue(vhost, queue.name)
        draft = Draft(queue.settings, fifo=options_of(queue).message_groups)
        change(vhost, queue.name, draft)
        settings = draft.finished(vhost.now_ms())
        if vhost.catalog is None:
            vhost.policies.alter(queue, settings)
            await call.http.happens(vhost.when_durable)
        else:
            details = ["settings", vhost.name, queue.name, queue.uid, settings]
            await call.http.changes(vhost.catalog, details)
    return {}


async def refuse_permissions(_call: SqsCall, _parameters: Parameters) -> dict[str, Any]:
    """AddPermission and RemovePermission."""
    text = "Who may do what is decided by the permissions of users."
    raise SqsError(UNSUPPORTED, text)
