"""The Trio client against a broker: declare, publish, consume, fetch, transactions, errors."""

from collections.abc import Callable

import pytest
import trio

from clients.amqp_errors import (
    AlreadySettledError,
    AuthenticationError,
    ChannelClosedError,
    ClosedByUsError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerCancelledError,
    NackedError,
    ReturnedError,
)
from clients.amqp_properties import Properties
from clients.trio_client import NEVER, connect

NewName = Callable[[], str]


async def test_a_message_comes_as_it_was_published(amqp_url: str, name: str) -> None:
    properties = Properties(
        content_type="text/plain",
        headers={"a": 1, "b": [True, None, "x"]},
        correlation_id="7",
        message_id="m",
        priority=3,
        timestamp=1_700_000_000,
        type="greeting",
    )
    async with connect(amqp_url, name="test") as connection, connection.channel() as channel:
        queue = await channel.declare_queue(name)
        assert queue.name == name
        await channel.publish(b"hello", routing_key=name, properties=properties)
        async with channel.consume(name) as messages:
            message = await anext(messages)
        assert message.body == b"hello"
        assert message.properties == properties
        assert message.exchange == ""
        assert message.routing_key == name
        assert not message.redelivered
        message.ack()
        assert await channel.delete_queue(name) == 0


@pytest.mark.parametrize("size", [0, 1, 1024, 131_072 - 8, 131_073, 1_048_577, 5_000_000])
async def test_bodies_of_all_sizes(amqp_url: str, name: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, durable=False, exclusive=True)
        await channel.publish(body, routing_key=name)
        message = await channel.get(name)
        assert message is not None
        assert message.body == body
        message.ack()
        assert await channel.get(name) is None


async def test_a_window_of_publishes_arrives_in_order(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name)
        async with channel.publishing(window=10) as out:
            for number in range(1000):
                await out.send(str(number).encode(), routing_key=name)
                assert out.unconfirmed <= 10
        assert out.confirmed == 1000
        seen = []
        async with channel.consume(name, prefetch=50) as messages:
            async for message in messages:
                seen.append(int(message.body))
                message.ack()
                if len(seen) == 1000:
                    break
        assert seen == list(range(1000))
        assert (await channel.declare_queue(name, passive=True)).message_count == 0
        await channel.delete_queue(name)


