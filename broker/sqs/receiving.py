"""ReceiveMessage, DeleteMessage, ChangeMessageVisibility, and the batches of these."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.cluster.front import QueueFront
from broker.http.admin import LedElsewhereError
from broker.http.long_poll import while_connected
from broker.internal_errors import HTTP
from broker.sqs.attributes import VISIBILITY_S_MAX, WAIT_S_MAX, limits_of
from broker.sqs.batches import Outcome, entries_of
from broker.sqs.calls import SqsCall, led_here, options_of
from broker.sqs.errors import (
    ACCESS_DENIED,
    BAD_PARAMETER,
    NOT_IN_FLIGHT,
    OVER_LIMIT,
    SqsError,
    bad_parameter,
    missing,
)
from broker.sqs.holding import IN_FLIGHT_MAX
from broker.sqs.messages import SYSTEM_ATTRIBUTES, Seen, bare, show
from broker.sqs.receipts import decode_handle, expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.sqs.holding import Holder
    from broker.sqs.parameters import Parameters
    from broker.sqs.receipts import Held, Receipt
    from queues.queue import Queue
    from queues.seams import AnyQueue

MESSAGES_MAX: Final = 10
NAMES_MAX: Final = 100  # of attributes that a receiver may ask for
# In a cluster a receiver asks anew so often: the queue may have another leader, and one that
# waits on another node for a client that went does no harm for long.
SLICE_S: Final = 1.0
LOOK_S: Final = 0.1  # while a queue has no leader
LOADING_S: Final = 10.0  # for messages that are there, and on their way from the disk
_LEAST_LEASE_MS: Final = 1  # stands for no time at all


async def receive(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    """Wait as long as the client does. If it goes meanwhile, nothing is taken for it."""
    vhost, queue = await call.find(parameters)
    call.authorize("read", vhost, queue.name)
    limits = limits_of(options_of(queue), queue.settings)
    wait_s = parameters.number("WaitTimeSeconds", limits.wait_s, least=0, most=WAIT_S_MAX)
    order = _Order(parameters, limits.visibility_ms)
    once = partial(_receive_once, call, queue, parameters, order)
    until = trio.current_time() + wait_s
    if not wait_s or not isinstance(queue, QueueFront) or queue.queue is not None:
        found = await once(0)  # most often there is something
        if found or not wait_s:
            return _result(found)

    async def wait() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not found and (left_s := until - trio.current_time()) > 0:
            found = await once(min(left_s, SLICE_S) if vhost.catalog is not None else left_s)
        return found

    return _result(await while_connected(call.hangup, wait))


def _result(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Messages": messages} if messages else {}  # as AWS does


class _Order:
    """What a receiver wants."""

    def __init__(self, parameters: Parameters, visibility_ms: int) -> None:
        self.count = parameters.number("MaxNumberOfMessages", 1, least=1, most=MESSAGES_MAX)
        seconds = parameters.optional_number("VisibilityTimeout", least=0, most=VISIBILITY_S_MAX)
        lease_ms = visibility_ms if seconds is None else 1000 * seconds
        self.lease_ms = lease_ms or _LEAST_LEASE_MS
        self.system = frozenset(
            parameters.texts("MessageSystemAttributeNames") + parameters.texts("AttributeNames")
        )
        for name in self.system:
            if name != "All" and name not in SYSTEM_ATTRIBUTES:
                raise SqsError(BAD_PARAMETER, f"Unknown Attribute {name:.100}.")
        self.attributes = frozenset(parameters.texts("MessageAttributeNames"))
        if len(self.attributes) > NAMES_MAX:
            raise bad_parameter("MessageAttributeNames", len(self.attributes), "Too many.")


async def _receive_once(
    call: SqsCall, queue: AnyQueue, parameters: Parameters, order: _Order, wait_s: float
) -> list[dict[str, Any]]:
    call.known_queue(call.place(parameters)[0], queue.name)  # it may be gone since
    try:
        here = led_here(queue)
    except LedElsewhereError as error:
        return await _receive_elsewhere(call, error, parameters, wait_s)
    if here.has_exclusive_consumer:
        raise SqsError(ACCESS_DENIED, f"Queue '{here.name}' is in exclusive use.")
    holder = call.holders.of(here)
    if len(holder.receipts) >= IN_FLIGHT_MAX:
        text = f"There are {IN_FLIGHT_MAX} messages in flight."
        raise SqsError(OVER_LIMIT, f"{text} Delete those that are done.")
    now_ms = call.node.timers.now_ms()
    with holder.receiving(order.count, order.lease_ms, now_ms) as receiver:
        call.node.flush()
        if not receiver.taken:
            with trio.move_on_after(max(wait_s, LOADING_S if here.is_loading else 0)):
                await receiver.over.wait()
    call.node.flush()
    return [_shown(call, here, held, order) for held in receiver.taken]


async def _receive_elsewhere(
    call: SqsCall, error: LedElsewhereError, parameters: Parameters, wait_s: float
) -> list[dict[str, Any]]:
    """The next slice may find another leader; who does not wait is told that there is none."""
    if call.http.passed_on or (error.node is None and not wait_s):
        raise error
    values = {**parameters.values, "WaitTimeSeconds": ceil(wait_s)}
    result: dict[str, Any] = {}
    try:
        if error.node is not None:
            result = await call.carry(error.node, call, "ReceiveMessage", values)
        else:
            await trio.sleep(min(wait_s, LOOK_S))
    except LedElsewhereError:
        if not wait_s:
            raise
        await trio.sleep(min(wait_s, LOOK_S))
    messages: list[dict[str, Any]] = result.get("Messages", [])
    return messages


def _shown(call: SqsCall, queue: Queue, held: Held, order: _Order) -> dict[str, Any]:
    options = queue.options
    seen = Seen(
        now_ms=held.received_ms,
        first_ms=held.first_ms,
        region=call.region,
        queue=queue.name,
        grouped=options.message_groups,
        dedup_content=options.dedup_content,
    )
    handle = held.receipt.encode()
    try:
        return show(
            held.message,
            queue.uid,
            handle,
            seen,
            system=order.system,
            attributes=order.attributes,
        )
    except Exception as error:  # noqa: BLE001 - the others of the batch are leased already
        call.node.errors.note(HTTP, error, queue=queue.name)
        return bare(held.message, queue.uid, handle)


# Deleting


async def delete(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    holder = await _holder(call, parameters)
    (error,) = await _delete(call, holder, [_handle(parameters)])
    if error is not None:
        raise error
    return {}


async def delete_batch(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    entries = entries_of(parameters)
    holder = await _holder(call, parameters)
    errors = await _delete(call, holder, [_handle(entry) for entry in entries.values()])
    outcome = Outcome()
    for entry, error in zip(entries, errors, strict=True):
        if error is None:
            outcome.succeeded(entry)
        else:
            outcome.failed(entry, error)
    return outcome.result(entries)


async def _holder(call: SqsCall, parameters: Parameters) -> Holder:
    vhost, queue = await call.find(parameters)
    call.authorize("read", vhost, queue.name)
    return call.holders.of(led_here(queue))


def _handle(parameters: Parameters) -> str:
    handle = parameters.text("ReceiptHandle")
    if not handle:
        raise missing("ReceiptHandle")
    return handle


async def _delete(call: SqsCall, holder: Holder, handles: list[str]) -> list[SqsError | None]:
    """Delete all at once; for each why not, or None. They are gone for good when this returns."""
    receipts: list[Receipt | SqsError] = []
    for handle in handles:
        try:
            receipts.append(decode_handle(handle, holder.queue.uid))
        except SqsError as error:
            receipts.append(error)
    good = {receipt for receipt in receipts if not isinstance(receipt, SqsError)}
    held = [one for one in map(holder.receipts.find, good) if one is not None]
    holder.delete(held)
    gone = {one.receipt for one in held}
    gone |= {receipt for receipt in good if holder.receipts.was_deleted(receipt)}
    late = [receipt for receipt in good - gone if _may_be_late(holder, receipt)]

    def finish(then: Callable[[], None]) -> None:
        def dropped(receipts: set[Receipt]) -> None:
            gone.update(receipts)
            holder.queue.when_stored(then)

        if late:
            holder.delete_late(late, dropped)
        else:
            dropped(set())

    await call.http.happens(finish)
    return [
        receipt if isinstance(receipt, SqsError) else None if receipt in gone else expired(handle)
        for receipt, handle in zip(receipts, handles, strict=True)
    ]


def _may_be_late(holder: Holder, receipt: Receipt) -> bool:
    """Its message may wait again. In a FIFO queue, as AWS has it, that is too late."""
    if holder.receipts.supersedes(receipt):
        return False
    same_session = receipt.session == holder.receipts.session
    return not (same_session and holder.queue.options.message_groups)


# Visibility


async def change_visibility(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    holder = await _holder(call, parameters)
    change = _Change(call, holder)
    change.add(parameters)
    await change.carry_out()
    return {}


async def change_visibility_batch(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    entries = entries_of(parameters)
    holder = await _holder(call, parameters)
    change = _Change(call, holder)
    outcome = Outcome()
    for name, entry in entries.items():
        try:
            change.add(entry)
            outcome.succeeded(name)
        except SqsError as error:
            outcome.failed(name, error)
    await change.carry_out()
    return outcome.result(entries)


class _Change:
    """Leases made longer or shorter; those that end now end together."""

    def __init__(self, call: SqsCall, holder: Holder) -> None:
        self._call = call
        self._holder = holder
        self._ending: list[Held] = []

    def add(self, parameters: Parameters) -> None:
        """Raises SqsError."""
        if "VisibilityTimeout" not in parameters:
            raise missing("VisibilityTimeout")
        seconds = parameters.number("VisibilityTimeout", 0, least=0, most=VISIBILITY_S_MAX)
        handle, holder = _handle(parameters), self._holder
        receipt = decode_handle(handle, holder.queue.uid)
        held = holder.receipts.find(receipt)
        if held is None:
            if holder.receipts.supersedes(receipt):
                raise expired(handle)
            raise SqsError(NOT_IN_FLIGHT, "The message referred to is not in flight.")
        lasted_ms = self._call.node.timers.now_ms() - held.received_ms
        if lasted_ms + 1000 * seconds > 1000 * VISIBILITY_S_MAX:
            text = (
                f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX}"
            )
            raise bad_parameter("VisibilityTimeout", seconds, f"{text} seconds].")
        if seconds:
            holder.extend(held, 1000 * seconds)
        else:
            self._ending.append(held)

    async def carry_out(self) -> None:
        if self._ending:
            self._holder.release(self._ending)
            await self._call.http.happens(self._holder.queue.when_stored)
