"""Takes the samples of a node: of its totals, and of whatever had something to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import trio

from broker.cluster.front import QueueFront
from broker.connection.connection import Connection
from broker.internal_errors import WATCH
from broker.management.history import TICK_MS, Levels, Series
from broker.management.totals import (
    NODE_FIELDS,
    TOTAL_FIELDS,
    node_tally,
    node_values,
    vhost_figures,
)
from broker.management.whereabouts import led_here
from broker.streams.session import StreamSession
from queues.queue import Queue
from queues.tally import FIELDS, Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, ItemsView, Sequence

    from broker.management.whereabouts import Led, Whereabouts
    from broker.node import Node
    from broker.vhost import VHost
    from queues.seams import AnyQueue
    from queues.stream.stream import Stream

QUEUE_FIELDS: Final = (*FIELDS, "messages_ready", "messages_unacknowledged")
EXCHANGE_FIELDS: Final = ("publish_in", "publish_out")
CONNECTION_FIELDS: Final = ("recv_oct", "send_oct")
KEPT_TICKS: Final = 121  # of single things: ten minutes, as in RabbitMQ
KEPT_TICKS_MIN: Final = 13  # a minute, however many there are
ROWS_MAX: Final = 200_000  # of all queues together: some 20 MB
SLICE: Final = 5000  # queues looked at without giving others a turn


class Sampler:
    """Started with the node; others only read."""

    def __init__(self, node: Node, where: Whereabouts) -> None:
        self._node = node
        self._where = where
        self.tick = node.timers.now_ms() // TICK_MS
        self.totals = Levels(len(TOTAL_FIELDS))
        self.node = Levels(len(NODE_FIELDS))
        self._queues: dict[bytes, Series] = {}  # by uid; those that were busy lately
        # By uid, those that had a message when last looked at.
        self._holding: dict[bytes, tuple[VHost, Led]] = {}
        self._others: dict[Hashable, Series] = {}  # vhosts, exchanges, connections, channels

    def queue(self, queue: AnyQueue) -> Series | None:
        """None if nothing has happened to it lately."""
        return self._queues.get(queue.uid)

    def queues(self) -> ItemsView[bytes, Series]:
        """By uid, of all queues that were busy lately."""
        return self._queues.items()

    def other(self, thing: Hashable) -> Series | None:
        """Of a vhost, an exchange, a connection or a channel."""
        return self._others.get(thing)

    def time_of(self, tick: int) -> str:
        """When that was."""
        return datetime.fromtimestamp(tick * TICK_MS / 1000, UTC).isoformat(timespec="milliseconds")

    def lengths(self) -> tuple[int, int]:
        """Ready and unacked messages of all queues that count on this node, as of now."""
        for vhost in self._node.vhosts.values():
            self._look(vhost, changed(vhost.queues.values()))
        held = self._held().values()
        return sum([ready for ready, _ in held]), sum([unacked for _, unacked in held])

    def lengths_of(self, vhosts: Collection[VHost]) -> list[tuple[int, int]]:
        """The same of each of some vhosts."""
        for vhost in vhosts:
            self._look(vhost, changed(vhost.queues.values()))
        held = self._held()
        return [held.get(vhost, (0, 0)) for vhost in vhosts]

    def _held(self) -> dict[VHost, tuple[int, int]]:
        """Ready and unacked messages, of vhosts that have any."""
        sums: dict[VHost, list[int]] = {}
        empty: list[bytes] = []
        for uid, (vhost, queue) in self._holding.items():
            ready, unacked = queue.ready, queue.unacked
            if queue.deleted or not (ready or unacked or dying(queue)):
                empty.append(uid)
                continue
            total = sums.get(vhost)
            if total is None:
                total = sums[vhost] = [0, 0]
            total[0] += ready
            total[1] += unacked
        for uid in empty:
            del self._holding[uid]
        return {vhost: (total[0], total[1]) for vhost, total in sums.items()}

    def holding(self) -> list[Led]:
        """The queues that `lengths` found messages in."""
        return [queue for _, queue in self._holding.values()]

    def forget_all(self) -> None:
        """History begins anew."""
        self.totals = Levels(len(TOTAL_FIELDS))
        self.node = Levels(len(NODE_FIELDS))
        self._queues.clear()
        self._others.clear()

    def _look(self, vhost: VHost, queues: list[AnyQueue]) -> None:
        """These may hold messages now."""
        for named in queues:
            queue = self._where.counted_here(named)
            if queue is not None:
                self._holding[named.uid] = (vhost, queue)

    async def run(self) -> None:
        while True:
            ms = TICK_MS - self._node.timers.now_ms() % TICK_MS
            await trio.sleep((ms + 1) / 1000)
            with self._node.errors.guard(WATCH, what="rates"):
                await self.sample(self._node.timers.now_ms() // TICK_MS)

    async def sample(self, tick: int) -> None:
        """Look at everything."""
        self.node.add(tick, node_values(self._node))
        for vhost in list(self._node.vhosts.values()):
            queues = list(vhost.queues.values())
            for start in range(0, len(queues), SLICE):
                busy = changed(queues[start : start + SLICE])
                self._look(vhost, busy)
                self._sample_queues(tick, busy)
                await trio.lowlevel.checkpoint()
        totals = tally_values(node_tally(self._node))
        held = self._held()
        ready, unacked = (sum([each[place] for each in held.values()]) for place in (0, 1))
        self.totals.add(tick, [*totals, ready, unacked])
        self._sample_others(tick, held)
        self._forget(tick)
        self.tick = tick

    def _sample_queues(self, tick: int, queues: list[AnyQueue]) -> None:
        most = max(KEPT_TICKS_MIN, min(KEPT_TICKS, ROWS_MAX // (len(self._queues) + 1)))
        for named in queues:
            queue = led_here(named)
            if queue is None:
                continue
            queue.tally.changed = False
            values = queue_values(queue)
            series = self._queues.get(named.uid)
            if series is None:
                if not any(values):
                    continue  # it was only declared
                series = self._queues[named.uid] = Series(len(QUEUE_FIELDS))
                if not isinstance(queue, Queue):  # which counts since it was made
                    series.add(tick - 1, values, most=most)
            series.add(tick, values, most=most)

    def _sample_others(self, tick: int, held: dict[VHost, tuple[int, int]]) -> None:
        """Those that are gone are forgotten at once."""
        found: dict[Hashable, Sequence[int]] = {}
        for vhost, figures in vhost_figures(self._node).items():
            if any(together := [*figures, *held.get(vhost, (0, 0))]):
                found[vhost] = together
        for vhost in self._node.vhosts.values():
            for exchange in vhost.exchanges.values():
                if exchange.published_in:
                    found[exchange] = (exchange.published_in, exchange.published_out)
        for connection in self._node.connections:
            if isinstance(connection, Connection):
                found[connection] = (connection.received_bytes, connection.outbox.sent_bytes)
                for channel in connection.channels:
                    found[channel] = tally_values(channel.tally())
            elif isinstance(connection, StreamSession):
                found[connection] = (connection.received_bytes, connection.sent_bytes)
        others: dict[Hashable, Series] = {}
        for thing, values in found.items():
            series = others[thing] = self._others.get(thing) or Series(len(values))
            series.add(tick, values, most=KEPT_TICKS)
        self._others = others

    def _forget(self, tick: int) -> None:
        """Queues that are gone; of those that are idle, all but how they stood last."""
        if tick % KEPT_TICKS:
            return
        alive = {q.uid for vhost in self._node.vhosts.values() for q in vhost.queues.values()}
        self._queues = {uid: series for uid, series in self._queues.items() if uid in alive}
        for series in self._queues.values():
            if series.last_tick < tick - KEPT_TICKS:
                series.keep_last()


def changed(queues: Collection[AnyQueue]) -> list[AnyQueue]:
    """Those that are led here and had something to do. Most have not: this is all they cost."""
    return [
        named
        for named in queues
        if (queue := named.queue if type(named) is QueueFront else named) is not None
        and queue.tally.changed  # type: ignore[union-attr]
    ]


def tally_values(tally: Tally) -> list[int]:
    return [getattr(tally, name) for name in FIELDS]


def queue_values(queue: Led) -> list[int]:
    values = tally_values(queue.tally)
    if not isinstance(queue, Queue):
        values[0] = published(queue)
    return [*values, queue.ready, queue.unacked]


def dying(queue: Led) -> int:
    """Messages that died, and wait for their dead letters to be safe; streams have none."""
    return queue.dying if isinstance(queue, Queue) else 0


def published(stream: Stream) -> int:
    """All that was ever appended."""
    if stream.damaged is not None:
        return 0
    return sum([partition.next_offset for partition in stream.partitions])
