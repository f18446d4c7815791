"""The queue: batches of messages in, deliveries to consumers out, in memory or through a store."""

from collections.abc import Callable, Mapping
from typing import Protocol

from queues.consumers import Consumer, Dispatcher
from queues.expiry import Expiry, Timer
from queues.limits import LengthLimit
from queues.message import Message
from queues.options import QueueOptions
from queues.ready import FifoReady, PriorityReady, Ready


class Context(Protocol):
    """What a queue asks of the broker around it."""

    def now_ms(self) -> int: ...
    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer: ...
    def dead_letter(
        self, queue: "Queue", messages: list[Message], reason: str, then: Callable[[], None]
    ) -> None: ...
    def queue_unused(self, queue: "Queue") -> None: ...


class Store(Protocol):
    """Makes a queue durable. Messages come back through `Queue.enqueued` once they are safe."""

    pending: int  # messages handed over and not yet enqueued

    @property
    def ready(self) -> Ready: ...
    def enqueue(self, messages: list[Message], receipt: "Receipt | None") -> None: ...
    def settle(self, messages: list[Message]) -> None: ...
    def give_back(self, messages: list[Message]) -> None: ...
    def purge(self) -> int: ...
    def mark_clean_stop(self) -> None: ...
    def close(self) -> "list[Receipt]": ...


class Receipt(Protocol):
    """Told by each queue of a publish when its messages are safe, or which of them it refuses."""

    def stored(self, refused: list[Message]) -> None: ...


