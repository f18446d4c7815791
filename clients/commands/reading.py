"""What `leveret consume` and `leveret tail` do: messages to standard output, then settled."""

import math
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from clients.amqp_message import Message
from clients.commands.connecting import CommandError
from clients.commands.message_output import Form, write
from clients.trio_channel import Channel
from clients.trio_consumer import Consumer

PREFETCH: Final = 100
BATCH: Final = 500  # messages written at once; acked when they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """From which queue, how much, in which form, and what becomes of it then."""

    queue: str
    form: Form
    count: int | None = None
    timeout_s: float | None = None
    prefetch: int = PREFETCH
    settle: str = "ack"  # none: the broker forgets them as it sends them; requeue; reject
    arguments: dict[str, Any] = field(default_factory=dict)
    only_streams: bool = False

    async def run(self, channel: Channel) -> None:
        """Until there are `count`, or nothing comes for `timeout_s`. Raises CommandError."""
        prefetch = self.prefetch if self.count is None else min(self.prefetch, self.count)
        if self.settle == "requeue":
            assert self.count is not None
            prefetch = self.count  # all of them are out at once
        consumer = channel.consume(
            self.queue,
            prefetch=prefetch,
            no_ack=self.settle == "none",
            arguments=self.arguments,
        )
        # Whatever is settled lets another message come; so not all are before the consumer is gone.
        # Records of a stream stay where they are, and a group takes acks only from its members.
        early = sys.maxsize
        if self.count is not None and "x-group" not in self.arguments:
            early = self.count - prefetch
        async with consumer as messages:
            late, seen = await self._read(messages, early)
        self._settle(late)
        if self.count is not None and seen < self.count:
            raise CommandError(
                f"{seen} of {self.count} messages came, and no more for {self.timeout_s:g} s"
            )

    async def _read(self, messages: Consumer, early: int) -> tuple[list[Message], int]:
        """The messages that are not settled yet, and how many there were."""
        late: list[Message] = []
        seen = 0
        while self.count is None or seen < self.count:
            some: list[Message] = []
            with trio.move_on_after(self.timeout_s if self.timeout_s is not None else math.inf):
                some = await messages.some(BATCH if self.count is None else self.count - seen)
            if not some:
                break
            self._check(some[0])
            await write(some, self.form)
            now = max(0, early - seen)
            self._settle(some[:now])
            late += some[now:]
            seen += len(some)
        return late, seen

    def _check(self, message: Message) -> None:
        if self.only_streams and "x-stream-offset" not in message.headers:
            raise CommandError(
                f"queue {self.queue!r} is not a stream, its message goes back: `leveret get` looks "
                "at messages, `leveret consume` takes them, `leveret tail --exchange` shows copies"
            )

    def _settle(self, messages: list[Message]) -> None:
        for message in messages:
            if self.settle == "ack":
                message.ack()
            elif self.settle == "requeue":
                message.nack(requeue=True)
            elif self.settle == "reject":
                message.reject()
