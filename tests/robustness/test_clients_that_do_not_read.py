"""Clients that send and never read: the broker holds back, and holds little for them."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.frames import (
    Basic,
    Channel,
    Confirm,
    Properties,
    Queue,
    content_bytes,
    raw_method,
    unvalidated,
)
from tests.support.waiting import eventually
from tests.support.wire import WireChannel, WireConnection

Deaf = Callable[..., WireConnection]
ResidentBytes = Callable[[], int]

pytestmark = pytest.mark.leveret_only

BODY = bytes(64 * 1024)
FLOOD_BYTES = 150 * 2**20
# What may pile up for one client: its socket's buffers, a write buffer, a page of the allocator.
HELD_BYTES_MAX = 60 * 2**20
STUCK_S = 1.0


def publish_bytes(channel: WireChannel, key: str, *, mandatory: bool = False) -> bytes:
    method = unvalidated(Basic.Publish, exchange="", routing_key=key, mandatory=mandatory)
    return content_bytes(channel.number, method, Properties(), BODY, channel.conn.frame_max)


def flood(conn: WireConnection, data: bytes) -> None:
    """Send the data again and again until much was taken or the broker takes no more."""
    conn.sock.settimeout(STUCK_S)
    try:
        for _ in range(0, FLOOD_BYTES, len(data)):
            conn.sock.sendall(data)
    except (TimeoutError, BrokenPipeError, ConnectionResetError):
        pass


@pytest.fixture
def deaf(url: str) -> Iterator[Deaf]:
    """Opens connections with a small receive buffer, so that not reading shows soon."""
    opened: list[WireConnection] = []

    def connect(**options: Any) -> WireConnection:
        conn = WireConnection.dial(url)
        opened.append(conn)
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        conn.handshake(**options)
        return conn

    yield connect
    for conn in opened:
        conn.abort()


def test_deliveries_nobody_reads_stay_in_the_queue(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    reader = deaf()
    channel = reader.open_channel()
    queue = channel.declare_queue(exclusive=True, arguments={"x-max-length": 50}).queue
    channel.consume(queue, no_ack=True)
    before = resident_bytes()
    with WireConnection.connect(url) as writer:
        publisher = writer.open_channel()
        publisher.rpc(Confirm.Select())
        for number in range(1, FLOOD_BYTES // len(BODY)):
            publisher.publish("", queue, BODY)
            if number % 20 == 0:
                while publisher.expect(Basic.Ack).delivery_tag < number:
                    pass
    assert resident_bytes() - before < HELD_BYTES_MAX


def test_returns_nobody_reads_make_the_broker_stop_reading(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    conn = deaf()
    channel = conn.open_channel()
    before = resident_bytes()
    flood(conn, publish_bytes(channel, "nowhere", mandatory=True))
    assert resident_bytes() - before < HELD_BYTES_MAX


def test_got_messages_nobody_reads_make_the_broker_stop_reading(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    conn = deaf()
    channel = conn.open_channel()
    queue = channel.declare_queue(exclusive=True).queue
    before = resident_bytes()
    publish_and_get = publish_bytes(channel, queue) + raw_method(
        channel.number, 60, 70, b"\0\0" + bytes([len(queue)]) + queue.encode() + b"\x01"
    )
    flood(conn, publish_and_get)
    assert resident_bytes() - before < HELD_BYTES_MAX


def test_confirms_nobody_reads_are_held_in_little_space(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    conn = deaf()
    channel = conn.open_channel()
    channel.rpc(Confirm.Select())
    publish = content_bytes(
        channel.number, Basic.Publish(routing_key="nowhere"), Properties(), b"", 4096
    )
    before = resident_bytes()
    conn.sock.settimeout(STUCK_S)
    try:
        for _ in range(150):
            conn.sock.sendall(publish * 1000)
    except TimeoutError:
        pass
    assert resident_bytes() - before < HELD_BYTES_MAX


def test_answers_nobody_reads_are_held_in_little_space(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    conn = deaf()
    channel = conn.open_channel()
    before = resident_bytes()
    flow = raw_method(channel.number, 20, 20, b"\x01")
    conn.sock.settimeout(STUCK_S)
    try:
        for _ in range(100):
            conn.sock.sendall(flow * 2000)
    except TimeoutError:
        pass
    assert resident_bytes() - before < HELD_BYTES_MAX


def test_a_deaf_consumer_that_reads_again_gets_everything_in_order(url: str) -> None:
    count = 400
    with WireConnection.connect(url) as reader, WireConnection.connect(url) as writer:
        channel, publisher = reader.open_channel(), writer.open_channel()
        queue = channel.declare_queue(exclusive=True).queue
        channel.consume(queue, no_ack=True)
        for number in range(count):
            publisher.publish("", queue, b"%06d" % number + BODY)
        publisher.qos(0)
        numbers = [int(content.body[:6]) for content in channel.deliveries(count)]
    assert numbers == list(range(count))


def test_a_deaf_client_dies_by_heartbeat_all_the_same(url: str, deaf: Deaf) -> None:
    conn = deaf(heartbeat_s=1)
    channel = conn.open_channel()
    queue = channel.declare_queue(auto_delete=True).queue
    channel.consume(queue)
    with WireConnection.connect(url) as writer:
        publisher = writer.open_channel()
        for _ in range(100):
            publisher.publish("", queue, BODY)

        def queue_gone() -> bool:
            probe = writer.open_channel()
            probe.send(unvalidated(Queue.Declare, queue=queue, passive=True))
            return isinstance(probe.conn.next_item(probe.number), Channel.Close)

        eventually(queue_gone, "the deaf client to be dropped")


def test_many_deaf_clients_do_not_add_up(
    url: str, deaf: Deaf, resident_bytes: ResidentBytes
) -> None:
    conns = [deaf() for _ in range(20)]
    channels = [conn.open_channel() for conn in conns]
    exchange = "deaf-fanout"
    channels[0].declare_exchange(exchange, "fanout", auto_delete=True)
    for channel in channels:
        queue = channel.declare_queue(exclusive=True, arguments={"x-max-length": 5}).queue
        channel.bind(queue, exchange)
        channel.consume(queue, no_ack=True)
    before = resident_bytes()
    with WireConnection.connect(url) as writer:
        publisher = writer.open_channel()
        publisher.rpc(Confirm.Select())
        for _ in range(300):
            publisher.publish(exchange, "", BODY)
        while publisher.expect(Basic.Ack).delivery_tag < 300:
            pass
    assert resident_bytes() - before < 2 * HELD_BYTES_MAX
