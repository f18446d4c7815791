"""Order within a channel: who looks into a queue sees what the channel published to it before.

A publish to a durable queue is in it once its log has it. Only requests that look wait for that,
and only on a channel that has published since its last look at the same queue.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.cluster.front import QueueFront
from broker.protocol.errors import AMQPError
from queues.queue import Queue

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.channel.channel import Channel
    from queues.seams import AnyQueue
    from queues.tally import Tally

QUEUES_MAX: Final = 256  # remembered since the last publish; with more, a look may wait needlessly


class OwnPublishes:
    """Which queues have been looked into since a channel last published."""

    __slots__ = ("_looked", "_published", "_tally")

    def __init__(self, tally: "Tally") -> None:
        self._tally = tally
        self._published = 0
        self._looked: set[Queue | QueueFront] = set()

    def may_be_missing(self, queue: Queue | QueueFront) -> bool:
        """Whether it may not have all of them yet. Asked again, the answer is no."""
        if self._published != self._tally.publish or len(self._looked) >= QUEUES_MAX:
            self._published = self._tally.publish
            self._looked.clear()
        if not self._published or queue in self._looked:
            return False
        self._looked.add(queue)
        return True


def when_published(
    channel: "Channel", method: "Frame", queue: "AnyQueue", look: Callable[[], None]
) -> None:
    """Look into a queue when it has what the channel published: at once, as a rule."""
    if not isinstance(queue, Queue | QueueFront) or not channel.own_publishes.may_be_missing(queue):
        look()
        return

    def go_on() -> None:
        try:
            look()
        except AMQPError as error:
            error.method = error.method or method.index
            raise

    channel.suspend(queue.when_published, go_on)
