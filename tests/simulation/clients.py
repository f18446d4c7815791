"""Publishers and consumers without sockets, who tell the ledger what they see and do."""

from random import Random
from typing import TYPE_CHECKING

from broker.protocol.constants import FLAG_DELIVERY_MODE
from broker.protocol.content import join_header
from broker.protocol.methods import short_string
from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import PERSISTENT, Message
from queues.queue import Queue
from tests.simulation.ledger import Book, check, number_of

if TYPE_CHECKING:
    from tests.simulation.life import Life


def make_message(number: int, exchange: str, key: str, filler_bytes: int) -> Message:
    body = b"<%d>" % number + b"." * filler_bytes
    header, header_bytes, flags = join_header(1, len(body), {FLAG_DELIVERY_MODE: PERSISTENT})
    frames = header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    address = short_string(exchange) + short_string(key)
    return Message(address, frames, header_bytes, flags, len(body), 1)


class WatchedReceipt:
    """What one queue says of one batch; once, and not before the batch is on the platter."""

    def __init__(self, life: "Life", queue: Queue, messages: list[Message]) -> None:
        self._life = life
        self._queue = queue
        self.book: Book = life.ledger.book(queue)
        self.messages = messages
        self.answered = False

    def stored(self, refused: list[Message]) -> None:
        if self._life.over:
            return
        check(not self.answered, self.book, "a batch is answered twice")
        self.answered = True
        refused_numbers = {number_of(m) for m in refused}
        check(not refused or self.book.damaged or self._may_refuse(), self.book, "refuses")
        if self.book.deleted or self.book.damaged:
            return
        for message in self.messages:
            if number_of(message) not in refused_numbers:
                self._confirmed(message)

    def _may_refuse(self) -> bool:
        return self._queue.options.overflow != "drop-head" or self._queue.damaged is not None

    def _confirmed(self, message: Message) -> None:
        number = number_of(message)
        on_platter = self._life.is_on_platter(b"<%d>." % number)
        check(on_platter, self.book, "message", number, "is confirmed but not on disk")
        item = self.book.items.get(message.sequence)
        check(item is not None and item.number == number, self.book, number, "was not enqueued")
        assert item is not None
        item.promised = True


class Client:
    """A channel: consumers of one queue each, and what it holds unacked."""

    def __init__(self, life: "Life", random: Random, prefetch: int) -> None:
        self._life = life
        self._random = random
        self.credit = Credit(prefetch)
        self.paused = False
        self.consumers: list[Consumer] = []
        self.unacked: list[tuple[Consumer, Message]] = []
        self._holders: dict[bytes, Consumer] = {}

    # As a queue sees it

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        if self._life.over:
            return
        queue = consumer.queue
        assert isinstance(queue, Queue)
        self._life.delivered(queue, messages, alone=queue.consumer_count == 1, consumer=consumer)
        if not consumer.no_ack:
            self.unacked += [(consumer, message) for message in messages]

    def consumer_cancelled(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    # What it does

    def consume(self, queue: Queue, *, no_ack: bool, prefetch: int) -> None:
        consumer = Consumer(f"c{id(self)}", queue, self, no_ack=no_ack, prefetch=prefetch)
        self.consumers.append(consumer)
        queue.add_consumer(consumer)
        queue.start_consumer()

    def get(self, queue: Queue, *, no_ack: bool) -> Message | None:
        holder = Consumer("", queue, self, no_ack=no_ack, fetching=True)
        message = queue.get(holder)
        if message is not None:
            self._life.delivered(queue, [message], alone=True, consumer=holder)
            if not no_ack:
                self.unacked.append((holder, message))
        return message

    def settle_some(self, how: str, share: float) -> int:
        """Ack, requeue or discard some of what is held: from the front, the back or anywhere."""
        count = max(1, round(len(self.unacked) * share))
        order = self._random.choice(["front", "back", "any"])
        if order == "any":
            chosen = self._random.sample(self.unacked, min(count, len(self.unacked)))
        else:
            chosen = self.unacked[:count] if order == "front" else self.unacked[-count:]
        self._hand_back(chosen, how)
        return len(chosen)

    def _hand_back(self, chosen: list[tuple[Consumer, Message]], how: str) -> None:
        picked = {id(message) for _, message in chosen}
        self.unacked = [held for held in self.unacked if id(held[1]) not in picked]
        groups: dict[Consumer, list[Message]] = {}
        for consumer, message in chosen:
            groups.setdefault(consumer, []).append(message)
        for consumer, messages in groups.items():
            queue = consumer.queue
            assert isinstance(queue, Queue)
            consumer.release(len(messages))
            book = self._life.ledger.book(queue)
            if how == "ack":
                if not queue.deleted:
                    book.settled(messages)
                queue.settle(consumer, messages)
            elif how == "requeue":
                if not queue.deleted:
                    book.returned(messages)
                queue.requeue(consumer, messages)
            else:
                queue.discard(consumer, messages)
        for consumer in list(self.consumers):
            queue = consumer.queue
            assert isinstance(queue, Queue)
            if not queue.deleted:
                queue.consumer_ready(consumer)

    def disconnect(self) -> None:
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            queue = consumer.queue
            assert isinstance(queue, Queue)
            if queue.damaged is None:
                queue.remove_consumer(consumer)
        self._hand_back(list(self.unacked), "requeue")
