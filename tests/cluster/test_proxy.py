"""The network that tests put between nodes does to connections what they ask of it."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster.proxy import HOST, Network
from tests.support.waiting import eventually

SILENCE_S = 0.2


class Echo:
    """A node that sends back what it gets, and can speak first."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.address = self._listener.getsockname()
        self.accepted: list[socket.socket] = []
        self.got = b""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted.append(sock)
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        try:
            while data := sock.recv(1000):
                self.got += data
                sock.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self.accepted:
            sock.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def network(echo: Echo) -> Iterator[Network]:
    network = Network({"a": (HOST, 1), "b": echo.address, "c": (HOST, 1)})
    yield network
    network.close()


def dial(network: Network) -> socket.socket:
    host, port = network.address("a", "b").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def talk(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    assert heard(sock, len(data)) == data


def heard(sock: socket.socket, size: int) -> bytes:
    sock.settimeout(10)
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data)) or pytest.fail(f"ended after {data!r}")
    return data


def silent(sock: socket.socket) -> bool:
    sock.settimeout(SILENCE_S)
    try:
        return sock.recv(1) is None
    except TimeoutError:
        return True


def test_data_passes_both_ways(network: Network) -> None:
    with dial(network) as sock:
        talk(sock, b"hello" * 100_000)


def test_a_cut_holds_data_back_and_healing_lets_it_pass(network: Network, echo: Echo) -> None:
    with dial(network) as sock:
        talk(sock, b"1")
        network.cut("a", "b")
        sock.sendall(b"2")
        assert silent(sock)
        assert echo.got == b"1"
        network.heal()
        assert heard(sock, 1) == b"2"


def test_a_cut_one_way_lets_the_other_way_work(network: Network, echo: Echo) -> None:
    with dial(network) as sock:
        talk(sock, b"1")
        network.cut_one_way("b", "a")
        sock.sendall(b"2")
        eventually(lambda: echo.got == b"12", "what was sent")
        assert silent(sock)
        network.heal()
        assert heard(sock, 1) == b"2"
        network.cut_one_way("a", "b")
        echo.accepted[0].sendall(b"3")
        assert heard(sock, 1) == b"3"
        sock.sendall(b"4")
        assert silent(sock)
        assert echo.got == b"12"


def test_a_cut_between_others_is_not_felt(network: Network) -> None:
    with dial(network) as sock:
        network.cut("a", "c")
        network.cut("b", "c")
        talk(sock, b"1")


def test_a_node_that_is_isolated_cannot_be_reached_anew(network: Network, echo: Echo) -> None:
    network.isolate("b")
    with dial(network) as sock:
        sock.sendall(b"1")
        assert silent(sock)
        assert echo.accepted == []
        network.heal()
        assert heard(sock, 1) == b"1"


def test_nobody_learns_over_a_cut_that_the_other_end_is_gone(network: Network, echo: Echo) -> None:
    with dial(network) as sock:
        talk(sock, b"1")
        network.cut("a", "b")
        echo.accepted[0].shutdown(socket.SHUT_RDWR)
        assert silent(sock)
        network.heal()
        sock.settimeout(10)
        with _ended():
            assert sock.recv(1) == b""


class _ended:  # noqa: N801 - reads like a word
    """An end of the stream, polite or not."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, ConnectionError)


def test_a_delay_delays(network: Network) -> None:
    with dial(network) as sock:
        network.delay("a", "b", 0.1)
        began = time.monotonic()
        talk(sock, b"1")
        assert time.monotonic() - began >= 0.2


def test_broken_connections_end_at_once_and_new_ones_work(network: Network) -> None:
    with dial(network) as sock:
        talk(sock, b"1")
        network.break_connections("a", "b")
        sock.settimeout(10)
        with _ended():
            assert sock.recv(1) == b""
    with dial(network) as sock:
        talk(sock, b"2")
