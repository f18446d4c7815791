"""Publishers and consumers without sockets, who tell the ledger what they see and do."""

from random import Random
from typing import TYPE_CHECKING

from broker.protocol.constants import FLAG_DELIVERY_MODE, FLAG_HEADERS
from broker.protocol.content import join_header
from broker.protocol.methods import short_string
from broker.protocol.tables import encode_value, join_table
from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import PERSISTENT, Message
from queues.options import QueueOptions
from queues.queue import Queue
from tests.simulation.ledger import Book, check, number_of

if TYPE_CHECKING:
    from tests.simulation.life import Life


def make_message(
    number: int, exchange: str, key: str, filler_bytes: int, group: str | None = None
) -> Message:
    body = b"<%d>" % number + b"." * filler_bytes
    properties = {FLAG_DELIVERY_MODE: PERSISTENT}
    if group is not None:
        properties[FLAG_HEADERS] = join_table({b"x-group-id": encode_value(group)})
    header, header_bytes, flags = join_header(1, len(body), properties)
    frames = header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    address = short_string(exchange) + short_string(key)
    return Message(address, frames, header_bytes, flags, len(body), 1)


def retry_due(options: QueueOptions, failures: int, now: int) -> int | None:
    """When a message that failed so often is to be tried again; None for at once."""
    if not options.retry_delay_ms:
        return None
    delay = options.retry_delay_ms * options.retry_backoff ** min(failures - 1, 64)
    return now + int(min(delay, options.retry_max_delay_ms))


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
        if number in self.book.copies:
            original = self.book.copies[number]
            check(original.stored, self.book, number, "is confirmed before it repeats", original)
            return
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
        self._leases: dict[int, int] = {}  # id of a message → until when it may be held

    # As a queue sees it

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        if self._life.over:
            return
        queue = consumer.queue
        assert isinstance(queue, Queue)
        self._life.delivered(queue, messages, alone=queue.consumer_count == 1, consumer=consumer)
        if not consumer.no_ack:
            self._hold(consumer, messages)

    def _hold(self, consumer: Consumer, messages: list[Message]) -> None:
        self.unacked += [(consumer, message) for message in messages]
        for message in messages:
            self._leases.pop(id(message), None)
            if consumer.lease_ms is not None:
                self._leases[id(message)] = self._life.now_ms() + consumer.lease_ms

    def revoke(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        if self._life.over:
            return []
        book = self._life.ledger.book(consumer.queue)
        mine = {id(message) for _, message in self.unacked}
        for message in messages:
            until = self._leases.get(id(message))
            check(id(message) in mine, book, message.sequence, "is taken from who has it not")
            early = until is None or until > self._life.now_ms()
            check(not early, book, message.sequence, "is taken away before", until)
        taken = {id(message) for message in messages}
        self.unacked = [held for held in self.unacked if id(held[1]) not in taken]
        consumer.release(len(messages))
        self._returned(consumer, messages, lost=False)
        return messages

    def _returned(self, consumer: Consumer, messages: list[Message], *, lost: bool) -> None:
        queue, now = consumer.queue, self._life.now_ms()
        assert isinstance(queue, Queue)
        options = queue.options

        def due(failures: int) -> int | None:
            dead = options.delivery_limit is not None and failures > options.delivery_limit
            return None if lost or dead else retry_due(options, failures, now)

        if not queue.deleted:
            self._life.ledger.book(queue).returned(messages, due)

    def check_leases(self) -> None:
        """What was held for too long is taken away, a millisecond late at most."""
        now = self._life.now_ms()
        for consumer, message in self.unacked:
            queue, until = consumer.queue, self._leases.get(id(message))
            assert isinstance(queue, Queue)
            if until is not None and not queue.deleted and queue.damaged is None:
                check(until >= now - 1, "queue", queue.name, message.sequence, "outlasts", until)

    def consumer_cancelled(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    # What it does

    def consume(
        self, queue: Queue, *, no_ack: bool, prefetch: int, lease_ms: int | None = None
    ) -> None:
        consumer = Consumer(
            f"c{id(self)}", queue, self, no_ack=no_ack, prefetch=prefetch, lease_ms=lease_ms
        )
        self.consumers.append(consumer)
        queue.add_consumer(consumer)
        queue.start_consumer()

    def get(self, queue: Queue, *, no_ack: bool) -> Message | None:
        lease_ms = queue.options.lease_ms
        holder = Consumer("", queue, self, no_ack=no_ack, fetching=True, lease_ms=lease_ms)
        message = queue.get(holder)
        if message is not None:
            self._life.delivered(queue, [message], alone=True, consumer=holder)
            if not no_ack:
                self._hold(holder, [message])
        return message

    def extend_lease(self, lease_ms: int | None) -> str:
        """Of any message that is held."""
        consumer, message = self._random.choice(self.unacked)
        queue = consumer.queue
        assert isinstance(queue, Queue)
        extended = queue.extend_lease(message, lease_ms)
        lease_ms = lease_ms or consumer.lease_ms
        on_lease = id(message) in self._leases and not queue.deleted and queue.damaged is None
        book = self._life.ledger.book(queue)
        expected = on_lease and lease_ms is not None
        check(extended == expected, book, "lease of", message.sequence, "extended:", extended)
        if extended and lease_ms is not None:
            self._leases[id(message)] = self._life.now_ms() + lease_ms
        return f"{queue.name} {message.sequence}"

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

    def _hand_back(
        self, chosen: list[tuple[Consumer, Message]], how: str, *, lost: bool = False
    ) -> None:
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
                self._returned(consumer, messages, lost=lost)
                queue.requeue(consumer, messages, lost=lost)
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
        self._hand_back(list(self.unacked), "requeue", lost=True)
