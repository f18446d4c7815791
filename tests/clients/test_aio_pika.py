"""aio-pika: robust connections, confirms, iterators, transactions, returns, many tasks at once."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import TYPE_CHECKING

import aio_pika
import pytest
from aio_pika import ExchangeType, Message

if TYPE_CHECKING:
    from tcp_proxy import CuttableProxy

FreshName = Callable[[str], str]
DEADLINE_S = 30


def run(main: Coroutine) -> None:
    asyncio.run(asyncio.wait_for(main, DEADLINE_S))


def test_a_robust_connection_declares_publishes_and_gets(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("robust")

    async def main() -> None:
        async with await aio_pika.connect_robust(amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=True)
            confirmation = await channel.default_exchange.publish(Message(b"hello"), name)
            assert type(confirmation).__name__ == "Ack"
            message = await queue.get(timeout=10)
            assert message.body == b"hello"
            await message.ack()
            assert await queue.get(fail=False) is None
            with pytest.raises(aio_pika.exceptions.QueueEmpty):
                await queue.get()

    run(main())


def test_a_robust_connection_restores_its_queue_binding_and_consumer_after_a_cut(
    proxied_url: str, proxy: CuttableProxy, amqp_url: str, fresh_name: FreshName
) -> None:
    exchange_name, name = fresh_name("exchange"), fresh_name("restored")

    async def main() -> None:
        received: asyncio.Queue[bytes] = asyncio.Queue()
        restored = asyncio.Event()
        fragile = await aio_pika.connect_robust(proxied_url, reconnect_interval=0.1)
        sure = await aio_pika.connect(amqp_url)
        async with fragile, sure:
            fragile.reconnect_callbacks.add(lambda *_: restored.set())
            channel = await fragile.channel()
            await channel.set_qos(prefetch_count=5)
            exchange = await channel.declare_exchange(exchange_name, ExchangeType.FANOUT)
            queue = await channel.declare_queue(name, exclusive=True)
            await queue.bind(exchange)

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await received.put(message.body)
                with contextlib.suppress(aio_pika.exceptions.ChannelInvalidStateError):
                    await message.ack()

            await queue.consume(on_message)
            outlet = await (await sure.channel()).get_exchange(exchange_name)
            await outlet.publish(Message(b"before"), "", mandatory=True)
            assert await received.get() == b"before"
            assert proxy.cut() == 1
            await restored.wait()
            await outlet.publish(Message(b"after"), "", mandatory=True)
            while await received.get() != b"after":
                pass

    run(main())


def test_one_hundred_tasks_publish_on_one_channel_and_every_message_is_confirmed(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("crowd")

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel(on_return_raises=True)
            queue = await channel.declare_queue(name, auto_delete=True)

            async def publisher(number: int) -> None:
                for turn in range(10):
                    body = b"%d.%d" % (number, turn)
                    await channel.default_exchange.publish(Message(body), name)

            await asyncio.gather(*(publisher(number) for number in range(100)))
            assert queue.declaration_result.message_count == 0
            again = await channel.declare_queue(name, passive=True)
            assert again.declaration_result.message_count == 1000
            bodies = []
            async with queue.iterator(no_ack=True) as messages:
                async for message in messages:
                    bodies.append(message.body)
                    if len(bodies) == 1000:
                        break
            assert set(bodies) == {b"%d.%d" % (n, turn) for n in range(100) for turn in range(10)}
            own = [body for body in bodies if body.startswith(b"42.")]
            assert own == [b"42.%d" % turn for turn in range(10)]

    run(main())


def test_a_topic_exchange_feeds_each_queue_what_its_patterns_match(
    amqp_url: str, fresh_name: FreshName
) -> None:
    exchange_name = fresh_name("topic")
    patterns = {
        "eu": ["*.eu.*"],
        "all": ["#"],
        "paid": ["#.paid", "orders.#.paid"],
        "none": ["orders"],
    }
    keys = ["orders.eu.paid", "orders.us.paid", "refunds.eu.open", "paid"]
    expected = {
        "eu": ["orders.eu.paid", "refunds.eu.open"],
        "all": keys,
        "paid": ["orders.eu.paid", "orders.us.paid", "paid"],
        "none": [],
    }

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(exchange_name, ExchangeType.TOPIC)
            queues = {}
            for label, bindings in patterns.items():
                queues[label] = await channel.declare_queue("", exclusive=True)
                for pattern in bindings:
                    await queues[label].bind(exchange, pattern)
            for key in keys:
                await exchange.publish(Message(b""), key)
            for label, queue in queues.items():
                got = []
                while (message := await queue.get(no_ack=True, fail=False)) is not None:
                    got.append(message.routing_key)
                assert got == expected[label], label

    run(main())


def test_the_queue_iterator_requeues_what_was_prefetched_but_not_processed(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("iterator")

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=4)
            queue = await channel.declare_queue(name)
            for number in range(10):
                await channel.default_exchange.publish(Message(b"%d" % number), name)
            seen = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        seen.append(message.body)
                    if len(seen) == 3:
                        break
            assert seen == [b"0", b"1", b"2"]
            await channel.close()
            async with connection.channel() as later:
                rest = []
                queue = await later.get_queue(name)
                async with queue.iterator(no_ack=True) as messages:
                    async for message in messages:
                        rest.append(message.body)
                        if len(rest) == 7:
                            break
            assert rest == [b"%d" % number for number in range(3, 10)]

    run(main())


def test_a_failed_process_block_rejects_or_requeues_its_message(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("process")

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=True)
            await channel.default_exchange.publish(Message(b"fragile"), name)
            message = await queue.get()
            assert message.redelivered is False
            with pytest.raises(ValueError, match="again"):
                async with message.process(requeue=True):
                    raise ValueError("again")
            while (message := await queue.get(fail=False)) is None:
                pass
            assert message.redelivered is True
            with pytest.raises(ValueError, match="never"):
                async with message.process():
                    raise ValueError("never")
            assert await queue.get(fail=False) is None

    run(main())


def test_a_transaction_commits_on_success_and_rolls_back_on_error(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("transaction")

    async def publish_and_fail(channel: aio_pika.abc.AbstractChannel) -> None:
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"lost"), name)
            raise RuntimeError

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name, auto_delete=True)
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"kept"), name)
                assert await queue.get(fail=False) is None
            with pytest.raises(RuntimeError):
                await publish_and_fail(channel)
            message = await queue.get(no_ack=True)
            assert message.body == b"kept"
            assert await queue.get(fail=False) is None

    run(main())


def test_an_unroutable_message_raises_on_a_channel_that_asks_for_it(
    amqp_url: str, fresh_name: FreshName
) -> None:
    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(aio_pika.exceptions.PublishError) as caught:
                await channel.default_exchange.publish(Message(b"x"), fresh_name("nowhere"))
            assert caught.value.message.delivery.reply_code == 312

    run(main())


def test_an_unroutable_message_is_handed_to_the_return_callback(
    amqp_url: str, fresh_name: FreshName
) -> None:
    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            returned: asyncio.Queue[bytes] = asyncio.Queue()
            channel.return_callbacks.add(lambda _, message: returned.put_nowait(message.body))
            await channel.default_exchange.publish(Message(b"back"), fresh_name("nowhere"))
            assert await returned.get() == b"back"

    run(main())


def test_a_message_refused_by_a_full_queue_raises_a_delivery_error(
    amqp_url: str, fresh_name: FreshName
) -> None:
    name = fresh_name("full")
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            await channel.declare_queue(name, auto_delete=True, arguments=arguments)
            await channel.default_exchange.publish(Message(b"fits"), name)
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await channel.default_exchange.publish(Message(b"refused"), name)

    run(main())


def test_a_missing_queue_raises_not_found_and_the_channel_can_be_reopened(
    amqp_url: str, fresh_name: FreshName
) -> None:
    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
                await channel.get_queue(fresh_name("missing"))
            assert channel.is_closed
            await channel.reopen()
            assert (await channel.declare_queue("", exclusive=True)).name.startswith("amq.gen-")

    run(main())


def test_headers_and_properties_come_back_unchanged(amqp_url: str, fresh_name: FreshName) -> None:
    name = fresh_name("headers")
    headers = {
        "float": 0.5,
        "negative float": -(2.0**100),
        "int64": 2**62,
        "decimal": Decimal("3.14"),
        "bool": True,
        "none": None,
        "bytes": bytearray(b"\x00\xff"),
        "text": "Grüße",
        "time": dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        "array": [1, 2.5, "three", [None, {"four": False}]],
        "table": {"a": {"b": {"c": [0.25]}}},
    }

    async def main() -> None:
        async with await aio_pika.connect(amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=True)
            sent = Message(
                b"body",
                headers=headers,
                content_type="text/plain",
                priority=3,
                correlation_id="c-1",
                expiration=60,
                message_id="m-1",
                type="greeting",
                app_id="tests",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await channel.default_exchange.publish(sent, name)
            message = await queue.get(no_ack=True)
            assert message.headers == headers
            for field in ("content_type", "priority", "correlation_id", "expiration"):
                assert getattr(message, field) == getattr(sent, field), field
            for field in ("message_id", "type", "app_id", "delivery_mode"):
                assert getattr(message, field) == getattr(sent, field), field

    run(main())
