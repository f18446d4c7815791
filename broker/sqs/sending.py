"""SendMessage and SendMessageBatch: checked, and published to the queue at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from broker.sqs.attributes import DELAY_S_MAX, MESSAGE_BYTES_MAX, limits_of
from broker.sqs.batches import Outcome, entries_of
from broker.sqs.calls import SqsCall, led_here, options_of
from broker.sqs.errors import (
    BAD_CONTENTS,
    BAD_PARAMETER,
    BATCH_TOO_LONG,
    OVER_LIMIT,
    UNAVAILABLE,
    SqsError,
    bad_parameter,
    missing,
)
from broker.sqs.message_attributes import (
    NOT_TEXT,
    Attribute,
    digest_of,
    parse_attributes,
    size_of,
)
from broker.sqs.messages import Draft, make_message, md5, sequence_number
from queues.dedup import digest_of_body, digest_of_id
from queues.message import Wishes

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.sqs.attributes import Limits
    from broker.sqs.parameters import Parameters
    from broker.vhost import VHost
    from queues.message import Message
    from queues.options import QueueOptions
    from queues.seams import AnyQueue

TRACE_NAME: Final = "AWSTraceHeader"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class Sent:
    """A message on its way, and what its sender will be told of it."""

    message: Message
    size_bytes: int  # as SQS counts it, attributes and all
    told: dict[str, Any]


async def send(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    vhost, queue = await _target(call, parameters)
    sent = _prepare(call, vhost, queue, parameters)
    (refusal,) = await _publish(call, queue, [sent])
    if refusal is not None:
        raise refusal
    return sent.told


async def send_batch(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    entries = entries_of(parameters)
    vhost, queue = await _target(call, parameters)
    outcome = Outcome()
    sent: dict[str, Sent] = {}
    for entry, its_parameters in entries.items():
        try:
            sent[entry] = _prepare(call, vhost, queue, its_parameters)
        except SqsError as error:
            outcome.failed(entry, error)
    size = sum(one.size_bytes for one in sent.values())
    if size > MESSAGE_BYTES_MAX:
        text = f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes."
        raise SqsError(BATCH_TOO_LONG, f"{text} You have sent {size} bytes.")
    if sent:
        refusals = await _publish(call, queue, list(sent.values()))
        for (entry, one), refusal in zip(sent.items(), refusals, strict=True):
            if refusal is None:
                outcome.succeeded(entry, one.told)
            else:
                outcome.failed(entry, refusal)
    return outcome.result(entries)


async def _target(call: SqsCall, parameters: Parameters) -> tuple[VHost, AnyQueue]:
    vhost, queue = await call.find(parameters)
    call.authorize("write", vhost, "")
    if options_of(queue).message_groups:
        led_here(queue)  # which knows the sequence numbers
    if call.node.blocked is not None:
        raise SqsError(UNAVAILABLE, f"Nothing can be sent now: {call.node.blocked}.")
    return vhost, queue


# Checking


def _prepare(call: SqsCall, vhost: VHost, queue: AnyQueue, parameters: Parameters) -> Sent:
    options = options_of(queue)
    limits = limits_of(options, queue.settings)
    body = _body(parameters)
    attributes = parse_attributes(parameters.table("MessageAttributes"))
    size = len(body) + size_of(attributes)
    if size > limits.message_bytes_max:
        text = "One or more parameters are invalid. Reason: Message must be shorter than"
        raise SqsError(BAD_PARAMETER, f"{text} {limits.message_bytes_max} bytes.")
    system = _system(parameters)
    draft = Draft(
        id=str(uuid4()),
        body=body,
        sender=call.http.user.name,
        attributes=attributes,
        trace=None if system is None else str(system.value),
        group=_token(parameters, "MessageGroupId"),
        dedup_id=_token(parameters, "MessageDeduplicationId"),
    )
    message = make_message(draft, queue.name, vhost.now_ms())
    message.wishes = _wishes(draft, options, limits, parameters)
    told: dict[str, Any] = {"MessageId": draft.id, "MD5OfMessageBody": md5(body)}
    if attributes:
        told["MD5OfMessageAttributes"] = digest_of(attributes)
    if system is not None:
        told["MD5OfMessageSystemAttributes"] = digest_of({TRACE_NAME: system})
    return Sent(message, size, told)


def _body(parameters: Parameters) -> bytes:
    text = parameters.text("MessageBody")
    if not text:
        raise missing("MessageBody")
    if NOT_TEXT.search(text):
        raise SqsError(BAD_CONTENTS, "Message contains invalid characters.")
    return text.encode()


def _system(parameters: Parameters) -> Attribute | None:
    table = parameters.table("MessageSystemAttributes")
    for name in table:
        if name != TRACE_NAME:
            text = f"Message system attribute name '{name:.100}' is invalid."
            raise SqsError(BAD_PARAMETER, text)
    trace = parse_attributes(table).get(TRACE_NAME)
    if trace is not None and trace.type != "String":
        raise SqsError(BAD_PARAMETER, f"{TRACE_NAME} must be of type String.")
    return trace


def _token(parameters: Parameters, name: str) -> str | None:
    """A group or an id for deduplication."""
    value = parameters.optional_text(name)
    if value is not None and not _TOKEN.match(value):
        raise bad_parameter(
            name,
            value,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )
    return value


def _wishes(
    draft: Draft, options: QueueOptions, limits: Limits, parameters: Parameters
) -> Wishes | None:
    """What the queue is asked for: a delay, or to know the message again."""
    delay_s = parameters.optional_number("DelaySeconds", least=0, most=DELAY_S_MAX)
    if not options.message_groups:
        if draft.dedup_id is not None:
            text = "The request include parameter that is not valid for this queue type."
            raise bad_parameter("MessageDeduplicationId", draft.dedup_id, text)
        return None if delay_s is None else Wishes(1000 * delay_s)
    if delay_s:
        text = "The request include parameter that is not valid for this queue type."
        raise bad_parameter("DelaySeconds", delay_s, text)
    if draft.group is None:
        raise missing("MessageGroupId")
    if draft.dedup_id is not None:
        digest = digest_of_id(draft.dedup_id.encode())
    elif options.dedup_content:
        digest = digest_of_body(draft.body)
    else:
        text = "The queue should either have ContentBasedDeduplication enabled or "
        text += "MessageDeduplicationId provided explicitly"
        raise SqsError(BAD_PARAMETER, text)
    if limits.scope == "messageGroup":
        digest = digest_of_id(digest + draft.group.encode())
    return Wishes(None, digest)


# Publishing


class _Receipt:
    """Told by the queue when messages are safe, and which of them it refused."""

    def __init__(self) -> None:
        self.refused: set[int] = set()  # by the numbers that they had when they were published
        self.then: Callable[[], None] = lambda: None
        self._over = False

    def stored(self, refused: list[Message]) -> None:
        self.refused = {message.sequence for message in refused}
        self._over = True
        self.then()

    def when_stored(self, then: Callable[[], None]) -> None:
        if self._over:
            then()
        else:
            self.then = then


async def _publish(call: SqsCall, queue: AnyQueue, sent: list[Sent]) -> list[SqsError | None]:
    """Publish all at once, and wait until they are safe: why some were refused, if they were."""
    receipt = _Receipt()
    is_fifo = options_of(queue).message_groups
    known = call.holders.duplicates
    keys = [_key(queue, one) for one in sent] if is_fifo else []
    for place, one in enumerate(sent):
        one.message.sequence = place
    queue.publish([one.message for one in sent], receipt)
    await call.http.happens(receipt.when_stored)
    if is_fifo:
        for place, (key, one) in enumerate(zip(keys, sent, strict=True)):
            if place in receipt.refused:
                continue
            if one.message.wishes is None:
                one.told["SequenceNumber"] = sequence_number(one.message)
                known.remember(key, one.told)
            else:  # a duplicate: as if it had not been sent again
                one.told.update(known.find(key))
    refused = receipt.refused
    return [_refusal(queue) if place in refused else None for place in range(len(sent))]


def _key(queue: AnyQueue, sent: Sent) -> bytes:
    wishes = sent.message.wishes
    assert wishes is not None
    assert wishes.dedup_id is not None
    return queue.uid + wishes.dedup_id


def _refusal(queue: AnyQueue) -> SqsError:
    if options_of(queue).overflow != "drop-head":
        return SqsError(OVER_LIMIT, f"Queue '{queue.name}' is full.")
    return SqsError(UNAVAILABLE, f"Queue '{queue.name}' cannot take messages now.")
