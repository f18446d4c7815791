"""Clients that have not logged in: however many, they keep nobody out."""

import contextlib
import http.client
import resource
import socket
from collections.abc import Iterator
from random import Random

import pytest

from broker.strangers import Files, Strangers, address_of
from tests.conftest import StartBroker
from tests.support.admin import Api
from tests.support.frames import PROTOCOL_HEADER
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import WireConnection

FILES = 256  # descriptors of the node, where there are few


def door(most: int = 100, of_one_address: int = 100, files: Files | None = None) -> Strangers:
    return Strangers(most=most, of_one_address=of_one_address, files=files or Files(0))


class Crowd:
    """Enters a door, and knows who was dropped, by number."""

    def __init__(self, strangers: Strangers) -> None:
        self.strangers = strangers
        self.dropped: list[int] = []
        self.inside: list = []

    def enter(self, host: str = "10.0.0.1", descriptor: int = 3):
        number = len(self.inside)
        found = self.strangers.enter(host, descriptor, lambda: self.dropped.append(number))
        self.inside.append(found)
        return found


def test_the_oldest_silent_one_of_the_largest_crowd_goes_first() -> None:
    crowd = Crowd(door(most=4))
    crowd.enter("10.0.0.9")
    crowd.enter().heard = True
    crowd.enter()
    crowd.enter()
    crowd.enter("10.0.0.7")
    assert crowd.dropped == [2]
    crowd.enter("10.0.0.7")
    assert crowd.dropped == [2, 3]
    crowd.enter("10.0.0.7")
    assert crowd.dropped == [2, 3, 4]
    assert len(crowd.strangers) == 4


def test_who_is_being_served_stays_and_a_newcomer_is_turned_away_if_all_are() -> None:
    crowd = Crowd(door(most=2))
    first, second = crowd.enter(), crowd.enter("10.0.0.2")
    first.waiting = second.waiting = False
    assert crowd.enter("10.0.0.3") is None
    first.waiting = True
    assert crowd.enter("10.0.0.3") is not None
    assert crowd.dropped == [0]


def test_who_has_logged_in_is_no_stranger_and_is_never_dropped() -> None:
    crowd = Crowd(door(most=2, of_one_address=2))
    for _ in range(50):
        crowd.enter().leave()
        crowd.enter()
    assert len(crowd.strangers) <= 2
    assert not set(range(0, 100, 2)) & set(crowd.dropped)


def test_one_address_has_no_more_than_its_share() -> None:
    crowd = Crowd(door(most=100, of_one_address=3))
    for _ in range(10):
        crowd.enter("10.0.0.1")
    crowd.enter("10.0.0.2")
    assert crowd.dropped == [0, 1, 2, 3, 4, 5, 6]
    assert len(crowd.strangers) == 4


def test_where_descriptors_are_short_the_larger_crowd_of_all_doors_shrinks() -> None:
    files = Files(100, lambda: 1000)
    amqp, web = Crowd(door(files=files)), Crowd(door(files=files))
    for number in range(5):
        amqp.enter(descriptor=890 + number)
    for number in range(5):
        assert web.enter(descriptor=895 + number) is not None
    assert not amqp.dropped
    assert web.enter(descriptor=900) is not None
    assert amqp.dropped == [0]
    amqp.inside[0].end()
    assert web.enter(descriptor=890) is not None  # a low number that was free again
    assert (amqp.dropped, web.dropped) == ([0], [0])
    for stranger in (*amqp.inside, *web.inside):
        stranger.waiting = False
    assert web.enter(descriptor=891) is None


@pytest.mark.parametrize(("limit", "last"), [(1000, 899), (200, 149), (2, 1)])
def test_no_more_than_a_quarter_of_the_descriptors_is_kept(limit: int, last: int) -> None:
    files = Files(100, lambda: limit)
    files.opened(last)
    assert not files.are_short
    files.opened(last + 1)
    assert files.are_short


