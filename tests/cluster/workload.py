"""Publishers, consumers, readers and declarers at once, and the judgement when they are done."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.cluster.checkers import check_queue, check_stream
from tests.cluster.clients import Consumer, MetadataClient, Publisher, StreamReader
from tests.cluster.histories import Delivery, QueueHistory, StreamHistory, key_of
from tests.cluster.linearizable import Operation, check_metadata
from tests.support.wire import WireConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.clients import Client
    from tests.cluster.features import Features

EXCHANGE = "chaos"
QUEUES = ("chaos-0", "chaos-1")
STREAM = "chaos-stream"
SUBJECTS = ("subject-0", "subject-1", "subject-2")
# Long enough for what a node that died had out to be put back, and for a busy machine.
QUIET_S = 20.0
JOIN_S = 60.0


@dataclass
class Verdict:
    """What came out of a run."""

    problems: list[str]
    confirmed: int
    unknown: int
    delivered: int
    redelivered: int
    operations: int
    reconnects: int
    longest_pause_s: float
    """Between two confirms of one publisher."""
    faults: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    """From the end of a fault until everything is up, led and complete again."""


@dataclass
class Workload:
    """Everything that clients do to a cluster during a run."""

    urls: Sequence[str]
    seed: int
    rate: float = 100.0
    streams: bool = True
    queues: list[QueueHistory] = field(default_factory=list)
    stream: StreamHistory | None = None
    publishers: list[Publisher] = field(default_factory=list)
    others: list[Client] = field(default_factory=list)
    declarers: list[MetadataClient] = field(default_factory=list)
    features: Features | None = None

    def start(self) -> None:
        seeds = random.Random(self.seed)
        self.declare()
        for queue in QUEUES:
            history = QueueHistory(queue)
            self.queues.append(history)
            for number in range(2):
                name = f"{queue}-{number}"
                self.publishers.append(
                    Publisher(
                        f"p-{name}",
                        self.urls,
                        seeds.getrandbits(32),
                        history,
                        queue,
                        rate=self.rate,
                    )
                )
                self.others.append(Consumer(f"c-{name}", self.urls, seeds.getrandbits(32), history))
        if self.streams:
            self.stream = StreamHistory(STREAM)
            self.publishers.append(
                Publisher(
                    "p-stream",
                    self.urls,
                    seeds.getrandbits(32),
                    self.stream,
                    STREAM,
                    rate=self.rate,
                )
            )
            self.others += [
                StreamReader(f"r-{number}", self.urls, seeds.getrandbits(32), self.stream)
                for number in range(2)
            ]
        self.declarers = [
            MetadataClient(f"m-{number}", self.urls, seeds.getrandbits(32), SUBJECTS, EXCHANGE)
            for number in range(3)
        ]
        for client in self._clients():
            client.start()
        if self.features is not None:
            self.features.start(seeds)

    def _clients(self) -> list[Client]:
        features = self.features.clients() if self.features is not None else []
        return [*self.publishers, *self.others, *self.declarers, *features]

    def declare(self) -> None:
        with WireConnection.connect(self.urls[0]) as connection:
            channel = connection.open_channel()
            for queue in QUEUES:
                # Each consumer that is lost counts as a failure of what it held.
                arguments = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}
                channel.declare_queue(queue, durable=True, arguments=arguments)
            if self.streams:
                arguments = {"x-queue-type": "stream"}
                channel.declare_queue(STREAM, durable=True, arguments=arguments)
            channel.declare_exchange(EXCHANGE, durable=True)

    def failures(self) -> list[str]:
        """Clients that met what no fault excuses."""
        return [
            f"{client.name}: {client.failure!r}"
            for client in self._clients()
            if client.failure is not None
        ]

    def finish(self, *, probes: bool = True) -> Verdict:
        """Stop publishing on a cluster that is whole again, drain, stop, and judge.

        `probes`: whether publishes were to be routed by the latest bindings at all times. A node
        that is cut off, or has been stopped, cannot know of those that others made meanwhile.
        """
        problems: list[str] = []
        features = self.features
        first = [*self.publishers, *self.declarers, *(features.publishers if features else ())]
        for client in first:
            client.stop()
        problems += self._join(first)
        self._drain()
        if features is not None:
            features.drain()
        last = [client for client in self._clients() if client not in first]
        for client in last:
            client.stop()
        problems += self._join(last)
        if features is not None:
            problems += features.problems()
        problems += self.failures()
        self._take_the_rest()
        operations = self._operations(probes=probes)
        for history in self.queues:
            problems += check_queue(history)
        if self.stream is not None:
            problems += check_stream(self.stream)
        problems += check_metadata(operations)
        deliveries = [one for history in self.queues for one in history.deliveries]
        histories = [*self.queues, *([self.stream] if self.stream else [])]
        confirmed = sum(len(history.confirmed()) for history in histories)
        return Verdict(
            problems=problems,
            confirmed=confirmed,
            unknown=sum(len(history.outcomes) for history in histories) - confirmed,
            delivered=len(deliveries),
            redelivered=sum(one.redelivered for one in deliveries),
            operations=len(operations),
            reconnects=sum(max(0, client.connections - 1) for client in self._clients()),
            longest_pause_s=max(map(_longest_pause, self.publishers)),
        )

    def _operations(self, *, probes: bool) -> list[Operation]:
        return [
            one
            for declarer in self.declarers
            for one in declarer.history
            if probes or one.action != "probe"
        ]

    def _join(self, clients: Sequence[Client]) -> list[str]:
        problems = []
        for client in clients:
            client.join(JOIN_S)
            if client.is_alive():
                problems.append(f"{client.name} does not end; last: {client.troubles[-3:]}")
        return problems

    def _drain(self) -> None:
        """Until all that was confirmed has been seen, or nothing has moved for long."""
        moved, last = time.monotonic(), -1
        while time.monotonic() - moved < QUIET_S:
            missing = sum(len(history.confirmed() - history.seen()) for history in self.queues)
            if self.stream is not None:
                for reader in ("r-0", "r-1"):
                    missing += len(self.stream.confirmed() - self.stream.seen_by(reader))
            if not missing:
                return
            if missing != last:
                moved, last = time.monotonic(), missing
            time.sleep(0.2)

    def _take_the_rest(self) -> None:
        """What the consumers put back when they stopped, and what they never got."""
        with WireConnection.connect(self.urls[0]) as connection:
            channel = connection.open_channel()
            for history in self.queues:
                while (item := channel.get(history.queue)) is not None:
                    redelivered = bool(item.redelivered)
                    history.delivered(Delivery("last", key_of(item.body), redelivered))
                    channel.ack(item.delivery_tag)
            channel.close()


def _longest_pause(publisher: Publisher) -> float:
    gaps = [later - earlier for earlier, later in pairwise(publisher.confirmed_at)]
    return max(gaps, default=0.0)
