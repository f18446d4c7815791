"""From the first byte to an open connection: versions, login, tuning, vhosts, closing."""

import struct
import time
from typing import Any

import pytest

from tests.support.frames import PROTOCOL_HEADER, Channel, Connection, raw_frame, unvalidated
from tests.support.scene import Scene
from tests.support.wire import ConnectionLostError, WireConnection

CAPABILITIES = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
]


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(b"AMQP\x00\x01\x00\x00", id="AMQP 1.0"),
        pytest.param(b"AMQP\x01\x01\x00\x0a", id="AMQP 0-10"),
        pytest.param(b"AMQP\x00\x00\x09\x00", id="AMQP 0-9-0"),
        pytest.param(b"AMQP\x03\x01\x00\x00", id="AMQP 1.0 over SASL"),
        pytest.param(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03", id="TLS"),
    ],
)
def test_another_protocol_is_told_which_one_is_spoken_here(scene: Scene, opening: bytes) -> None:
    conn = scene.dial()
    conn.send_raw(opening)
    assert conn.read_until_eof() == PROTOCOL_HEADER


def test_a_client_that_announces_amqp_0_9_is_served(scene: Scene) -> None:
    connection = scene.connect(protocol_header=b"AMQP\x01\x01\x00\x09")
    assert (connection.start.version_major, connection.start.version_minor) == (0, 9)
    channel = connection.open_channel()
    queue = scene.queue(channel)
    channel.publish("", queue, b"from afar")
    channel.consume(queue)
    assert channel.delivery().body == b"from afar"


def test_the_broker_introduces_itself_as_clients_expect(connection: WireConnection) -> None:
    start = connection.start
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms.split() == ["PLAIN", "AMQPLAIN"]
    assert start.locales == "en_US"
    properties = start.server_properties
    assert {"product", "version", "platform", "cluster_name"} <= properties.keys()
    assert all(properties["capabilities"][name] is True for name in CAPABILITIES)


def test_kombu_takes_the_broker_for_one_with_per_consumer_prefetch(
    connection: WireConnection,
) -> None:
    properties = connection.start.server_properties
    assert properties["product"] == "RabbitMQ"
    assert tuple(int(part) for part in properties["version"].split(".")[:2]) >= (3, 3)


def test_the_offered_limits_are_those_of_rabbitmq(connection: WireConnection) -> None:
    tune = connection.tune
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_both_mechanisms_let_the_user_in(scene: Scene, mechanism: str) -> None:
    scene.connect(mechanism=mechanism).open_channel()


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize("login", [{"password": "wrong"}, {"user": "nobody"}], ids=str)
def test_a_wrong_login_is_refused_in_words_to_clients_that_understand_them(
    scene: Scene, mechanism: str, login: dict[str, str]
) -> None:
    conn = scene.dial()
    conn.send_start_ok(mechanism=mechanism, **login)
    close = conn.expect(Connection.Close)
    assert close.reply_code == 403
    assert close.reply_text == (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. "
        "For details see the broker logfile."
    )


def test_a_wrong_login_without_the_capability_only_ends_the_stream(scene: Scene) -> None:
    conn = scene.dial()
    began = time.monotonic()
    conn.send_start_ok(password="wrong", capabilities={})
    conn.expect_eof()
    assert time.monotonic() - began > 0.15, "guessing must be slow"


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("CRAM-MD5", "x"), ("EXTERNAL", "x"), ("PLAIN", "nonsense"), ("AMQPLAIN", "nonsense")],
)
def test_a_login_that_makes_no_sense_never_gets_in(
    scene: Scene, mechanism: str, response: str
) -> None:
    conn = scene.dial()
    conn.send_raw(PROTOCOL_HEADER)
    conn.expect(Connection.Start)
    conn.send(Connection.StartOk({}, mechanism, response, "en_US"))
    with pytest.raises((ConnectionLostError, AssertionError)):
        conn.expect(Connection.Tune)
    assert not conn.pending(0)


@pytest.mark.parametrize("vhost", ["nowhere", ""])
def test_an_unknown_vhost_is_refused(scene: Scene, vhost: str) -> None:
    conn = scene.dial()
    conn.send_start_ok()
    conn.expect(Connection.Tune)
    conn.send(Connection.TuneOk(2047, 131072, 0))
    conn.send(unvalidated(Connection.Open, virtual_host=vhost))
    close = conn.expect_close(530, f"NOT_ALLOWED - vhost {vhost} not found")
    assert (close.class_id, close.method_id) == (10, 40)


@pytest.mark.leveret_only
@pytest.mark.parametrize(
    "tune_ok",
    [
        pytest.param((2047, 131073, 0), id="frame_max above the offer"),
        pytest.param((2048, 131072, 0), id="channel_max above the offer"),
        pytest.param((2047, 4095, 0), id="frame_max below AMQP's least"),
    ],
)
def test_a_tune_ok_outside_the_offer_is_refused(
    scene: Scene, tune_ok: tuple[int, int, int]
) -> None:
    conn = scene.dial()
    conn.send_start_ok()
    conn.expect(Connection.Tune)
    conn.send(Connection.TuneOk(*tune_ok))
    conn.expect_close(530, "NOT_ALLOWED")


