"""Ready messages of a queue with groups: one of a group is out at a time, and groups take turns."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.tables import split_table
from queues.message import Message

GROUP_HEADER: Final = b"x-group-id"
# An empty string, an empty byte array, void: as good as no header.
_NO_GROUP: Final = frozenset({b"S\x00\x00\x00\x00", b"x\x00\x00\x00\x00", b"V"})
# Sequences of messages that left are forgotten when they outnumber those that wait by this many:
# fewer are not worth the sorting.
_STALE_MIN: Final = 64


def group_of(message: Message) -> bytes | None:
    """The raw value (type octet first) of the header x-group-id; None for no group."""
    if not message.flags & FLAG_HEADERS:
        return None
    try:
        value = split_table(message.properties()[FLAG_HEADERS])[0].get(GROUP_HEADER)
    except ValueError:  # refused at publish; in a log it must not stop the queue
        return None
    return None if value in _NO_GROUP else value


class _Group:
    __slots__ = ("out", "waiting")

    def __init__(self) -> None:
        self.out = 0  # messages that block it; more than one only if a caller says so
        self.waiting: list[int] = []  # a heap of sequences


class GroupReady:
    """A `Ready` in which a message that is out hides the rest of its group.

    Order within a group is by sequence. Groups that can give a message stand in a ring: one that
    gave goes to its end when it can give again. Messages without a group stand there as one group
    that nothing blocks. A group is known only while it has messages waiting or out.
    """

    __slots__ = ("_asleep", "_groups", "_messages", "_order", "_out", "_ring", "size_bytes")

    def __init__(self) -> None:
        self._groups: dict[bytes | None, _Group] = {}
        self._ring: OrderedDict[bytes | None, _Group] = OrderedDict()  # has quick ends; dict not
        self._messages: dict[int, Message] = {}  # all that wait, by sequence
        self._order: list[int] = []  # a heap of their sequences, and of some that left
        self._out: dict[int, bytes] = {}  # sequence of a message that blocks its group → which
        self._asleep: set[int] = set()  # those of them that nobody holds: they failed and wait
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def available(self) -> int:
        """One of each group that is not blocked, and all without a group."""
        ungrouped = self._ring.get(None)
        return len(self._ring) + (len(ungrouped.waiting) - 1 if ungrouped is not None else 0)

    def __iter__(self) -> Iterator[Message]:
        """All that wait, by sequence; not in the order of delivery, which depends on acks."""
        return iter([self._messages[sequence] for sequence in sorted(self._messages)])

    def push(self, messages: list[Message]) -> None:
        for message in messages:
            sequence = message.sequence
            assert sequence not in self._messages
            group = self._group(message.group)
            heappush(group.waiting, sequence)
            heappush(self._order, sequence)
            self._messages[sequence] = message
            if not group.out:
                self._ring.setdefault(message.group, group)
        self.size_bytes += sum([m.body_bytes for m in messages])

    def put_back(self, messages: list[Message]) -> None:
        """They were out and return to their places; their groups are free again."""
        self.push(messages)
        self.release(messages)

    def head(self) -> Message | None:
        """The next to go; None if all that wait are hidden."""
        for group in self._ring.values():
            return self._messages[group.waiting[0]]
        return None

    def pop(self) -> Message:
        name, group = self._ring.popitem(last=False)
        sequence = heappop(group.waiting)
        if name is not None:
            group.out = 1
            self._out[sequence] = name
        elif group.waiting:
            self._ring[None] = group
        else:
            del self._groups[None]
        return self._forget(sequence)

    def take_behind(self, message: Message, count: int) -> list[Message]:
        """Up to `count` more of the group of a message that is out, in order, to be out with it."""
        name = self._out.get(message.sequence)
        if name is None or message.sequence in self._asleep:
            return []
        group = self._groups[name]
        taken: list[Message] = []
        while group.waiting and len(taken) < count:
            sequence = heappop(group.waiting)
            group.out += 1
            self._out[sequence] = name
            taken.append(self._forget(sequence))
        return taken

    def take(self, count: int, size_bytes: int) -> list[Message]:
        """Up to `count` messages, and no more than one over `size_bytes`."""
        taken: list[Message] = []
        until = self.size_bytes - size_bytes
        while count > 0 and self._ring:
            taken.append(self.pop())
            count -= 1
            if self.size_bytes <= until:
                break
        return taken

    def oldest(self) -> Message | None:
        """The message to drop when the queue is too long: the first of all, hidden or not."""
        order = self._order
        while order and order[0] not in self._messages:
            heappop(order)
        return self._messages[order[0]] if order else None

    def pop_oldest(self) -> Message:
        """It is gone for good: its group is no more blocked than before."""
        message = self.oldest()
        assert message is not None
        group = self._groups[message.group]
        first = heappop(group.waiting)
        assert first == message.sequence  # the first of all is the first of its group
        self._drop_if_empty(message.group, group)
        return self._forget(first)

    def remove(self, sequences: Collection[int]) -> list[Message]:
        """Take these out, hidden or not; no group is more blocked than before."""
        waiting = self._messages
        removed = [self._forget(number) for number in sorted(sequences) if number in waiting]
        for name in {m.group for m in removed}:
            group = self._groups[name]
            group.waiting = [number for number in group.waiting if number in waiting]
            heapify(group.waiting)
            self._drop_if_empty(name, group)
        return removed

    def release(self, messages: Iterable[Message]) -> None:
        """They were out and are gone for good; to those that block nothing, nothing happens."""
        self.release_numbers([message.sequence for message in messages])

    def release_numbers(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            name = self._out.pop(sequence, None)
            if name is None:
                continue
            self._asleep.discard(sequence)
            group = self._groups[name]
            group.out -= 1
            if group.out:
                continue
            if group.waiting:
                self._ring[name] = group
            else:
                del self._groups[name]

    def block(self, message: Message) -> None:
        """It failed and is away: it hides its group until it is put back or released."""
        assert message.sequence not in self._messages
        name = message.group
        if name is None:
            return
        self._asleep.add(message.sequence)
        self.hold(message)

    def hold(self, message: Message) -> None:
        """Somebody holds it who did not take it from here: it hides its group until it is back."""
        assert message.sequence not in self._messages
        name = message.group
        if name is not None and message.sequence not in self._out:
            self._group(name).out += 1
            self._out[message.sequence] = name
            self._ring.pop(name, None)

    def clear(self) -> None:
        """Nothing waits any more, here or away; what somebody holds still blocks its group."""
        self.release_numbers(list(self._asleep))
        self._groups = {name: group for name, group in self._groups.items() if group.out}
        for group in self._groups.values():
            group.waiting.clear()
        self._ring.clear()
        self._messages.clear()
        self._order.clear()
        self.size_bytes = 0

    def first_fresh(self) -> int | None:
        return None  # messages leave in the order of turns

    def _group(self, name: bytes | None) -> _Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        return group

    def _drop_if_empty(self, name: bytes | None, group: _Group) -> None:
        if not group.waiting:
            self._ring.pop(name, None)
            if not group.out:
                del self._groups[name]

    def _forget(self, sequence: int) -> Message:
        """It waits no more, and is out of its group's heap or about to be."""
        message = self._messages.pop(sequence)
        self.size_bytes -= message.body_bytes
        if len(self._order) > 2 * len(self._messages) + _STALE_MIN:
            self._order = sorted(self._messages)
        return message
