"""The memory alarm: publishers wait, consumers go on, and it ends."""

import time

import pika
import psutil
import pytest

from tests.support.frames import Connection
from tests.support.wire import WireConnection

MIB = 1024 * 1024
BODY = bytes(256 * 1024)
PAGE = bytes(64 * 1024)
DEADLINE_S = 60


@pytest.mark.leveret_only
def test_publishers_wait_while_memory_is_short_and_consumers_go_on(start_broker):
    broker = start_broker("--memory-limit", str(96 * MIB))
    heard = []
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url()))
    connection.add_on_connection_blocked_callback(
        lambda _, frame: heard.append(frame.method.reason)
    )
    connection.add_on_connection_unblocked_callback(lambda *_: heard.append("over"))
    channel = connection.channel()
    channel.queue_declare("flood", arguments={"x-max-priority": 1})  # which cannot be paged out
    sent = 0
    while not heard:
        channel.basic_publish("", "flood", BODY)
        connection.process_data_events(0)
        sent += 1
        assert sent < 4000, "no alarm in a gigabyte"
    assert heard == ["low on memory"]
    for _ in range(20):  # kept back, not lost, not refused
        channel.basic_publish("", "flood", BODY)
    sent += 20

    leaving = WireConnection.connect(broker.amqp_url())
    leaving.open_channel().publish("", "flood", b"last words")
    leaving.send(Connection.Close(200, "bye", 0, 0))  # must not overtake what is kept back
    sent += 1

    got = []
    consuming = connection.channel()  # on the very connection that is blocked
    consuming.basic_consume("flood", lambda *delivery: got.append(delivery[3]), auto_ack=True)
    deadline = time.monotonic() + DEADLINE_S
    while len(got) < sent or heard[-1] != "over":
        assert time.monotonic() < deadline, f"{len(got)} of {sent} came; heard {heard}"
        connection.process_data_events(0.1)
    leaving.expect(Connection.Blocked)
    leaving.expect(Connection.Unblocked)
    leaving.expect(Connection.CloseOk)
    assert sorted(set(got)) == [BODY, b"last words"]
    connection.close()
    leaving.abort()


@pytest.mark.leveret_only
def test_a_queue_longer_than_memory_is_taken_and_given_in_order(start_broker):
    limit, count = 160 * MIB, 3000
    broker = start_broker("--memory-limit", str(limit))
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("long")
    process = psutil.Process(broker.pid)
    peak = 0
    for number in range(count):
        channel.basic_publish("", "long", b"%06d" % number + PAGE)
        peak = max(peak, process.memory_info().rss)
    assert count * len(PAGE) > limit  # without the disk it would have to wait for ever
    assert peak < limit + 64 * MIB
    assert "paging_out" in broker.log_text()
    got = []
    for method, _, body in channel.consume("long", auto_ack=True, inactivity_timeout=DEADLINE_S):
        assert method is not None, f"{len(got)} of {count} came"
        got.append(int(body[:6]))
        if len(got) == count:
            break
    assert got == list(range(count))
    connection.close()
