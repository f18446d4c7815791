"""Messages of a queue as an async iterator."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import trio
from pamqp.commands import Basic

from clients.amqp_channel import ChannelCore
from clients.amqp_errors import AMQPClientError, ConnectionClosedError, ConnectionLostError
from clients.amqp_inbox import Inbox
from clients.amqp_message import Message
from clients.amqp_topology import DeclaredQueue
from clients.trio_link import settled

if TYPE_CHECKING:
    from clients.trio_channel import Channel

# A message that is there costs no trip through the scheduler; but others must have their turn.
CHECKPOINT_EVERY: Final = 64


class Consumer:
    """Use it in `async with`; then iterate. Several tasks may iterate over one consumer.

    The end of the block gives back what was not read. After a reconnect it goes on by itself; what
    was not acked then comes again.
    """

    def __init__(
        self,
        channel: "Channel",
        queue: str | DeclaredQueue,
        tag: str,
        *,
        prefetch: int,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any] | None,
    ) -> None:
        self.tag = tag
        self._channel = channel
        self._queue = queue
        self._prefetch = prefetch
        self._no_ack = no_ack
        self._exclusive = exclusive
        self._arguments = arguments
        self._inbox = Inbox(tag, no_ack=no_ack, bounded=prefetch > 0)
        self._parked = trio.lowlevel.ParkingLot()
        self._taken = 0

    async def __aenter__(self) -> Self:
        core = await self._channel.ready()
        try:
            await self.subscribe(core)
        except trio.Cancelled:
            core.cancel(self._inbox)
            raise
        self._channel.add_consumer(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.remove_consumer(self)
        promise = self._channel.core.cancel(self._inbox)
        self._channel.read_on()
        if promise is not None:
            try:
                await settled(promise)
            except AMQPClientError:
                return  # the consumer is gone either way

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        inbox = self._inbox
        if inbox.messages:
            self._taken += 1
            if self._taken % CHECKPOINT_EVERY == 0:
                await trio.lowlevel.checkpoint()
                inbox = self._inbox
        while not inbox.messages:
            if inbox.error is not None:
                await self._explain(inbox)
            else:
                await self._parked.park()
            inbox = self._inbox
        message = inbox.take()
        if not inbox.messages or not self._prefetch:
            self._channel.read_on()
        return message

    async def some(self, most: int) -> list[Message]:
        """Those that have come, at least one and at most so many; waits for the first."""
        messages = [await anext(self)]
        inbox = self._inbox
        while inbox.messages and len(messages) < most:
            messages.append(inbox.take())
        if not inbox.messages or not self._prefetch:
            self._channel.read_on()
        return messages

    async def _explain(self, inbox: Inbox) -> None:
        """Raises why nothing comes any more; returns when it goes on."""
        error = inbox.error
        assert error is not None
        if isinstance(error, (ConnectionLostError, ConnectionClosedError)):
            await self._channel.ready()
        if self._inbox is inbox:
            self._channel.core.error_told = True
            raise error

    async def subscribe(self, core: ChannelCore) -> None:
        """Also on another connection than before."""
        inbox = Inbox(self.tag, no_ack=self._no_ack, bounded=self._prefetch > 0)
        inbox.wake = self._parked.unpark_all
        self._inbox = inbox
        if self._prefetch:
            core.request(Basic.Qos, Basic.QosOk, prefetch_count=self._prefetch)
        promise = core.consume(
            str(self._queue), inbox, exclusive=self._exclusive, arguments=self._arguments
        )
        await settled(promise)
