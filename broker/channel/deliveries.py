"""Deliveries: pushing messages to a channel's consumers, and settling what they hold."""

import struct
from enum import Enum, auto
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from broker.channel.lease_walks import LeaseWalks
from broker.channel.records import RecordWriter
from broker.protocol.constants import (
    BASIC_DELIVER,
    BASIC_GET_OK,
    FLAG_HEADERS,
    FRAME_END_BYTE,
)
from broker.protocol.content import join_header, method_head, reframe
from broker.protocol.errors import ChannelError, precondition_failed
from broker.protocol.methods import short_string
from broker.protocol.tables import encode_long, join_table, split_table
from flow_control.credit import Credit
from queues.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.channel.link import Link
    from queues.consumers import Consumer, Later
    from queues.message import Message
    from queues.stream.subscription import Records

_TAG = struct.Struct(">QB").pack
_GET_OK_COUNT = struct.Struct(">I").pack
_FRAMING_BYTES: Final = 64  # about what a delivery adds to its content
# Addresses remembered per consumer; with ever new routing keys the memory starts anew.
_HEADS_MAX: Final = 256


class Deliveries:
    """The consuming side of a channel: a `queues.consumers.Sink`."""

    def __init__(self, number: int, link: "Link", on_cancel: "Callable[[Consumer], None]") -> None:
        self._number = number
        self._link = link
        self._outbox = link.outbox
        self._on_cancel = on_cancel
        self._last_tag = 0
        self.tally = Tally()
        self._records = RecordWriter(number)
        # By delivery tag, ascending; of a record its place, which is all that its stream asks for.
        self.unacked: dict[int, tuple[Consumer, Any]] = {}
        self.consumers: dict[str, Consumer] = {}  # by consumer tag
        # Taken from `unacked` by a transaction that is not committed.
        self.in_doubt: Callable[[], Iterable[tuple[Consumer, Any]]] = tuple
        # The limit is that of basic.qos with global=true.
        self.credit = Credit(most=link.unacked_max)
        self._lease_walks = LeaseWalks(link.vhost, self._extend_all)

    @property
    def paused(self) -> bool:
        return self._outbox.congested

    def consumer_cancelled(self, consumer: "Consumer") -> None:
        self._on_cancel(consumer)

    def deliver(self, consumer: "Consumer", messages: "list[Message]") -> None:
        """Write a batch of deliveries. The hot loop of consuming."""
        number = self._number
        frame_max = self._link.frame_max
        heads = consumer.heads
        pieces = self._outbox.pieces
        tag = self._last_tag
        keep = None if consumer.no_ack else self.unacked
        size = 0
        for message in messages:
            tag += 1
            parts = heads.get(message.address)
            if parts is None:
                parts = self._head(consumer, message.address)
            content = message.frames
            if message.redelivered and message.delivery_count:
                content = self._counted(consumer, message)
                self.tally.redeliver += 1
            elif message.channel != number or len(content) > frame_max:
                content = self._reframed(message)
            pieces += (parts[0], _TAG(tag, message.redelivered), parts[1], content)
            size += len(content)
            if keep is not None:
                keep[tag] = (consumer, message)
        if consumer.lease_ms is not None:
            for number, message in enumerate(messages, self._last_tag + 1):
                message.tag = number
        self._last_tag = tag
        if keep is None:
            self.tally.deliver_no_ack += len(messages)
        else:
            self.tally.deliver += len(messages)
        self._outbox.size += size + _FRAMING_BYTES * len(messages)
        self._link.mark_dirty()

    def deliver_records(self, consumer: "Consumer", records: "Records") -> None:
        """Write a batch of deliveries from a stream, all at once."""
        first, tag = self._last_tag + 1, consumer.tag
        pieces, size = self._records.write(tag, first, records, self._link.frame_max)
        self._outbox.pieces += pieces
        self._outbox.size += size
        places = zip(repeat(records.partition), records.offsets)
        self._last_tag += len(records.offsets)
        self.tally.deliver += len(records.offsets)
        tags = range(first, self._last_tag + 1)
        self.unacked.update(zip(tags, zip(repeat(consumer), places), strict=True))
        self._link.mark_dirty()

    def _head(self, consumer: "Consumer", address: bytes) -> tuple[bytes, bytes]:
        """A delivery's bytes before and behind its tag."""
        if len(consumer.heads) >= _HEADS_MAX:
            consumer.heads.clear()
        tag = short_string(consumer.tag)
        head = method_head(self._number, BASIC_DELIVER, len(tag) + 9 + len(address), tag)
        consumer.heads[address] = parts = (head, address + FRAME_END_BYTE)
        return parts

    def _reframed(self, message: "Message") -> bytes:
        return reframe(
            message.frames,
            message.header_bytes,
            message.body_bytes,
            channel=self._number,
            frame_max=self._link.frame_max,
        )

    def _counted(self, consumer: "Consumer", message: "Message") -> bytes:
        """A redelivery; where the queue counts them, with the header `x-delivery-count`."""
        if not consumer.queue.counts_deliveries:
            return self._reframed(message)
        properties = message.properties()
        headers = split_table(properties.get(FLAG_HEADERS, b"\x00\x00\x00\x00"))[0]
        headers[b"x-delivery-count"] = encode_long(message.delivery_count)
        properties[FLAG_HEADERS] = join_table(headers)
        header, size, _ = join_header(self._number, message.body_bytes, properties)
        frames = header + message.frames[message.header_bytes + 8 :]
        return reframe(
            frames,
            size,
            message.body_bytes,
            channel=self._number,
            frame_max=self._link.frame_max,
        )

    def deliver_get(self, holder: "Consumer", message: "Message", left: int) -> None:
        """basic.get-ok with its content."""
        self._last_tag += 1
        if not holder.no_ack:
            self.unacked[self._last_tag] = (holder, message)
            self.credit.fetched += 1
            self.tally.get += 1
            message.tag = self._last_tag
        else:
            self.tally.get_no_ack += 1
        address = message.address
        head = method_head(self._number, BASIC_GET_OK, 9 + len(address) + 4, b"")
        tag = _TAG(self._last_tag, message.redelivered)
        count = _GET_OK_COUNT(left)
        counted = message.redelivered and message.delivery_count
        content = self._counted(holder, message) if counted else self._reframed(message)
        self._outbox.write(b"".join((head, tag, address, count, FRAME_END_BYTE, content)))

    # Settling

    def settle(self, items: "Sequence[tuple[int, int]]", how: "Settlement") -> None:
        """Acknowledge a batch of (tag, bits), where bit 0 says multiple.

        An unknown tag raises; what came before it is settled, itself and what comes after is not.
        """
        unacked = self.unacked
        groups: dict[Consumer, list[Any]] = {}
        try:
            for tag, multiple in items:
                if multiple & 1:
                    for held in self.select(tag):
                        consumer, message = unacked.pop(held)
                        groups.setdefault(consumer, []).append(message)
                    continue
                entry = unacked.pop(tag, None)
                if entry is None:
                    raise unknown_tag(tag)
                group = groups.get(entry[0])
                if group is None:
                    groups[entry[0]] = [entry[1]]
                else:
                    group.append(entry[1])
        finally:
            for consumer, messages in groups.items():
                self.hand_back(consumer, messages, how)

    def select(self, tag: int) -> list[int]:
        """The outstanding tags that an acknowledgement of all up to `tag` means."""
        if tag == 0:
            return list(self.unacked)
        if tag not in self.unacked:
            raise unknown_tag(tag)
        tags = []
        for held in self.unacked:
            if held > tag:
                break
            tags.append(held)
        return tags

    def hand_back(self, consumer: "Consumer", messages: list[Any], how: "Settlement") -> None:
        """Tell the queue what became of messages that were delivered from it."""
        was_full = self.credit.room <= 0
        consumer.release(len(messages))
        queue = consumer.queue
        if how is Settlement.ACK:
            self.tally.ack += len(messages)
            queue.settle(consumer, messages)
        elif how is Settlement.REQUEUE:
            queue.requeue(consumer, messages)
        else:
            queue.discard(consumer, messages)
        if was_full:  # others of this channel may have been waiting for the shared credit
            self.wake_consumers()

    def revoke(self, consumer: "Consumer", messages: "list[Message]") -> "list[Message]":
        """Leases are over: an ack that comes later finds an unknown tag."""
        taken = []
        for message in messages:
            held = self.unacked.get(getattr(message, "tag", 0))  # unset: it came without a lease
            if held is not None and held[1] is message:
                del self.unacked[message.tag]
                taken.append(message)
        was_full = self.credit.room <= 0
        consumer.release(len(taken))
        if was_full and taken:  # whoever shares the credit; this one is woken by its queue
            self.wake_consumers(but=consumer)
        return taken

    def held_of(self, queue: object) -> "list[tuple[Consumer, Any]]":
        """What was delivered from a queue, and not handed back to it."""
        held = [*self.unacked.values(), *self.in_doubt()]
        return [(consumer, what) for consumer, what in held if consumer.queue is queue]

    def extend_lease(self, tag: int, lease_ms: int | None) -> "bool | Later":
        """Let a delivery, or all (tag 0), be held for longer; False if there is no lease."""
        if not tag:
            return self._lease_walks.ask(lease_ms)
        entry = self.unacked.get(tag)
        return entry is not None and entry[0].queue.extend_lease(entry[1], lease_ms)

    def _extend_all(self, lease_ms: int | None) -> "bool | Later":
        held = self.unacked.values()
        return _any([c.queue.extend_lease(message, lease_ms) for c, message in held])

    def requeue_all(self, *, lost: bool) -> None:
        """Everything outstanding goes back: basic.recover, or the end of the channel (`lost`)."""
        groups: dict[Consumer, list[Any]] = {}
        for consumer, message in self.unacked.values():
            groups.setdefault(consumer, []).append(message)
        self.unacked.clear()
        for consumer, messages in groups.items():
            consumer.release(len(messages))
            consumer.queue.requeue(consumer, messages, lost=lost)
        if self.credit.limit:
            self.wake_consumers()

    def wake_consumers(self, *, but: "Consumer | None" = None) -> None:
        """There may be room again for every consumer of the channel."""
        for consumer in list(self.consumers.values()):
            if consumer is not but:
                consumer.queue.consumer_ready(consumer)


class Settlement(Enum):
    """What becomes of a delivered message."""

    ACK = auto()
    REQUEUE = auto()
    DISCARD = auto()


def _any(answers: "list[bool | Later]") -> "bool | Later":
    """Whether one of them is true, as soon as all are known."""
    known = any(answer for answer in answers if isinstance(answer, bool))
    open_ = [answer for answer in answers if not isinstance(answer, bool)]
    if not open_:
        return known

    def later(then: "Callable[[bool], None]") -> None:
        found = [known]

        def answered(value: bool) -> None:  # noqa: FBT001 - it is an answer
            found.append(value)
            if len(found) > len(open_):
                then(any(found))

        for ask in open_:
            ask(answered)

    return later


def unknown_tag(tag: int) -> ChannelError:
    return precondition_failed(f"unknown delivery tag {tag}")
