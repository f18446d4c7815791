"""Heartbeats both ways, with the shortest interval AMQP has.

The broker's own heartbeats on a connection that does answer them are the clock of these tests.
"""

import time

from tests.support.frames import Channel, raw_method
from tests.support.scene import Scene

FLOW = raw_method(1, 20, 20, b"\x01")


def test_the_broker_sends_heartbeats_when_it_has_nothing_to_say(scene: Scene) -> None:
    conn = scene.connect(heartbeat_s=1)
    began = time.monotonic()
    conn.await_heartbeats(2, timeout=4)
    assert time.monotonic() - began < 3


def test_a_client_gone_silent_is_dropped_and_its_messages_come_back(scene: Scene) -> None:
    silent = scene.channel(heartbeat_s=1)
    queue = scene.queue(silent)
    silent.publish("", queue, b"held")
    assert silent.get(queue)
    began = time.monotonic()
    other = scene.channel()
    other.consume(queue)
    got = other.delivery(timeout=8)
    assert (got.body, got.redelivered) == (b"held", True)
    assert 1.0 < time.monotonic() - began < 6
    silent.conn.read_until_eof(timeout=1)


def test_any_byte_keeps_a_connection_alive_and_interval_zero_needs_none(scene: Scene) -> None:
    clock, busy, halting = (scene.connect(heartbeat_s=1) for _ in range(3))
    busy.open_channel(1)
    halting.open_channel(1)
    without = scene.connect(heartbeat_s=0)
    for tick in range(1, 9):
        clock.send_heartbeat()
        busy.send_raw(FLOW)
        halting.send_raw(FLOW[tick - 1 : tick])
        clock.await_heartbeats(tick, timeout=3)
    halting.send_raw(FLOW[8:])
    for _ in range(8):
        busy.expect(Channel.FlowOk, channel=1)
    halting.expect(Channel.FlowOk, channel=1)
    without.open_channel().qos(1)
    assert without.heartbeats == []
