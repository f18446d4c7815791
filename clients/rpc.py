"""Calling functions in other processes: a queue of requests, and answers to whoever asked.

    async with rpc_client(connection, "calculator") as rpc:
        print(await rpc.call("add", 2, 3, timeout=5))

    await serve(connection, "calculator", {"add": lambda a, b: a + b}, concurrency=10)

Requests and answers are CBOR. A request is [function, arguments, keyword arguments], with a
correlation id; its answer is [true, value] or [false, type name, text]. Values are what CBOR knows:
numbers, texts, bytes, lists, maps, times. Nothing is ever unpickled.

A request that a server has begun when it dies is given to another server: functions may run twice.
One that nobody takes in time is never run.
"""

import inspect
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import cbor2
import trio

from clients.amqp_channel import REPLIES
from clients.amqp_errors import AMQPClientError, ReturnedError
from clients.amqp_message import Message
from clients.amqp_promise import Promise
from clients.amqp_requests import QueueName
from clients.trio_background import in_background, plain_nursery, until
from clients.trio_channel import Channel
from clients.trio_client import Connection
from clients.trio_consumer import Consumer
from clients.trio_link import settled

CONTENT_TYPE: Final = "application/cbor"
TIMEOUT_S: Final = 30.0
CONCURRENCY: Final = 10

log = logging.getLogger("leveret.rpc")


class RpcError(AMQPClientError):
    """A call that did not come back with a value."""


class RemoteError(RpcError):
    """The function raised, there. `type_name` and `text` are all that is known of it here."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text


class NobodyServesError(RpcError):
    """There is no queue of that service: no server has been started yet."""


class RpcTimeoutError(RpcError, TimeoutError):
    """No answer in time. The function may have run."""


class RpcClient:
    """Made by `rpc_client`. Any number of tasks may call at the same time."""

    def __init__(self, channel: Channel, service: str, reply_to: QueueName) -> None:
        self._channel = channel
        self._service = service
        self._reply_to = reply_to  # whose name may change with a reconnect
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Promise] = {}
        self._error: Exception | None = None

    async def call(
        self,
        function: str,
        /,
        *arguments: Any,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - also told to the broker
        **named: Any,
    ) -> Any:
        """What the function returns. Raises RemoteError, RpcTimeoutError, NobodyServesError."""
        if self._error is not None:
            raise self._error
        body = cbor2.dumps([function, list(arguments), named])
        correlation = str(next(self._numbers))
        promise = self._waiting[correlation] = Promise()
        try:
            with trio.fail_after(timeout):
                await self._channel.publish(
                    body,
                    routing_key=self._service,
                    mandatory=True,
                    content_type=CONTENT_TYPE,
                    correlation_id=correlation,
                    reply_to=str(self._reply_to),
                    expiration=str(max(1, int(timeout * 1000))),
                    delivery_mode=1,
                    type=function,
                )
                return await settled(promise)
        except trio.TooSlowError:
            raise RpcTimeoutError(f"no answer from {self._service} in {timeout} s") from None
        except ReturnedError:
            raise NobodyServesError(f"nobody serves {self._service!r}") from None
        finally:
            del self._waiting[correlation]

    async def receive(self, replies: Consumer) -> None:
        """Give answers to those who wait; late ones to nobody."""
        try:
            async for message in replies:
                promise = self._waiting.get(message.properties.correlation_id or "")
                if promise is not None and not promise.done:
                    _resolve(promise, message)
        except AMQPClientError as error:
            self._error = error
            for promise in self._waiting.values():
                if not promise.done:
                    promise.fail(error)


def _resolve(promise: Promise, message: Message) -> None:
    try:
        match cbor2.loads(message.body):
            case [True, value]:
                promise.resolve(value)
            case [False, str(type_name), str(text)]:
                promise.fail(RemoteError(type_name, text))
            case other:
                promise.fail(RpcError(f"not an answer: {other!r}"))
    except (ValueError, EOFError) as error:
        promise.fail(RpcError(f"not an answer: {error}"))


@asynccontextmanager
async def rpc_client(
    connection: Connection, service: str, *, reply_queue: bool = False
) -> AsyncIterator[RpcClient]:
    """Calls to one service, for the length of a block.

    Answers come by direct reply-to, which needs no queue; with `reply_queue` through an exclusive
    queue, for brokers and servers that do not know direct reply-to.
    """
    async with connection.channel() as channel:
        address = await channel.declare_queue() if reply_queue else REPLIES
        client = RpcClient(channel, service, address)
        async with (
            channel.consume(address, no_ack=True) as replies,
            in_background(lambda: client.receive(replies)),
        ):
            yield client


async def serve(
    connection: Connection,
    service: str,
    functions: Mapping[str, Callable[..., Any]],
    *,
    concurrency: int = CONCURRENCY,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests, at most `concurrency` at a time, until `stop` is set.

    Then no more are taken, and it returns when those under way are answered. Functions may be
    `async`; the others should be quick, or be wrapped in `trio.to_thread.run_sync`.
    """
    stop = stop if stop is not None else trio.Event()
    async with connection.channel() as channel:
        await channel.declare_queue(service, durable=False)
        async with (
            plain_nursery() as calls,
            channel.consume(service, prefetch=concurrency) as requests,
        ):
            task_status.started()
            async with until(stop):
                async for message in requests:
                    calls.start_soon(_answer, channel, functions, message)


async def _answer(
    channel: Channel, functions: Mapping[str, Callable[..., Any]], message: Message
) -> None:
    asked = message.properties
    try:
        answer = cbor2.dumps([True, await _run(functions, message.body)])
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
        answer = cbor2.dumps([False, type(error).__name__, str(error)])
        log.info("%s failed: %r", asked.type, error)
    if asked.reply_to is not None and message.live:
        await channel.publish(
            answer,
            routing_key=asked.reply_to,
            confirm=False,
            content_type=CONTENT_TYPE,
            correlation_id=asked.correlation_id,
            delivery_mode=1,
        )
    message.ack()


async def _run(functions: Mapping[str, Callable[..., Any]], body: bytes) -> Any:
    match cbor2.loads(body):
        case [str(name), list(arguments), dict(named)]:
            function = functions.get(name)
        case other:
            raise ValueError(f"not a request: {other!r}")
    if function is None:
        raise LookupError(f"no function {name!r}")
    result = function(*arguments, **named)
    if inspect.isawaitable(result):
        result = await result
    return result
