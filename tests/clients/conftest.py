"""Names, clean-up and waiting shared by the tests that use third-party clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika
import pika.adapters.blocking_connection as blocking
import pytest
from tcp_proxy import CuttableProxy

if TYPE_CHECKING:
    from tests.support.process import BrokerProcess, OtherBroker

FreshName = Callable[[str], str]
OpenConnection = Callable[..., blocking.BlockingConnection]


@pytest.fixture(scope="session")
def amqp_url(broker: BrokerProcess | OtherBroker) -> str:
    """Where the broker is, also for fixtures that live longer than one test."""
    return broker.amqp_url()


@pytest.fixture
def fresh_name(amqp_url: str) -> Iterator[FreshName]:
    """Make names no other test uses; queues and exchanges of those names are deleted afterwards."""
    made: list[str] = []

    def make(prefix: str) -> str:
        made.append(f"clients.{prefix}.{uuid.uuid4().hex[:12]}")
        return made[-1]

    yield make
    if made:
        with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
            channel = connection.channel()
            for name in made:
                channel.queue_delete(name)
                channel.exchange_delete(name)


@pytest.fixture
def open_pika(amqp_url: str, fresh_name: FreshName) -> Iterator[OpenConnection]:
    """Open pika connections that are closed after the test; keywords set connection parameters."""
    opened: list[blocking.BlockingConnection] = []

    def connect(**settings: object) -> blocking.BlockingConnection:
        parameters = pika.URLParameters(amqp_url)
        for name, value in settings.items():
            setattr(parameters, name, value)
        opened.append(pika.BlockingConnection(parameters))
        return opened[-1]

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def pika_connection(open_pika: OpenConnection) -> blocking.BlockingConnection:
    """One open pika connection."""
    return open_pika()


@pytest.fixture
def pika_channel(pika_connection: blocking.BlockingConnection) -> blocking.BlockingChannel:
    """One open channel on ``pika_connection``."""
    return pika_connection.channel()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object], str], None]:
    """Ask again and again until the answer is true; what asks must itself wait on the broker."""

    def wait(condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"waited 20 s for: {what}"

    return wait


@pytest.fixture
def proxy(amqp_url: str, fresh_name: FreshName) -> Iterator[CuttableProxy]:
    """A way to the broker that can be cut."""
    parts = urlsplit(amqp_url)
    proxy = CuttableProxy((parts.hostname, parts.port))
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_url(amqp_url: str, proxy: CuttableProxy) -> str:
    """The broker's URL by way of ``proxy``."""
    parts = urlsplit(amqp_url)
    netloc = f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}"
    return parts._replace(netloc=netloc).geturl()
