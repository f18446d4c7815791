"""Deliveries: pushing messages to a channel's consumers, and settling what they hold."""

import struct
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.channel.link import Link
    from queues.consumers import Consumer
    from queues.message import Message

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
        self.unacked: dict[int, tuple[Consumer, Message]] = {}  # by delivery tag, ascending
        self.consumers: dict[str, Consumer] = {}  # by consumer tag
        self.credit = Credit()  # basic.qos with global=true

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
            elif message.channel != number or len(content) > frame_max:
                content = self._reframed(message)
            pieces += (parts[0], _TAG(tag, message.redelivered), parts[1], content)
            size += len(content)
            if keep is not None:
                keep[tag] = (consumer, message)
        self._last_tag = tag
        self._outbox.size += size + _FRAMING_BYTES * len(messages)
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
        groups: dict[Consumer, list[Message]] = {}
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

    def hand_back(self, consumer: "Consumer", messages: "list[Message]", how: "Settlement") -> None:
        """Tell the queue what became of messages that were delivered from it."""
        consumer.release(len(messages))
        queue = consumer.queue
        if how is Settlement.ACK:
            queue.settle(consumer, messages)
        elif how is Settlement.REQUEUE:
            queue.requeue(consumer, messages)
        else:
            queue.discard(consumer, messages)
        if self.credit.limit:  # others of this channel may have been waiting for the shared credit
            self.wake_consumers()

    def requeue_all(self) -> None:
        """Everything outstanding goes back: basic.recover, or the end of the channel."""
        groups: dict[Consumer, list[Message]] = {}
        for consumer, message in self.unacked.values():
            groups.setdefault(consumer, []).append(message)
        self.unacked.clear()
        for consumer, messages in groups.items():
            self.hand_back(consumer, messages, Settlement.REQUEUE)

    def wake_consumers(self) -> None:
        """There may be room again for every consumer of the channel."""
        for consumer in list(self.consumers.values()):
            consumer.queue.consumer_ready(consumer)


class Settlement(Enum):
    """What becomes of a delivered message."""

    ACK = auto()
    REQUEUE = auto()
    DISCARD = auto()


def unknown_tag(tag: int) -> ChannelError:
    return precondition_failed(f"unknown delivery tag {tag}")
