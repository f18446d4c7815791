"""Clients of what is more than publish, consume and ack: dead letters, leases and transactions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.checkers import check_arrivals
from tests.cluster.clients import BrokenPromiseError, Client, Consumer, Publisher
from tests.cluster.histories import Delivery, Key, QueueHistory, key_of
from tests.support.frames import Content, Tx
from tests.support.wire import WireConnection

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.support.wire import WireChannel

WORK, DEAD = "chaos-work", "chaos-dead"
LEASED = "chaos-leased"
SOURCE, TARGET = "chaos-source", "chaos-target"
LEASE_MS = 2000
RATE = 20.0
PREFETCH = 10
IDLE_S = 0.1
QUIET_S = 45.0  # what was refused is tried again within half a minute


class Rejecter(Client):
    """Every message that it gets dies."""

    def work(self, channel: WireChannel) -> None:
        channel.qos(PREFETCH)
        channel.consume(WORK)
        while not self.stopping:
            try:
                item = channel.conn.next_item(channel.number, timeout=1.0)
            except TimeoutError:
                continue
            if not isinstance(item, Content):
                raise ConnectionError(f"{item}")
            channel.reject(item.delivery_tag, requeue=False)


class Holder(Client):
    """Takes messages and never says what became of them: their leases must end."""

    def work(self, channel: WireChannel) -> None:
        channel.qos(PREFETCH)
        channel.consume(LEASED)
        while not self.stopping:
            try:
                item = channel.conn.next_item(channel.number, timeout=1.0)
            except TimeoutError:
                continue
            if not isinstance(item, Content):
                raise ConnectionError(f"{item}")


class Mover(Client):
    """Moves messages from one queue to another, each in a transaction."""

    def __init__(self, name: str, urls: Sequence[str], seed: int, moved: QueueHistory) -> None:
        super().__init__(name, urls, seed)
        self._moved = moved
        self.committed: list[Key] = []

    def work(self, channel: WireChannel) -> None:
        channel.rpc(Tx.Select())
        while not self.stopping:
            item = channel.get(SOURCE)
            if item is None:
                self._stopping.wait(IDLE_S)
                continue
            key = key_of(item.body)
            if key is None:
                raise BrokenPromiseError(f"{self.name}: a damaged message")
            channel.publish("", TARGET, item.body, delivery_mode=2)
            channel.ack(item.delivery_tag)
            channel.rpc(Tx.Commit())
            self.committed.append(key)


@dataclass
class Features:
    """Beside the other clients of a run; judged when all is whole again."""

    urls: Sequence[str]
    dead: QueueHistory = field(default_factory=lambda: QueueHistory(DEAD))
    leased: QueueHistory = field(default_factory=lambda: QueueHistory(LEASED))
    moved: QueueHistory = field(default_factory=lambda: QueueHistory(TARGET))
    publishers: list[Client] = field(default_factory=list)
    others: list[Client] = field(default_factory=list)
    movers: list[Mover] = field(default_factory=list)

    def start(self, seeds: random.Random) -> None:
        self._declare()

        def seed() -> int:
            return seeds.getrandbits(32)

        for history, queue in ((self.dead, WORK), (self.leased, LEASED), (self.moved, SOURCE)):
            name = f"p-{queue}"
            self.publishers.append(Publisher(name, self.urls, seed(), history, queue, rate=RATE))
        self.movers = [Mover(f"mover-{n}", self.urls, seed(), self.moved) for n in range(2)]
        self.others = [
            Rejecter("rejecter", self.urls, seed()),
            Consumer("undertaker", self.urls, seed(), self.dead),
            Holder("holder", self.urls, seed()),
            Consumer("c-leased", self.urls, seed(), self.leased),
        ]
        for client in self.clients():
            client.start()

    def clients(self) -> list[Client]:
        return [*self.publishers, *self.others, *self.movers]

    def _declare(self) -> None:
        quorum = {"x-queue-type": "quorum", "x-delivery-limit": -1}
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
        with WireConnection.connect(self.urls[0]) as connection:
            channel = connection.open_channel()
            for name, more in {
                DEAD: {},
                WORK: letters,
                LEASED: {"x-visibility-timeout": LEASE_MS},
                SOURCE: {},
                TARGET: {},
            }.items():
                channel.declare_queue(name, durable=True, arguments={**quorum, **more})

    def drain(self) -> None:
        """Until all that was confirmed has come out, or nothing has moved for long."""
        moved, last = time.monotonic(), -1
        while time.monotonic() - moved < QUIET_S:
            self._take_moved()
            missing = sum(
                len(history.confirmed() - history.seen())
                for history in (self.dead, self.leased, self.moved)
            )
            if not missing:
                return
            if missing != last:
                moved, last = time.monotonic(), missing
            time.sleep(0.2)

    def _take_moved(self) -> None:
        with WireConnection.connect(self.urls[0]) as connection:
            channel = connection.open_channel()
            while (item := channel.get(TARGET)) is not None:
                delivery = Delivery("last", key_of(item.body), bool(item.redelivered))
                self.moved.delivered(delivery)
                channel.ack(item.delivery_tag)
            channel.close()

    def problems(self) -> list[str]:
        found = []
        for history in (self.dead, self.leased, self.moved):
            found += check_arrivals(history)
        committed = [key for mover in self.movers for key in mover.committed]
        twice = sorted({key for key in committed if committed.count(key) > 1})
        if twice:
            found.append(f"{SOURCE}: acked by two commits that were answered: {twice[:5]}")
        unseen = sorted(set(committed) - {key for key in self.moved.seen() if key is not None})
        if unseen:
            found.append(f"{TARGET}: {len(unseen)} committed and lost: {unseen[:5]}")
        return found
