"""One kind of queue at a time, so that a promise is tested on all of them alike."""

import time
from collections.abc import Callable
from typing import Any

from tests.support.frames import Basic, Confirm, Content, Tx, kind_of
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import WireChannel

KINDS: dict[str, dict[str, Any]] = {
    "transient": {"arguments": {}},
    "classic": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
}
HOUR_MS = 3_600_000  # what takes so long does not happen during a test
# Nothing is asserted to happen in time, only at all: the machine may stall for seconds.
PATIENCE_S = 30.0
# A broker's milliseconds are cut, not rounded, so that one may be missing.
CLOCK_S = 0.002


class Stage:
    """A channel, and queues of one kind."""

    def __init__(self, scene: Scene, channel: WireChannel, kind: str) -> None:
        self.scene = scene
        self.channel = channel
        self.kind = kind

    def queue(self, **arguments: Any) -> str:
        """A new queue; `message_delay=5` stands for the argument x-message-delay."""
        name = self.scene.queue_name()
        self.declare(name, **arguments)
        return name

    def declare(self, name: str, **arguments: Any) -> Any:
        options = KINDS[self.kind]
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.channel.declare_queue(
            name, **options | {"arguments": options["arguments"] | named}
        )

    def graveyard(self) -> tuple[str, dict[str, Any]]:
        """A queue for dead letters, and the arguments that send them there."""
        queue = self.queue()
        return queue, {"dead_letter_exchange": "", "dead_letter_routing_key": queue}

    def open_channel(self) -> WireChannel:
        """Another one, on another connection."""
        return self.scene.channel()

    def confirming(self) -> WireChannel:
        channel = self.open_channel()
        channel.rpc(Confirm.Select())
        return channel

    def publish(self, key: str, body: bytes, exchange: str = "", **properties: Any) -> None:
        """Returns when it is safe in its queues."""
        channel = self.confirming()
        channel.publish(exchange, key, body, delivery_mode=2, **properties)
        channel.expect(Basic.Ack)
        channel.conn.close()

    def publish_together(self, queue: str, bodies: list[tuple[bytes, dict[str, Any]]]) -> None:
        """In one turn of the broker: (body, headers) in this order."""
        channel = self.open_channel()
        channel.rpc(Tx.Select())
        for body, headers in bodies:
            channel.publish("", queue, body, delivery_mode=2, headers=headers)
        channel.rpc(Tx.Commit())
        channel.conn.close()

    def take(self, queue: str) -> Content:
        """The next message, whenever it comes; unacked."""
        found: list[Content] = []

        def get() -> bool:
            content = self.channel.get(queue)
            if content is not None:
                found.append(content)
            return bool(found)

        eventually(get, f"a message in {queue}", within_s=PATIENCE_S)
        return found[0]

    def wait_for_head(self, queue: str, body: bytes) -> None:
        """Until this one is the first to go. What is due may still be on its way from the disk.

        Whatever is looked at counts as returned by a lost consumer.
        """

        def is_head() -> bool:
            channel = self.channel.conn.open_channel()
            content = channel.get(queue)
            channel.close()
            return content is not None and content.body == body

        eventually(is_head, f"{body!r} to be the first in {queue}", within_s=PATIENCE_S)

    def bodies(self, queue: str, count: int) -> list[bytes]:
        """So many messages, taken one after the other, each acked at once."""
        taken = []
        for _ in range(count):
            content = self.take(queue)
            self.channel.ack(content.delivery_tag)
            taken.append(content.body)
        return taken

    def assert_empty(self, queue: str) -> None:
        """Nothing is ready after all that was done to the queue on this channel."""
        self.channel.settle(queue)
        assert self.channel.count(queue) == 0


def delivery(channel: WireChannel) -> Content:
    return channel.delivery(timeout=PATIENCE_S)


def next_kind(channel: WireChannel) -> type:
    """What comes next, whatever it is."""
    return kind_of(channel.conn.next_item(channel.number, timeout=PATIENCE_S))


class Stopwatch:
    """Started by the constructor; checks that something did not come too early."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()

    def assert_passed(self, ms: int) -> None:
        assert self._clock() - self._started >= ms / 1000 - CLOCK_S
