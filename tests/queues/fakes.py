"""Stand-ins for what surrounds a queue: a clock, dead letters, channels, receipts."""

import heapq
import itertools

from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.content import join_header
from broker.protocol.tables import encode_table
from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.dedup import digest_of_id
from queues.message import Message, Wishes
from queues.options import QueueOptions
from queues.queue import Queue


def message(
    name, *, size=10, priority=0, expires_at=None, delay_ms=None, dedup_id=None, group=None
):
    """A message that is told from others by its address. It has a body on paper only."""
    headers = {} if group is None else {FLAG_HEADERS: encode_table({"x-group-id": group})}
    frames, header_bytes, flags = join_header(1, size, headers)
    made = Message(str(name).encode(), frames, header_bytes, flags, size, 1)
    made.priority = priority
    made.expires_at = expires_at
    if delay_ms is not None or dedup_id is not None:
        digest = None if dedup_id is None else digest_of_id(dedup_id.encode())
        made.wishes = Wishes(delay_ms, digest)
    return made


def with_body(name, body):
    """The same with a body of its own."""
    made = message(name, size=len(body))
    made.frames += b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
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

    def dead_letter(self, queue, burial, then):
        self.dead += [(name, burial.reason) for name in names(burial.messages)]
        then([])

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
        self.on_revoked = lambda sink: None  # its channel wakes others that may have room now
        self.revoked = []  # names of messages whose lease was over
        self.settling = []  # messages that cannot be revoked: they are about to be settled
        self.full_after = full_after  # so many deliveries fill its write buffer

    @property
    def paused(self):
        self.looked_at += 1
        full = self.full_after is not None and len(self.delivered) >= self.full_after
        return self.switched_off or full

    def deliver(self, consumer, messages):
        assert messages, "an empty delivery"
        self.delivered += [(consumer.tag, m) for m in messages]

    def revoke(self, consumer, messages):
        taken = [m for m in messages if m not in self.settling]
        self.revoked += names(taken)
        consumer.release(len(taken))
        self.on_revoked(self)
        return taken

    def consumer_cancelled(self, consumer):
        self.cancelled.append(consumer.tag)

    @property
    def names(self):
        return names(m for _, m in self.delivered)

    def take(self):
        """What was delivered since the last look at it."""
        taken, self.delivered = [m for _, m in self.delivered], []
        return taken


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


def publish(queue, *messages):
    """How the publisher was answered."""
    receipt = FakeReceipt()
    queue.publish(list(messages), receipt)
    return receipt.answers


def fetch(queue, *, no_ack=True, lease_ms=None):
    """The name of what basic.get finds, or None."""
    holder = Consumer("", queue, FakeSink(), no_ack=no_ack, fetching=True, lease_ms=lease_ms)
    found = queue.get(holder)
    return None if found is None else names([found])[0]


def drain(queue):
    """The names of all that can be fetched now, in order."""
    found = []
    while (name := fetch(queue)) is not None:
        found.append(name)
    return found


def hand_back(queue, consumer, messages, how="settle", **options):
    """As a channel does it: the credit first."""
    consumer.release(len(messages))
    getattr(queue, how)(consumer, messages, **options)


def consume(queue, sink, tag="c", **options):
    """A consumer of the queue, started."""
    consumer = Consumer(tag, queue, sink, **options)
    queue.add_consumer(consumer)
    queue.start_consumer()
    return consumer
