"""What is around the messages: TLS, heartbeats, and a broker that holds publishers back."""

import ssl

import pytest
import trio
import trustme
from pamqp.commands import Connection

from broker.protocol.methods import encode
from clients import blocking
from clients.amqp_errors import ConnectionLostError
from clients.trio_client import NEVER, connect
from tests.conftest import StartBroker
from tests.support.process import BrokerProcess

MIB = 1024 * 1024


async def _forward(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await trio.aclose_forcefully(sink)


async def test_tls(broker: BrokerProcess, name: str) -> None:
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)

    async def to_broker(near: trio.SSLStream) -> None:
        try:
            await near.do_handshake()
        except trio.BrokenResourceError:
            return
        far = await trio.open_tcp_stream(broker.host, broker.amqp_port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward, near, far)
            nursery.start_soon(_forward, far, near)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_ssl_over_tcp_listeners(
            0, server_context, host="127.0.0.1", https_compatible=True
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, to_broker, listeners)
        url = f"amqps://guest:guest@127.0.0.1:{port}/"
        with pytest.raises(ConnectionLostError, match="certificate"):
            async with connect(url):
                pass
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with (
            connect(url, ssl_context=trusting) as connection,
            connection.channel() as channel,
        ):
            await channel.declare_queue(name, exclusive=True)
            await channel.publish(bytes(300_000), routing_key=name)
            message = await channel.get(name)
            assert message is not None
            assert len(message.body) == 300_000
        await trio.to_thread.run_sync(_blocking_over_tls, url, trusting, name)
        nursery.cancel_scope.cancel()


def _blocking_over_tls(url: str, trusting: ssl.SSLContext, name: str) -> None:
    with pytest.raises(ConnectionLostError, match="certificate"):
        blocking.open_connection(url)
    with (
        blocking.connect(url, ssl_context=trusting) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue(name, exclusive=True)
        with channel.publishing() as out:
            for _ in range(50):
                out.send(bytes(100_000), routing_key=name)
        with channel.consume(name, timeout_s=10) as messages:
            for _ in range(50):
                message = next(messages)
                assert len(message.body) == 100_000
                message.ack()


async def test_heartbeats_keep_an_idle_connection(amqp_url: str, name: str) -> None:
    async with connect(f"{amqp_url}?heartbeat=1", reconnect=NEVER) as connection:
        await trio.sleep(3.5)  # longer than both sides would wait for a silent peer
        async with connection.channel() as channel:
            await channel.declare_queue(name, exclusive=True)


async def test_a_silent_broker_is_given_up(broker: BrokerProcess) -> None:
    """It shakes hands through a proxy that then holds its tongue."""

    async def to_broker(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream(broker.host, broker.amqp_port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward, near, far)
            quiet = False
            while True:
                data = await far.receive_some()
                if not data:
                    break
                if not quiet:
                    await near.send_all(data)
                quiet = quiet or b"\x00\x0a\x00\x29" in data  # connection.open-ok
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, to_broker, listeners)
        url = f"amqp://guest:guest@127.0.0.1:{port}/?heartbeat=1"
        async with connect(url, reconnect=NEVER) as connection:
            with pytest.raises(ConnectionLostError, match="nothing came"):
                await connection.open_channel()
        nursery.cancel_scope.cancel()


@pytest.mark.leveret_only
async def test_publishers_wait_while_the_broker_is_blocked(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker("--memory-limit", str(96 * MIB))
    heard = []
    sent = 0
    async with (
        connect(broker.amqp_url()) as connection,
        connection.channel() as channel,
        connection.channel() as other,
        trio.open_nursery() as nursery,
    ):
        await channel.declare_queue(name, durable=False, arguments={"x-max-priority": 1})

        async def publish() -> None:
            nonlocal sent
            async with channel.publishing(window=1000) as out:
                while len(heard) < 2:
                    await out.send(bytes(256 * 1024), routing_key=name)
                    sent += 1
                    assert sent < 4000, "no alarm in a gigabyte"

        nursery.start_soon(publish)
        heard.append(await connection.blocked_changed())
        assert connection.blocked == "low on memory"
        held_at = sent
        for _ in range(20):  # round trips, in which it could go on
            await other.declare_queue(name, passive=True)
        assert sent <= held_at + 1
        assert await other.purge_queue(name) > 0
        while connection.blocked is not None:
            assert sent <= held_at + 1
            heard.append(await connection.blocked_changed())
            await other.purge_queue(name)
    assert heard[:2] == ["low on memory", None]


async def test_nothing_is_published_between_blocked_and_unblocked(amqp_url: str, name: str) -> None:
    """As if the broker had said so; everything else goes on."""
    published = []
    async with connect(amqp_url) as connection, connection.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        core = connection._link.core
        core.feed(encode(0, Connection.Blocked, reason="low on patience"))
        assert connection.blocked == "low on patience"

        async def publish() -> None:
            await channel.publish(b"", routing_key=name)
            published.append("one")

        async def publish_many() -> None:
            async with channel.publishing() as out:
                await out.send(b"", routing_key=name)
            published.append("many")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            nursery.start_soon(publish_many)
            for _ in range(5):
                assert (await channel.declare_queue(name, exclusive=True)).message_count == 0
            assert published == []
            core.feed(encode(0, Connection.Unblocked))
        assert sorted(published) == ["many", "one"]
        assert connection.blocked is None
