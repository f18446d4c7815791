"""Streams of the shared broker, and ways to it that can be cut."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from clients.backoff import Backoff
from tests.clients.tcp_proxy import CuttableProxy
from tests.stream_wire.door import Door
from tests.support.process import BrokerProcess
from tests.support.scene import Scene
from tests.support.streams import declare_stream
from tests.support.wire import WireChannel, WireConnection

T = TypeVar("T")
QUICK = Backoff(first_s=0.01, most_s=0.1)


@pytest.fixture
def declare(scene: Scene, channel: WireChannel) -> Callable[..., str]:
    """Declare a stream with these arguments."""
    return lambda **arguments: declare_stream(scene, channel, **arguments)


@pytest.fixture
def stream(declare: Callable[..., str]) -> str:
    return declare()


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[CuttableProxy]:
    proxy = CuttableProxy((broker.host, broker.amqp_port))
    yield proxy
    proxy.close()


@pytest.fixture
def door() -> Iterator[Door]:
    """A node whose streams are in memory, where a test can hold answers back."""
    with Door() as door:
        yield door


class Killable:
    """A broker that is killed and started again, at an address that stays the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.process = BrokerProcess(directory)
        self._proxy = CuttableProxy((self.process.host, self.process.amqp_port))
        self.url = through(self._proxy)

    def declare(self, stream: str, partitions: int) -> None:
        with WireConnection.connect(self.process.amqp_url()) as connection:
            arguments = {"x-queue-type": "stream", "x-partitions": partitions}
            connection.open_channel().declare_queue(stream, durable=True, arguments=arguments)

    async def kill_and_start(self) -> None:
        self.process.kill()
        self.process = await trio.to_thread.run_sync(BrokerProcess, self._directory)
        self._proxy.lead_to((self.process.host, self.process.amqp_port))

    def end(self) -> None:
        self._proxy.close()
        try:
            self.process.assert_sound()
        finally:
            code = self.process.stop()
        assert code == 0


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Killable]:
    killable = Killable(tmp_path)
    yield killable
    killable.end()


async def at(door: Door, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function in the node's thread."""
    return await trio.to_thread.run_sync(door.call, function, *arguments)


def through(*proxies: CuttableProxy) -> str:
    return f"amqp://guest:guest@{','.join(f'127.0.0.1:{each.port}' for each in proxies)}/"
