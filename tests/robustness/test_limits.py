"""Limits: time for the handshake, number of connections, and an orderly end."""

import time
from collections.abc import Callable

import pytest

from tests.robustness.conftest import HANDSHAKE_TIMEOUT_S
from tests.support.frames import PROTOCOL_HEADER, Connection
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import ConnectionClosedError, ConnectionLostError, WireConnection

pytestmark = pytest.mark.leveret_only

SLACK_S = 4.0


def test_sockets_that_say_nothing_are_closed_in_time(url: str) -> None:
    silent = [WireConnection.dial(url) for _ in range(300)]
    WireConnection.connect(url).close()
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S + SLACK_S
    for conn in silent:
        assert conn.read_until_eof(deadline - time.monotonic()) in {b"", PROTOCOL_HEADER}
        conn.abort()


def test_a_handshake_that_drips_is_closed_in_time(url: str) -> None:
    conn = WireConnection.dial(url)
    conn.send_raw(PROTOCOL_HEADER)
    conn.expect(Connection.Start)
    began = time.monotonic()
    conn.sock.settimeout(0.1)
    ended = False
    # One byte of a frame that never ends each tenth of a second: activity is no excuse.
    for byte in b"\x01\x00\x00\x00\x00\x10\x00" + bytes(100):
        try:
            conn.sock.sendall(bytes([byte]))
            ended = conn.sock.recv(4096) == b""
        except TimeoutError:
            continue
        except OSError:
            ended = True
        if ended:
            break
    assert ended
    assert time.monotonic() - began < HANDSHAKE_TIMEOUT_S + SLACK_S
    conn.abort()


@pytest.mark.parametrize("stage", ["after tune", "after tune-ok"])
def test_a_handshake_left_half_done_is_closed_in_time(url: str, stage: str) -> None:
    conn = WireConnection.dial(url)
    conn.send_start_ok()
    conn.expect(Connection.Tune)
    if stage == "after tune-ok":
        conn.send(Connection.TuneOk(2047, 131072, 0))
    conn.read_until_eof(HANDSHAKE_TIMEOUT_S + SLACK_S)
    conn.abort()


def test_hundreds_of_connections_work_side_by_side(url: str) -> None:
    conns = [WireConnection.connect(url) for _ in range(300)]
    channels = [conn.open_channel() for conn in conns]
    queue = channels[0].declare_queue("hundreds", auto_delete=True).queue
    channels[0].consume(queue, no_ack=True)
    for number, channel in enumerate(channels):
        channel.publish("", queue, b"%d" % number)
    bodies = {int(content.body) for content in channels[0].deliveries(300)}
    assert bodies == set(range(300))
    for conn in conns:
        conn.close()


def test_connections_above_the_limit_are_turned_away(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    url = start_broker("--connections-max", "3").amqp_url()
    conns = [WireConnection.connect(url) for _ in range(3)]
    with pytest.raises(ConnectionClosedError) as refusal:
        WireConnection.connect(url)
    assert refusal.value.method.reply_code == 530
    assert refusal.value.method.reply_text == "NOT_ALLOWED - connection limit (3) is reached"
    conns.pop().close()

    def lets_in() -> bool:
        try:
            conns.append(WireConnection.connect(url))
        except (ConnectionLostError, AssertionError, OSError):
            return False
        return True

    eventually(lets_in, "a freed place")
    for conn in conns:
        conn.open_channel().qos(1)
        conn.close()


def test_configured_limits_are_offered_and_enforced(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    flags = ["--frame-max-bytes", "8192", "--channel-max", "5", "--heartbeat-s", "7"]
    url = start_broker(*flags).amqp_url()
    with WireConnection.connect(url, frame_max=8192, channel_max=5) as conn:
        tune = conn.tune
        assert (tune.frame_max, tune.channel_max, tune.heartbeat) == (8192, 5, 7)
    conn = WireConnection.dial(url)
    conn.send_start_ok()
    conn.expect(Connection.Tune)
    conn.send(Connection.TuneOk(6, 8192, 0))
    conn.expect_close(530)


def test_sigterm_tells_clients_goodbye_and_ends_well(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("--shutdown-grace-s", "1")
    polite, gone = (WireConnection.connect(broker.amqp_url()) for _ in range(2))
    polite.open_channel()
    gone.abort()
    half_open = WireConnection.dial(broker.amqp_url())
    broker.terminate()
    polite.expect_close(320, "CONNECTION_FORCED")
    assert broker.stop() == 0
    half_open.abort()


def test_sigterm_does_not_wait_for_clients_that_never_answer(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("--shutdown-grace-s", "0.5")
    deaf = WireConnection.connect(broker.amqp_url())
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < 5
    deaf.abort()
