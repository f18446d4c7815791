"""The load of `leveret bench`: publishers and consumers on queues of their own, counted."""

import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import uuid4

import trio

from clients.amqp_properties import PERSISTENT, TRANSIENT, Properties
from clients.amqp_url import Target
from clients.commands.connecting import channel_to
from clients.commands.latency import Latencies
from clients.commands.pacing import Pace

STAMP: Final = struct.Struct(">d")  # when it was published, at the front of each body
SIZE_MIN: Final = STAMP.size
BATCH: Final = 500
FILLER: Final = b"."
# What was published last is waited for, so that counts agree; so long without any news is the end.
SILENCE_S: Final = 30.0
CLEAN_UP_S: Final = 5.0  # for queues to be deleted; then they stay

QUEUES: Final[dict[str, dict[str, Any]]] = {
    "quorum": {"arguments": {"x-queue-type": "quorum"}},
    "classic": {"arguments": {"x-queue-type": "classic"}},
    "stream": {"arguments": {"x-queue-type": "stream"}},
    "transient": {"durable": False, "arguments": {"x-queue-type": "classic"}},
}


Task: TypeAlias = Callable[[int, trio.Event, trio.Event], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What load, for how long."""

    queue_type: str
    queues: int
    publishers: int
    consumers: int
    size: int
    window: int
    prefetch: int
    seconds: float
    rate: float | None
    confirm: bool
    ack: bool


@dataclass(slots=True)
class Counts:
    """As they are now; everything grows only."""

    published_to: list[int]  # by queue
    confirmed: int = 0
    consumed: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def published(self) -> int:
        return sum(self.published_to)


class Load:
    """One run of a plan; `counts` can be read meanwhile."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self.counts = Counts([0] * plan.queues)
        self.published_s = 0.0  # until the last message was published and confirmed
        self.consumed_s = 0.0  # until the last message came
        self._target = target
        self._plan = plan
        self._start = 0.0  # set before `go`
        self._go = trio.Event()  # set when all are ready
        self._news = trio.Event()  # set when messages came
        prefix = f"leveret-bench-{uuid4().hex[:8]}"
        self._queues = [f"{prefix}-{number}" for number in range(plan.queues)]

    async def run(self, stop: trio.Event) -> None:
        """Leaves no queues behind. Raises CommandError, alone or in groups."""
        async with channel_to(self._target, stop) as channel:
            try:
                for name in self._queues:
                    await channel.declare_queue(name, **QUEUES[self._plan.queue_type])
                await self._load(stop)
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(CLEAN_UP_S):
                    for name in self._queues:
                        await channel.delete_queue(name)

    async def _load(self, stop: trio.Event) -> None:
        plan = self._plan
        async with trio.open_nursery() as consumers:
            await self._start_all(consumers, self._consume, plan.consumers, stop)
            async with trio.open_nursery() as publishers:
                await self._start_all(publishers, self._publish, plan.publishers, stop)
                self._start = trio.current_time()
                self._go.set()
            await self._until_consumed()
            consumers.cancel_scope.cancel()

    async def _start_all(
        self, nursery: trio.Nursery, task: Task, count: int, stop: trio.Event
    ) -> None:
        """One after the other takes its place in turn at a queue; returns when all are ready."""
        for number in range(count):
            ready = trio.Event()
            nursery.start_soon(task, number % self._plan.queues, ready, stop)
            await ready.wait()

    async def _publish(self, number: int, ready: trio.Event, stop: trio.Event) -> None:
        plan, counts, queue = self._plan, self.counts, self._queues[number]
        mode = TRANSIENT if plan.queue_type == "transient" else PERSISTENT
        properties = Properties(delivery_mode=mode)
        filler = FILLER * (plan.size - SIZE_MIN)
        async with channel_to(self._target, stop) as channel:
            window = channel.publishing(plan.window)
            confirmed = 0
            ready.set()
            await self._go.wait()
            pace = Pace(plan.rate / plan.publishers if plan.rate is not None else None)
            end = self._start + plan.seconds
            while True:
                await pace.wait()
                body = STAMP.pack(time.perf_counter()) + filler
                if plan.confirm:
                    await window.send(body, routing_key=queue, properties=properties)
                    counts.confirmed += window.confirmed - confirmed
                    confirmed = window.confirmed
                else:
                    await channel.publish(
                        body, routing_key=queue, confirm=False, properties=properties
                    )
                counts.published_to[number] += 1
                now = trio.current_time()
                self.published_s = now - self._start
                if now >= end:
                    break
            await window.flush()
            counts.confirmed += window.confirmed - confirmed
            self.published_s = trio.current_time() - self._start

    async def _consume(self, number: int, ready: trio.Event, stop: trio.Event) -> None:
        plan, counts, queue = self._plan, self.counts, self._queues[number]
        no_ack = not plan.ack and plan.queue_type != "stream"
        async with (
            channel_to(self._target, stop) as channel,
            channel.consume(queue, prefetch=plan.prefetch, no_ack=no_ack) as messages,
        ):
            ready.set()
            while True:
                some = await messages.some(BATCH)
                now = time.perf_counter()
                for message in some:
                    counts.latencies.add(now - STAMP.unpack_from(message.body)[0])
                    if not no_ack:
                        message.ack()
                counts.consumed += len(some)
                self.consumed_s = trio.current_time() - self._start
                self._news.set()
                self._news = trio.Event()

    @property
    def expected(self) -> int:
        """How many messages the consumers see in the end: of a stream, each of them all."""
        plan = self._plan
        readers = [0] * plan.queues
        for number in range(plan.consumers):
            readers[number % plan.queues] += 1
        if plan.queue_type != "stream":
            readers = [min(1, count) for count in readers]
        published = self.counts.published_to
        return sum(count * each for count, each in zip(published, readers, strict=True))

    async def _until_consumed(self) -> None:
        while self.counts.consumed < self.expected:
            with trio.move_on_after(SILENCE_S) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                return
