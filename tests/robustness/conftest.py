"""A broker to be ill-treated, and a well-behaved client that must not notice."""

import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import WireConnection

HANDSHAKE_TIMEOUT_S = 2.0
SLOWEST_ROUND_TRIP_S = 4.0
FLAGS = (
    *("--handshake-timeout-s", str(HANDSHAKE_TIMEOUT_S)),
    *("--auth-failure-delay-s", "0"),
    *("--log-level", "error"),
)


class Victims:
    """One broker for the package's tests, and another if a test should manage to end it."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._current: BrokerProcess | None = None

    def one(self) -> BrokerProcess:
        if self._current is None or not self._current.alive:
            self._current = BrokerProcess(self._directories.mktemp("victim"), *FLAGS)
        return self._current

    def dismiss(self) -> None:
        if self._current is not None:
            assert self._current.stop() == 0, self._current.log_text()


@pytest.fixture(scope="package")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victims]:
    victims = Victims(tmp_path_factory)
    yield victims
    victims.dismiss()


@pytest.fixture
def victim(victims: Victims) -> BrokerProcess:
    """A broker of this package's own: junk queues and measured memory stay in here."""
    return victims.one()


class Witness:
    """Publishes and consumes politely in a thread of its own, and times every round trip."""

    def __init__(self, url: str) -> None:
        self._connection = WireConnection.connect(url)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.round_trips_s: list[float] = []
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            channel = self._connection.open_channel()
            queue = channel.declare_queue(exclusive=True).queue
            channel.consume(queue)
            while not self._stop.wait(0.01):
                began = time.monotonic()
                channel.publish("", queue, b"are you there?")
                channel.ack(channel.delivery().delivery_tag)
                self.round_trips_s.append(time.monotonic() - began)
        except BaseException as failure:
            self._failure = failure

    def dismiss(self) -> None:
        """End, and say whether anything was wrong."""
        eventually(lambda: self.round_trips_s or self._failure, "a bystander's first round trip")
        self._stop.set()
        self._thread.join(20)
        self._connection.close()
        assert self._failure is None, f"a bystander was disturbed: {self._failure!r}"
        assert max(self.round_trips_s) < SLOWEST_ROUND_TRIP_S


@pytest.fixture
def url(victim: BrokerProcess) -> Iterator[str]:
    """The victim's address; after the test it is sound, and no bystander was disturbed."""
    process = psutil.Process(victim.pid)
    open_before = process.num_fds()
    logged_before = len(victim.log_text())
    witness = Witness(victim.amqp_url())
    yield victim.amqp_url()
    assert victim.alive, victim.log_text()[logged_before:]
    witness.dismiss()
    assert TRACEBACK not in victim.log_text()[logged_before:], victim.log_text()[logged_before:]
    eventually(
        lambda: process.num_fds() <= open_before, "the broker to close its sockets", within_s=20
    )


@pytest.fixture
def resident_bytes(victim: BrokerProcess) -> Callable[[], int]:
    """Asks how much memory the victim holds."""
    return lambda: psutil.Process(victim.pid).memory_info().rss
