"""tx.*: publishes and acknowledgements that take effect together, at commit."""

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pamqp import commands

from broker.channel.confirms import Receipt
from broker.channel.deliveries import Settlement, unknown_tag
from broker.cluster.front import QueueFront
from broker.protocol.errors import ChannelError, precondition_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.channel.channel import Channel
    from broker.channel.deliveries import Deliveries
    from broker.protocol.frames import Content
    from queues.consumers import Consumer, Held

    Barrier: TypeAlias = Callable[[Callable[[ChannelError | None], None]], None]


# Uncommitted publishes of a channel are in memory, outside of all other limits, and all of one
# commit for a queue are one entry of its log. One message may be longer by itself.
PUBLISH_BYTES_MAX: Final = 256 * 1024 * 1024
MESSAGE_BYTES: Final = 256  # what a message takes beside its content


class Transaction:
    """What waits for the commit. Acknowledged tags are taken at once: none can be acked twice."""

    def __init__(self, deliveries: "Deliveries") -> None:
        self._deliveries = deliveries
        self.publishes: list[Content] = []
        self._publish_bytes = 0
        self._settled: list[tuple[int, Consumer, Any, Settlement]] = []

    def publish(self, items: "Sequence[Content]") -> None:
        """Keep them. What is too much for one transaction ends the channel, and with it this."""
        for _, frames, *_ in items:
            self._publish_bytes += len(frames) + MESSAGE_BYTES
        if self._publish_bytes > PUBLISH_BYTES_MAX and len(self.publishes) + len(items) > 1:
            raise precondition_failed(
                f"a transaction has {PUBLISH_BYTES_MAX} bytes of publishes at most"
            )
        self.publishes.extend(items)

    def settle(self, items: "Sequence[tuple[int, int]]", how: Settlement) -> None:
        unacked = self._deliveries.unacked
        for tag, bits in items:
            if bits & 1:
                tags = self._deliveries.select(tag)
            elif tag in unacked:
                tags = [tag]
            else:
                raise unknown_tag(tag)
            self._settled += [(held, *unacked.pop(held), how) for held in tags]

    def in_doubt(self) -> "list[tuple[Consumer, Any]]":
        """What was acknowledged, and may be outstanding again after a rollback."""
        return [(consumer, message) for _, consumer, message, _ in self._settled]

    def take(self) -> "tuple[list[Content], list[tuple[int, Consumer, Any, Settlement]]]":
        """What is to be committed; the transaction starts anew."""
        taken = self.publishes, self._settled
        self.publishes, self._settled, self._publish_bytes = [], [], 0
        return taken

    def rollback(self) -> None:
        """Drop the publishes; what was acknowledged is outstanding again."""
        _, settled = self.take()
        unacked = self._deliveries.unacked
        entries = {tag: (consumer, message) for tag, consumer, message, _ in settled} | unacked
        unacked.clear()
        unacked.update(sorted(entries.items(), key=lambda entry: entry[0]))


def select(channel: "Channel", _method: commands.Tx.Select) -> None:
    if channel.publisher.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel.deliveries)
        channel.deliveries.in_doubt = channel.transaction.in_doubt
    channel.send(commands.Tx.SelectOk)


def _transaction(channel: "Channel") -> Transaction:
    if channel.transaction is None:
        raise precondition_failed("channel is not transactional")
    return channel.transaction


def commit(channel: "Channel", _method: commands.Tx.Commit) -> None:
    """Publishes, then acknowledgements, then commit-ok once every queue has stored its part."""
    transaction = _transaction(channel)
    refused: set[int] = set()

    def store(then: "Callable[[], None]") -> None:
        def done(receipt: Receipt) -> None:
            refused.update(receipt.refused)
            then()

        def settle_known(error: ChannelError | None) -> None:
            if error is not None:
                refused.add(0)
            receipt.stored([])

        receipt = Receipt(done)
        # A mistake found here closes the channel, which rolls back what was not taken yet.
        channel.publisher.publish_with(transaction.publishes, receipt)
        _, settled = transaction.take()
        for _, consumer, message, how in settled:
            channel.deliveries.hand_back(consumer, [message], how)
        for when_stored in _barriers(channel, {consumer.queue for _, consumer, _, _ in settled}):
            receipt.open += 1
            when_stored(settle_known)
        receipt.stored([])

    def answer() -> None:
        if refused:
            raise ChannelError(406, "partial tx completion", method=commands.Tx.Commit.index)
        channel.send(commands.Tx.CommitOk)

    channel.suspend(store, answer)


def _barriers(channel: "Channel", queues: "set[Held]") -> "list[Barrier]":
    """What to wait for so that settlements are durable: the disk, or leaders on whatever node."""
    fronts = [queue for queue in queues if isinstance(queue, QueueFront)]
    barriers: list[Barrier] = [front.when_settled for front in fronts if not front.deleted]
    if len(fronts) < len(queues):
        barriers.append(lambda then: channel.vhost.when_stored(lambda: then(None)))
    return barriers


def rollback(channel: "Channel", _method: commands.Tx.Rollback) -> None:
    _transaction(channel).rollback()
    channel.send(commands.Tx.RollbackOk)
