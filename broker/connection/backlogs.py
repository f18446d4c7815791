"""What channels have to put off: they wait for the disk, or publish too fast or in an alarm."""

from typing import Final, cast

import trio
from pamqp import commands

from broker.channel.channel import Channel
from broker.protocol.constants import BASIC_PUBLISH, SETTLE_METHODS
from broker.protocol.frames import Batch, Content
from broker.protocol.runs import ContentRun
from flow_control.kept_back import KeptBack, Share

# What a batch, and each thing in it, costs in memory beside the bytes a client sent.
BATCH_OVERHEAD_BYTES: Final = 200
ITEM_OVERHEAD_BYTES: Final = 250
# What a channel may do while its publishes are kept back: consuming goes on.
_MAY_OVERTAKE: Final = SETTLE_METHODS | {
    commands.Basic.Qos.index,
    commands.Basic.Consume.index,
    commands.Basic.Cancel.index,
    commands.Basic.Get.index,
    commands.Channel.Flow.index,
}


class Backlogs:
    """Batches kept back per channel, in order (they are in `Channel.backlog`), and their size."""

    def __init__(self, node: KeptBack) -> None:
        self._node = node
        self._share = Share(node)
        self._partial_bytes = 0
        self._wake = trio.Event()
        self.close: Batch | None = None  # connection.close, which waits for all of them

    @property
    def size_bytes(self) -> int:
        return self._share.used_bytes

    @property
    def overfull(self) -> bool:
        """So much is kept back that no more should be read."""
        return self._share.exhausted

    async def wait_for_room(self) -> None:
        while self.overfull:
            self._wake = trio.Event()
            self._node.call_when_eased(self._wake.set)
            try:
                await self._wake.wait()
            finally:
                self._node.forget(self._wake.set)

    def holds(self, channel: Channel, key: int, *, blocked: bool) -> bool:
        """Whether a method must wait: for its turn, or because publishers are blocked."""
        if channel.suspended or (blocked and key == BASIC_PUBLISH):
            return True
        return bool(channel.backlog) and key not in _MAY_OVERTAKE

    def keep(self, channel: Channel, batch: Batch) -> None:
        channel.backlog.append(batch)
        self._share.charge(_cost(batch))

    def keep_first(self, channel: Channel, batch: Batch) -> None:
        """The rest of a batch that was begun: it goes on before what came behind it."""
        channel.backlog.appendleft(batch)
        self._share.charge(_cost(batch))

    def take_first(self, channel: Channel) -> Batch:
        batch = channel.backlog.popleft()
        self._charge(-_cost(batch))
        return batch

    def take_overtaking(self, channel: Channel) -> list[Batch]:
        """Those of a channel that need not wait for the first of them any longer."""
        taken = [batch for batch in channel.backlog if batch[1] in _MAY_OVERTAKE]
        if taken:
            left = [batch for batch in channel.backlog if batch[1] not in _MAY_OVERTAKE]
            channel.backlog.clear()
            channel.backlog.extend(left)
            self._charge(-sum(map(_cost, taken)))
        return taken

    def drop(self, channel: Channel) -> None:
        """The channel is over."""
        self._charge(-sum(map(_cost, channel.backlog)))
        channel.backlog.clear()

    def note_partial(self, size_bytes: int) -> None:
        """So much has come of a publish that will have to wait as well; 0 if it need not."""
        self._charge(size_bytes - self._partial_bytes)
        self._partial_bytes = size_bytes

    def _charge(self, size_bytes: int) -> None:
        self._share.charge(size_bytes)
        if not self._share.exhausted:
            self._wake.set()


def _cost(batch: Batch) -> int:
    _, key, items = batch
    size = BATCH_OVERHEAD_BYTES + ITEM_OVERHEAD_BYTES * len(items)
    if isinstance(items, ContentRun):
        return size + items.size_bytes
    if key == BASIC_PUBLISH:
        return size + sum([len(content[1]) for content in cast("list[Content]", items)])
    return size + sum([len(item) for item in items if isinstance(item, bytes)])