@pytest.mark.parametrize(
    "tune_ok",
    [
        pytest.param({"frame_max": 4096}, id="the smallest frames"),
        pytest.param({"channel_max": 1}, id="one channel"),
        pytest.param({"heartbeat_s": 1000}, id="a heartbeat above the offer"),
    ],
)
def test_the_client_may_ask_for_less_than_offered(scene: Scene, tune_ok: dict[str, int]) -> None:
    scene.connect(**tune_ok).open_channel()


OUT_OF_ORDER: list[Any] = [
    pytest.param(lambda conn: conn.send(Channel.Open(), 1), id="channel.open"),
    pytest.param(lambda conn: conn.send(Connection.Open()), id="open before start-ok"),
    pytest.param(lambda conn: conn.send(Connection.TuneOk(0, 0, 0)), id="tune-ok first"),
    pytest.param(lambda conn: conn.send_raw(raw_frame(1, 0, bytes(9000))), id="too large a frame"),
    pytest.param(lambda conn: conn.send_raw(raw_frame(3, 0, b"body")), id="a body"),
    pytest.param(lambda conn: conn.send_raw(struct.pack(">BHI", 1, 0, 2**32 - 1)), id="4 GiB"),
]


@pytest.mark.parametrize("speak", OUT_OF_ORDER)
def test_who_speaks_out_of_order_in_the_handshake_gets_no_connection(
    scene: Scene, speak: Any
) -> None:
    conn = scene.dial()
    conn.send_raw(PROTOCOL_HEADER)
    conn.expect(Connection.Start)
    speak(conn)
    assert b"\x00\x0a\x00\x1e" not in conn.read_until_eof(), "tune was sent"


def test_a_heartbeat_during_the_handshake_is_harmless(scene: Scene) -> None:
    conn = scene.dial()
    conn.send_raw(PROTOCOL_HEADER)
    conn.expect(Connection.Start)
    conn.send_heartbeat()
    conn.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
    conn.expect(Connection.Tune)


def test_a_handshake_in_single_bytes_works(scene: Scene) -> None:
    conn = scene.dial()
    for byte in PROTOCOL_HEADER:
        conn.send_raw(bytes([byte]))
    conn.expect(Connection.Start)


def test_a_client_may_pipeline_its_whole_handshake(scene: Scene) -> None:
    conn = scene.dial()
    conn.send_raw(PROTOCOL_HEADER)
    conn.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
    conn.send(Connection.TuneOk(2047, 131072, 0))
    conn.send(Connection.Open())
    conn.send(Channel.Open(), 1)
    for method in (Connection.Start, Connection.Tune, Connection.OpenOk):
        conn.expect(method)
    conn.expect(Channel.OpenOk, channel=1)


def test_the_secret_can_be_updated(connection: WireConnection) -> None:
    connection.send(Connection.UpdateSecret("guest", "token expired"))
    connection.expect(Connection.UpdateSecretOk)


def test_a_closed_connection_says_close_ok_and_nothing_more(scene: Scene) -> None:
    channel = scene.channel()
    queue = scene.queue(channel, exclusive=True)
    channel.consume(queue, no_ack=True)
    channel.conn.send(Connection.Close(200, "bye", 0, 0))
    channel.publish("", queue, b"too late")
    channel.conn.expect(Connection.CloseOk)
    assert not channel.pending()


@pytest.mark.leveret_only
def test_a_user_without_access_to_a_vhost_is_refused(start_broker: Any) -> None:
    broker = start_broker(config=TWO_VHOSTS)
    conn = WireConnection.dial(broker.amqp_url())
    conn.send_start_ok(user="ada", password="lovelace")
    conn.expect(Connection.Tune)
    conn.send(Connection.TuneOk(2047, 131072, 0))
    conn.send(Connection.Open(virtual_host="private"))
    conn.expect_close(530, "NOT_ALLOWED - access to vhost 'private' refused for user 'ada'")


@pytest.mark.leveret_only
def test_queues_of_two_vhosts_are_strangers(start_broker: Any) -> None:
    broker = start_broker(config=TWO_VHOSTS)
    options = {"user": "root", "password": "beer"}
    with (
        WireConnection.connect(broker.amqp_url(), **options) as here,
        WireConnection.connect(broker.amqp_url(), vhost="private", **options) as there,
    ):
        one, other = here.open_channel(), there.open_channel()
        one.declare_queue("twin")
        other.declare_queue("twin", auto_delete=True)
        one.publish("", "twin", b"here")
        other.publish("", "twin", b"there")
        assert one.get_all("twin") == [b"here"]
        assert other.get_all("twin") == [b"there"]


TWO_VHOSTS = """
vhosts = ["/", "private"]
[[users]]
name = "ada"
password = "lovelace"
permissions = [{vhost = "/", configure = ".*", write = ".*", read = ".*"}]
[[users]]
name = "root"
password = "beer"
permissions = [
  {vhost = "/", configure = ".*", write = ".*", read = ".*"},
  {vhost = "private", configure = ".*", write = ".*", read = ".*"},
]
"""
