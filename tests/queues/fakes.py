"""Stand-ins for what surrounds a queue: a clock, dead letters, channels, receipts."""

import heapq
import itertools

from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import Message
from queues.options import QueueOptions
from queues.queue import Queue


def message(name, *, size=10, priority=0, expires_at=None):
    """A message that is told from others by its address."""
    made = Message(str(name).encode(), b"", 14, 0, size, 1)
    made.priority = priority
    made.expires_at = expires_at
    return made


def names(messages):
    return [int(m.address) for m in messages]


class FakeTimer:
    """A callback that can be cancelled."""

    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None

    def ring(self):
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class FakeContext:
    """A clock that is moved by hand, and a record of what the queue asked for."""

    def __init__(self):
        self.now = 1000
        self.dead = []  # (name, reason), in order
        self.unused = []
        self._timers = []
        self._order = itertools.count()

    def now_ms(self):
        return self.now

    def call_at(self, when_ms, callback):
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    @property
    def timers(self):
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def advance(self, ms):
        """Let time pass, one millisecond after the other."""
        for _ in range(ms):
            self.now += 1
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2].ring()

    def dead_letter(self, queue, messages, reason, then):
        self.dead += [(name, reason) for name in names(messages)]
        then()

    def queue_unused(self, queue):
        self.unused.append(queue)


class FakeSink:
    """A channel: what was delivered to it, its credit, and whether it takes more."""

    def __init__(self, name="", *, limit=0, full_after=None):
        self.name = name
        self.credit = Credit(limit)
        self.switched_off = False
        self.looked_at = 0  # how often somebody asked whether it is paused
        self.delivered = []  # (consumer tag, message)
        self.cancelled = []
        self.full_after = full_after  # so many deliveries fill its write buffer

    @property
    def paused(self):
        self.looked_at += 1
        full = self.full_after is not None and len(self.delivered) >= self.full_after
        return self.switched_off or full

    def deliver(self, consumer, messages):
        assert messages, "an empty delivery"
        self.delivered += [(consumer.tag, m) for m in messages]

    def consumer_cancelled(self, consumer):
        self.cancelled.append(consumer.tag)

    @property
    def names(self):
        return names(m for _, m in self.delivered)


class FakeReceipt:
    def __init__(self):
        self.answers = []

    def stored(self, refused):
        self.answers.append(names(refused))


def new_queue(context, *, auto_delete=False, **options):
    return Queue(
        "q",
        context,
        QueueOptions(**options),
        arguments={},
        durable=False,
        auto_delete=auto_delete,
        owner=None,
    )


def consume(queue, sink, tag="c", **options):
    """A consumer of the queue, started."""
    consumer = Consumer(tag, queue, sink, **options)
    queue.add_consumer(consumer)
    queue.start_consumer()
    return consumer
