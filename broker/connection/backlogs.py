"""What channels have to put off: while they wait for the disk, or publishers are blocked."""

from typing import Final

import trio
from pamqp import commands

from broker.channel.channel import Channel
from broker.protocol.constants import BASIC_PUBLISH, SETTLE_METHODS
from broker.protocol.frames import Batch

# Batches kept for one channel before the socket is not read any more.
BACKLOG_BATCHES_MAX: Final = 64
# What a channel may do while its publishes are kept back: consuming goes on.
_MAY_OVERTAKE: Final = SETTLE_METHODS | {
    commands.Basic.Qos.index,
    commands.Basic.Consume.index,
    commands.Basic.Cancel.index,
    commands.Basic.Get.index,
    commands.Channel.Flow.index,
}


class Backlogs:
    """Batches kept back per channel, in order (they are in `Channel.backlog`)."""

    def __init__(self) -> None:
        self._overfull: Channel | None = None
        self._resumed = trio.Event()
        self.close: Batch | None = None  # connection.close, which waits for all of them

    @property
    def overfull(self) -> bool:
        """So much is kept back that no more should be read."""
        return self._overfull is not None

    async def wait_for_room(self) -> None:
        await self._resumed.wait()

    def holds(self, channel: Channel, key: int, *, blocked: bool) -> bool:
        """Whether a method must wait: for its turn, or because publishers are blocked."""
        if channel.suspended or (blocked and key == BASIC_PUBLISH):
            return True
        return bool(channel.backlog) and key not in _MAY_OVERTAKE

    def keep(self, channel: Channel, batch: Batch) -> None:
        channel.backlog.append(batch)
        if len(channel.backlog) >= BACKLOG_BATCHES_MAX and self._overfull is None:
            self._overfull = channel
            self._resumed = trio.Event()

    def take(self, channel: Channel) -> list[Batch]:
        """All that was kept back for a channel that goes on, or ends."""
        backlog, channel.backlog = channel.backlog, []
        if self._overfull is channel:
            self._overfull = None
            self._resumed.set()
        return backlog
