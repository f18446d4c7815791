"""A stream queue on this node: its partitions, what is published to them, and who reads them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from broker.protocol.runs import ContentRun
from broker.protocol.stream_errors import StreamError
from queues.bell import Clock
from queues.consumers import Consumer
from queues.message import Message, messages_of
from queues.options import NOTHING_ALTERED
from queues.seams import Receipt
from queues.stream.arguments import StreamQueueOptions
from queues.stream.arrivals import Receipt as PartitionReceipt
from queues.stream.names import INTERNAL
from queues.stream.partition import StreamPartition
from queues.stream.publishing import (
    Columns,
    Confirmation,
    divide,
    records_of,
    records_of_run,
)
from queues.stream.statistics import PartitionStatistics, ReaderStatistics, StreamStatistics
from queues.stream.subscription import Membership, PartitionEnd, Subscription
from queues.stream.watching import Wake, Watchers
from queues.stream.watermark import Watermark
from queues.stream.wishes import At, Edge, ReaderWishes, Since, Start
from queues.tally import Tally

# A replica that lags has caught up by then, or does not see its leader.
CATCH_UP_MS: Final = 2000


class Context(Clock, Protocol):
    """What a stream asks of the broker around it."""

    def when_durable(self, action: Callable[[], None]) -> None:
        """Call back when the definitions, as they are now, are on disk."""
        ...

    def stream_unreadable(self, stream: "Stream", reason: str) -> None: ...


class Appender(Protocol):
    """Takes what is published to a partition: the partition itself, or the way to its leader."""

    def append(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        properties: Sequence[bytes],
        receipt: PartitionReceipt | None,
    ) -> None: ...

    def append_chunk(self, chunk: bytes, receipt: PartitionReceipt | None) -> None:
        """Raises CorruptChunkError."""
        ...

    @property
    def congested(self) -> bool: ...


class Upkeep(Protocol):
    """Who looks after partitions."""

    def touched(self, partition: StreamPartition) -> None:
        """It has something new."""
        ...

    def crowded(self, appender: Appender) -> None:
        """More was published to it than it could put away."""
        ...

    def forget(self, partition: StreamPartition) -> None:
        """It is deleted."""
        ...


class Stream:
    """Nothing here awaits: each call decides and acts. It is of use once it has its partitions."""

    __slots__ = (
        "_appenders",
        "_context",
        "_ends",
        "_subscriptions",
        "_turn",
        "_upkeep",
        "_watchers",
        "arguments",
        "auto_delete",
        "damaged",
        "deleted",
        "durable",
        "name",
        "operator_policy",
        "options",
        "owner",
        "partitions",
        "policy",
        "settings",
        "tally",
        "uid",
    )

    def __init__(
        self,
        name: str,
        context: Context,
        options: StreamQueueOptions,
        *,
        arguments: Mapping[str, object],
    ) -> None:
        self.name = name
        self.options = options
        self.arguments = arguments
        self.policy: str | None = None  # the names of those that it has
        self.operator_policy: str | None = None
        self.settings: Mapping[str, object] = NOTHING_ALTERED
        self.durable = True
        self.auto_delete = False
        self.owner: object | None = None
        self.uid = b""  # names its logs; new whenever a stream of this name is made
        self.tally = Tally()  # of which only `changed` is used
        self.deleted = False
        self.damaged: str | None = None  # why it must not be served
        self.partitions: list[StreamPartition] = []
        self._context = context
        self._upkeep: Upkeep
        self._appenders: Sequence[Appender] = self.partitions
        self._ends: list[PartitionEnd] = []
        self._watchers: list[Watchers] = []
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._turn = 0  # the partition that gets the next record without a key

    def keep_in(
        self, upkeep: Upkeep, make: Callable[[int, PartitionEnd], StreamPartition]
    ) -> list[StreamPartition]:
        """Give it its partitions, before anything happens to it."""
        self._upkeep = upkeep
        for number in range(self.options.partitions):
            end = PartitionEnd(partial(self._touched, number), self.damage, self._repaired)
            self._ends.append(end)
            self._watchers.append(Watchers())
            self.partitions.append(make(number, end))
        return self.partitions

    def publish_through(self, appenders: Sequence[Appender]) -> None:
        """One for each partition: where other nodes may lead."""
        self._appenders = appenders

    def _touched(self, number: int) -> None:
        if number >= len(self.partitions):
            return  # it is being brought back
        self.tally.changed = True
        partition = self.partitions[number]
        self._upkeep.touched(partition)
        self._watchers[number].advanced(partition.next_offset)

    def configure(self, options: StreamQueueOptions) -> None:
        """Keep what these options say from now on."""
        assert options.partitions == self.options.partitions
        self.options = options
        for partition in self.partitions:
            partition.configure(options.storage)
            self._upkeep.touched(partition)

    def touch(self) -> None:
        """A stream does not go by not being used."""

    # What is in it

    @property
    def ready(self) -> int:
        """Records that can be read."""
        if self.damaged is not None:
            return 0
        return sum([one.next_offset - one.first_offset for one in self.partitions])

    @property
    def is_empty(self) -> bool:
        return not self.ready

    @property
    def unacked(self) -> int:
        """What its consumers hold."""
        return sum([consumer.credit.used for consumer in self._subscriptions])

    @property
    def consumer_count(self) -> int:
        return len(self._subscriptions)

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._subscriptions)

    @property
    def is_reachable(self) -> bool:
        return self.damaged is None

    def statistics(self) -> StreamStatistics:
        """Of a damaged stream nothing can be said."""
        partitions = self.partitions if self.damaged is None else []
        return StreamStatistics(
            tuple(
                PartitionStatistics(
                    number,
                    partition.first_offset,
                    partition.next_offset,
                    partition.size_bytes,
                    len(partition.segments()),
                    partition.trouble,
                )
                for number, partition in enumerate(partitions)
            ),
            tuple(
                ReaderStatistics(
                    consumer.tag,
                    {number: cursor.next for number, cursor in subscription.cursors.items()},
                    consumer.credit.used,
                )
                for consumer, subscription in self._subscriptions.items()
            ),
        )

    # Records in

    def publish(self, messages: list[Message], receipt: Receipt | None) -> None:
        """Take a batch; the receipt is told when it can be read in every partition it went to."""
        if self._is_closed(receipt, lambda: messages):
            return
        self._append(records_of(messages), receipt, lambda: messages)

    def publish_run(
        self, run: ContentRun, address: bytes, first: int, receipt: Receipt | None
    ) -> None:
        """As `publish`, of publishes that are all alike, to this exchange and key.

        Their publisher numbers them from `first` on.
        """
        messages = partial(messages_of, run, address, first)
        if not self._is_closed(receipt, messages):
            self._append(records_of_run(run, address), receipt, messages)

    def _is_closed(self, receipt: Receipt | None, messages: Callable[[], list[Message]]) -> bool:
        """Whether it takes nothing any more; the publisher is told then."""
        internal = self.name in INTERNAL  # written by the broker alone, and not in this way
        if not self.deleted and self.damaged is None and not internal:
            return False
        if receipt is not None:
            receipt.stored(messages() if self.damaged is not None or internal else [])
        return True

    def _append(
        self, records: Columns, receipt: Receipt | None, messages: Callable[[], list[Message]]
    ) -> None:
        count = len(self.partitions)
        shares = list(divide(records, count, self._turn))
        self._turn = (self._turn + len(records.keys)) % count
        confirmation = None
        if receipt is not None:
            confirmation = Confirmation(receipt, len(shares), messages)
        for number, (keys, values, properties) in shares:
            appender = self._appenders[number]
            appender.append(keys, values, properties, confirmation)
            if appender.congested:
                self._upkeep.crowded(appender)

    def append_chunk(self, number: int, chunk: bytes, receipt: PartitionReceipt | None) -> None:
        """Take a chunk that a publisher made. Raises CorruptChunkError."""
        appender = self._appenders[number]
        appender.append_chunk(chunk, receipt)
        if appender.congested:
            self._upkeep.crowded(appender)

    # Records out

    def watch(self, number: int, beyond: int, wake: Wake) -> Callable[[], None]:
        """Wake once: when that partition's next offset is above `beyond`, or the stream is gone.

        The answer ends the watch.
        """
        gone = self.deleted or self.damaged is not None
        if gone or self.partitions[number].next_offset > beyond:
            wake()
            return lambda: None
        return self._watchers[number].add(beyond, wake)

    def when_current(self, numbers: Iterable[int], action: Callable[[], None]) -> None:
        """Act when these partitions have here what their leaders have now, or after a while.

        So that a reader at the end begins behind what was confirmed before.
        """
        waiting = {
            n for n in numbers if self.partitions[n].ask_end and not self.partitions[n].leads
        }
        if not waiting:
            action()
            return

        def done(number: int) -> None:
            if number in waiting:
                waiting.remove(number)
                if not waiting:
                    action()

        def told(number: int, end: int | None) -> None:
            if end is None or number >= len(self.partitions):
                done(number)
            else:
                self.watch(number, end - 1, partial(done, number))

        def give_up() -> None:
            for number in list(waiting):
                done(number)

        self._context.call_at(self._context.now_ms() + CATCH_UP_MS, give_up)
        for number in list(waiting):
            ask = self.partitions[number].ask_end
            assert ask is not None
            ask(partial(told, number))

    def subscribe(self, consumer: Consumer, wishes: ReaderWishes) -> None:
        """Add a consumer; `start_consumer` lets it begin."""
        subscription = self._subscribe(consumer, wishes)
        for number in wishes.partitions:
            self.find(subscription, number, wishes.start, partial(self.read, subscription, number))

    def subscribe_member(
        self, consumer: Consumer, wishes: ReaderWishes, member: Membership
    ) -> Subscription:
        """Add a consumer that reads for a group; its member says which partitions, and when."""
        subscription = self._subscribe(consumer, wishes)
        subscription.member = member
        return subscription

    def _subscribe(self, consumer: Consumer, wishes: ReaderWishes) -> Subscription:
        subscription = Subscription(consumer, wishes.filter, self._later, self._unreadable)
        self._subscriptions[consumer] = subscription
        return subscription

    def find(
        self, subscription: Subscription, number: int, start: Start, then: Callable[[int], None]
    ) -> None:
        """The offset at which to begin; `then` is not called if the consumer is gone by then."""
        partition = self.partitions[number]

        def found(offset: int | StreamError) -> None:
            if subscription.closed:
                return
            if isinstance(offset, StreamError):
                self._unreadable(subscription, offset)
                return
            then(max(offset, partition.first_offset))

        if isinstance(start, Since):
            partition.reader.seek_time(start.time_ms, found)
        else:
            found(_offset(partition, start))

    def read(
        self, subscription: Subscription, number: int, offset: int, mark: Watermark | None = None
    ) -> None:
        """Let a consumer have the records of a partition, from this offset on."""
        partition = self.partitions[number]
        subscription.add(number, partition, self._ends[number], offset, mark)
        if subscription.started:
            subscription.pump()

    def start_consumer(self, consumer: Consumer) -> None:
        """Deliver what there is; apart from `subscribe` so that consume-ok can go out first."""
        self._subscriptions[consumer].started = True
        self.consumer_ready(consumer)

    def _later(self, callback: Callable[[], None]) -> None:
        self._context.call_at(self._context.now_ms() + 1, callback)

    def _unreadable(self, subscription: Subscription, error: StreamError) -> None:
        """What this consumer would get next is damaged; it may go on behind that, if it asks to."""
        self._context.stream_unreadable(self, str(error))
        self.dismiss(subscription.consumer)

    def dismiss(self, consumer: Consumer) -> None:
        """It gets nothing more, and is told so."""
        subscription = self._subscriptions.pop(consumer, None)
        if subscription is not None:
            subscription.close()
            consumer.sink.consumer_cancelled(consumer)

    def subscription_of(self, consumer: Consumer) -> Subscription | None:
        return self._subscriptions.get(consumer)

    # What a consumer's channel says

    counts_deliveries = False

    def lag_of(self, consumer: Consumer) -> int:
        """Records that it has yet to get, in the partitions that it reads."""
        subscription = self._subscriptions.get(consumer)
        return 0 if subscription is None else subscription.lag

    def lease(self, consumer: Consumer, messages: list[object]) -> None:
        """Nobody else waits for a record: it may be held for as long as the consumer likes."""

    def extend_lease(self, message: object, lease_ms: int | None) -> bool:  # noqa: ARG002
        return False

    def auto_acked(self, messages: list[object]) -> None:
        """Only with consumers that ack."""

    def settle(self, consumer: Consumer, places: list[tuple[int, int]]) -> None:
        """Acked, in whatever order: there is room for others."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None:
            if subscription.member is not None:
                subscription.member.settled(places)
            subscription.pump()

    def requeue(
        self, consumer: Consumer, places: list[tuple[int, int]], *, lost: bool = False
    ) -> None:
        """Records stay where they are: to have them again is to consume from there again.

        A group is another matter: what a member gives back it gets again, before anything new.
        """
        subscription = self._subscriptions.get(consumer)
        if subscription is not None and not lost:
            if subscription.member is not None:
                subscription.member.returned(places)
            subscription.pump()

    def discard(self, consumer: Consumer, places: list[tuple[int, int]]) -> None:
        self.settle(consumer, places)

    def consumer_ready(self, consumer: Consumer) -> None:
        """Its connection drained, or its credit grew."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None:
            subscription.pump()

    def remove_consumer(self, consumer: Consumer) -> None:
        subscription = self._subscriptions.pop(consumer, None)
        if subscription is not None:
            subscription.close()

    # The end

    def damage(self, reason: str) -> None:
        """It cannot be vouched for: nothing is taken or given any more."""
        self.damaged = reason
        for consumer in self.consumers:
            self.dismiss(consumer)
        self._wake_all()

    def _repaired(self) -> None:
        """A partition has what it should again, from another replica; are all sound now?"""
        if all(partition.unsound is None for partition in self.partitions):
            self.damaged = None

    def _wake_all(self) -> None:
        for watchers in self._watchers:
            watchers.gone()

    def stop(self) -> None:
        """The node stops in good order."""
        if self.damaged is None:
            for partition in self.partitions:
                partition.stop()

    def delete(self) -> int:
        """Called by the vhost that forgot it. Consumers are told; the number of records."""
        count = self.ready
        self.deleted = True
        receipts = [receipt for partition in self.partitions for receipt in partition.close()]
        for receipt in receipts:
            receipt.dropped()
        for consumer in self.consumers:
            self.dismiss(consumer)
        self._wake_all()
        partitions, self.partitions = self.partitions, []
        for partition in partitions:
            self._upkeep.forget(partition)

        def remove() -> None:
            for partition in partitions:
                partition.remove()

        # Not before: a crash must not find the stream without its segments.
        self._context.when_durable(remove)
        return count


def _offset(partition: StreamPartition, start: At | Edge) -> int:
    """Where to begin; offsets that are gone are clamped to the first, by the caller."""
    if isinstance(start, At):
        return start.offset
    if start is Edge.FIRST:
        return partition.first_offset
    end = partition.stable_end
    return end if start is Edge.NEXT else end - 1
