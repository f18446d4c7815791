"""Publishing many messages with a window of unconfirmed ones."""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

import trio

from clients.amqp_properties import Properties, PropertyArguments
from clients.amqp_requests import QueueName

if TYPE_CHECKING:
    from clients.trio_channel import Channel

CHECKPOINT_EVERY: Final = 64  # sends that found room; then others have their turn


class PublishWindow:
    """Also the receipt of all that is sent through it.

    The first failure is raised by the next `send`, or by the end of the block, which waits until
    everything is confirmed.
    """

    def __init__(self, channel: "Channel", window: int) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} messages lets nothing through")
        self.unconfirmed = 0
        self.confirmed = 0
        self._channel = channel
        self._window = window
        self._low = window // 2  # woken here, there is enough to do for one trip
        self._error: Exception | None = None
        self._waiting: trio.Event | None = None
        self._wake_at = -1  # the most unconfirmed ones at which somebody who waits can go on
        self._sent = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.flush()

    async def flush(self) -> None:
        """Until all that was sent is confirmed. Raises the first failure."""
        await self._until(0)

    async def send(
        self,
        body: bytes,
        *,
        exchange: str = "",
        routing_key: QueueName = "",
        mandatory: bool = False,
        properties: Properties | None = None,
        **others: Unpack[PropertyArguments],
    ) -> None:
        """Waits for a place in the window only."""
        channel = self._channel
        self._sent += 1
        if self._error is not None:
            raise self._error
        if self.unconfirmed >= self._window:
            await self._until(self._low)
        elif self._sent % CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        publish = channel.prepare(
            body, exchange, routing_key, properties, others, mandatory=mandatory
        )
        core = await channel.ready_to_publish() if channel.must_wait else channel.core
        core.publish(publish, self)
        self.unconfirmed += 1

    async def _until(self, left: int) -> None:
        while self.unconfirmed > left and self._error is None:
            self._wake_at = max(self._wake_at, left)
            if self._waiting is None:
                self._waiting = trio.Event()
            await self._waiting.wait()
        if self._error is not None:
            raise self._error

    # As a receipt

    def resolve(self) -> None:
        self.unconfirmed -= 1
        self.confirmed += 1
        if self.unconfirmed <= self._wake_at:
            self._wake()

    def fail(self, error: Exception) -> None:
        self.unconfirmed -= 1
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        """All who wait; those who have to will wait again."""
        waiting, self._waiting = self._waiting, None
        self._wake_at = -1
        if waiting is not None:
            waiting.set()
