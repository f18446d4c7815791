"""A channel: its state, and which module answers which method."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from broker.channel import consuming, topology, transactions
from broker.channel.confirms import ConfirmTracker
from broker.channel.deliveries import Deliveries, Settlement
from broker.channel.own_publishes import OwnPublishes
from broker.channel.publisher import Publisher
from broker.protocol import methods
from broker.protocol.constants import BASIC_ACK, BASIC_NACK, BASIC_PUBLISH, BASIC_REJECT
from broker.protocol.errors import (
    ChannelError,
    ConnectionFailure,
    not_implemented,
    precondition_failed,
)
from broker.protocol.frames import CONTENT_TOO_LARGE, Batch
from broker.statistics import ChannelStatistics
from queues.tally import Tally

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.channel.link import Link
    from broker.channel.replies import ReplyQueue
    from broker.channel.transactions import Transaction
    from queues.consumers import Consumer

_NACK_REQUEUE: Final = 2
_REJECT_REQUEUE: Final = 1


class Channel:
    """One channel of a connection. Methods come in through `handle`, batch by batch."""

    def __init__(self, number: int, link: "Link", plain_properties: set[bytes]) -> None:
        self.number = number
        self.link = link
        self.vhost = link.vhost
        self.user = link.user
        self.deliveries = Deliveries(number, link, self._consumer_cancelled)
        extend = self.deliveries.extend_lease
        self.publisher = Publisher(number, link, plain_properties, extend)
        self.publisher.tally = self.deliveries.tally
        self.own_publishes = OwnPublishes(self.publisher.tally)
        self.prefetch = 0  # for consumers to come
        self.last_queue: str | None = None  # what an empty queue name means
        self.transaction: Transaction | None = None
        self.reply_queue: ReplyQueue | None = None
        self._unsaid_cancels: list[str] | None = None  # tags; a list while they are held back
        self.closed = False
        self.suspended = False  # waits for the disk; its connection keeps what comes meanwhile
        self.backlog: deque[Batch] = deque()

    def when_durable(self, action: Callable[[], None]) -> None:
        """Act, and go on, once every definition changed so far is durable."""
        self.suspend(self.vhost.when_durable, action)

    def suspend(
        self, wait: Callable[[Callable[[], None]], None], action: Callable[[], None]
    ) -> None:
        """Handle nothing more until `wait` calls back; then act and go on.

        Where it calls back at once there was nothing to wait for.
        """
        self.suspended = at_once = True

        def resume() -> None:
            if self.closed:
                return
            self.suspended = False
            if at_once:
                action()
            else:
                self.link.resume(self, action)

        wait(resume)
        at_once = False

    def send(self, kind: "type[Frame]", **arguments: object) -> None:
        self.link.outbox.write(methods.encode(self.number, kind, **arguments))

    def handle(self, key: int, items: Sequence[Any]) -> None:
        """Carry out a batch of one method. Raises ChannelError and ConnectionFailure."""
        if key == BASIC_PUBLISH:
            if self.transaction is None:
                self.publisher.publish(items)
                extensions = self.publisher.inspector.extensions
                if extensions.open:  # what comes next is answered behind what becomes of them
                    self.suspend(extensions.when_answered, lambda: None)
            else:
                self.publisher.check(items)
                self.transaction.publish(items)
        elif key == BASIC_ACK:
            self._settle(items, Settlement.ACK)
        elif key == BASIC_NACK:
            for tag, bits in items:
                how = Settlement.REQUEUE if bits & _NACK_REQUEUE else Settlement.DISCARD
                self._settle([(tag, bits)], how)
        elif key == BASIC_REJECT:
            for tag, bits in items:
                how = Settlement.REQUEUE if bits & _REJECT_REQUEUE else Settlement.DISCARD
                self._settle([(tag, 0)], how)
        elif key == CONTENT_TOO_LARGE:
            text = f"message size {items[0]} is larger than the configured max size"
            raise ChannelError(406, text, method=BASIC_PUBLISH)
        else:
            self._handle_rare(key, items)

    def _handle_rare(self, key: int, items: Sequence[bytes]) -> None:
        handler = HANDLERS.get(key)
        if handler is None:
            if key in commands.INDEX_MAPPING:
                raise ConnectionFailure(
                    503, f"unexpected method {methods.name_of(key)}", method=key
                )
            raise not_implemented(f"unknown method {methods.name_of(key)}")
        for place, args in enumerate(items, start=1):
            handler(self, methods.decode(key, args))
            if self.suspended and place < len(items):
                self.link.keep_first(self, (self.number, key, [*items[place:]]))
                return

    def _settle(self, items: Sequence[tuple[int, int]], how: Settlement) -> None:
        if self.transaction is None:
            self.deliveries.settle(items, how)
        else:
            self.transaction.settle(items, how)

    def tally(self) -> Tally:
        """What happened on it so far."""
        tally = self.deliveries.tally
        if self.publisher.confirms is not None:
            tally.confirm = self.publisher.confirms.confirmed
            tally.expecting = tally.publish
        return tally

    def statistics(self) -> ChannelStatistics:
        deliveries = self.deliveries
        return ChannelStatistics(
            number=self.number,
            prefetch=self.prefetch,
            prefetch_global=deliveries.credit.limit,
            unacked=len(deliveries.unacked),
            suspended=self.suspended,
            kept_back=len(self.backlog),
            consumers=tuple(c.statistics() for c in deliveries.consumers.values()),
        )

    # Confirms

    def select_confirms(self, method: commands.Confirm.Select) -> None:
        if self.transaction is not None:
            raise precondition_failed("cannot switch from tx to confirm mode")
        if self.publisher.confirms is None:
            self.publisher.confirms = ConfirmTracker(self._confirm)
        if not method.nowait:
            self.send(commands.Confirm.SelectOk)

    def _confirm(self, tag: int, *, multiple: bool, positive: bool) -> None:
        kind = commands.Basic.Ack if positive else commands.Basic.Nack
        self.send(kind, delivery_tag=tag, multiple=multiple)
        self.link.mark_dirty()

    # The end

    def _consumer_cancelled(self, consumer: "Consumer") -> None:
        """The queue went away under its consumer."""
        self.deliveries.consumers.pop(consumer.tag, None)
        if "consumer_cancel_notify" in self.link.capabilities:
            if self._unsaid_cancels is not None:
                self._unsaid_cancels.append(consumer.tag)
            else:
                self.send(commands.Basic.Cancel, consumer_tag=consumer.tag, nowait=True)
                self.link.mark_dirty()

    def hold_cancels(self) -> None:
        """It deletes a queue: its own consumers of that are told behind the answer."""
        self._unsaid_cancels = []

    def say_cancels(self) -> None:
        tags, self._unsaid_cancels = self._unsaid_cancels or [], None
        for tag in tags:
            self.send(commands.Basic.Cancel, consumer_tag=tag, nowait=True)

    def consumed(self) -> list[object]:
        """The queues that its consumers are of."""
        return [consumer.queue for consumer in self.deliveries.consumers.values()]

    def release(self) -> None:
        """The channel is over. Consumers leave first: what it held must not come back to it."""
        self.closed = self.publisher.closed = True
        consumers = list(self.deliveries.consumers.values())
        self.deliveries.consumers.clear()
        if self.transaction is not None:
            self.transaction.rollback()
        for consumer in consumers:
            consumer.queue.remove_consumer(consumer)
        self.deliveries.requeue_all(lost=True)
        consuming.forget_reply_queue(self)


def _flow(channel: Channel, method: commands.Channel.Flow) -> None:
    if not method.active:
        raise not_implemented("active=false")
    channel.send(commands.Channel.FlowOk, active=True)


HANDLERS: Final[dict[int, Callable[[Channel, Any], None]]] = {
    commands.Channel.Flow.index: _flow,
    commands.Exchange.Declare.index: topology.exchange_declare,
    commands.Exchange.Delete.index: topology.exchange_delete,
    commands.Exchange.Bind.index: topology.exchange_bind,
    commands.Exchange.Unbind.index: topology.exchange_unbind,
    commands.Queue.Declare.index: topology.queue_declare,
    commands.Queue.Bind.index: topology.queue_bind,
    commands.Queue.Unbind.index: topology.queue_unbind,
    commands.Queue.Purge.index: topology.queue_purge,
    commands.Queue.Delete.index: topology.queue_delete,
    commands.Basic.Qos.index: consuming.qos,
    commands.Basic.Consume.index: consuming.consume,
    commands.Basic.Cancel.index: consuming.cancel,
    commands.Basic.Get.index: consuming.get,
    commands.Basic.Recover.index: consuming.recover,
    commands.Basic.RecoverAsync.index: consuming.recover_async,
    commands.Tx.Select.index: transactions.select,
    commands.Tx.Commit.index: transactions.commit,
    commands.Tx.Rollback.index: transactions.rollback,
    commands.Confirm.Select.index: Channel.select_confirms,
}
