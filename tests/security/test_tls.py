"""TLS for clients: AMQP, HTTP and the stream protocol; certificates of clients; reloading."""

import http.client
import re
import signal
import socket
import ssl
import struct
import threading

import amqp
import amqp.sasl
import pika
import pytest
import trio
import trustme
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import (
    ANSWER_BYTES_MAX,
    END,
    PROTOCOL_HEADER,
    FrameBuffer,
    Operation,
    Status,
    encode_request,
    read_answer,
)
from broker.security.tls import certified_name
from clients.stream_errors import ConnectionLostError
from clients.streams import connect
from clients.trio_streams import connect_streams
from tests.shell.process import running
from tests.support.admin import Api, basic
from tests.support.frames import Connection
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import WireConnection

DEADLINE_S = 30.0
CLOSED_CONNECTIONS = re.compile(r"^rabbitmq_connections_closed_total (\S+)$", re.MULTILINE)
TLS_PORTS = re.compile(r"amqps=[\d.]+:(\d+) https=[\d.]+:(\d+)")


class Place:
    """An authority, the files of a node, and the node."""

    def __init__(self, directory):
        self.authority = trustme.CA()
        self.directory = directory
        directory.mkdir()
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.authority_path = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.authority_path))
        self.write_certificate(self.authority)
        self.node = None

    def write_certificate(self, authority):
        issued = authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self.certificate.write_bytes(chain)
        self.key.write_bytes(issued.private_key_pem.bytes())

    def start(self, *flags):
        files = ("--tls-certificate", str(self.certificate), "--tls-key", str(self.key))
        ports = ("--amqps-port", "0", "--https-port", "0", "--auth-failure-delay-s", "0")
        self.node = BrokerProcess(self.directory / "broker", *files, *ports, *flags)
        eventually(lambda: TLS_PORTS.search(self.node.log_text()), "the ready line")
        self.amqps, self.https = map(int, TLS_PORTS.search(self.node.log_text()).groups())
        return self

    def context(self, identity=None, authority=None):
        context = ssl.create_default_context()
        (authority or self.authority).configure_trust(context)
        if identity is not None:
            identity.configure_cert(context)
        return context

    def pika(self, context, credentials=None):
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.amqps,
                credentials=credentials or pika.PlainCredentials("guest", "guest"),
                ssl_options=pika.SSLOptions(context),
            )
        )

    def declare_stream(self, name):
        with self.pika(self.context()) as connection:
            arguments = {"x-queue-type": "stream"}
            connection.channel().queue_declare(name, durable=True, arguments=arguments)

    def get(self, path, context):
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.https, context=context, timeout=DEADLINE_S
        )
        connection.request("GET", path, headers={"Authorization": basic("guest", "guest")})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def closed_connections(self):
        _, body = self.get("/metrics", self.context())
        return float(CLOSED_CONNECTIONS.search(body.decode())[1])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A node that asks clients for a certificate and does not insist."""
    place = Place(tmp_path_factory.mktemp("tls") / "place")
    place.start("--tls-ca", str(place.authority_path), "--tls-verify", "optional")
    yield place
    place.node.assert_sound()
    assert place.node.stop() == 0


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "place")
    yield place
    if place.node is not None and place.node.alive:
        place.node.assert_sound()
        place.node.stop()


# Speaking


def test_messages_of_every_size_pass_through_tls(shared):
    with shared.pika(shared.context()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("sizes", exclusive=True)
        bodies = [bytes([size % 251]) * size for size in (0, 1, 16_383, 16_385, 300_000, 5_000_000)]
        for body in bodies:
            channel.basic_publish("", "sizes", body)
        got = [channel.basic_get("sizes", auto_ack=True)[2] for _ in bodies]
        assert got == bodies


def test_a_consumer_that_reads_late_gets_everything(shared):
    """What the socket does not take waits, encrypted, and goes on when it does."""
    count, size = 400, 20_000
    with shared.pika(shared.context()) as publisher:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.queue_declare("late")
        raw = socket.create_connection(("127.0.0.1", shared.amqps), timeout=DEADLINE_S)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        consumer = WireConnection(shared.context().wrap_socket(raw, server_hostname="127.0.0.1"))
        consumer.handshake()
        reader = consumer.open_channel()
        reader.consume("late", no_ack=True)
        for number in range(count):
            channel.basic_publish("", "late", struct.pack(">I", number) + bytes(size))
        for number in range(count):
            assert reader.delivery().body[:4] == struct.pack(">I", number)
        consumer.close()
        channel.queue_delete("late")


def test_the_management_api_is_there_over_https(shared):
    assert shared.get("/api/whoami", shared.context()) == (
        200,
        b'{"name": "guest", "tags": ["administrator"]}\n',
    )


def test_the_stream_protocol_passes_through_tls(shared):
    with shared.pika(shared.context()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for _ in range(50):
            channel.basic_publish("", "s", bytes(100_000))
    raw = socket.create_connection(("127.0.0.1", shared.amqps), timeout=DEADLINE_S)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    with shared.context().wrap_socket(raw, server_hostname="127.0.0.1") as client:
        client.sendall(PROTOCOL_HEADER)
        buffer = FrameBuffer(ANSWER_BYTES_MAX)

        def ask(operation, message):
            client.sendall(encode_request(1, operation, wire.encode_body(message)))
            while (frame := buffer.take()) is None:
                data = client.recv(1 << 18)
                assert data, "the broker ended the connection"
                buffer.feed(data)
            return read_answer(frame)

        login = wire.Authenticate("PLAIN", b"\0guest\0guest", "/", "a test")
        assert ask(Operation.AUTHENTICATE, login).status == Status.OK
        offset = 0
        for _ in range(100):
            answer = ask(Operation.FETCH, wire.Fetch("s", 0, offset, END, 1 << 20, 1, 1000))
            assert answer.status == Status.OK, bytes(answer.body)
            head = wire.decode_body(wire.FetchHead, answer.body[: wire.FETCH_HEAD_BYTES])
            offset = head.resume_offset
            if offset == 50:
                break
        assert offset == 50


def test_the_blocking_stream_client_speaks_tls(shared):
    url = f"amqps://127.0.0.1:{shared.amqps}?cacertfile={shared.authority_path}"
    shared.declare_stream("blocking-tls")
    values = [b"", b"x", bytes(3_000_000)]
    with connect(url, timeout_s=DEADLINE_S) as client:
        with client.producer("blocking-tls") as producer:
            for value in values:
                producer.send(value)
        reader = iter(client.reader("blocking-tls", partition=0, offset=0))
        assert [next(reader).value for _ in values] == values
        with client.group("g", ["blocking-tls"], start="first") as member:  # connects by itself
            eventually(lambda: member.poll(1.0), "records for the group")


async def test_the_trio_stream_client_speaks_tls(shared):
    url = f"amqps://127.0.0.1:{shared.amqps}?cacertfile={shared.authority_path}"
    shared.declare_stream("trio-tls")
    values = [b"", b"x", bytes(3_000_000)]
    with trio.fail_after(DEADLINE_S):
        async with connect_streams(url) as streams:
            async with streams.producer("trio-tls") as producer:
                for value in values:
                    await producer.send(value)
            reader = streams.reader("trio-tls", end=len(values))
            found = [record.value async for record in reader]
    assert found == values


def test_stream_clients_do_not_talk_to_servers_that_they_do_not_trust(shared, tmp_path):
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    with pytest.raises(ConnectionLostError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(f"amqps://127.0.0.1:{shared.amqps}?cacertfile={stranger}")
    with pytest.raises(ConnectionLostError, match=r"nowhere\.pem"):
        connect(f"amqps://127.0.0.1:{shared.amqps}?cacertfile={tmp_path}/nowhere.pem")


def test_plain_and_tls_ports_serve_at_the_same_time(shared):
    api = Api(shared.node.host, shared.node.http_port)
    assert api.call("GET", "whoami").status == 200
    WireConnection.connect(shared.node.amqp_url()).close()


def test_without_plain_ports_there_is_no_way_in_but_tls(place):
    files = ("--tls-certificate", str(place.certificate), "--tls-key", str(place.key))
    ports = ("--amqps-port", "0", "--https-port", "0", "--plain-ports", "off")
    with running("serve", *files, *ports, "--data-dir", str(place.directory / "data")) as (_, line):
        assert line.startswith("leveret ready amqp=off http=off ")
        place.amqps, place.https = map(int, TLS_PORTS.search(line).groups())
        place.pika(place.context()).close()
        assert place.get("/health", place.context())[0] == 200


# Clients that do something else


@pytest.mark.parametrize("port", ["amqps", "https"])
@pytest.mark.parametrize(
    "said",
    [
        b"AMQP\0\0\x09\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x05junk!",
        b"",
        b"\xff" * 4096,
    ],
    ids=["amqp", "http", "a broken hello", "nothing", "junk"],
)
def test_who_does_not_speak_tls_is_closed_and_nobody_else_notices(shared, port, said):
    with socket.create_connection(("127.0.0.1", getattr(shared, port)), DEADLINE_S) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(DEADLINE_S)
        try:
            while client.recv(4096):
                pass
        except ConnectionResetError:
            pass
    shared.pika(shared.context()).close()


def test_who_says_nothing_is_not_waited_for(place):
    place.start("--handshake-timeout-s", "0.2")
    with socket.create_connection(("127.0.0.1", place.amqps), DEADLINE_S) as client:
        client.settimeout(DEADLINE_S)
        assert client.recv(1) == b""
    eventually(lambda: "tls_failed" in place.node.log_text(), "the log")


def test_a_client_that_trusts_another_authority_refuses_the_node(shared):
    stranger = shared.context(authority=trustme.CA())
    with pytest.raises((AMQPConnectionError, ssl.SSLError)):
        shared.pika(stranger)
    with pytest.raises(ssl.SSLCertVerificationError):
        shared.get("/api/whoami", stranger)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(shared):
    context = shared.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", shared.amqps), DEADLINE_S) as raw,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


# Certificates of clients


@pytest.fixture
def ada(shared):
    api = Api(shared.node.host, shared.node.http_port)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.call("PUT", "users", "ada", body={"tags": ""}).status in (201, 204)
    assert api.call("PUT", "permissions", "/", "ada", body=everything).status in (201, 204)
    yield "ada"
    api.call("DELETE", "users", "ada")


def test_a_certificate_logs_in_the_user_whom_it_names(shared, ada):
    identity = shared.authority.issue_cert("client.test", common_name="ada")
    with shared.pika(shared.context(identity), ExternalCredentials()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(user_id="ada")  # checked against who is logged in
        channel.queue_declare("mine", exclusive=True)
        channel.basic_publish("", "mine", b"m", properties)


def test_a_certificate_does_not_keep_from_logging_in_by_password(shared, ada):
    identity = shared.authority.issue_cert("client.test", common_name="ada")
    shared.pika(shared.context(identity)).close()


def test_a_certificate_that_names_nobody_logs_nobody_in(shared):
    stranger = shared.authority.issue_cert("client.test", common_name="stranger")
    with pytest.raises(AMQPConnectionError):
        shared.pika(shared.context(stranger), ExternalCredentials())


def test_without_a_certificate_external_is_neither_offered_nor_taken(shared, ada):
    raw = socket.create_connection(("127.0.0.1", shared.amqps), timeout=DEADLINE_S)
    client = WireConnection(shared.context().wrap_socket(raw, server_hostname="127.0.0.1"))
    client.send_start_ok(user="ada", password="", mechanism="EXTERNAL")
    assert "EXTERNAL" not in client.start.mechanisms
    client.expect_eof()


@pytest.mark.parametrize(
    ("name", "offered"),
    [("ada", ["EXTERNAL", "PLAIN", "AMQPLAIN"]), ("host.test", ["PLAIN", "AMQPLAIN"])],
)
def test_external_is_offered_to_whose_certificate_names_a_user(shared, ada, name, offered):
    with greeted(shared, name) as client:
        assert client.start.mechanisms.split() == offered


def test_py_amqp_logs_in_by_password_behind_a_certificate_that_names_no_user(shared, tmp_path):
    identity = shared.authority.issue_cert("client.test", common_name="host.test")
    path = str(tmp_path / "client.pem")
    identity.private_key_and_cert_chain_pem.write_to_path(path)
    connection = amqp.Connection(
        f"127.0.0.1:{shared.amqps}",
        ssl={"certfile": path, "ca_certs": str(shared.authority_path)},
        authentication=(amqp.sasl.EXTERNAL(), amqp.sasl.PLAIN("guest", "guest")),
    )
    connection.connect()
    assert connection.connected
    connection.close()


def test_mechanisms_are_offered_and_taken_as_configured(place):
    place.start(
        *("--tls-ca", str(place.authority_path), "--tls-verify", "optional"),
        *("--auth-mechanisms", "AMQPLAIN,PLAIN"),
    )
    with greeted(place, "guest") as client:
        assert client.start.mechanisms.split() == ["AMQPLAIN", "PLAIN"]
    identity = place.authority.issue_cert("client.test", common_name="guest")
    raw = socket.create_connection(("127.0.0.1", place.amqps), timeout=DEADLINE_S)
    client = WireConnection(place.context(identity).wrap_socket(raw, server_hostname="127.0.0.1"))
    client.send_start_ok(mechanism="EXTERNAL")
    client.expect_eof()


def greeted(place, name):
    """A client with a certificate of that common name, logged in by password."""
    identity = place.authority.issue_cert("client.test", common_name=name)
    raw = socket.create_connection(("127.0.0.1", place.amqps), timeout=DEADLINE_S)
    client = WireConnection(place.context(identity).wrap_socket(raw, server_hostname="127.0.0.1"))
    client.handshake()
    return client


def test_a_certificate_of_another_authority_is_refused(shared):
    identity = trustme.CA().issue_cert("client.test", common_name="guest")
    with pytest.raises((AMQPConnectionError, ssl.SSLError)):
        shared.pika(shared.context(identity), ExternalCredentials())


def test_where_certificates_are_required_none_is_not_enough(place):
    place.start("--tls-ca", str(place.authority_path), "--tls-verify", "required")
    with pytest.raises((AMQPConnectionError, ssl.SSLError)):
        place.pika(place.context())
    identity = place.authority.issue_cert("client.test", common_name="guest")
    place.pika(place.context(identity), ExternalCredentials()).close()
    assert place.get("/health", place.context())[0] == 200, "HTTP asks for none"


def test_the_name_may_be_an_alternative_name(place):
    place.start(
        *("--tls-ca", str(place.authority_path), "--tls-verify", "required"),
        *("--tls-login-from", "dns"),
    )
    by_name = place.authority.issue_cert("guest", common_name="stranger")
    place.pika(place.context(by_name), ExternalCredentials()).close()


@pytest.mark.parametrize(
    ("login_from", "name"),
    [
        ("common_name", "ada,lovelace"),
        ("dns", "one.test"),
        ("email", "ada@test"),
        ("uri", "urn:ada"),
        ("ip", "192.0.2.1"),
    ],
)
def test_where_a_certificate_names_its_user(login_from, name):
    certificate = {
        "subject": (
            (("organizationName", "o"),),
            (("commonName", "ada"),),
            (("commonName", "lovelace"),),
        ),
        "subjectAltName": (
            ("DNS", "one.test"),
            ("DNS", "two.test"),
            ("email", "ada@test"),
            ("URI", "urn:ada"),
            ("IP Address", "192.0.2.1"),
        ),
    }
    assert certified_name(certificate, login_from) == name
    assert certified_name({}, login_from) is None


# Reloading


def serves(place, authority):
    """Whether new connections get a certificate of this authority, on both ports."""
    try:
        place.pika(place.context(authority=authority)).close()
        place.get("/health", place.context(authority=authority))
    except (AMQPConnectionError, ssl.SSLError):
        return False
    return True


@pytest.mark.parametrize("how", ["hangup", "by itself"])
def test_a_new_certificate_is_used_without_a_restart(place, how):
    place.start()
    old = place.pika(place.context())
    assert serves(place, place.authority)
    successor = trustme.CA()
    place.write_certificate(successor)
    if how == "hangup":
        place.node._process.send_signal(signal.SIGHUP)
    eventually(lambda: serves(place, successor), "the new certificate", within_s=60.0)
    assert not serves(place, place.authority)
    old.channel().queue_declare("x", exclusive=True)  # who was there stays
    old.close()


def test_files_that_cannot_be_used_leave_everything_as_it_is(place):
    place.start()
    place.key.write_text("no key")
    place.node._process.send_signal(signal.SIGHUP)
    eventually(lambda: "not_reloaded" in place.node.log_text(), "the log")
    assert serves(place, place.authority)
    place.certificate.unlink()
    place.node._process.send_signal(signal.SIGHUP)
    eventually(lambda: place.node.log_text().count("not_reloaded") > 1, "the log")
    assert serves(place, place.authority)


@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_a_node_does_not_start_with_files_that_cannot_be_used(place, broken):
    getattr(place, broken).write_text("nonsense")
    with pytest.raises(AssertionError, match="cannot use TLS"):
        place.start()


# Many at a time


def test_many_connections_shake_hands_at_the_same_time(shared):
    failures = []

    def come_and_go():
        try:
            for _ in range(3):
                shared.pika(shared.context()).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_client_that_lingers_after_its_close_over_tls_disturbs_nobody(shared):
    """Nothing is written behind close-ok: TLS has ended, and a heartbeat would be an error."""
    sock = socket.create_connection(("127.0.0.1", shared.amqps), timeout=DEADLINE_S)
    connection = WireConnection(shared.context().wrap_socket(sock, server_hostname="127.0.0.1"))
    connection.handshake(heartbeat_s=1)
    before = shared.closed_connections()
    connection.send(Connection.Close(200, "bye", 0, 0))
    connection.expect(Connection.CloseOk)
    eventually(lambda: shared.closed_connections() > before, "the node gives the client up")
    assert not shared.node.internal_errors()
    connection.abort()
