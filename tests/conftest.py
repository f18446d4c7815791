"""The broker that tests share, and what every test over a socket starts from."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from broker.internal_errors import InternalErrors
from tests.support.admin import Api
from tests.support.ports import free_ports
from tests.support.process import TRACEBACK, BrokerProcess, OtherBroker
from tests.support.scene import Scene
from tests.support.sharing import Sharing, put_in_order
from tests.support.wire import WireChannel, WireConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER_BROKER = "LEVERET_TEST_URL"
ON_A_CLUSTER = "LEVERET_TEST_CLUSTER"  # the shared broker is one of three nodes
PROVOKES = "provokes_internal_errors"
WORKER = "PYTEST_XDIST_WORKER"
StartBroker = Callable[..., BrokerProcess]

# The default makes a wrong password cost a second, which is for attackers and not for tests.
SHARED_BROKER_FLAGS = ("--auth-failure-delay-s", "0.2")


# Pipelines of tests are over before an archive of Spark's classes pays; tests leave nothing behind.
os.environ["LEVERET_SPARK_CACHE"] = "off"

# The same examples in every run; what fails here fails everywhere. So literals out of the modules
# that happen to be loaded, which hypothesis would mix in, are left out.
providers._get_local_constants = providers.Constants
settings.register_profile("leveret", derandomize=True, print_blob=True, deadline=None)
settings.load_profile("leveret")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in a job in the background; processes that tests start would ignore Ctrl-C as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers",
        f"leveret_only: needs this broker itself; skipped when {OTHER_BROKER} names another",
    )

    config.addinivalue_line(
        "markers",
        f"{PROVOKES}: plants internal errors in a node of its own process; others must meet none",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    _skip(items)
    yield  # others change the order, too
    if WORKER in os.environ:
        put_in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


def _skip(items: list[pytest.Item]) -> None:
    if ON_A_CLUSTER in os.environ:
        alone = pytest.mark.skip(reason="it has a broker of its own, which is no cluster")
        for item in items:
            if "broker" not in getattr(item, "fixturenames", ()):
                item.add_marker(alone)
    if OTHER_BROKER in os.environ:
        skip = pytest.mark.skip(reason=f"{OTHER_BROKER} names another broker")
        for item in items:
            if item.get_closest_marker("leveret_only"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def internal_errors(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """Where nodes in the test's own process met bugs of theirs: nowhere, unless it plants some."""
    met: list[str] = []
    note = InternalErrors.note

    def noted(errors: InternalErrors, where: str, error: BaseException, **fields: object) -> None:
        met.append(where)
        note(errors, where, error, **fields)

    monkeypatch.setattr(InternalErrors, "note", noted)
    yield met
    if request.node.get_closest_marker(PROVOKES) is None:
        assert not met, "internal errors were met, see the log"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | OtherBroker]:
    """One broker for all tests that need no special configuration."""
    if url := os.environ.get(OTHER_BROKER):
        yield OtherBroker(url)
        return
    if ON_A_CLUSTER in os.environ:
        yield from _cluster(tmp_path_factory.mktemp("cluster"))
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), *SHARED_BROKER_FLAGS)
    yield process
    try:
        process.assert_sound()
        assert not process.internal_errors()
    finally:
        code = process.stop()
    assert code == 0, process.log_text()
    assert TRACEBACK not in process.log_text(), process.log_text()


def _cluster(directory: Path) -> Iterator[BrokerProcess]:
    """The first of three nodes; most of what is declared there is led by the others."""
    ports = free_ports(3)
    listed = ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True))
    members = ("--cluster", listed, "--cluster-secret", "a secret for tests", *SHARED_BROKER_FLAGS)
    nodes: list[BrokerProcess] = []

    def start(name: str) -> None:
        nodes.append(BrokerProcess(directory / name, "--node-name", name, *members))

    starting = [threading.Thread(target=start, args=(name,)) for name in "abc"]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    assert len(nodes) == len(ports)
    yield nodes[0]
    for node in nodes:
        node.assert_sound()
        assert not node.internal_errors()
    for node in nodes:
        assert node.stop() == 0, node.log_text()
        assert TRACEBACK not in node.log_text(), node.log_text()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One for all tests that need it, wherever they are."""
    from tests.spark.session import start_session

    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers of the test's own; arguments as for BrokerProcess. They must end soundly."""
    started: list[BrokerProcess] = []

    def start(
        *arguments: str, env: dict[str, str] | None = None, config: str | None = None
    ) -> BrokerProcess:
        directory = tmp_path / f"broker{len(started)}"
        started.append(BrokerProcess(directory, *arguments, env=env, config=config))
        return started[-1]

    yield start
    for process in started:
        if process.alive:
            assert process.stop() == 0, process.log_text()
        assert TRACEBACK not in process.log_text(), process.log_text()


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    """The shared broker's management API."""
    api = Api(broker.host, broker.http_port)
    yield api
    api.close()


@pytest.fixture
def amqp_url(broker: BrokerProcess | OtherBroker) -> str:
    return broker.amqp_url()


@pytest.fixture
def scene(amqp_url: str) -> Iterator[Scene]:
    """Connections and names for one test, gone after it."""
    scene = Scene(amqp_url)
    yield scene
    scene.clean_up()


@pytest.fixture
def connection(scene: Scene) -> WireConnection:
    return scene.connect()


@pytest.fixture
def channel(connection: WireConnection) -> WireChannel:
    return connection.open_channel()
