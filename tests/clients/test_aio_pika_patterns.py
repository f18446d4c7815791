"""aio-pika's ready-made patterns and request-reply by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.patterns import RPC, Master

FreshName = Callable[[str], str]
DEADLINE_S = 30
REPLY_TO = "amq.rabbitmq.reply-to"


def run(main: Coroutine) -> None:
    asyncio.run(asyncio.wait_for(main, DEADLINE_S))


async def reverse_requests(
    channel: aio_pika.abc.AbstractChannel, queue: aio_pika.abc.AbstractQueue
) -> None:
    """Answer every request in ``queue`` with its body reversed."""

    async def answer(request: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with request.process():
            reply = Message(request.body[::-1], correlation_id=request.correlation_id)
            await channel.default_exchange.publish(reply, request.reply_to)

    await queue.consume(answer)


async def call_all(
    exchange: aio_pika.abc.AbstractExchange, reply_to: str, target: str, replies: asyncio.Queue
) -> dict[str, bytes]:
    """Send twenty requests and wait for twenty replies."""
    for number in range(20):
        request = Message(b"request %d" % number, correlation_id=str(number), reply_to=reply_to)
        await exchange.publish(request, target)
    got = {}
    while len(got) < 20:
        reply = await replies.get()
        got[reply.correlation_id] = reply.body
    return got


EXPECTED = {str(number): (b"request %d" % number)[::-1] for number in range(20)}


def test_rpc_calls_come_back_with_results_and_errors(amqp_url: str, fresh_name: FreshName) -> None:
    method, silent = fresh_name("square"), fresh_name("silent")

    async def square(*, n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n * n

    async def main() -> None:
        server = await aio_pika.connect_robust(amqp_url)
        client = await aio_pika.connect_robust(amqp_url)
        async with server, client:
            serving = await server.channel()
            await serving.set_qos(prefetch_count=20)
            service = await RPC.create(serving)
            await service.register(method, square, auto_delete=True)
            calling = await client.channel()
            rpc = await RPC.create(calling)
            calls = (rpc.call(method, {"n": number}) for number in range(100))
            assert await asyncio.gather(*calls) == [n * n for n in range(100)]
            with pytest.raises(ValueError, match="negative"):
                await rpc.call(method, {"n": -1})
            with pytest.raises(aio_pika.exceptions.MessageProcessError, match="returned"):
                await rpc.call(fresh_name("nobody"))
            dead_letters = {"x-dead-letter-exchange": RPC.DLX_NAME}
            await calling.declare_queue(silent, auto_delete=True, arguments=dead_letters)
            with pytest.raises(asyncio.TimeoutError):
                await rpc.call(silent, expiration=1)
            await rpc.close()
            await service.close()

    run(main())


def test_requests_are_answered_over_direct_reply_to(amqp_url: str) -> None:
    async def main() -> None:
        async with (
            await aio_pika.connect(amqp_url) as server,
            await aio_pika.connect(amqp_url) as client,
        ):
            serving = await server.channel()
            requests = await serving.declare_queue("", auto_delete=True)
            await reverse_requests(serving, requests)
            calling = await client.channel()
            replies: asyncio.Queue = asyncio.Queue()
            reply_queue = await calling.get_queue(REPLY_TO, ensure=False)
            await reply_queue.consume(replies.put, no_ack=True)
            got = await call_all(calling.default_exchange, REPLY_TO, requests.name, replies)
            assert got == EXPECTED

    run(main())


def test_direct_reply_to_needs_a_consumer_that_does_not_acknowledge(amqp_url: str) -> None:
    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            replies: asyncio.Queue = asyncio.Queue()
            reply_queue = await channel.get_queue(REPLY_TO, ensure=False)
            with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed):
                await reply_queue.consume(replies.put, no_ack=False)

    run(main())


def test_requests_are_answered_over_an_exclusive_reply_queue(amqp_url: str) -> None:
    async def main() -> None:
        async with (
            await aio_pika.connect(amqp_url) as server,
            await aio_pika.connect(amqp_url) as client,
        ):
            serving = await server.channel()
            requests = await serving.declare_queue("", auto_delete=True)
            await reverse_requests(serving, requests)
            calling = await client.channel()
            replies: asyncio.Queue = asyncio.Queue()
            reply_queue = await calling.declare_queue("", exclusive=True)
            await reply_queue.consume(replies.put, no_ack=True)
            exchange = calling.default_exchange
            got = await call_all(exchange, reply_queue.name, requests.name, replies)
            assert got == EXPECTED

    run(main())


def test_a_master_spreads_tasks_over_workers(amqp_url: str, fresh_name: FreshName) -> None:
    task = fresh_name("task")

    async def main() -> None:
        done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

        def worker_named(name: str) -> Callable[..., Coroutine]:
            async def work(*, number: int) -> None:
                await done.put((name, number))

            return work

        async with await aio_pika.connect(amqp_url) as connection:
            for name in ("left", "right"):
                channel = await connection.channel()
                await channel.set_qos(prefetch_count=1)
                await Master(channel).create_worker(task, worker_named(name), auto_delete=True)
            master = Master(await connection.channel())
            for number in range(40):
                await master.create_task(task, {"number": number})
            results = [await done.get() for _ in range(40)]
            assert sorted(number for _, number in results) == list(range(40))
            assert {name for name, _ in results} == {"left", "right"}

    run(main())
