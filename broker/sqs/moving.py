"""Message move tasks: dead letters on their way back, or to another queue, in the background.

A task lives on the node that leads the queue which it empties, and ends with that: messages that it
has not moved stay where they are.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import trio

from broker import logs
from broker.http.messages import HttpError
from broker.http.queue_calls import peek
from broker.internal_errors import BACKGROUND
from broker.protocol.errors import AMQPError
from broker.replay import Undertaker
from broker.sqs.calls import SqsCall, led_here
from broker.sqs.errors import BAD_PARAMETER, NOT_FOUND, UNSUPPORTED, SqsError, bad_parameter
from broker.sqs.names import name_in_arn
from broker.sqs.queues import sources_of

if TYPE_CHECKING:
    from broker.http.admin import Call
    from broker.sqs.parameters import Parameters
    from broker.vhost import VHost
    from queues.queue import Queue
    from queues.seams import AnyQueue

RATE_MAX: Final = 500  # messages a second, which a client may ask for
WINDOW: Final = 500  # messages under way at a time
TASKS_SHOWN: Final = 10  # of a queue, the last ones

_log = logs.get("sqs")


@dataclass(slots=True)
class Task:
    """One task, and how far it is."""

    source: str
    destination: str | None
    rate: int | None
    started_ms: int
    to_move: int
    handle: str
    moved: int = 0
    status: str = "RUNNING"
    reason: str | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def is_running(self) -> bool:
        return self.status in ("RUNNING", "CANCELLING")

    def shown(self, call: SqsCall) -> dict[str, Any]:
        row: dict[str, Any] = {
            "Status": self.status,
            "SourceArn": call.arn_of(self.source),
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "StartedTimestamp": self.started_ms,
        }
        if self.status == "RUNNING":
            row["TaskHandle"] = self.handle
        if self.destination is not None:
            row["DestinationArn"] = call.arn_of(self.destination)
        if self.rate is not None:
            row["MaxNumberOfMessagesPerSecond"] = self.rate
        if self.reason is not None:
            row["FailureReason"] = self.reason
        return row


class Tasks:
    """Of the queues that this node leads."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, list[Task]] = {}  # by uid, the newest first
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let tasks run in the background."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def of(self, queue: AnyQueue) -> list[Task]:
        return self._tasks.get(queue.uid, [])

    def start(self, call: Call, vhost: VHost, queue: Queue, task: Task) -> None:
        assert self._nursery is not None
        self._tasks[queue.uid] = [task, *self.of(queue)][:TASKS_SHOWN]
        self._nursery.start_soon(self._carry_out, call, vhost, queue, task)

    async def _carry_out(self, call: Call, vhost: VHost, queue: Queue, task: Task) -> None:
        try:
            with task.scope:
                await _move(call, vhost, queue, task)
            task.status = "CANCELLED" if task.scope.cancelled_caught else "COMPLETED"
        except (AMQPError, HttpError) as error:
            _log.warning("move_failed", queue=queue.name, reason=str(error))
            task.status, task.reason = "FAILED", str(error)
        except Exception as error:  # noqa: BLE001 - it ends this task, and nothing else
            call.node.errors.note(BACKGROUND, error, queue=queue.name)
            task.status, task.reason = "FAILED", "internal error, see the node's log"
        if queue.deleted:
            self._tasks.pop(queue.uid, None)


async def _move(call: Call, vhost: VHost, queue: Queue, task: Task) -> None:
    """All messages that were there at the beginning, as many a second as was asked for."""
    after, end = -1, queue.next_sequence
    while not queue.deleted:
        target = None
        if task.destination is not None:
            target = vhost.writable_queue(task.destination, user_of=task)
        began = trio.current_time()
        messages = await peek(call, queue, after, min(task.rate or WINDOW, WINDOW))
        window = [message.sequence for message in messages if message.sequence < end]
        if not window:
            return
        after = window[-1]
        undertaker = Undertaker(vhost, queue, lambda _name: call.user.may(vhost.name, "write", ""))
        if target is None:
            move = partial(undertaker.replay, window)
        else:
            move = partial(undertaker.move, window, target)
        with trio.CancelScope(shield=True):  # what is out of the queue is seen through
            await call.happens(move)
        task.moved += undertaker.done
        if task.rate is not None:
            await trio.sleep_until(began + len(window) / task.rate)


# Calls


async def start(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    vhost, source = call.vhost, name_in_arn(parameters.text("SourceArn"), "SourceArn")
    call.authorize("read", vhost, source)
    call.authorize("write", vhost, "")
    queue = await _source(call, source)
    if not sources_of(vhost, source):
        text = "Source queue must be configured as a Dead Letter Queue."
        raise SqsError(BAD_PARAMETER, text)
    rate = parameters.optional_number("MaxNumberOfMessagesPerSecond", least=1, most=RATE_MAX)
    arn = parameters.optional_text("DestinationArn")
    destination = None if arn is None else name_in_arn(arn, "DestinationArn")
    if destination == source:
        raise bad_parameter("DestinationArn", arn, "It is the source.")
    if destination is not None:
        await _source(call, destination)
    here = led_here(queue)
    if any(task.is_running for task in call.tasks.of(here)):
        text = "There is already a task running. Only one active task is allowed for a source"
        raise SqsError(UNSUPPORTED, f"{text} queue arn at a given time.")
    handle = _encode_handle(source)
    task = Task(source, destination, rate, vhost.now_ms(), here.ready, handle)
    call.tasks.start(call.http, vhost, here, task)
    return {"TaskHandle": handle}


async def _source(call: SqsCall, name: str) -> AnyQueue:
    """A queue that an ARN names; in these calls it is a resource like others."""
    try:
        return await call.queue(call.vhost, name)
    except SqsError as error:
        text = "The resource that you specified for the SourceArn parameter doesn't exist."
        raise SqsError(NOT_FOUND, text) from error


async def list_tasks(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    source = name_in_arn(parameters.text("SourceArn"), "SourceArn")
    count = parameters.number("MaxResults", 1, least=1, most=TASKS_SHOWN)
    queue = led_here(await _source(call, source))
    return {"Results": [task.shown(call) for task in call.tasks.of(queue)[:count]]}


async def cancel(call: SqsCall, parameters: Parameters) -> dict[str, Any]:
    handle = parameters.text("TaskHandle")
    source = _decode_handle(handle)
    call.authorize("read", call.vhost, source)
    queue = led_here(await _source(call, source))
    for task in call.tasks.of(queue):
        if task.handle == handle and task.is_running:
            task.status = "CANCELLING"
            task.scope.cancel()
            return {"ApproximateNumberOfMessagesMoved": task.moved}
    raise SqsError(NOT_FOUND, "Task does not exist, or is not running any more.")


def _encode_handle(source: str) -> str:
    handle = json.dumps({"taskId": str(uuid4()), "source": source})
    return base64.urlsafe_b64encode(handle.encode()).decode()


def _decode_handle(handle: str) -> str:
    """The queue that a task empties."""
    try:
        raw = base64.b64decode(handle.encode("ascii"), altchars=b"-_", validate=True)
        source = json.loads(raw)["source"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        source = None
    if not isinstance(source, str):
        raise SqsError(BAD_PARAMETER, "The task handle is not valid.")
    return source
