"""A queue too simple to be wrong: lists, sorted and searched anew for each single message.

What happens by itself is told apart by kind (see `tick`): several kinds may have their time in the
same millisecond, and then any order of them is right.
"""

from dataclasses import dataclass, field

from queues.pacing import PACE_MS


@dataclass(eq=False)
class ModelMessage:
    name: int
    size: int
    priority: int
    expires: int | None  # its own TTL, as a time, until it is enqueued
    delay: int | None = None  # its own; the queue's counts where there is none
    dedup_id: str | None = None
    due: int = 0
    enqueued: int = 0
    returned: int = 0
    came_back: bool = False  # stands before those that never left


@dataclass(eq=False)
class ModelChannel:
    limit: int = 0
    paused: bool = False


@dataclass(eq=False)
class ModelConsumer:
    tag: str
    channel: ModelChannel
    prefetch: int = 0
    priority: int = 0
    no_ack: bool = False
    own_lease: int | None = None
    lease: int | None = None
    fetching: bool = False  # holds what was fetched with get
    held: list = field(default_factory=list)
    received: list = field(default_factory=list)


class ModelBucket:
    """Thousandths of a token."""

    def __init__(self, rate, now):
        self.rate = rate
        self.thousandths = 1000 * rate
        self.now = now

    def refill(self, now):
        gained = self.rate * (now - self.now)
        self.thousandths, self.now = min(1000 * self.rate, self.thousandths + gained), now

    def take(self, wanted, now):
        self.refill(now)
        taken = wanted if not self.rate else min(wanted, self.thousandths // 1000)
        self.thousandths -= 1000 * taken
        return taken

    def ready_at(self, now):
        at = now
        while self.thousandths + self.rate * (at - now) < 1000:
            at += 1
        return at


class ModelQueue:
    """What a queue with these options should do, told one message at a time."""

    def __init__(self, options, now):
        self.options = options
        self.now = now
        self.messages = {}  # all that were published, by name
        self.ready = []
        self.delayed = []
        self.paced = []
        self.bucket = None
        self.pace_at = None
        self.leases = {}  # name → (until, holder)
        self.settling = set()  # names of what cannot be revoked
        self.seen = {}
        self.consumers = []  # in the order they came
        self.turns = []  # who may be asked next; who has no room leaves until woken
        self.holders = []  # consumers that were cancelled, and those who fetched something
        self.dead = []

    # Who has room

    def _room(self, consumer):
        if consumer.channel.paused:
            return False
        if consumer.no_ack:
            return True
        everyone = [c for c in self.consumers + self.holders if not c.fetching]
        out = sum(len(c.held) for c in everyone if c.channel is consumer.channel)
        limits = ((consumer.prefetch, len(consumer.held)), (consumer.channel.limit, out))
        return all(not limit or used < limit for limit, used in limits)

    def _next_consumer(self):
        """The one whose turn it is, or None; those without room are taken out on the way."""
        if self.options.single_active_consumer:
            first = self.consumers[:1]
            return first[0] if first and self._room(first[0]) else None
        for priority in sorted({c.priority for c in self.consumers}, reverse=True):
            for consumer in [c for c in self.turns if c.priority == priority]:
                self.turns.remove(consumer)
                if self._room(consumer):
                    self.turns.append(consumer)
                    return consumer
        return None

    def wake(self, consumer):
        if consumer in self.consumers and consumer not in self.turns:
            self.turns.append(consumer)

    # The order of delivery

    def level(self, message):
        return min(message.priority, self.options.max_priority or 0)

    def _rank(self, level, head):
        aging = self.options.priority_aging_ms
        return -level if aging is None else head.enqueued - level * aging

    def _sort(self):
        levels = {}
        for message in sorted(self.ready, key=lambda m: (not m.came_back, m.name)):
            levels.setdefault(self.level(message), []).append(message)
        self.ready = []
        while levels:
            first = min(levels, key=lambda at: (self._rank(at, levels[at][0]), -at))
            self.ready.append(levels[first].pop(0))
            if not levels[first]:
                del levels[first]

    # What happens by itself

    def _expire(self, before):
        while self.ready and (at := self.ready[0].expires) is not None and at < before:
            self.dead.append((self.ready.pop(0).name, "expired"))

    def run(self):
        """Hand out what can be handed out at this moment."""
        self._expire(self.now)
        while self.ready and (consumer := self._next_consumer()):
            message = self.ready.pop(0)
            consumer.received.append(message.name)
            if not consumer.no_ack:
                consumer.held.append(message)
                self._lease(consumer, message)
            self._expire(self.now)
        self._expire(self.now + 1)

    def _lease(self, consumer, message):
        if consumer.lease is not None:
            self.leases[message.name] = (self.now + consumer.lease, consumer)

    def _trim(self):
        if self.options.overflow != "drop-head":
            return
        while self.ready and self._is_over(len(self.ready), self.ready_bytes):
            lowest = min(self.level(m) for m in self.ready)
            oldest = next(m for m in self.ready if self.level(m) == lowest)
            self.ready.remove(oldest)
            self.dead.append((oldest.name, "maxlen"))
        self._expire(self.now + 1)

    def tick(self):
        """A millisecond passes; the kinds of things that happen in it."""
        self.now += 1
        due = {
            "expiries": any(m.expires is not None and m.expires <= self.now for m in self.ready),
            "delays": any(m.due <= self.now for m in self.delayed),
            "leases": any(until <= self.now for until, _ in self.leases.values()),
            "turns": self.pace_at is not None and self.pace_at <= self.now,
        }
        return [kind for kind, happens in due.items() if happens]

    def happen(self, kind):
        if kind == "expiries":
            self.run()
        elif kind == "delays":
            due = [m for m in self.delayed if m.due <= self.now]
            self.delayed = [m for m in self.delayed if m.due > self.now]
            self._come_back(due)
        elif kind == "leases":
            self._end_leases()
        else:
            self.pace_at = None
            self._come_back(self._take_paced())

    def _end_leases(self):
        over = [
            (self.messages[n], holder) for n, (u, holder) in self.leases.items() if u == self.now
        ]
        over.sort(key=lambda item: item[0].name)
        for message, _ in over:
            del self.leases[message.name]
        for holder in dict.fromkeys(holder for _, holder in over):
            mine = [message for message, whose in over if whose is holder]
            taken = [m for m in mine if m.name not in self.settling]
            for message in taken:
                holder.held.remove(message)
            if holder.channel.limit:
                self.wake_channel(holder.channel)
            if taken:
                self._return(holder, taken, lost=False)
            for message in mine:
                if message not in taken:
                    self._lease(holder, message)

    def _come_back(self, messages):
        for message in messages:
            message.came_back = True
        self._insert(messages)
        self.run()
        self._trim()

    def _insert(self, messages):
        self.ready += messages
        self._sort()

    def _take_paced(self):
        """Those whose turn it is to come back; the others are called later."""
        self.paced.sort(key=lambda m: m.name)
        count = self.bucket.take(len(self.paced), self.now)
        taken, self.paced = self.paced[:count], self.paced[count:]
        if self.paced:
            at = max(self.bucket.ready_at(self.now), self.now + PACE_MS)
            self.pace_at = min(at, self.pace_at or at)
        return taken

    # Limits

    @property
    def ready_bytes(self):
        return sum(m.size for m in self.ready)

    @property
    def _refuses(self):
        limited = self._is_over(float("inf"), float("inf"))
        return limited and self.options.overflow != "drop-head"

    def _is_over(self, count, size):
        options = self.options
        return (options.max_length is not None and count > options.max_length) or (
            options.max_length_bytes is not None and size > options.max_length_bytes
        )

    # What is done to it

    def publish(self, messages):
        """The names of those that were refused."""
        window = self.options.dedup_window_ms
        refused = []
        for message in messages:
            self.messages[message.name] = message
            known = message.dedup_id is not None and window
            if known and self.seen.get(message.dedup_id, 0) > self.now:
                continue
            delay = message.delay
            delay = self.options.message_delay_ms if delay is None else delay
            over = self._is_over(len(self.ready) + 1, self.ready_bytes + message.size)
            if self._refuses and over and not delay:
                refused.append(message.name)
                continue
            if known:
                self.seen[message.dedup_id] = self.now + window
            self._take(message, delay)
        if self.options.overflow == "reject-publish-dlx":
            self.dead += [(name, "maxlen") for name in refused]
        self.run()
        self._trim()
        return refused

    def _take(self, message, delay):
        ttl = self.options.message_ttl_ms
        message.enqueued = message.due = start = self.now + delay
        ends = [] if message.expires is None else [message.expires + delay]
        ends += [] if ttl is None else [start + ttl]
        message.expires = min(ends, default=None)
        if delay:
            self.delayed.append(message)
        else:
            self._insert([message])
            if self._refuses:
                self.run()

    def take_back(self, holder, messages):
        """They are no longer held; the holder has room for others."""
        for message in messages:
            holder.held.remove(message)
            self.leases.pop(message.name, None)
            self.settling.discard(message.name)
        self.wake(holder)

    def settle(self, holder, messages):
        self.take_back(holder, messages)
        self.run()

    def discard(self, holder, messages):
        self.take_back(holder, messages)
        self.dead += [(m.name, "rejected") for m in messages]
        self.run()

    def requeue(self, holder, messages, *, lost=False):
        self.take_back(holder, messages)
        self._return(holder, messages, lost=lost)

    def _return(self, holder, messages, *, lost):
        self.wake(holder)
        limit = self.options.delivery_limit
        back = []
        for message in messages:
            message.returned += 1
            if limit is not None and message.returned > limit:
                self.dead.append((message.name, "delivery_limit"))
            else:
                back.append(message)
        if lost:
            self.bucket = self.bucket or ModelBucket(self.options.redelivery_rate, self.now)
            self.paced += back
            back = self._take_paced()
        elif self.options.retry_delay_ms:
            for message in back:
                message.due = self.now + self._retry_delay(message.returned)
            self.delayed += back
            back = []
        self._come_back(back)

    def _retry_delay(self, failures):
        delay = self.options.retry_delay_ms
        for _ in range(failures - 1):
            delay *= self.options.retry_backoff
        return int(min(delay, self.options.retry_max_delay_ms))

    def get(self, holder):
        self._expire(self.now + 1)
        if not self.ready:
            return None
        message = self.ready.pop(0)
        if not holder.no_ack:
            self.holders.append(holder)
            holder.held.append(message)
            self._lease(holder, message)
        self._expire(self.now + 1)
        return message.name

    def extend(self, name, ms):
        """Whether there is a lease to extend."""
        if name not in self.leases:
            return False
        holder = self.leases[name][1]
        ms = ms or holder.lease
        if ms is not None:
            self.leases[name] = (self.now + ms, holder)
        return ms is not None

    def move(self, name, due):
        self.messages[name].due = due

    def cancel(self, name):
        self.delayed.remove(self.messages[name])

    def add_consumer(self, consumer):
        consumer.lease = consumer.own_lease or self.options.lease_ms
        self.consumers.append(consumer)
        self.wake(consumer)
        self.run()

    def remove_consumer(self, consumer):
        self.consumers.remove(consumer)
        if consumer in self.turns:
            self.turns.remove(consumer)
        self.holders.append(consumer)
        self.run()

    def wake_channel(self, channel):
        for consumer in [c for c in self.consumers if c.channel is channel]:
            self.wake(consumer)
            self.run()

    def configure(self, options):
        old, self.options = self.options, options
        for consumer in self.consumers:
            consumer.lease = consumer.own_lease or options.lease_ms
        if (old.max_priority or 0) != (options.max_priority or 0):
            for message in self.ready:
                message.came_back = False
                message.enqueued = self.now
            self._sort()
        if self.bucket is not None and self.bucket.rate != options.redelivery_rate:
            self.bucket = ModelBucket(options.redelivery_rate, self.now)
            self.pace_at = None
            self._come_back(self._take_paced())
        self.run()
        self._trim()

    def purge(self):
        count = len(self.ready) + len(self.delayed) + len(self.paced)
        self.ready, self.delayed, self.paced = [], [], []
        return count

    # What can be seen of it

    def visible(self):
        everyone = self.consumers + self.holders
        held = [m for c in everyone for m in c.held]
        return {
            "ready": [m.name for m in self.ready],
            "counts": (len(self.ready) + len(self.paced), self.ready_bytes, len(held)),
            "delayed": sorted((m.due, m.name) for m in self.delayed),
            "in turns": sorted(m.name for m in self.paced),
            "leases": {name: until for name, (until, _) in self.leases.items()},
            "consumers": [c.tag for c in self.consumers],
            "received": {c.tag: c.received for c in everyone if not c.fetching},
            "used": {c.tag: len(c.held) for c in everyone if not c.fetching},
            "returned": {m.name: m.returned for m in self.messages.values()},
            "dead": {
                reason: [name for name, why in self.dead if why == reason]
                for reason in ("expired", "maxlen", "rejected", "delivery_limit")
            },
        }