class Queue:
    """A queue on this node. Nothing here awaits: each call decides and acts."""

    __slots__ = (
        "_context",
        "_dispatcher",
        "_expiry",
        "_limit",
        "_next_sequence",
        "_ready",
        "_store",
        "_touched_ms",
        "_unused_timer",
        "_waiting",
        "arguments",
        "auto_delete",
        "damaged",
        "deleted",
        "durable",
        "name",
        "options",
        "owner",
        "uid",
        "unacked",
    )

    def __init__(
        self,
        name: str,
        context: Context,
        options: QueueOptions,
        *,
        arguments: Mapping[str, object],
        durable: bool,
        auto_delete: bool,
        owner: object | None,
    ) -> None:
        self.name = name
        self.options = options
        self.arguments = arguments
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection of an exclusive queue
        self.uid = b""  # names its log; new whenever a queue of this name is made
        self.unacked = 0
        self.deleted = False
        self.damaged: str | None = None  # why it must not be served
        self._context = context
        self._ready: Ready = (
            FifoReady() if not options.max_priority else PriorityReady(options.max_priority)
        )
        self._dispatcher = Dispatcher(single_active=options.single_active_consumer)
        self._store: Store | None = None
        self._next_sequence = 0
        self._limit = LengthLimit(options)
        self._expiry = Expiry(
            context,
            self._dispatch,
            ttl_ms=options.message_ttl_ms,
            by_priority=bool(options.max_priority),
        )
        self._touched_ms = 0
        self._unused_timer: Timer | None = None
        self._waiting: list[Callable[[], None]] = []
        if options.expires_ms is not None:
            self._touched_ms = context.now_ms()
            due = self._touched_ms + options.expires_ms
            self._unused_timer = context.call_at(due, self._check_unused)

    def damage(self, reason: str) -> None:
        """Its log cannot be vouched for: nothing is taken or given any more."""
        self.damaged = reason
        for consumer in self._dispatcher.consumers:
            self._dispatcher.remove(consumer)
            consumer.sink.consumer_cancelled(consumer)
        self._ready = FifoReady()
        self._wake_waiting()

    def keep_in(self, store: Store) -> None:
        """Make it durable, before anything happens to it."""
        assert not self._next_sequence
        self._store = store
        self._ready = store.ready

    def stop(self) -> None:
        """The node stops in good order."""
        if self._store is not None and self.damaged is None:
            self._store.mark_clean_stop()

    # What is in it

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def ready_bytes(self) -> int:
        return self._ready.size_bytes

    @property
    def consumers(self) -> list[Consumer]:
        return self._dispatcher.consumers

    @property
    def has_exclusive_consumer(self) -> bool:
        """It would be the only one."""
        first = self._dispatcher.active
        return first is not None and first.exclusive

    @property
    def consumer_count(self) -> int:
        return len(self._dispatcher)

    @property
    def counts_deliveries(self) -> bool:
        """Whether redeliveries carry the header x-delivery-count."""
        return self.options.type == "quorum"

    # Messages in

    def publish(self, messages: list[Message], receipt: Receipt | None) -> None:
        """Take a batch. The receipt is told at once: in memory, stored means enqueued."""
        if self.deleted:
            if receipt is not None:
                receipt.stored([])
            return
        if self.damaged is not None:
            if receipt is not None:
                receipt.stored(messages)
            return
        refused: list[Message] = []
        if self._limit.refuses:
            refused = self._publish_within_limits(messages, receipt)
        elif self._store is not None:
            self._expiry.stamp(messages)
            self._store.enqueue(messages, receipt)
        else:
            self._enqueue(messages)
        if refused and self.options.overflow == "reject-publish-dlx":
            self._context.dead_letter(self, [m.copy() for m in refused], "maxlen", _nothing)
        if receipt is not None and (self._store is None or len(refused) == len(messages)):
            receipt.stored(refused)

    def _enqueue(self, messages: list[Message]) -> None:
        self._expiry.stamp(messages)
        sequence = self._next_sequence
        for message in messages:
            message.sequence = sequence
            sequence += 1
        self._next_sequence = sequence
        self.enqueued(messages)

    def enqueued(self, messages: list[Message]) -> None:
        """They are safe, and may be delivered."""
        self._ready.push(messages)
        self._dispatch()
        self._drop_over_limit()

    def loaded(self, messages: list[Message]) -> None:
        """These came back from disk."""
        self._expiry.notice(messages)
        if not self.deleted:
            self._dispatch()
            self._drop_over_limit()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def when_loaded(self, action: Callable[[], None]) -> None:
        """Call back when the next messages have come from disk, or never will."""
        self._waiting.append(action)

    def _publish_within_limits(
        self, messages: list[Message], receipt: Receipt | None
    ) -> list[Message]:
        """Take what fits, one by one: each may go straight to a consumer and take no room."""
        refused: list[Message] = []
        if self._store is None:
            for message in messages:
                if self._limit.fits(message, len(self._ready), self._ready.size_bytes):
                    self._enqueue([message])
                else:
                    refused.append(message)
            return refused
        accepted: list[Message] = []
        for message in messages:
            ahead = len(self._ready) + self._store.pending + len(accepted)
            takers = self._dispatcher.room(len(messages))
            fits = self._limit.fits(message, ahead - takers, self._ready.size_bytes)
            (accepted if fits else refused).append(message)
        if accepted:
            self._expiry.stamp(accepted)
            self._store.enqueue(accepted, _Partly(receipt, refused) if receipt else None)
        return refused

    def _drop_over_limit(self) -> None:
        if not self._limit.drops_head:
            return
        dropped = []
        while self._ready.available and self._limit.exceeded(self._ready):
            dropped.append(self._ready.pop_oldest())
        if dropped:
            self._bury(dropped, "maxlen")
            self._watch_head()

    def _bury(self, messages: list[Message], reason: str) -> None:
        """They leave the queue for its dead-letter exchange, or for nowhere."""

        def safe() -> None:
            if self._store is not None and not self.deleted and self.damaged is None:
                self._store.settle(messages)  # not before: a crash must find one or the other

        self._context.dead_letter(self, messages, reason, safe)

    # Expiry

    def _expire(self, before_ms: int) -> None:
        expired = self._expiry.take_expired(self._ready, before_ms)
        if expired:
            self._bury(expired, "expired")

    def _watch_head(self) -> None:
        """There may be another head, by other means than dispatch: its time may have come."""
        if self._expiry.active:
            self._expire(self._context.now_ms() + 1)

    def _check_unused(self) -> None:
        """x-expires: the queue goes when it had no consumer and no use for that long."""
        expires_ms = self.options.expires_ms
        if self.deleted or expires_ms is None:
            return
        now = self._context.now_ms()
        if len(self._dispatcher):
            self._touched_ms = now
        due = self._touched_ms + expires_ms
        if due <= now:
            self._context.queue_unused(self)
        else:
            self._unused_timer = self._context.call_at(due, self._check_unused)

    def touch(self) -> None:
        """A declare, a get or a leaving consumer counts as use."""
        if self.options.expires_ms is not None:
            self._touched_ms = self._context.now_ms()

    # Messages out

    def _dispatch(self) -> None:
        if self._expiry.active:
            self._dispatch_unexpired()
        elif self._ready.available and len(self._dispatcher):
            self.unacked += self._dispatcher.deal(self._ready)

    def _dispatch_unexpired(self) -> None:
        """A message due this very millisecond (a TTL of zero) reaches a consumer that waits."""
        now = self._context.now_ms()
        self._expire(now)
        if not self._expiry.mixed:
            self.unacked += self._dispatcher.deal(self._ready)
        else:
            while self._ready.available:
                held = self._dispatcher.deal_one(self._ready)
                if held is None:
                    break
                self.unacked += held
                self._expire(now)
        self._expire(now + 1)

    def get(self, holder: Consumer) -> Message | None:
        """basic.get: the head, held by `holder` unless that is no-ack."""
        self.touch()
        self._watch_head()
        if not self._ready.available:
            return None
        message = self._ready.pop()
        if not holder.no_ack:
            self.unacked += 1
        elif self._store is not None:
            self._store.settle([message])
        self._watch_head()
        return message

    @property
    def is_loading(self) -> bool:
        """There are messages, but the first of them is still on its way from the disk."""
        return len(self._ready) > 0 and not self._ready.available

    def auto_acked(self, messages: list[Message]) -> None:
        """Delivered to a consumer that does not ack."""
        if self._store is not None:
            self._store.settle(messages)

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        """Acked: gone for good."""
        self._returned(consumer, len(messages))
        if self.deleted:
            return
        if self._store is not None:
            self._store.settle(messages)
        if len(self._ready):
            self._dispatch()

    def requeue(self, consumer: Consumer, messages: list[Message]) -> None:
        """Back to their old places, redelivered; over the delivery limit they are dead-lettered."""
        if self.deleted:
            return
        limit = self.options.delivery_limit
        back: list[Message] = []
        dead: list[Message] = []
        for message in messages:
            message.redelivered = True
            message.delivery_count += 1
            (dead if limit is not None and message.delivery_count > limit else back).append(message)
        self._ready.put_back(back)
        if self._store is not None:
            self._store.give_back(back)
        self._returned(consumer, len(messages))
        if dead:
            self._bury(dead, "delivery_limit")
        self._dispatch()
        self._drop_over_limit()

    def discard(self, consumer: Consumer, messages: list[Message]) -> None:
        """Rejected without requeue: dead-lettered, or dropped."""
        if self.deleted:
            return
        self._returned(consumer, len(messages))
        self._bury(messages, "rejected")
        if len(self._ready):
            self._dispatch()

    def _returned(self, consumer: Consumer, count: int) -> None:
        self.unacked -= count
        self._dispatcher.wake(consumer)

    def purge(self) -> int:
        if self._store is not None:
            return self._store.purge()
        count = len(self._ready)
        self._ready.clear()
        return count

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        self._dispatcher.add(consumer)

    def start_consumer(self) -> None:
        """Deliver what waits; apart from `add_consumer` so that consume-ok can go out first."""
        self._dispatch()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Cancelled or lost. What it holds stays with its channel."""
        if self.deleted:
            return
        self._dispatcher.remove(consumer)
        self.touch()
        if self.auto_delete and not len(self._dispatcher):
            self._context.queue_unused(self)
        elif len(self._ready):
            self._dispatch()

    def consumer_ready(self, consumer: Consumer) -> None:
        """Its connection drained, or its channel's credit grew."""
        self._dispatcher.wake(consumer)
        if len(self._ready):
            self._dispatch()

    def delete(self) -> int:
        """Called by the vhost that forgot it. Consumers are told; the number of ready messages."""
        count = len(self._ready)
        self.deleted = True
        self._expiry.stop()
        if self._unused_timer is not None:
            self._unused_timer.cancel()
        self._ready.clear()
        if self._store is not None:
            for receipt in self._store.close():
                receipt.stored([])
        for consumer in self._dispatcher.consumers:
            consumer.sink.consumer_cancelled(consumer)
        self.loaded([])
        return count


def _nothing() -> None:
    """For those who need not know."""


class _Partly:
    """The receipt of a batch of which some messages were refused before the rest was stored."""

    __slots__ = ("_receipt", "_refused")

    def __init__(self, receipt: Receipt, refused: list[Message]) -> None:
        self._receipt = receipt
        self._refused = refused

    def stored(self, refused: list[Message]) -> None:
        self._receipt.stored(self._refused + refused)
