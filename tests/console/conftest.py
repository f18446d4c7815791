"""A broker to look at, a browser to look with, and consoles in it."""

import itertools
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Browser

from tests.console.browser import Console, chromium
from tests.support.admin import Api
from tests.support.process import TRACEBACK, BrokerProcess

OpenConsole = Callable[..., Console]

_serial = itertools.count(1)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests here; not for longer, since it brings an asyncio loop into the thread."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("node"), "--auth-failure-delay-s", "0")
    yield process
    try:
        process.assert_sound()
    finally:
        assert process.stop() == 0, process.log_text()
    assert TRACEBACK not in process.log_text(), process.log_text()


@pytest.fixture
def api(node: BrokerProcess) -> Iterator[Api]:
    api = Api(node.host, node.http_port)
    yield api
    api.close()


@pytest.fixture
def channel(node: BrokerProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


@pytest.fixture
def open_console(browser: Browser, node: BrokerProcess) -> Iterator[OpenConsole]:
    """Consoles that nobody has logged in to; nothing may go wrong in any of them."""
    opened: list[Console] = []

    def open_one(url: str = "", **options: int) -> Console:
        opened.append(Console(browser, url or node.http_url(), **options))
        return opened[-1]

    yield open_one
    for console in opened:
        console.close()


@pytest.fixture(scope="package")
def shared_console(browser: Browser, node: BrokerProcess) -> Iterator[Console]:
    console = Console(browser, node.http_url())
    yield console
    console.close()


@pytest.fixture
def console(shared_console: Console) -> Iterator[Console]:
    """Logged in as guest, as if it had just been opened."""
    shared_console.begin()
    yield shared_console
    shared_console.assert_sound()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names that no other test has."""
    return lambda prefix: f"{prefix}-{next(_serial)}"
