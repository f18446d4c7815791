"""Dialling, logging in, losing the connection and having it again."""

import socket

import pytest
import trio

from broker.protocol.stream_wire import Status
from clients.backoff import NEVER
from clients.stream_errors import ClientClosedError, ConnectionLostError, RefusedError
from clients.trio_streams import connect_streams
from tests.clients.tcp_proxy import CuttableProxy
from tests.stream_wire.door import Door
from tests.support.waiting import soon
from tests.trio_streams.conftest import QUICK, at, through

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


async def test_a_client_is_told_of_the_streams_and_their_partitions(amqp_url, declare):
    one, three = declare(), declare(partitions=3)
    async with connect_streams(amqp_url, name="a test") as streams:
        found = await streams.streams()
        assert (found[one], found[three]) == (1, 3)
        described = await streams.metadata(one, three)
        assert [each.number for each in described[three]] == [0, 1, 2]
        with pytest.raises(RefusedError, match="STREAM_NOT_FOUND"):
            await streams.metadata(one, "no such stream")


async def test_a_wrong_password_is_told(amqp_url):
    with pytest.raises(RefusedError) as caught:
        async with connect_streams(amqp_url.replace("guest@", "wrong@")):
            pytest.fail("it was let in")
    assert caught.value.status == Status.LOGIN_REFUSED


async def test_nobody_listening_is_a_lost_connection(nobody):
    with pytest.raises(ConnectionLostError, match="no connection to"):
        async with connect_streams(f"amqp://{nobody}"):
            pytest.fail("there is nobody")


async def test_the_first_address_that_answers_will_do(amqp_url, nobody, stream):
    _, _, place = amqp_url.rpartition("@")
    async with connect_streams(f"amqp://guest:guest@{nobody},{place}") as streams:
        assert stream in await streams.streams()
        assert streams.reconnects == 0


async def test_a_request_goes_on_after_a_lost_connection(proxy, stream):
    async with connect_streams(through(proxy), reconnect=QUICK) as streams:
        for lost in range(3):
            assert stream in await streams.streams()
            assert streams.reconnects == lost
            proxy.cut()
        assert stream in await streams.streams()


async def test_another_address_is_dialled_when_one_is_lost(broker, stream):
    proxies = [CuttableProxy((broker.host, broker.amqp_port)) for _ in range(2)]
    try:
        async with connect_streams(through(*proxies), reconnect=QUICK) as streams:
            assert stream in await streams.streams()
            proxies[0].close()
            assert stream in await streams.streams()
            assert proxies[1].cut() == 1
    finally:
        proxies[1].close()


async def test_without_reconnecting_a_lost_request_raises(proxy, stream):
    async with connect_streams(through(proxy), reconnect=NEVER) as streams:
        assert stream in await streams.streams()
        proxy.cut()
        with pytest.raises(ConnectionLostError):  # noqa: PT012
            while True:  # until the socket knows
                await streams.streams()


async def test_tasks_that_share_a_client_dial_once(proxy, stream):
    async with connect_streams(through(proxy), reconnect=QUICK) as streams:
        proxy.cut()
        found = []

        async def ask():
            found.append(stream in await streams.streams())

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        assert found == [True] * 20
        assert proxy.cut() == 1


async def test_a_cancelled_request_leaves_the_connection_usable(door: Door):
    await at(door, door.streams.declare, "s")
    async with connect_streams(door.url, reconnect=NEVER) as streams:
        async with streams.producer("s") as producer:
            await producer.publish(b"a")
        await at(door, door.streams.hold)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, streams.reader("s"))
                await soon(lambda: len(door.streams.held) == 1, "the fetch")
                scope.cancel()
        assert scope.cancelled_caught
        await at(door, door.streams.release)
        assert [record.value async for record in streams.reader("s")] == [b"a"]


async def test_a_server_that_does_not_answer_is_given_up(door: Door, mock_clock):
    """Time stands still but for the jump."""
    await at(door, door.streams.declare, "s")
    async with connect_streams(door.url, reconnect=NEVER, timeout_s=30) as streams:
        await at(door, door.streams.hold)

        async def read():
            with pytest.raises(ConnectionLostError, match="no answer within 40"):
                await anext(streams.reader("s", follow=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await soon(lambda: len(door.streams.held) == 1, "the fetch")
            mock_clock.jump(41)
        await at(door, door.streams.release)


async def test_a_client_that_was_closed_says_so(amqp_url):
    async with connect_streams(amqp_url) as streams:
        pass
    with pytest.raises(ClientClosedError):
        await streams.streams()