def test_any_sequence_keeps_within_the_limits() -> None:
    random = Random(20261118)
    crowd = Crowd(door(most=20, of_one_address=6))
    alive: dict[int, object] = {}
    for step in range(5000):
        if alive and random.random() < 0.3:
            alive.pop(random.choice(list(alive))).leave()
        number = len(crowd.inside)
        stranger = crowd.enter(f"10.0.0.{random.randrange(6)}")
        if stranger is not None:
            stranger.waiting = random.random() < 0.8
            alive[number] = stranger
        for gone in crowd.dropped:
            alive.pop(gone, None)
        crowd.dropped.clear()
        addresses = [each.address for each in alive.values()]
        assert len(crowd.strangers) == len(alive) <= 20, step
        assert max(map(addresses.count, addresses)) <= 6, step


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_network_of_ipv6_is_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


# With sockets


@contextlib.contextmanager
def silent(port: int, count: int, say: bytes = b"") -> Iterator[None]:
    """Sockets that say nothing, or no more than this. Some may be closed by the node at once."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            with contextlib.suppress(ConnectionError):
                sock.sendall(say)
        yield


def health(node: BrokerProcess) -> int:
    connection = http.client.HTTPConnection(node.host, node.http_port, timeout=60)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def work(node: BrokerProcess) -> None:
    """What an honest client does that comes now."""
    with WireConnection.connect(node.amqp_url()) as connection:
        channel = connection.open_channel()
        channel.declare_queue("honest", durable=True)
        channel.publish("", "honest", b"are you there?")
        eventually(lambda: channel.get("honest", no_ack=True), "the message")


def log_in(node: BrokerProcess) -> Api:
    api = Api(node.host, node.http_port)
    assert api.call("GET", "whoami").status == 200
    return api


@pytest.mark.parametrize("say", [b"", b"GET /heal"])
def test_silent_http_sockets_keep_nobody_out(start_broker: StartBroker, say: bytes) -> None:
    node = start_broker("--http-connections-max", "64")
    known = log_in(node)
    known.headers["Connection"] = "keep-alive"
    kept = known._connection.sock
    with silent(node.http_port, 200, say):
        assert health(node) == 200
        assert log_in(node).call("GET", "overview").status == 200
        assert known.call("GET", "overview").status == 200
        assert known._connection.sock is kept  # not even a new connection was needed
        assert not node.internal_errors()


@pytest.mark.parametrize("say", [b"", PROTOCOL_HEADER])
def test_silent_amqp_sockets_keep_nobody_out(start_broker: StartBroker, say: bytes) -> None:
    node = start_broker("--connections-max", "50")
    with silent(node.amqp_port, 200, say):
        work(node)
        assert health(node) == 200


@pytest.mark.parametrize("door", ["amqp", "http"])
def test_a_node_without_descriptors_left_goes_on(start_broker: StartBroker, door: str) -> None:
    node = start_broker()
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    known = log_in(node)
    with silent(node.amqp_port if door == "amqp" else node.http_port, 2 * FILES):
        work(node)
        assert health(node) == 200
        assert known.call("GET", "overview").status == 200
    work(node)
    node.assert_sound()
    assert not node.internal_errors()


def test_large_bodies_of_strangers_are_not_even_read(start_broker: StartBroker) -> None:
    node = start_broker()
    head = f"POST /api/definitions HTTP/1.1\r\nHost: x\r\nContent-Length: {16 * 2**20}\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            address = (node.host, node.http_port)
            sock = stack.enter_context(socket.create_connection(address, timeout=60))
            sock.sendall(head.encode() + b"\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")
        api = log_in(node)
        user = {"password": "p", "tags": ""}
        assert api.call("PUT", "users", "made-meanwhile", body=user).status == 201
        large = b'{"users": []' + b" " * 2**20 + b"}"
        assert Api(node.host, node.http_port).call("POST", "definitions", body=large).status == 204
        wrong = Api(node.host, node.http_port, password="wrong")
        assert wrong.call("POST", "definitions", body=large).status == 401
