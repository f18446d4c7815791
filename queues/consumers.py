"""Consumers of a queue and whose turn it is: by priority, then in turn among those with credit."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from flow_control.credit import UNLIMITED, Credit
from queues.message import Message
from queues.ready import Ready
from queues.statistics import ConsumerStatistics

if TYPE_CHECKING:
    from queues.stream.subscription import Records


class Sink(Protocol):
    """Where deliveries go: an AMQP channel, or whatever stands for it at the queue's node."""

    credit: Credit  # shared by all consumers of the channel

    @property
    def paused(self) -> bool:
        """It takes no deliveries now: its connection's write buffer is full."""
        ...

    def deliver(self, consumer: "Consumer", messages: list[Message]) -> None: ...
    def deliver_records(self, consumer: "Consumer", records: "Records") -> None:
        """Records of a stream; what comes back of each is its partition and its offset."""
        ...

    def revoke(self, consumer: "Consumer", messages: list[Message]) -> list[Message]:
        """Take messages away from a consumer whose lease is over: those that it still held."""
        ...

    def consumer_cancelled(self, consumer: "Consumer") -> None: ...


class Consumer:
    """A subscription; or, never dispatched to, the holder of a message fetched with basic.get."""

    __slots__ = (
        "arguments",
        "credit",
        "exclusive",
        "fetching",
        "heads",
        "lease_ms",
        "no_ack",
        "number",
        "own_lease_ms",
        "priority",
        "queue",
        "sink",
        "tag",
        "waiting",
    )

    def __init__(
        self,
        tag: str,
        queue: "Held",
        sink: Sink,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        fetching: bool = False,
        prefetch: int = 0,
        priority: int = 0,
        lease_ms: int | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.tag = tag
        self.queue = queue
        self.sink = sink
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.fetching = fetching  # stands for basic.get, which prefetch does not limit
        self.credit = Credit(prefetch)
        self.priority = priority
        self.own_lease_ms = lease_ms  # how long it may hold a message, if it says so itself
        self.lease_ms = lease_ms
        self.arguments = arguments or {}
        self.number = 0  # by which its queue's leader on another node knows it
        self.waiting = False  # stands in its dispatcher's ring
        self.heads: dict[bytes, tuple[bytes, bytes]] = {}  # the sink's own, by message address

    def hold(self, count: int) -> None:
        """So many messages went out to it and wait for an ack."""
        self.credit.used += count
        self.sink.credit.used += count

    def release(self, count: int) -> None:
        """So many of them were settled or returned."""
        if self.fetching:
            self.sink.credit.fetched -= count
        else:
            self.credit.used -= count
            self.sink.credit.used -= count

    def statistics(self) -> ConsumerStatistics:
        return ConsumerStatistics(
            tag=self.tag,
            queue=self.queue.name,
            no_ack=self.no_ack,
            prefetch=self.credit.limit,
            unacked=self.credit.used,
            lag=self.queue.lag_of(self),
        )

    def room(self) -> int:
        """How many messages it would take now."""
        if self.sink.paused:
            return 0
        if self.no_ack:
            return UNLIMITED
        return min(self.credit.room, self.sink.credit.room)


# What is known elsewhere: to be called with whoever wants to know it.
Later: TypeAlias = Callable[[Callable[[bool], None]], None]


class Held(Protocol):
    """What a consumer's holder may ask of the queue that it holds something of.

    That comes back as it went out: messages, or the places of records.
    """

    name: str

    def lag_of(self, consumer: Consumer) -> int: ...
    @property
    def counts_deliveries(self) -> bool: ...
    def lease(self, consumer: Consumer, messages: list[Any]) -> None: ...
    def extend_lease(self, message: Any, lease_ms: int | None) -> bool | Later: ...
    def auto_acked(self, messages: list[Any]) -> None: ...
    def settle(self, consumer: Consumer, messages: list[Any]) -> None: ...
    def requeue(self, consumer: Consumer, messages: list[Any], *, lost: bool = False) -> None: ...
    def discard(self, consumer: Consumer, messages: list[Any]) -> None: ...
    def consumer_ready(self, consumer: Consumer) -> None: ...
    def remove_consumer(self, consumer: Consumer) -> None: ...


class Dispatcher:
    """Deals ready messages to consumers.

    Each priority has a ring of consumers that may have room. One found without room leaves the ring
    and comes back through `wake`, so that a thousand full consumers cost nothing per message.
    """

    __slots__ = ("_consumers", "_priorities", "_rings", "batch_bytes", "single_active")

    def __init__(self, *, single_active: bool, batch_bytes: int = 1 << 20) -> None:
        self.single_active = single_active
        self.batch_bytes = batch_bytes  # dealt at once: what a write buffer takes without a spike
        self._consumers: dict[Consumer, None] = {}  # in the order they came
        self._priorities: list[int] = []  # negated, so that the highest stands first
        self._rings: dict[int, deque[Consumer]] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._consumers)

    @property
    def active(self) -> Consumer | None:
        """The single active consumer."""
        return next(iter(self._consumers), None)

    def add(self, consumer: Consumer) -> None:
        self._consumers[consumer] = None
        key = -consumer.priority
        if key not in self._rings:
            self._rings[key] = deque()
            insort(self._priorities, key)
        self.wake(consumer)

    def remove(self, consumer: Consumer) -> None:
        del self._consumers[consumer]
        key = -consumer.priority
        ring = self._rings[key]
        if consumer.waiting:
            ring.remove(consumer)
            consumer.waiting = False
        if not any(other.priority == consumer.priority for other in self._consumers):
            del self._rings[key]
            self._priorities.remove(key)
        active = self.active
        if self.single_active and active is not None:
            self.wake(active)

    def wake(self, consumer: Consumer) -> None:
        """It may have room again."""
        if consumer.waiting or consumer not in self._consumers:
            return
        if self.single_active and consumer is not self.active:
            return
        consumer.waiting = True
        self._rings[-consumer.priority].append(consumer)

    def deal(self, ready: Ready) -> int:
        """Hand out as many messages as there is room for; how many of them now wait for an ack."""
        held = 0
        for priority in self._priorities:
            ring = self._rings[priority]
            while ring and ready.available:
                held += self._deal_round(ring, ready)
            if not ready.available:
                break
        return held

    def room(self, enough: int) -> int:
        """How many messages consumers would take now, counted up to `enough`."""
        total = 0
        for ring in self._rings.values():
            for consumer in ring:
                total += min(max(consumer.room(), 0), enough)
                if total >= enough:
                    return enough
        return total

    def deal_one(self, ready: Ready) -> int | None:
        """As `deal`, for a single message; None if nobody has room."""
        for priority in self._priorities:
            ring = self._rings[priority]
            while ring:
                consumer = ring[0]
                if consumer.room() > 0:
                    ring.rotate(-1)
                    return _hand(consumer, [ready.pop()])
                ring.popleft().waiting = False
        return None

    def _deal_round(self, ring: deque[Consumer], ready: Ready) -> int:
        """One step: drop a consumer without room from the ring, or deliver to one or to all."""
        first = ring[0]
        room = first.room()
        if room <= 0:
            ring.popleft()
            first.waiting = False
            return 0
        if len(ring) == 1:
            return _hand(first, ready.take(room, self.batch_bytes))
        if ready.available >= 2 * len(ring) and _are_independent(ring):
            each = min(ready.available // len(ring), *(consumer.room() for consumer in ring))
            if each > 0:
                return self._deal_evenly(ring, ready, each)
        ring.rotate(-1)
        return _hand(first, [ready.pop()])

    def _deal_evenly(self, ring: deque[Consumer], ready: Ready, each: int) -> int:
        """Message i goes to consumer i modulo their number, as if dealt one by one."""
        around = len(ring)
        messages = ready.take(each * around, self.batch_bytes)
        held = sum(
            _hand(consumer, messages[turn::around])
            for turn, consumer in enumerate(list(ring))
            if turn < len(messages)
        )
        ring.rotate(-(len(messages) % around))
        return held


def _are_independent(ring: deque[Consumer]) -> bool:
    """Each on a channel of its own, so that no delivery to one takes room or turns from another."""
    return len({id(consumer.sink) for consumer in ring}) == len(ring)


def _hand(consumer: Consumer, messages: list[Message]) -> int:
    if consumer.no_ack:
        consumer.sink.deliver(consumer, messages)
        consumer.queue.auto_acked(messages)
        return 0
    count = len(messages)
    consumer.hold(count)
    consumer.sink.deliver(consumer, messages)
    if consumer.lease_ms is not None:
        consumer.queue.lease(consumer, messages)
    return count
