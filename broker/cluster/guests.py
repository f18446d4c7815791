"""Fronts on other nodes, as the leader of their queue has them: stand-ins for their consumers."""

from collections import deque
from collections.abc import Callable, Iterable

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.post import post
from broker.cluster.queue_wire import (
    CONSUME_EXCLUSIVE,
    CONSUME_GONE,
    FETCHER,
    ConsumeWish,
    How,
    Op,
    encode_deliver,
    encode_number,
    encode_pair,
    encode_sequences,
    encode_stored,
)
from broker.cluster.subscriptions import WINDOW_BYTES, size_of
from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import Message
from queues.queue import Queue
from queues.raft.messages import NodeId
from queues.stream.subscription import Records


class StandIn:
    """The sink of one consumer that is on another node, or of what was fetched from there."""

    def __init__(self, guest: "Guest", queue: Queue, wish: ConsumeWish) -> None:
        self._guest = guest
        self.number = wish.consumer
        self.credit = Credit()  # a channel's own is looked after by its front
        self.fetches = wish.consumer == FETCHER
        self.gone = bool(wish.flags & CONSUME_GONE)  # cancelled, and kept for what it holds
        self.held: dict[int, Message] = {}  # by sequence
        self.sent = 0  # bytes
        self.taken = 0  # of these, those that its node has passed on
        # Also if the client does not ack: its front does, when it has passed a message on.
        self.consumer = Consumer(
            wish.tag,
            queue,
            self,
            exclusive=bool(wish.flags & CONSUME_EXCLUSIVE),
            prefetch=wish.limit,
            priority=wish.priority,
            lease_ms=wish.lease_ms,
        )
        # It may claim messages before the queue takes it as a consumer, or without ever being one.
        self.consumer.lease_ms = wish.lease_ms or queue.options.lease_ms

    @property
    def paused(self) -> bool:
        return self.sent - self.taken >= WINDOW_BYTES or self._guest.congested

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:  # noqa: ARG002
        self.held.update([(m.sequence, m) for m in messages])
        size = size_of(messages)
        self.sent += size
        self._guest.send(Op.DELIVER, *encode_deliver(self.number, messages), size_bytes=size)

    def deliver_records(self, consumer: Consumer, records: Records) -> None:
        raise NotImplementedError("streams are read where their reader is")

    def revoke(self, consumer: Consumer, messages: list[Message]) -> list[Message]:  # noqa: ARG002
        """Leases are over. Its front gives them back, but for those about to be settled.

        So none is taken now, and the queue asks again should nothing come.
        """
        sequences = [m.sequence for m in messages]
        self._guest.send(Op.REVOKE, encode_sequences(self.number, sequences))
        return []

    def consumer_cancelled(self, consumer: Consumer) -> None:  # noqa: ARG002
        self._guest.send(Op.CANCELLED, encode_pair(self.number, 0))

    def hold(self, messages: list[Message]) -> None:
        """It has these already."""
        self.held.update([(m.sequence, m) for m in messages])
        if not self.fetches:
            self.consumer.hold(len(messages))

    def release(self, count: int) -> None:
        if not self.fetches:
            self.consumer.release(count)

    def pick(self, sequences: Iterable[int]) -> list[Message]:
        """Those of these that it holds, which it does no more."""
        held = self.held
        messages = [m for s in sequences if (m := held.pop(s, None)) is not None]
        self.release(len(messages))
        return messages

    def take_all(self) -> list[Message]:
        messages, self.held = list(self.held.values()), {}
        self.release(len(messages))
        return messages


class Batch:
    """The receipt of a batch that came from another node."""

    __slots__ = ("_guest", "messages", "number")

    def __init__(self, guest: "Guest", number: int, messages: list[Message]) -> None:
        self._guest = guest
        self.number = number
        self.messages = messages

    def stored(self, refused: list[Message]) -> None:
        places: list[int] = []
        if refused:
            wanted = set(map(id, refused))
            places = [place for place, m in enumerate(self.messages) if id(m) in wanted]
        self._guest.stored(self.number, places)


class Guest:
    """One stay of a front."""

    def __init__(
        self, node: NodeId, uid: bytes, attachment: int, session: bytes, mail: Mail
    ) -> None:
        self.node = node
        self.attachment = attachment
        self.session = session
        self.attached = False  # it has said all that was before
        self.stand_ins: dict[int, StandIn] = {}
        self.changed: Callable[[Guest], None] = lambda _: None  # it has something for `flush`
        self._uid = uid
        self._mail = mail
        self._stored: list[tuple[int, list[int]]] = []
        self._returned: deque[tuple[int, int]] = deque()  # RETURNs, and until when: Queue.said
        self._missed: list[tuple[int, list[int]]] = []  # of a RETURN: settled, and not held

    @property
    def congested(self) -> bool:
        return self._mail.congested(self.node, (Kind.QUEUE, self._uid))

    def send(self, op: Op, *pieces: bytes, size_bytes: int = 0) -> None:
        """About so many bytes, where there may be many of them."""
        post(self._mail, self.node, (op, self._uid, self.attachment), pieces, size_bytes)

    def held(self, sequence: int) -> Message | None:
        """A message that one of its consumers has."""
        for stand_in in self.stand_ins.values():
            message = stand_in.held.get(sequence)
            if message is not None:
                return message
        return None

    def stored(self, number: int, places: list[int]) -> None:
        if not self._stored:
            self.changed(self)
        self._stored.append((number, places))

    def flush(self) -> None:
        if self._stored:
            stored, self._stored = self._stored, []
            self.send(Op.STORED, encode_stored(stored))

    def returned(self, number: int, missed: list[int], said: int) -> None:
        """A RETURN was carried out, but for messages that others may have: see Queue.said."""
        self._returned.append((number, said))
        if missed:
            self._missed.append((number, missed))

    def missed(self, since: int) -> list[int]:
        """What could not be settled by RETURNs of this number and later ones."""
        return [s for number, some in self._missed if number >= since for s in some]

    def ripen(self, kept: int) -> bool:
        """Tell of RETURNs that are in the log (see Queue.kept). Whether others are not yet."""
        done = 0
        while self._returned and self._returned[0][1] <= kept:
            done, _ = self._returned.popleft()
        if done:
            self._missed = [(number, some) for number, some in self._missed if number > done]
            self.send(Op.RETURNED, encode_number(done))
        return bool(self._returned)


def hand_back(queue: Queue, consumer: Consumer, how: How, messages: list[Message]) -> None:
    """Tell the queue what became of messages that were delivered from it."""
    if how is How.SETTLED:
        queue.settle(consumer, messages)
    elif how is How.DISCARDED:
        queue.discard(consumer, messages)
    elif how is How.UNTOUCHED:
        queue.away.end_leases(messages)
        if queue.are_overtaken(messages):  # whoever gets them is not to take them for new ones
            for message in messages:
                message.redelivered = True
        queue.let_go(messages)
        queue.consumer_ready(consumer)
    else:
        queue.requeue(consumer, messages, lost=how is How.LOST)
