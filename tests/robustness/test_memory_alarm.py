"""The memory alarm: publishers wait, consumers go on, and it ends."""

import time

import pika
import pytest

from flow_control.memory import MemoryAlarm, memory_bytes
from tests.support.frames import Connection
from tests.support.wire import WireConnection

MIB = 1024 * 1024
BODY = bytes(256 * 1024)
DEADLINE_S = 60


def test_the_alarm_ends_a_good_way_under_its_limit():
    alarm = MemoryAlarm(1000)
    readings = [999, 1001, 999, 901, 899, 1000, 1001]
    assert [alarm.update(used) for used in readings] == [
        *(False, True, False, False, True, False, True)
    ]
    assert alarm.on


def test_a_container_has_the_memory_it_is_allowed(tmp_path):
    (tmp_path / "memory.max").write_text("123456789\n")
    (tmp_path / "none").write_text("max\n")
    whole = memory_bytes(())
    assert memory_bytes((tmp_path / "missing", tmp_path / "none")) == whole
    assert memory_bytes((tmp_path / "memory.max",)) == 123456789


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
    channel.queue_declare("flood")
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
