"""The consumers of a front's node: they are at the leader, or somebody stands in for them there."""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakSet

from broker.cluster.calls import CALL_WAIT_MS
from broker.cluster.desk import Desk, Joining
from broker.cluster.queue_wire import (
    CONSUME_GONE,
    FETCHER,
    ConsumeWish,
    How,
    Op,
    encode_pair,
    encode_returns,
    encode_sequences,
    encode_taken,
)
from broker.cluster.stay import Stay
from broker.cluster.subscriptions import (
    SEQUENCES_MAX,
    WINDOW_BYTES,
    Returns,
    Settled,
    Subscription,
    Then,
    limit_of,
)
from broker.protocol.errors import ChannelError
from queues.bell import Clock
from queues.consumers import Consumer, Sink
from queues.message import Message
from queues.queue import Queue

DISOWNED: Final = -1  # the sequence of a message that its queue did not let its holder claim
TAKEN_BYTES: Final = WINDOW_BYTES // 4  # passed on, before the leader is told


class Holder(Protocol):
    """A sink that knows what its consumers hold."""

    def held_of(self, queue: object) -> list[tuple[Consumer, Message]]: ...


class FrontConsumers:
    """Those of one queue, what they hold, and what they have handed back."""

    def __init__(
        self,
        front: object,
        stay: Stay,
        clock: Clock,
        in_use: Callable[[], ChannelError],
        no_leader: Callable[[], ChannelError],
    ) -> None:
        self._front = front
        self._stay = stay
        self._clock = clock
        self._in_use = in_use
        self._no_leader = no_leader
        self._subscriptions: dict[int, Subscription] = {}
        self._returns = Returns()
        self._settled = Settled(clock, stay)
        self._unclaimed: list[int] = []  # settled here, and not found by the queue of this node
        self._unpassed: dict[Subscription, None] = {}  # those whose leader may be told of more room
        self._sinks: WeakSet[Holder] = WeakSet()  # which may hold messages of this queue
        self._disowned = 0  # messages held here that are not known to the leader, on this node
        self._ended = False

    @property
    def unheard(self) -> int:
        """Returns that the leader may not know of."""
        return len(self._returns)

    def known_sink(self, sink: Sink) -> None:
        """It may hold messages of this queue from now on."""
        self._sinks.add(sink)  # type: ignore[arg-type]

    def set_lease(self, lease_ms: int | None) -> None:
        for subscription in self._subscriptions.values():
            consumer = subscription.consumer
            consumer.lease_ms = consumer.own_lease_ms or lease_ms

    # Coming and going

    def add(self, consumer: Consumer, then: Then) -> None:
        """Add a consumer: `then` is told when the leader has taken it, or why not.

        Nothing is delivered to it before `start_consumer`.
        """
        subscription = Subscription(consumer, then)
        self._subscriptions[consumer.number] = subscription
        self.known_sink(consumer.sink)
        deadline = self._clock.now_ms() + CALL_WAIT_MS
        if self._stay.desk is not None:
            self._join(self._stay.desk, subscription)
        elif self._stay.leader is not None:
            self._stay.send(Op.CONSUME, subscription.wish().encode())
        if subscription.then is not None:
            self._clock.call_at(deadline, lambda: self._give_up(subscription))

    def _give_up(self, subscription: Subscription) -> None:
        if subscription.then is not None:
            self.remove(subscription.consumer)
            subscription.answer(self._no_leader())

    def _join(self, desk: Desk, subscription: Subscription) -> None:
        consumer = subscription.consumer
        known = subscription.known

        def joined(*, taken: bool) -> None:
            if taken:
                subscription.answer(None)
            elif known:
                self.cancel(subscription)
            else:
                self._subscriptions.pop(consumer.number, None)
                subscription.answer(self._in_use())

        desk.join(Joining(consumer, joined, known=known, served=subscription.served))

    def start(self, consumer: Consumer) -> None:
        """consume-ok is out: deliver what waits."""
        subscription = self._subscriptions.get(consumer.number)
        if subscription is not None:
            subscription.started = True
            if self._stay.queue is not None:
                self._stay.queue.start_consumer()
            else:
                self._passed(subscription, subscription.pump())

    def remove(self, consumer: Consumer) -> None:
        """Cancelled or lost. What it holds stays with its channel."""
        subscription = self._subscriptions.pop(consumer.number, None)
        if subscription is None:
            return
        self._unpassed.pop(subscription, None)
        if self._stay.desk is not None:
            self._stay.desk.leave(consumer)
        elif self._stay.leader is not None:
            self.flush()
            self._stay.send(Op.CANCEL, encode_pair(consumer.number, 0))
            if subscription.parked:
                self.give_back(consumer.number, How.UNTOUCHED, list(subscription.parked))

    def wake(self, consumer: Consumer) -> None:
        """Its connection drained, or its channel's credit changed."""
        if self._stay.queue is not None:
            self._stay.queue.consumer_ready(consumer)
            return
        subscription = self._subscriptions.get(consumer.number)
        if subscription is None or self._stay.leader is None:
            return
        self._pump(consumer)
        limit = limit_of(consumer)
        if limit != subscription.limit:
            subscription.limit = limit
            self._stay.send(Op.LIMIT, encode_pair(consumer.number, limit))

    def answered(self, number: int, *, taken: bool) -> None:
        """A leader elsewhere has decided."""
        subscription = self._subscriptions.get(number)
        if subscription is not None:
            if not taken:
                del self._subscriptions[number]
            subscription.answer(None if taken else self._in_use())

    def cancelled(self, number: int) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is not None:
            self.cancel(subscription)

    def cancel_all(self) -> None:
        for subscription in list(self._subscriptions.values()):
            self.cancel(subscription)

    def end(self, error: ChannelError, *, told: bool) -> None:
        """The queue is deleted. Where it was on this node, its consumers were told."""
        self._ended = True
        subscriptions = list(self._subscriptions.values())
        self._subscriptions.clear()
        self._returns.clear()
        self._settled.take()
        for subscription in subscriptions:
            if subscription.then is not None:
                subscription.answer(error)
            elif not told:
                subscription.consumer.sink.consumer_cancelled(subscription.consumer)

    # Another leader

    def detach(self) -> None:
        """The leader, elsewhere, is gone."""
        for subscription in self._subscriptions.values():
            subscription.detached()
        self._unpassed.clear()

    def led_here_no_more(self, *, damaged: bool) -> None:
        if damaged:  # then consumers were told
            self._subscriptions.clear()
        for subscription in self._subscriptions.values():
            subscription.served = subscription.consumer.credit.used > 0
        for how, sequences in self._settled.take():
            self._returns.add_sequences(FETCHER, how, sequences)

    def attach(self) -> None:
        """Tell a leader elsewhere what it has to know, in this order."""
        send = self._stay.send
        for number, groups in self._returns.repeat():
            send(Op.RETURN, encode_returns(number, groups))
        for subscription in self._subscriptions.values():
            send(Op.CONSUME, subscription.wish().encode())
        leases: dict[int, int | None] = {}
        held: dict[int, list[int]] = {}  # what was delivered and not handed back
        for sink in self._sinks:
            for consumer, message in sink.held_of(self._front):
                if message.sequence != DISOWNED:
                    number = FETCHER if consumer.fetching else consumer.number
                    leases[number] = consumer.own_lease_ms
                    held.setdefault(number, []).append(message.sequence)
        for number, sequences in held.items():
            if number != FETCHER and number not in self._subscriptions:
                gone = ConsumeWish(number, CONSUME_GONE, 0, leases[number], 0, "")
                send(Op.CONSUME, gone.encode())
            for start in range(0, len(sequences), SEQUENCES_MAX):
                some = sequences[start : start + SEQUENCES_MAX]
                send(Op.CLAIM, encode_sequences(number, some))

    def join_all(self, desk: Desk) -> None:
        for subscription in list(self._subscriptions.values()):
            self._join(desk, subscription)

    def claim(self, desk: Desk) -> None:
        self._unclaimed = []
        for _, groups in self._returns.repeat():
            for _, how, sequences in groups:
                self._unclaimed += desk.settle_unheard(how, sequences)
                self._settled.add(desk.queue, how, sequences)
        self._returns.clear()
        by_consumer: dict[Consumer, list[Message]] = {}
        for sink in self._sinks:
            for consumer, message in sink.held_of(self._front):
                by_consumer.setdefault(consumer, []).append(message)
        self._disowned = 0
        for consumer, messages in by_consumer.items():
            owned = [m for m in messages if m.sequence != DISOWNED]
            sequences = [m.sequence for m in owned]
            claimed = {m.sequence for m in desk.queue.claim(consumer, sequences, owned)}
            self._disowned += len(messages) - len(claimed)
            for message in reversed(owned):  # it may be there twice: the newer delivery counts
                if message.sequence in claimed:
                    claimed.remove(message.sequence)
                else:
                    message.sequence = DISOWNED

    # What becomes of deliveries

    def settled(self, queue: Queue, how: How, messages: list[Message]) -> None:
        """In the queue of this node, which was told."""
        self._settled.add(queue, how, [m.sequence for m in messages])

    @property
    def oldest_return(self) -> int:
        """What becomes of deliveries from now on has this number or a later one."""
        return self._returns.oldest

    def take_unclaimed(self) -> list[int]:
        """What was settled before this node led, and was with somebody else by then."""
        unclaimed, self._unclaimed = self._unclaimed, []
        return unclaimed

    @property
    def has_disowned(self) -> bool:
        return self._disowned > 0

    def owned(self, messages: list[Message]) -> list[Message]:
        owned = [m for m in messages if m.sequence != DISOWNED]
        self._disowned -= len(messages) - len(owned)
        return owned

    def hand_back(self, consumer: Consumer, how: How, messages: list[Message]) -> None:
        if self._disowned:
            messages = self.owned(messages)
        if messages:
            self.give_back(FETCHER if consumer.fetching else consumer.number, how, messages)
        self._pump(consumer)

    def _pump(self, consumer: Consumer) -> None:
        """It has room again, which the leader may have taken for granted before."""
        subscription = self._subscriptions.get(consumer.number)
        if subscription is not None and subscription.parked and subscription.started:
            self._passed(subscription, subscription.pump())

    def give_back(self, number: int, how: How, messages: list[Message]) -> None:
        if self._ended:
            return
        self._returns.add(number, how, messages)
        if self._stay.leader is not None:
            self._stay.changed()

    def deliver(self, number: int, messages: list[Message]) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is None:  # cancelled meanwhile
            self.give_back(number, How.UNTOUCHED, messages)
        else:
            self._passed(subscription, subscription.take(messages))

    def _passed(self, subscription: Subscription, messages: list[Message]) -> None:
        """These went to the client."""
        if not messages:
            return
        consumer = subscription.consumer
        if consumer.no_ack:
            self.give_back(consumer.number, How.SETTLED, messages)
        if subscription.taken - subscription.told >= TAKEN_BYTES:
            self._unpassed[subscription] = None
            self._stay.changed()

    def revoke(self, number: int, sequences: list[int]) -> None:
        """Leases are over: give back what is not settled, nor about to be by a transaction."""
        wanted = set(sequences)
        subscription = self._subscriptions.get(number)
        taken = subscription.revoke(wanted) if subscription is not None else []
        held: dict[Consumer, list[Message]] = {}
        for sink in self._sinks:
            for consumer, message in sink.held_of(self._front):
                if message.sequence in wanted:
                    held.setdefault(consumer, []).append(message)
        for consumer, messages in held.items():
            taken += consumer.sink.revoke(consumer, messages)
        if taken:
            self.give_back(number, How.REQUEUED, taken)
        for consumer in held:
            self._pump(consumer)

    def cancel(self, subscription: Subscription) -> None:
        """By the broker."""
        consumer = subscription.consumer
        if self._subscriptions.pop(consumer.number, None) is None:
            return
        self._unpassed.pop(subscription, None)
        if self._stay.leader is not None and subscription.parked:
            self.give_back(consumer.number, How.UNTOUCHED, list(subscription.parked))
        if subscription.then is not None:
            subscription.answer(self._no_leader())
        else:
            consumer.sink.consumer_cancelled(consumer)

    def returned(self, number: int) -> None:
        self._returns.heard(number)

    def flush(self) -> None:
        """Say what was gathered to a leader elsewhere."""
        for returns in self._returns.take():
            self._stay.send(Op.RETURN, encode_returns(*returns))
        for subscription in self._unpassed:
            subscription.told = subscription.taken
            number = subscription.consumer.number
            self._stay.send(Op.TAKEN, encode_taken(number, subscription.taken))
        self._unpassed.clear()
