"""A queue too simple to be wrong: lists, sorted and searched anew for each single message."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class ModelMessage:
    name: int
    size: int
    level: int  # priority, cut to what the queue knows
    expires: int | None
    returned: int = 0

    @property
    def place(self):
        return (-self.level, self.name)


@dataclass(eq=False)
class ModelChannel:
    limit: int = 0
    paused: bool = False


@dataclass(eq=False)
class ModelConsumer:
    tag: str
    channel: ModelChannel
    prefetch: int
    priority: int
    no_ack: bool
    held: list = field(default_factory=list)
    received: list = field(default_factory=list)


class ModelQueue:
    """What a queue with these options should do, told one message at a time."""

    def __init__(self, options, now):
        self.options = options
        self.now = now
        self.ready = []
        self.consumers = []  # in the order they came
        self.turns = []  # who may be asked next; who has no room leaves until woken
        self.held_by_get = []
        self.departed = []  # consumers that were cancelled and still hold something
        self.dead = []

    # Who has room

    def _room(self, consumer):
        if consumer.channel.paused:
            return False
        if consumer.no_ack:
            return True
        everyone = self.consumers + self.departed
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
            self._expire(self.now)
        self._expire(self.now + 1)

    def _trim(self):
        options = self.options
        if options.overflow != "drop-head":
            return
        while self.ready and self._is_over(len(self.ready), self.ready_bytes):
            oldest = max(self.ready, key=lambda m: (-m.level, -m.name))  # of the lowest priority
            self.ready.remove(oldest)
            self.dead.append((oldest.name, "maxlen"))
        self._expire(self.now + 1)

    @property
    def _limited(self):
        return self._is_over(float("inf"), float("inf"))

    def _is_over(self, count, size):
        options = self.options
        return (options.max_length is not None and count > options.max_length) or (
            options.max_length_bytes is not None and size > options.max_length_bytes
        )

    # What is done to it

    @property
    def ready_bytes(self):
        return sum(m.size for m in self.ready)

    def publish(self, messages):
        """The names of those that were refused."""
        ttl = self.options.message_ttl_ms
        refused = []
        for message in messages:
            if ttl is not None:
                message.expires = min(self.now + ttl, message.expires or self.now + ttl)
            if self.options.overflow == "drop-head" or not self._limited:
                self._insert(message)
            elif self._is_over(len(self.ready) + 1, self.ready_bytes + message.size):
                refused.append(message.name)
            else:
                self._insert(message)
                self.run()
        if self.options.overflow == "reject-publish-dlx":
            self.dead += [(name, "maxlen") for name in refused]
        self.run()
        self._trim()
        return refused

    def _insert(self, message):
        self.ready.append(message)
        self.ready.sort(key=lambda m: m.place)

    def take_back(self, consumer, messages):
        """They are no longer held; the holder has room for others."""
        held = self.held_by_get if consumer is None else consumer.held
        for message in messages:
            held.remove(message)
        if consumer is not None:
            self.wake(consumer)

    def settle(self, consumer, messages):
        self.take_back(consumer, messages)
        self.run()

    def discard(self, consumer, messages):
        self.take_back(consumer, messages)
        self.dead += [(m.name, "rejected") for m in messages]
        self.run()

    def requeue(self, consumer, messages):
        self.take_back(consumer, messages)
        limit = self.options.delivery_limit
        for message in messages:
            message.returned += 1
            if limit is not None and message.returned > limit:
                self.dead.append((message.name, "delivery_limit"))
            else:
                self._insert(message)
        self.run()
        self._trim()

    def get(self, *, no_ack):
        self._expire(self.now + 1)
        if not self.ready:
            return None
        message = self.ready.pop(0)
        if not no_ack:
            self.held_by_get.append(message)
        self._expire(self.now + 1)
        return message.name

    def add_consumer(self, consumer):
        self.consumers.append(consumer)
        self.wake(consumer)
        self.run()

    def remove_consumer(self, consumer):
        self.consumers.remove(consumer)
        if consumer in self.turns:
            self.turns.remove(consumer)
        self.departed.append(consumer)
        self.run()

    def consumer_ready(self, consumer):
        self.wake(consumer)
        self.run()

    def purge(self):
        count = len(self.ready)
        self.ready.clear()
        return count

    def advance(self, ms):
        for _ in range(ms):
            self.now += 1
            self.run()
