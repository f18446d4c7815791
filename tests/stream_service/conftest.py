"""A blocking client of the shared broker, and streams for it."""

from collections.abc import Callable, Iterator

import pytest

from clients.streams import StreamClient, connect
from tests.support.scene import Scene
from tests.support.streams import declare_stream
from tests.support.wire import WireChannel


@pytest.fixture
def client(amqp_url: str) -> Iterator[StreamClient]:
    with connect(amqp_url, name="a test") as client:
        yield client


@pytest.fixture
def stream(scene: Scene, channel: WireChannel) -> str:
    return declare_stream(scene, channel)


@pytest.fixture
def declare(scene: Scene, channel: WireChannel) -> Callable[..., str]:
    """Declare a stream with these arguments."""
    return lambda **arguments: declare_stream(scene, channel, **arguments)
