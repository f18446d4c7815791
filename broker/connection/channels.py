"""The channels of a connection: opened by the client, closed by either side or all at once."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from pamqp import commands

from broker.channel.channel import Channel
from broker.channel.farewell import when_unused_are_gone
from broker.protocol import methods
from broker.protocol.constants import CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CHANNEL_OPEN
from broker.protocol.errors import AMQPError, ChannelError, ConnectionFailure

if TYPE_CHECKING:
    from broker.channel.link import Link
    from broker.connection.backlogs import Backlogs
    from broker.node import Node
    from broker.protocol.frames import FrameReader

LIFE_METHODS: Final = frozenset({CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK})


class Channels:
    """By number. One that we closed keeps its number until the client's close-ok."""

    def __init__(
        self,
        link: "Link",
        reader: "FrameReader",
        backlogs: "Backlogs",
        node: "Node",
    ) -> None:
        self._link = link
        self._reader = reader
        self._backlogs = backlogs
        self._headcount = node.headcount
        self._plain_properties = node.plain_properties
        self._churn = node.churn
        self._past = node.past  # what happened on channels that are closed
        self._open: dict[int, Channel] = {}
        self._closing: set[int] = set()  # channel.close sent; waiting for close-ok
        self._leaving: set[int] = set()  # channel.close heard; close-ok waits for other nodes
        self.get = self._open.get

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Channel]:
        """As they are now: some may go meanwhile."""
        return iter(list(self._open.values()))

    def life_method(self, number: int, key: int, channel_max: int) -> None:
        """A method that opens or closes a channel, or comes for one that is not open."""
        if key == CHANNEL_OPEN:
            self._open_one(number, channel_max)
        elif key == CHANNEL_CLOSE:
            self._peer_closes(number)
        elif number in self._closing:
            if key == CHANNEL_CLOSE_OK:
                self._closing.discard(number)
        elif key not in commands.INDEX_MAPPING:
            raise ConnectionFailure(540, f"unknown method {methods.name_of(key)}", method=key)
        elif key != CHANNEL_CLOSE_OK:
            raise ConnectionFailure(504, "expected 'channel.open'", method=key)

    def _open_one(self, number: int, channel_max: int) -> None:
        if number in self._open:
            raise ConnectionFailure(504, "second 'channel.open' seen", method=CHANNEL_OPEN)
        if number in self._closing:
            return  # sent before the client saw our close
        count = len(self._open)
        if count >= channel_max:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max"
            raise ConnectionFailure(530, f"{text} ({channel_max})")
        self._headcount.check_channel(self._link.user)
        self._headcount.channels(self._link.user, 1)
        self._open[number] = Channel(number, self._link, self._plain_properties)
        self._churn.channel_created += 1
        self._link.outbox.write(methods.encode(number, commands.Channel.OpenOk))

    def _peer_closes(self, number: int) -> None:
        channel = self._open.pop(number, None)
        if channel is None and number not in self._closing:
            raise ConnectionFailure(504, "expected 'channel.open'", method=CHANNEL_CLOSE)
        if channel is None:
            self._link.outbox.write(methods.encode(number, commands.Channel.CloseOk))
            return
        left = channel.consumed()
        self._release(channel)
        self._leaving.add(number)
        when_unused_are_gone(self._link.vhost, left, partial(self._left, number))

    def _left(self, number: int) -> None:
        if number in self._leaving:
            self._leaving.remove(number)
            self._link.outbox.write(methods.encode(number, commands.Channel.CloseOk))
            self._link.mark_dirty()

    def close(self, channel: Channel, error: ChannelError) -> None:
        """Tell the client what it did wrong; whatever else it sent there means nothing."""
        number = channel.number
        del self._open[number]
        self._closing.add(number)
        self._reader.abandon(number)
        self._release(channel)
        close = methods.encode(number, commands.Channel.Close, **close_arguments(error))
        self._link.outbox.write(close)

    def consumed(self) -> list[object]:
        """The queues that consumers of all channels are of."""
        return [queue for channel in self for queue in channel.consumed()]

    def drop_all(self) -> None:
        self._leaving.clear()
        for channel in self:
            self._release(channel)
        self._open.clear()
        self._backlogs.note_partial(0)

    def _release(self, channel: Channel) -> None:
        self._headcount.channels(self._link.user, -1)
        self._backlogs.drop(channel)
        channel.release()
        tally = channel.tally()
        self._past.add(tally)
        self._link.vhost.past.add(tally)
        self._churn.channel_closed += 1


def close_arguments(error: AMQPError) -> dict[str, object]:
    """Of channel.close or connection.close."""
    return {
        "reply_code": error.code,
        "reply_text": error.reply_text,
        "class_id": error.method >> 16,
        "method_id": error.method & 0xFFFF,
    }
