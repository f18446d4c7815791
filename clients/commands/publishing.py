"""What `leveret publish` does: messages from their source to the broker, counted."""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import click
import trio

from clients.amqp_errors import AMQPClientError, NackedError, ReturnedError
from clients.amqp_properties import PERSISTENT, TRANSIENT, Properties
from clients.amqp_url import Target
from clients.commands.connecting import CommandError, channel_to, explained
from clients.commands.message_json import Outgoing
from clients.commands.pacing import Pace
from clients.commands.progress import progress
from clients.commands.sources import KEY_HEADER, STDIN, read_bodies, read_json_lines, read_lines
from clients.trio_channel import Channel
from clients.trio_publishing import PublishWindow

TELL_EVERY: Final = 256  # messages, on the progress bar
WINDOW: Final = 1000
FILLER: Final = b"0123456789abcdef"


class ReturnedMessageError(CommandError):
    exit_code = 3


class RefusedMessageError(CommandError):
    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to publish, from where, and how. What is None is left to the messages."""

    body: str | None = None
    files: tuple[str, ...] = ()
    lines: bool = False
    json_lines: bool = False
    key_separator: str | None = None
    size: int | None = None
    count: int = 1
    exchange: str | None = None
    routing_key: str | None = None
    key: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, object] = field(default_factory=dict)
    transient: bool = False
    mandatory: bool = True
    confirm: bool = True
    window: int = WINDOW
    rate: float | None = None

    def check(self) -> None:
        """Raises UsageError for what does not go together."""
        by_line = self.lines or self.json_lines
        named = [self.body is not None, self.size is not None, bool(self.files) or by_line]
        if sum(named) > 1 or (self.lines and self.json_lines):
            raise click.UsageError("give one of BODY, --size, --file, --lines and --json-lines")
        if not any(named) and sys.stdin.isatty():
            raise click.UsageError("give a BODY, --size, --file, --lines or --json-lines")
        if by_line and self.count != 1:
            raise click.UsageError("--count does not go with --lines and --json-lines")
        if self.key_separator is not None and not (self.lines and self.key_separator):
            raise click.UsageError("--key-separator is a text, and goes with --lines")
        if self.routing_key is None and self.exchange is None and not self.json_lines:
            raise click.UsageError("give a ROUTING_KEY (of a queue: its name) or an --exchange")

    @property
    def total(self) -> int | None:
        """How many messages there will be, if that is known."""
        if self.lines or self.json_lines:
            return None
        return self.count * max(1, len(self.files))

    async def messages(self) -> AsyncGenerator[Outgoing, None]:
        files = self.files or (STDIN,)
        if self.lines:
            source = read_lines(files, self.key_separator)
        elif self.json_lines:
            source = read_json_lines(files)
        else:
            source = self._repeated(files)
        async with aclosing(source):
            async for message in source:
                yield message

    async def _repeated(self, files: tuple[str, ...]) -> AsyncGenerator[Outgoing, None]:
        if self.body is not None:
            read = [Outgoing(self.body.encode("utf-8", "surrogateescape"))]
        elif self.size is not None:
            read = [Outgoing((FILLER * (self.size // len(FILLER) + 1))[: self.size])]
        else:
            read = [message async for message in read_bodies(files)]
        for _ in range(self.count):
            for message in read:
                yield message

    def properties_of(self, message: Outgoing) -> Properties:
        """The command line's word counts more than the message's."""
        own = message.properties or {}
        mode = {"delivery_mode": TRANSIENT} if self.transient else {}
        values = {"delivery_mode": PERSISTENT, **own, **mode, **self.properties}
        headers = {**(own.get("headers") or {}), **self.headers}
        if self.key is not None:
            headers[KEY_HEADER] = self.key
        return Properties(**{**values, "headers": headers or None})


class Publishing:
    """One run; its counts can be read at any time."""

    def __init__(self, target: Target, wish: Wish) -> None:
        self.sent = 0
        self.sent_bytes = 0
        self.seconds = 0.0
        self._target = target
        self._wish = wish
        self._window: PublishWindow | None = None
        self._plain = wish.properties_of(Outgoing(b""))  # of messages that say nothing themselves

    @property
    def confirmed(self) -> int:
        return self._window.confirmed if self._window is not None else 0

    async def run(self, stop: trio.Event) -> None:
        """Raises CommandError with how many were confirmed."""
        try:
            async with channel_to(self._target, stop) as channel:
                start = trio.current_time()
                try:
                    with progress("publishing", self._wish.total) as tell:
                        await self._send_all(channel, tell)
                finally:
                    self.seconds = trio.current_time() - start
        except CommandError as error:
            if self.sent > 1 or self.confirmed:
                error.so_far = f"{self.confirmed} of {self.sent} messages were confirmed"
            raise

    async def _send_all(self, channel: Channel, tell: Callable[[int, str], None]) -> None:
        pace = Pace(self._wish.rate)
        window = self._window = channel.publishing(self._wish.window)
        messages = self._wish.messages()
        try:
            async with aclosing(messages):
                async for message in messages:
                    await pace.wait()
                    await self._send(channel, window, message)
                    if self.sent % TELL_EVERY == 0:
                        tell(self.sent, f"{window.confirmed} confirmed")
            await window.flush()
            if not self._wish.confirm:
                # What the broker has against a message comes before the answer to this.
                await channel.declare_exchange("amq.direct", passive=True)
        except CommandError:  # of the source: what was sent so far is to be confirmed
            await window.flush()
            raise
        except ReturnedError as error:
            raise _returned(error) from error
        except NackedError as error:
            text = "a queue refused the message: it is full, or cannot store it"
            raise RefusedMessageError(text) from error
        except AMQPClientError as error:
            raise explained(error, self._target, opened=True) from error

    async def _send(self, channel: Channel, window: PublishWindow, message: Outgoing) -> None:
        wish, body = self._wish, message.body
        exchange = (wish.exchange if wish.exchange is not None else message.exchange) or ""
        key = (wish.routing_key if wish.routing_key is not None else message.routing_key) or ""
        plain = message.properties is None
        told = self._plain if plain else wish.properties_of(message)
        try:
            if wish.confirm:
                await window.send(
                    body,
                    exchange=exchange,
                    routing_key=key,
                    mandatory=wish.mandatory,
                    properties=told,
                )
            else:
                await channel.publish(
                    body, exchange=exchange, routing_key=key, confirm=False, properties=told
                )
        except (ValueError, TypeError) as error:  # names and properties that AMQP cannot hold
            raise CommandError(f"message {self.sent + 1}: {error}") from None
        self.sent += 1
        self.sent_bytes += len(message.body)


def _returned(error: ReturnedError) -> ReturnedMessageError:
    message = error.message
    return ReturnedMessageError(
        f"no queue takes a message for exchange {message.exchange!r} with routing key "
        f"{message.routing_key!r} ({error}); `leveret bindings` shows where messages go"
    )
