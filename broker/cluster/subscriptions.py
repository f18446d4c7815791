"""A front's consumers, as the leader on another node is told of them, and what they return."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from broker.cluster.queue_wire import (
    CONSUME_EXCLUSIVE,
    CONSUME_KNOWN,
    CONSUME_NO_ACK,
    CONSUME_SERVED,
    ConsumeWish,
    Group,
    How,
)
from broker.cluster.stay import Stay
from broker.protocol.errors import ChannelError
from queues.bell import Bell, Clock
from queues.consumers import Consumer
from queues.message import Message
from queues.queue import Queue

# Of what a consumer's node was sent and has not passed on, so much may be on the way or wait there.
WINDOW_BYTES: Final = 1024 * 1024
# By this time the log has what was settled, as a rule, without being hurried.
RIPEN_MS: Final = 250
SEQUENCES_MAX: Final = 16_384  # in one message between nodes
MESSAGE_BYTES: Final = 64  # counted beside the frames of each message
_PRIORITY_MAX: Final = 2**63 - 1
_LIMIT_MAX: Final = 2**32 - 1

Then: TypeAlias = Callable[[ChannelError | None], None]


def size_of(messages: list[Message]) -> int:
    """What messages count in the window, on both sides."""
    return sum([len(m.frames) for m in messages]) + MESSAGE_BYTES * len(messages)


class Subscription:
    """One consumer of a channel of this node."""

    __slots__ = (
        "consumer",
        "known",
        "limit",
        "parked",
        "served",
        "started",
        "taken",
        "then",
        "told",
    )

    def __init__(self, consumer: Consumer, then: Then) -> None:
        self.consumer = consumer
        self.then: Then | None = then  # told whether the leader takes it
        self.known = False  # a leader took it once
        self.started = False  # consume-ok is out
        self.served = False
        self.parked: deque[Message] = deque()  # came while the consumer had no room
        self.taken = 0  # bytes passed on in this stay
        self.told = 0  # what the leader knows of that
        self.limit = 0  # as the leader knows it

    def wish(self) -> ConsumeWish:
        """What to tell a leader; a new stay begins."""
        consumer = self.consumer
        flags = CONSUME_NO_ACK if consumer.no_ack else 0
        flags |= CONSUME_EXCLUSIVE if consumer.exclusive else 0
        flags |= CONSUME_KNOWN if self.known else 0
        flags |= CONSUME_SERVED if self.served else 0
        self.limit = limit_of(consumer)
        priority = max(-_PRIORITY_MAX, min(consumer.priority, _PRIORITY_MAX))
        lease_ms = consumer.own_lease_ms
        return ConsumeWish(consumer.number, flags, priority, lease_ms, self.limit, consumer.tag)

    def answer(self, error: ChannelError | None) -> None:
        then, self.then = self.then, None
        self.known = self.known or error is None
        if then is not None:
            then(error)

    def detached(self) -> None:
        """The leader is gone. What waited here was not shown to anybody: it will come again."""
        self.parked.clear()
        self.taken = self.told = 0

    def take(self, messages: list[Message]) -> list[Message]:
        """Deliver as much of this as there is room for, behind what is parked; what went out."""
        if self.parked or not self.started:
            self.parked.extend(messages)
            return self.pump() if self.started else []
        room = self.consumer.room()
        if room < len(messages):
            room = max(room, 0)
            self.parked.extend(messages[room:])
            messages = messages[:room]
        if messages:
            self._deliver(messages)
        return messages

    def pump(self) -> list[Message]:
        """There may be room again; what went out."""
        out: list[Message] = []
        parked = self.parked
        while parked and (room := self.consumer.room()) > 0:
            # In portions: an outbox says that it is full only when something is in it.
            portion: list[Message] = []
            size = 0
            while parked and len(portion) < room and size < WINDOW_BYTES // 4:
                portion.append(parked.popleft())
                size += len(portion[-1].frames)
            self._deliver(portion)
            out += portion
        return out

    def _deliver(self, messages: list[Message]) -> None:
        consumer = self.consumer
        self.served = True
        self.taken += size_of(messages)
        if not consumer.no_ack:
            consumer.hold(len(messages))
        consumer.sink.deliver(consumer, messages)

    def revoke(self, sequences: set[int]) -> list[Message]:
        """Leases are over before anybody saw these."""
        gone = [m for m in self.parked if m.sequence in sequences]
        if gone:
            self.taken += size_of(gone)
            self.parked = deque([m for m in self.parked if m.sequence not in sequences])
        return gone


def limit_of(consumer: Consumer) -> int:
    """How many messages it may hold at most: its own prefetch, and what its channel allows."""
    if consumer.no_ack:
        return 0
    limits = [limit for limit in (consumer.credit.limit, consumer.sink.credit.limit) if limit]
    return min(*limits, _LIMIT_MAX) if limits else 0


class Settled:
    """What was settled in the queue of this node, until its log has that for good."""

    __slots__ = ("_bell", "_clock", "_stay", "_waiting")

    def __init__(self, clock: Clock, stay: Stay) -> None:
        self._clock = clock
        self._stay = stay
        self._bell = Bell(clock, self._ripen)
        self._waiting: deque[tuple[int, How, list[int]]] = deque()  # first: see Queue.said

    def add(self, queue: Queue, how: How, sequences: list[int]) -> None:
        """The queue was told of these."""
        waiting, said = self._waiting, queue.said
        if not waiting:
            self._bell.ring_at(self._clock.now_ms() + RIPEN_MS)
        if not waiting or waiting[-1][:2] != (said, how):
            waiting.append((said, how, []))
        waiting[-1][2].extend(sequences)

    def _ripen(self) -> None:
        queue, waiting = self._stay.queue, self._waiting
        while queue is not None and waiting and waiting[0][0] <= queue.kept:
            waiting.popleft()
        if waiting:
            self._bell.ring_at(self._clock.now_ms() + RIPEN_MS)

    def take(self) -> list[tuple[How, list[int]]]:
        """What the log may not have, when another queue is to be told."""
        taken = [(how, sequences) for _, how, sequences in self._waiting]
        self._waiting.clear()
        self._bell.stop()
        return taken


class Returns:
    """What became of deliveries: gathered in a turn, and kept until the log has it for good."""

    __slots__ = ("_gathered", "_kept", "_next")

    def __init__(self) -> None:
        self._gathered: dict[tuple[int, How], list[int]] = {}
        self._kept: dict[int, list[Group]] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._kept) + len(self._gathered)

    @property
    def oldest(self) -> int:
        """The number of the first one that is kept, or of the next."""
        return next(iter(self._kept), self._next)

    def add(self, consumer: int, how: How, messages: list[Message]) -> None:
        self.add_sequences(consumer, how, [m.sequence for m in messages])

    def add_sequences(self, consumer: int, how: How, sequences: list[int]) -> None:
        gathered = self._gathered.get((consumer, how))
        if gathered is None:
            self._gathered[consumer, how] = sequences
        else:
            gathered += sequences

    def take(self) -> list[tuple[int, list[Group]]]:
        """What was gathered, with numbers, in portions."""
        gathered, self._gathered = self._gathered, {}
        portions: list[list[Group]] = []
        room = 0
        for (consumer, how), sequences in gathered.items():
            for start in range(0, len(sequences), SEQUENCES_MAX):
                part = sequences[start : start + SEQUENCES_MAX]
                if len(part) > room:
                    portions.append([])
                    room = SEQUENCES_MAX
                portions[-1].append((consumer, how, part))
                room -= len(part)
        taken = list(enumerate(portions, self._next))
        self._next += len(taken)
        self._kept.update(taken)
        return taken

    def heard(self, number: int) -> None:
        """All up to this one are in the log."""
        for kept in list(self._kept):
            if kept > number:
                break
            del self._kept[kept]

    def repeat(self) -> Iterator[tuple[int, list[Group]]]:
        """What a new leader has to know.

        Only what is final: messages that were given back are nobody's, and come back by that.
        """
        self.take()
        for number, groups in list(self._kept.items()):
            final = [g for g in groups if g[1] in (How.SETTLED, How.DISCARDED)]
            if final:
                self._kept[number] = final
                yield number, final
            else:
                del self._kept[number]

    def clear(self) -> None:
        self._gathered.clear()
        self._kept.clear()