async def test_a_queue_is_published_to_as_it_was_declared(amqp_url: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        queue = await channel.declare_queue()
        await channel.publish(b"1", routing_key=queue, mandatory=True)
        async with channel.publishing() as out:
            await out.send(b"2", routing_key=queue, mandatory=True)
        assert await channel.delete_queue(queue) == 2


async def test_tasks_may_share_a_window(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        async with channel.publishing(window=3) as out:

            async def send() -> None:
                for _ in range(50):
                    await out.send(b"", routing_key=name)
                await out.flush()

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(send)
        assert out.confirmed == 500


async def test_what_was_not_read_goes_back(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name)
        for number in range(5):
            await channel.publish(bytes([number]), routing_key=name)
        async with channel.consume(name) as messages:
            (await anext(messages)).ack()
        while (await channel.declare_queue(name, passive=True)).message_count < 4:
            pass  # RabbitMQ takes its time
        message = await channel.get(name)
        assert message is not None
        assert message.body == b"\1"
        message.reject()
        await channel.delete_queue(name)


async def test_a_mandatory_message_that_no_queue_takes_raises(amqp_url: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        with pytest.raises(ReturnedError) as caught:
            await channel.publish(b"lost", routing_key="nowhere", mandatory=True, message_id="1")
        assert caught.value.code == 312
        assert caught.value.message.body == b"lost"
        assert caught.value.message.routing_key == "nowhere"
        assert caught.value.message.exchange == ""
        assert caught.value.message.properties.message_id == "1"
        await channel.publish(b"nobody asks", routing_key="nowhere")


async def test_in_a_window_only_what_came_back_fails(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        results: dict[int, bytes] = {}

        async def publish(number: int) -> None:
            key = name if number % 3 else "nowhere"
            try:
                await channel.publish(b"%d" % number, routing_key=key, mandatory=True)
                results[number] = b""
            except ReturnedError as error:
                results[number] = error.message.body

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(publish, number)
        assert results == {number: b"" if number % 3 else b"%d" % number for number in range(300)}
        with pytest.raises(ReturnedError):
            async with channel.publishing() as out:
                await out.send(b"", routing_key="nowhere", mandatory=True)


async def test_a_full_queue_nacks(amqp_url: str, name: str) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True, arguments=arguments)
        await channel.publish(b"1", routing_key=name)
        with pytest.raises(NackedError):
            await channel.publish(b"2", routing_key=name)


async def test_a_channel_error_ends_the_channel_only(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection:
        async with connection.channel() as channel:
            with pytest.raises(ChannelClosedError) as caught:
                await channel.declare_queue(name, passive=True)
            assert caught.value.code == 404
            assert name in caught.value.text
            with pytest.raises(ChannelClosedError):
                await channel.publish(b"")
        async with connection.channel() as channel:
            await channel.declare_queue(name, exclusive=True)


async def test_an_error_that_nobody_saw_is_raised_at_the_end(amqp_url: str) -> None:
    async with connect(amqp_url) as connection:
        with pytest.raises(ChannelClosedError, match="no exchange"):  # noqa: PT012
            async with connection.channel() as channel, connection.channel() as other:
                await channel.publish(b"", exchange="missing", confirm=False)
                await other.declare_queue("", exclusive=True)


async def test_a_connection_error_ends_everything(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        async with channel.consume(name, tag="same"):
            with pytest.raises(ConnectionClosedError) as caught:
                async with channel.consume(name, tag="same"):
                    pass
        assert caught.value.code == 530
        with pytest.raises(ConnectionClosedError):
            await connection.open_channel()


async def test_wrong_passwords_and_hosts_that_are_not_there(amqp_url: str) -> None:
    with pytest.raises(AuthenticationError):
        async with connect(amqp_url.replace("guest:guest", "guest:wrong")):
            pass
    with pytest.raises(AuthenticationError):
        async with connect(amqp_url.removesuffix("%2F") + "missing"):
            pass
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        async with connect("amqp://127.0.0.1:1/"):
            pass


async def test_errors_of_the_program_pass_through_as_they_are(amqp_url: str, name: str) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with connect(amqp_url) as connection, connection.channel() as channel:
            queue = await channel.declare_queue(name, exclusive=True)
            async with channel.consume(queue), channel.publishing():
                raise ZeroDivisionError


async def test_settled_twice_is_an_error_here(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        await channel.publish(b"", routing_key=name)
        await channel.publish(b"", routing_key=name)
        message = await channel.get(name)
        assert message is not None
        message.ack()
        for settle in (message.ack, message.nack, message.reject):
            with pytest.raises(AlreadySettledError):
                settle()
        fetched = await channel.get(name, no_ack=True)
        assert fetched is not None
        with pytest.raises(AlreadySettledError):
            fetched.ack()


async def test_a_deleted_queue_ends_its_consumers(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name)
        async with channel.consume(name) as messages:
            await channel.delete_queue(name)
            with pytest.raises(ConsumerCancelledError):
                await anext(messages)


async def test_transactions_are_all_or_nothing(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with channel.transaction():
                await channel.publish(b"no", routing_key=name)
                raise ZeroDivisionError
        async with channel.transaction():
            await channel.publish(b"yes", routing_key=name)
            await channel.publish(b"and yes", routing_key=name)
        async with channel.transaction():
            message = await channel.get(name)
            assert message is not None
            assert message.body == b"yes"
            message.ack()
        assert (await channel.declare_queue(name, exclusive=True)).message_count == 1


async def test_exchanges_and_bindings(amqp_url: str, new_name: NewName) -> None:
    first, second = new_name(), new_name()
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_exchange(first, "topic")
        await channel.declare_exchange(second, "fanout", auto_delete=True)
        await channel.bind_exchange(second, first, "a.#")
        queue = await channel.declare_queue()
        await channel.bind_queue(queue, second)
        await channel.publish(b"1", exchange=first, routing_key="a.b", mandatory=True)
        assert (await channel.get(queue, no_ack=True)).body == b"1"
        await channel.unbind_exchange(second, first, "a.#")
        with pytest.raises(ReturnedError):
            await channel.publish(b"2", exchange=first, routing_key="a.b", mandatory=True)
        await channel.unbind_queue(queue, second)
        await channel.delete_exchange(first)
        assert await channel.purge_queue(queue) == 0


async def test_a_cancelled_request_does_not_eat_the_next_answer(
    amqp_url: str, new_name: NewName
) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        for _ in range(20):
            first, second = new_name(), new_name()
            with trio.CancelScope() as scope:
                scope.cancel()
                await channel.declare_queue(first, exclusive=True)
            assert (await channel.declare_queue(second, exclusive=True)).name == second
            with trio.CancelScope() as scope:
                scope.cancel()
                await channel.publish(b"", routing_key=first)
            await channel.publish(b"", routing_key=second)
            with trio.CancelScope() as scope:
                scope.cancel()
                async with channel.consume(second):
                    pass
            with trio.CancelScope() as scope:
                scope.cancel()
                await channel.get(second)
            assert (await channel.declare_queue(first, exclusive=True)).name == first
            assert (await channel.declare_queue(second, exclusive=True)).consumer_count == 0


async def test_a_cancelled_consumer_gives_back_what_came(amqp_url: str, name: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        await channel.publish(b"mine", routing_key=name)
        with trio.CancelScope() as scope:
            async with channel.consume(name) as messages:
                (await anext(messages)).nack()
                scope.cancel()
                await trio.sleep_forever()
        async with channel.consume(name) as messages:
            assert (await anext(messages)).body == b"mine"


@pytest.mark.leveret_only  # by how much both sockets hold, which is RabbitMQ's own affair there
async def test_a_consumer_without_acks_that_does_not_read_is_bounded(
    amqp_url: str, name: str
) -> None:
    """And its connection can be used for other things meanwhile."""
    count, body = 20_000, bytes(2000)
    async with (
        connect(amqp_url) as publisher,
        publisher.channel() as outlet,
        connect(amqp_url) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name, auto_delete=True)
        async with channel.consume(name, no_ack=True) as messages:
            async with outlet.publishing() as out:
                for _ in range(count):
                    await out.send(body, routing_key=name)
            await channel.declare_queue(name, passive=True)
            assert len(messages._inbox.messages) < count / 2
            for number in range(count):
                assert (await anext(messages)).body == body
                if number % 100 == 0:
                    await channel.publish(b"", routing_key="nowhere")


async def test_after_the_end_everything_says_so(amqp_url: str, name: str) -> None:
    async with connect(amqp_url, reconnect=NEVER) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name, exclusive=True)
            consumer = channel.consume(name)
        with pytest.raises(ClosedByUsError):
            await channel.publish(b"")
        with pytest.raises(ClosedByUsError):
            await consumer.__aenter__()
    with pytest.raises(ClosedByUsError):
        await connection.open_channel()


async def test_names_that_do_not_fit_are_errors_here(amqp_url: str) -> None:
    async with connect(amqp_url) as connection, connection.channel() as channel:
        with pytest.raises(ValueError, match="routing_key"):
            await channel.publish(b"", routing_key="x" * 256)
        with pytest.raises(TypeError):
            await channel.publish("text", routing_key="x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expiration is text, not int"):
            await channel.publish(b"", routing_key="x", expiration=500)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="properties"):
            await channel.publish(b"", routing_key="x", headers={"x": "y" * 2_000_000})
        await channel.publish(b"", routing_key="x")
