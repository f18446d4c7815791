"""Messages of the blocking client: a consumer to iterate over, a window to publish through."""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from clients.amqp_channel import ChannelCore
from clients.amqp_inbox import Inbox
from clients.amqp_message import Message
from clients.amqp_properties import Properties, PropertyArguments
from clients.amqp_requests import QueueName, prepare
from clients.blocking_link import BlockingLink

if TYPE_CHECKING:
    from collections.abc import Iterator

PUMP_EVERY: Final = 64  # messages; then acks are sent, so that the broker never waits for them all


class Consumer:
    """Use it in `with`; then iterate. Iteration ends when nothing came for `timeout_s`, if that is
    given; otherwise it waits for ever. The end of the block gives back what was not read.
    """

    def __init__(
        self, link: BlockingLink, core: ChannelCore, inbox: Inbox, timeout_s: float | None
    ) -> None:
        self._link = link
        self._core = core
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        promise = self._core.cancel(self._inbox)
        if promise is not None:
            self._link.wait_until(lambda: promise.done)
            self._link.flush()

    def __iter__(self) -> "Iterator[Message]":
        return self

    def __next__(self) -> Message:
        inbox = self._inbox
        if not inbox.messages and inbox.error is None:
            self._link.wait_until(lambda: inbox.messages or inbox.error, self._timeout_s)
        if inbox.messages:
            self._taken += 1
            if self._taken % PUMP_EVERY == 0:
                self._link.pump()
        if inbox.messages:
            return inbox.take()
        if inbox.error is not None:
            self._core.error_told = True
            raise inbox.error
        raise StopIteration


class PublishWindow:
    """Also the receipt of all that is sent through it. The first failure is raised by the next
    `send`, or by the end of the block, which waits until everything is confirmed."""

    def __init__(self, link: BlockingLink, core: ChannelCore, window: int) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} messages lets nothing through")
        self.unconfirmed = 0
        self.confirmed = 0
        self._link = link
        self._core = core
        self._window = window
        self._burst = max(1, window // 4)  # written at once
        self._unsent = 0
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.flush()

    def flush(self) -> None:
        """Until all that was sent is confirmed. Raises the first failure."""
        self._until(0)

    def send(
        self,
        body: bytes,
        *,
        exchange: str = "",
        routing_key: QueueName = "",
        mandatory: bool = False,
        properties: Properties | None = None,
        **others: Unpack[PropertyArguments],
    ) -> None:
        """Waits for a place in the window only, and while the broker is blocked."""
        if self._error is not None:
            raise self._error
        publish = prepare(
            body, exchange, routing_key, properties, others, mandatory=mandatory, resend=False
        )
        if self.unconfirmed >= self._window:
            self._until(self._window // 2)
        connection = self._link.core
        if connection.blocked is not None:
            self._link.wait_until(lambda: connection.blocked is None)
        self._core.publish(publish, self)
        self.unconfirmed += 1
        self._unsent += 1
        if self._unsent >= self._burst:
            self._unsent = 0
            self._link.pump()

    def _until(self, left: int) -> None:
        self._link.wait_until(lambda: self.unconfirmed <= left or self._error is not None)
        self._unsent = 0
        if self._error is not None:
            raise self._error

    # As a receipt

    def resolve(self) -> None:
        self.unconfirmed -= 1
        self.confirmed += 1

    def fail(self, error: Exception) -> None:
        self.unconfirmed -= 1
        if self._error is None:
            self._error = error
