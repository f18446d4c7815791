"""Words for what tests do with streams over the wire."""

from collections.abc import Sequence
from typing import Any

from tests.support.frames import Basic, Confirm, Content
from tests.support.scene import Scene
from tests.support.wire import WireChannel

STREAM = {"x-queue-type": "stream"}


def declare_stream(scene: Scene, channel: WireChannel, **arguments: Any) -> str:
    """A stream of its own for one test; `max_age` stands for x-max-age."""
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return scene.queue(channel, durable=True, arguments={**STREAM, **given})


class Publishing:
    """A channel that waits for its confirms."""

    def __init__(self, channel: WireChannel) -> None:
        channel.rpc(Confirm.Select())
        self._channel = channel
        self._last_tag = 0
        self._open: set[int] = set()

    def publish(self, exchange: str, key: str, *payloads: bytes, **properties: Any) -> None:
        """Send them all, and return when all are confirmed."""
        for payload in payloads:
            self.send(exchange, key, payload, **properties)
        self.wait()

    def send(self, exchange: str, key: str, payload: bytes, **properties: Any) -> None:
        self._channel.publish(exchange, key, payload, **properties)
        self._last_tag += 1
        self._open.add(self._last_tag)

    def wait(self) -> None:
        """Until everything that was sent is confirmed."""
        while self._open:
            ack = self._channel.expect(Basic.Ack)
            if ack.multiple:
                self._open = {tag for tag in self._open if tag > ack.delivery_tag}
            else:
                self._open.remove(ack.delivery_tag)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def fill(scene: Scene, stream: str, payloads: Sequence[bytes], **properties: Any) -> None:
    """Publish to a stream by its name, on a connection of its own, until all is confirmed."""
    Publishing(scene.channel()).publish("", stream, *payloads, **properties)


def read(
    channel: WireChannel, stream: str, count: int, offset: Any = "first", **arguments: Any
) -> list[Content]:
    """That many records from an offset on, each acked; and the consumer is gone again."""
    given = {f"x-stream-{name}": value for name, value in arguments.items()}
    channel.qos(10)
    tag = channel.consume(stream, arguments={"x-stream-offset": offset, **given})
    got = []
    for _ in range(count):
        got.append(channel.delivery())
        channel.ack(got[-1].delivery_tag)
    channel.cancel(tag)
    return got


def offsets(records: Sequence[Content]) -> list[int]:
    return [record.headers["x-stream-offset"] for record in records]


def partitions(records: Sequence[Content]) -> list[int]:
    return [record.headers["x-stream-partition"] for record in records]


def bodies(records: Sequence[Content]) -> list[bytes]:
    return [record.body for record in records]


# Groups


def join(channel: WireChannel, stream: str, **arguments: Any) -> str:
    """Consume for a group, the stream's own if none is given; `group` stands for x-group."""
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.qos(given.pop("x-prefetch", 100))
    return channel.consume(stream, arguments={"x-group": f"group of {stream}", **given})


def take(channel: WireChannel, count: int, *, ack: bool = True) -> list[Content]:
    """The next records; where they are acked, the broker knows of it when this returns."""
    got = [channel.delivery() for _ in range(count)]
    if ack:
        for record in got:
            channel.ack(record.delivery_tag)
        channel.qos(100)
    return got
