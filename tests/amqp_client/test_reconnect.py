"""A connection that is lost comes back with all that was declared through it."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from clients.amqp_errors import ConnectionLostError
from clients.amqp_message import Message
from clients.idempotency import IdempotencyStore
from clients.rpc import RpcTimeoutError, rpc_client, serve
from clients.trio_client import NEVER, Backoff, connect
from clients.worker import Job, work
from tests.clients.tcp_proxy import CuttableProxy
from tests.conftest import StartBroker
from tests.support.process import BrokerProcess

NewName = Callable[[], str]
QUICK = Backoff(first_s=0.01, most_s=0.1)


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[CuttableProxy]:
    proxy = CuttableProxy((broker.host, broker.amqp_port))
    yield proxy
    proxy.close()


def through(proxy: CuttableProxy) -> str:
    return f"amqp://guest:guest@127.0.0.1:{proxy.port}/"


async def test_queues_bindings_and_consumers_come_back(proxy: CuttableProxy, name: str) -> None:
    async with (
        connect(through(proxy), reconnect=QUICK) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_exchange(name, "topic", auto_delete=True)
        queue = await channel.declare_queue()
        first_name = queue.name
        await channel.bind_queue(queue, name, "a.*")
        async with channel.consume(queue, prefetch=2) as messages:
            await channel.publish(b"before", exchange=name, routing_key="a.b", mandatory=True)
            held = await anext(messages)
            for number in range(3):
                assert proxy.cut() == 1
                await _publish_until_it_arrives(channel, name, b"after %d" % number)
                message = await anext(messages)
                assert message.body == b"after %d" % number
                message.ack()
            held.ack()  # of a connection that is no more
            assert connection.reconnects == 3
            assert queue.name != first_name
            await channel.publish(b"1", exchange=name, routing_key="a.b", mandatory=True)
            await channel.publish(b"2", exchange=name, routing_key="a.b", mandatory=True)
            await channel.publish(b"3", exchange=name, routing_key="a.b", mandatory=True)
            one, two = await anext(messages), await anext(messages)
            with trio.move_on_after(0.05):
                raise AssertionError(f"prefetch was forgotten: {await anext(messages)}")
            one.ack()
            two.ack()
            assert (await anext(messages)).body == b"3"
        await channel.delete_queue(queue)
        assert [step.queue for step in connection.topology.steps() if step.queue] == []


async def _publish_until_it_arrives(channel, exchange: str, body: bytes) -> None:
    while True:
        try:
            await channel.publish(body, exchange=exchange, routing_key="a.b", mandatory=True)
        except ConnectionLostError:
            continue  # it was sent into the socket that was cut
        return


async def test_with_resend_nothing_is_lost(proxy: CuttableProxy, name: str) -> None:
    count = 5000
    async with (
        connect(through(proxy), reconnect=QUICK, resend=True) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name)
        async with channel.publishing(window=300) as out:
            for number in range(count):
                await out.send(b"%d" % number, routing_key=name)
                if number % 1000 == 999:
                    proxy.cut()
        assert out.confirmed == count
        assert connection.reconnects > 0
        seen = set()
        while (message := await channel.get(name, no_ack=True)) is not None:
            seen.add(int(message.body))
        assert seen == set(range(count))
        await channel.delete_queue(name)


async def test_without_resend_a_lost_publish_raises(proxy: CuttableProxy, name: str) -> None:
    async with (
        connect(through(proxy), reconnect=QUICK) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ConnectionLostError):  # noqa: PT012
            async with channel.publishing() as out:
                await out.send(bytes(100_000), routing_key=name)
                proxy.cut()
                await out.send(b"", routing_key=name)
        await _publish_until_confirmed(channel, name)


async def _publish_until_confirmed(channel, key: str) -> None:
    while True:
        try:
            return await channel.publish(b"", routing_key=key, mandatory=True)
        except ConnectionLostError:
            continue


async def test_a_transaction_does_not_outlive_its_connection(
    proxy: CuttableProxy, name: str
) -> None:
    async with (
        connect(through(proxy), reconnect=QUICK) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ConnectionLostError, match="transaction"):  # noqa: PT012
            async with channel.transaction():
                await channel.publish(b"first half", routing_key=name)
                proxy.cut()
                await _declare_until_it_is_there(channel, name)
                await channel.publish(b"second half", routing_key=name)
        async with channel.transaction():
            await channel.publish(b"whole", routing_key=name)
        message = await channel.get(name, no_ack=True)
        assert message is not None
        assert message.body == b"whole"


async def _declare_until_it_is_there(channel, name: str) -> None:
    while True:
        try:
            return await channel.declare_queue(name, exclusive=True)
        except ConnectionLostError:
            continue


async def test_without_reconnect_everything_fails(proxy: CuttableProxy, name: str) -> None:
    async with (
        connect(through(proxy), reconnect=NEVER) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name, exclusive=True)
        async with channel.consume(name) as messages:
            proxy.cut()
            with pytest.raises(ConnectionLostError):
                await anext(messages)
        with pytest.raises(ConnectionLostError):
            await channel.publish(b"")
        with pytest.raises(ConnectionLostError):
            await connection.open_channel()


async def test_another_address_takes_over(start_broker: StartBroker, name: str) -> None:
    first, second = start_broker(), start_broker()
    ports = f"127.0.0.1:{first.amqp_port},127.0.0.1:{second.amqp_port}"
    async with (
        connect(f"amqp://guest:guest@{ports}/", reconnect=QUICK) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name)
        for broker in (first, second):
            await _publish_until_confirmed(channel, name)
            if broker is first:
                broker.kill()


async def test_a_broker_that_stops_and_starts_is_found_again(
    start_broker: StartBroker, name: str
) -> None:
    first = start_broker()
    proxy = CuttableProxy((first.host, first.amqp_port))
    async with (
        connect(through(proxy), reconnect=QUICK) as connection,
        connection.channel() as channel,
    ):
        await channel.declare_queue(name, durable=False)
        async with channel.consume(name) as messages:
            with trio.move_on_after(0.05):
                await anext(messages)
            await trio.to_thread.run_sync(first.stop)
            second = await trio.to_thread.run_sync(start_broker)
            proxy.lead_to((second.host, second.amqp_port))
            await _publish_until_confirmed(channel, name)
            (await anext(messages)).ack()
    await trio.to_thread.run_sync(proxy.close)


@pytest.mark.parametrize("reply_queue", [False, True])
async def test_calls_go_on_after_a_reconnect(
    proxy: CuttableProxy, name: str, reply_queue: bool
) -> None:
    """Of client and server, which lose their connections at once."""
    functions = {"double": lambda number: 2 * number}
    async with (
        connect(through(proxy), reconnect=QUICK) as here,
        connect(through(proxy), reconnect=QUICK) as there,
        trio.open_nursery() as nursery,
    ):

        async def server(task_status: trio.TaskStatus[None]) -> None:
            await serve(there, name, functions, task_status=task_status)

        await nursery.start(server)
        async with rpc_client(here, name, reply_queue=reply_queue) as rpc:
            for number in range(20):
                if number % 5 == 4:
                    proxy.cut()
                while True:
                    try:
                        assert await rpc.call("double", number, timeout=0.5) == 2 * number
                        break
                    except (ConnectionLostError, RpcTimeoutError):
                        continue
        assert here.reconnects > 0
        nursery.cancel_scope.cancel()


@pytest.mark.leveret_only
async def test_a_worker_goes_on_after_a_reconnect_and_does_nothing_twice(
    proxy: CuttableProxy, amqp_url: str, name: str, tmp_path: Path
) -> None:
    done: Counter[str] = Counter()
    finished = trio.Event()
    count = 60

    async def handler(message: Message) -> None:
        done[message.body.decode()] += 1
        if len(done) % 10 == 0:
            proxy.cut()
        if len(done) == count:
            finished.set()

    job = Job(name, attempts=100, retry_s=0.01, lease_s=5, prefetch=4)
    store = IdempotencyStore(tmp_path / "done.db")
    async with connect(amqp_url) as publisher, publisher.channel() as channel:
        await job.declare(channel)
        for number in range(count):
            await channel.publish(b"%d" % number, routing_key=name, message_id=str(number))
        async with connect(through(proxy), reconnect=QUICK) as connection:
            await work(connection, job, handler, store, stop=finished)
        await channel.delete_queue(name)
        await channel.delete_queue(job.dead_letters)
    store.close()
    assert done == {str(number): 1 for number in range(count)}


def test_pauses_grow_and_differ() -> None:
    backoff = Backoff(first_s=1, most_s=10)
    chance = random.Random(1)
    for attempt, longest in enumerate([1, 2, 4, 8, 10, 10]):
        pauses = [backoff.pause_s(attempt, chance) for _ in range(100)]
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 50
