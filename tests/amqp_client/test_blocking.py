"""The blocking client against a broker: the same promises as the Trio client's."""

import ssl
import threading
import time
from collections.abc import Callable

import pytest

from clients.amqp_errors import (
    AuthenticationError,
    ChannelClosedError,
    ClosedByUsError,
    ConnectionLostError,
    ConsumerCancelledError,
    NackedError,
    ReturnedError,
)
from clients.blocking import connect
from tests.clients.tcp_proxy import CuttableProxy
from tests.support.process import BrokerProcess

NewName = Callable[[], str]


@pytest.mark.parametrize("size", [0, 1024, 131_073, 20_000_000])
def test_a_message_comes_as_it_was_published(amqp_url: str, name: str, size: int) -> None:
    with connect(amqp_url, name="test") as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)
        channel.publish(bytes(size), routing_key=name, headers={"a": 1}, message_id="m")
        with channel.consume(name, timeout_s=10) as messages:
            message = next(messages)
        assert message.body == bytes(size)
        assert message.headers == {"a": 1}
        assert message.properties.message_id == "m"
        message.ack()
        assert channel.get(name) is None


def test_a_window_of_publishes_arrives_in_order(amqp_url: str, name: str) -> None:
    with connect(amqp_url) as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)
        with channel.publishing(window=50) as out:
            for number in range(2000):
                out.send(b"%d" % number, routing_key=name)
                assert out.unconfirmed <= 50
        assert out.confirmed == 2000
        with channel.consume(name, prefetch=30) as messages:
            for number in range(2000):
                message = next(messages)
                assert int(message.body) == number
                message.ack()
        assert channel.declare_queue(name, exclusive=True).message_count == 0


def test_a_queue_is_published_to_as_it_was_declared(amqp_url: str) -> None:
    with connect(amqp_url) as connection, connection.channel() as channel:
        queue = channel.declare_queue()
        channel.publish(b"1", routing_key=queue, mandatory=True)
        with channel.publishing() as out:
            out.send(b"2", routing_key=queue, mandatory=True)
        assert channel.delete_queue(queue) == 2


def test_what_was_not_read_goes_back(amqp_url: str, name: str) -> None:
    with connect(amqp_url) as connection, connection.channel() as channel:
        channel.declare_queue(name)
        for number in range(5):
            channel.publish(bytes([number]), routing_key=name)
        with channel.consume(name) as messages:
            next(messages).ack()
        while channel.declare_queue(name, passive=True).message_count < 4:
            pass  # RabbitMQ takes its time
        assert channel.delete_queue(name) == 4


def test_errors(amqp_url: str, name: str) -> None:
    with connect(amqp_url) as connection:
        with connection.channel() as channel:
            with pytest.raises(ReturnedError) as caught:
                channel.publish(b"lost", routing_key="nowhere", mandatory=True)
            assert caught.value.message.body == b"lost"
            full = {"x-max-length": 1, "x-overflow": "reject-publish"}
            channel.declare_queue(name, exclusive=True, arguments=full)
            channel.publish(b"", routing_key=name)
            with pytest.raises(NackedError), channel.publishing() as out:
                out.send(b"", routing_key=name)
            with channel.consume(name) as messages:
                next(messages)
                channel.delete_queue(name)
                with pytest.raises(ConsumerCancelledError):
                    next(messages)
            with pytest.raises(ChannelClosedError, match="404"):
                channel.declare_queue(name, passive=True)
            with pytest.raises(ChannelClosedError):
                channel.publish(b"")
        with connection.channel() as channel:
            channel.declare_queue(name, exclusive=True)
        with (  # noqa: PT012
            pytest.raises(ChannelClosedError, match="no exchange"),
            connection.channel() as channel,
            connection.channel() as other,
        ):
            channel.publish(b"", exchange="missing", confirm=False)
            other.declare_queue("", exclusive=True)
    with pytest.raises(ClosedByUsError):
        connection.open_channel()
    with pytest.raises(AuthenticationError):
        connect(amqp_url.replace("guest:guest", "guest:wrong")).__enter__()
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        connect("amqp://127.0.0.1:1/").__enter__()


def test_an_error_that_was_told_is_not_told_again_at_the_end_of_the_block(
    amqp_url: str, name: str
) -> None:
    with connect(amqp_url) as connection:
        with connection.channel() as channel, pytest.raises(ChannelClosedError, match="404"):
            channel.get(name)
        with (
            connection.channel() as channel,
            pytest.raises(ChannelClosedError, match="404"),
            channel.consume(name),
        ):
            pass
        with connection.channel() as channel, pytest.raises(ChannelClosedError, match="404"):
            channel.publish(b"", exchange=name)


def test_iterating_ends_when_nothing_comes(amqp_url: str, name: str) -> None:
    with connect(amqp_url) as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)
        with channel.consume(name, timeout_s=0.01) as messages:
            assert list(messages) == []


def test_the_next_address_is_tried(broker: BrokerProcess, name: str) -> None:
    url = f"amqp://127.0.0.1:1,127.0.0.1:{broker.amqp_port}/"
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)


def test_transactions_are_all_or_nothing(amqp_url: str, name: str) -> None:
    with connect(amqp_url) as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)
        with pytest.raises(ZeroDivisionError), channel.transaction():  # noqa: PT012
            channel.publish(b"no", routing_key=name)
            raise ZeroDivisionError
        with channel.transaction():
            channel.publish(b"yes", routing_key=name)
        message = channel.get(name, no_ack=True)
        assert message is not None
        assert message.body == b"yes"
        assert channel.get(name) is None


def test_exchanges_and_bindings(amqp_url: str, new_name: NewName) -> None:
    first, second = new_name(), new_name()
    with connect(amqp_url) as connection, connection.channel() as channel:
        channel.declare_exchange(first, "topic")
        channel.declare_exchange(second, "fanout", auto_delete=True)
        channel.bind_exchange(second, first, "a.#")
        queue = channel.declare_queue()
        channel.bind_queue(queue, second)
        channel.publish(b"1", exchange=first, routing_key="a.b", mandatory=True)
        channel.unbind_exchange(second, first, "a.#")
        with pytest.raises(ReturnedError):
            channel.publish(b"2", exchange=first, routing_key="a.b", mandatory=True)
        channel.unbind_queue(queue, second)
        channel.delete_exchange(first)
        assert channel.purge_queue(queue) == 1


def test_heartbeats_are_sent_while_the_program_is_busy(amqp_url: str, name: str) -> None:
    with connect(f"{amqp_url}?heartbeat=1") as connection, connection.channel() as channel:
        time.sleep(3.5)  # longer than the broker waits for a silent peer
        channel.declare_queue(name, exclusive=True)


def test_a_lost_connection_is_told(broker: BrokerProcess, name: str) -> None:
    proxy = CuttableProxy((broker.host, broker.amqp_port))
    url = f"amqp://127.0.0.1:{proxy.port}/"
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(name, exclusive=True)
        with channel.consume(name) as messages:
            cutting = threading.Timer(0.05, proxy.cut)
            cutting.start()
            with pytest.raises(ConnectionLostError):
                next(messages)
        with pytest.raises(ConnectionLostError):
            channel.publish(b"")
    proxy.close()


def test_tls_that_nobody_speaks(amqp_url: str) -> None:
    with pytest.raises(ConnectionLostError):
        connect(
            amqp_url.replace("amqp:", "amqps:"), ssl_context=ssl.create_default_context()
        ).__enter__()
