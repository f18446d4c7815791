"""The two generator processes: one drives all publishers, one all consumers of a scenario.

Two processes whatever the number of connections, each with one selector, so that the generator
leaves the cores to the broker. They share a board of counters with the measuring process: it sets
the phase and reads the counts; nothing else passes between them while a load runs.
"""

from __future__ import annotations

import selectors
import signal
import time
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import cycle
from typing import TYPE_CHECKING

from pamqp import commands

from benchmarks.scenarios import BACKLOG_MAX, DISTINCT_PROPERTIES, topic_keys
from benchmarks.wire import (
    BrokerError,
    ConfirmCounter,
    Connection,
    DeliveryCounter,
    PublishBatch,
    encode_acks,
    encode_publish,
)

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable
    from multiprocessing.connection import Connection as Pipe

    from benchmarks.scenarios import LoadScenario

    Board = ctypes.Array[ctypes.c_uint64]
    Worker = Callable[[str, LoadScenario, Board, Callable[[], None]], list[int]]

EXCHANGE = "bench"
# Flat out, both processes rest this long between passes, so that a broker's small writes gather
# into few reads. A prefetch or confirm window lasts several times longer, so that the broker always
# has work at hand.
PAUSE_S = 0.0005
# A publisher that is as far ahead as it may be has time: the backlog lasts many times this long.
BACKLOG_PAUSE_S = 0.002
# How long either process may be deaf to a change of phase.
PHASE_POLL_S = 0.05


class Slot(IntEnum):
    """Places on the board; each is written by one process only."""

    PHASE = 0
    PUBLISHED = 1
    CONFIRMED = 2
    RECEIVED = 3


class Phase(IntEnum):
    """What the generator processes do now."""

    HOLD = 0
    WARM_UP = 1
    MEASURE = 2
    STOP = 3


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has its connections open and waits for the start."""


@dataclass(frozen=True, slots=True)
class Done:
    """The process has stopped; consumers bring the latencies sampled while measuring."""

    latencies_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failed:
    """The process gave up."""

    reason: str


Report = Ready | Done | Failed


def queue_names(scenario: LoadScenario) -> list[str]:
    """Equally long names, since the routing key is part of a delivery's size."""
    return [f"bench-{scenario.name}-{index:03}" for index in range(scenario.queues)]


def message_properties(scenario: LoadScenario, index: int) -> commands.Basic.Properties:
    """What message number `index` carries besides its body; always equally long."""
    mode = 2 if scenario.durable else 1
    if not scenario.full_properties:
        return commands.Basic.Properties(delivery_mode=mode)
    return commands.Basic.Properties(
        delivery_mode=mode,
        content_type="application/json",
        content_encoding="utf-8",
        headers={"lang": "py", "task": "shop.orders.confirm", "retries": 0, "shadow": None},
        correlation_id=f"0f0e1c5e-54a8-4f35-9d0c-{index:012}",
        reply_to="4d1f9c6e-8f0b-3c0a-b7a5-2f1f0d9f7c11",
        priority=0,
    )


def publish_batches(scenario: LoadScenario, publisher: int) -> list[PublishBatch]:
    """Everything that one publisher will send, over and over."""
    distinct = DISTINCT_PROPERTIES if scenario.full_properties else scenario.batch
    if scenario.routing == "topic":
        exchange, keys = EXCHANGE, topic_keys(scenario.bindings)
    elif scenario.routing == "fanout":
        exchange, keys = EXCHANGE, [""] * distinct
    else:
        names = queue_names(scenario)
        exchange, keys = "", [names[publisher % len(names)]] * distinct
    messages = [
        encode_publish(
            exchange=exchange,
            routing_key=key,
            body_bytes=scenario.body_bytes,
            properties=message_properties(scenario, index),
        )
        for index, key in enumerate(keys)
    ]
    return [
        PublishBatch(messages[start : start + scenario.batch], scenario.body_bytes)
        for start in range(0, len(messages), scenario.batch)
    ]


class Publisher:
    """One publishing connection; never blocks, keeps what the socket did not take."""

    def __init__(self, url: str, scenario: LoadScenario, index: int) -> None:
        self.sent = 0
        self.confirmed = 0
        self._window = scenario.confirm_window
        self._batch = scenario.batch
        self._batches = cycle(publish_batches(scenario, index))
        self._confirms = ConfirmCounter()
        self._unsent = memoryview(b"")
        self.connection = Connection(url)
        if self._window:
            self.connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self.sock = self.connection.sock
        self.sock.settimeout(0)

    @property
    def congested(self) -> bool:
        """The socket has not taken all of the last batch."""
        return len(self._unsent) > 0

    def may_publish(self) -> bool:
        """The last batch is out and the confirm window has room for another."""
        if self._unsent:
            return False
        return not self._window or self.sent - self.confirmed + self._batch <= self._window

    def publish(self, stamp_ns: int) -> int:
        """Write one batch as far as the socket takes it; return its number of messages."""
        batch = next(self._batches)
        self._unsent = memoryview(batch.stamped(stamp_ns))
        self.flush()
        self.sent += batch.messages
        return batch.messages

    def flush(self) -> None:
        """Write more of the last batch."""
        try:
            written = self.sock.send(self._unsent)
        except BlockingIOError:
            return
        self._unsent = self._unsent[written:]

    def read(self) -> int:
        """Take confirms; return how many messages they newly cover."""
        data = self.sock.recv(1 << 16)
        if not data:
            raise BrokerError(f"publisher cut off: {self._confirms.unexplained()}")
        before, self.confirmed = self.confirmed, self._confirms.feed(data)
        return self.confirmed - before


class Consumer:
    """One consuming connection, subscribed to one or more queues on one channel."""

    def __init__(self, url: str, scenario: LoadScenario, queues: list[str]) -> None:
        self._ack_every = scenario.ack_every if scenario.prefetch else 0
        self._next_ack = scenario.ack_every
        self.counter = DeliveryCounter(
            body_bytes=scenario.body_bytes, sample_every=scenario.sample_every
        )
        self._channel = scenario.consume_channel
        self.connection = Connection(url, channel=self._channel)
        self.sock = self.connection.sock
        if scenario.prefetch:
            qos = commands.Basic.Qos(prefetch_count=scenario.prefetch)
            self.connection.call(qos, commands.Basic.QosOk)
        for index, queue in enumerate(queues):
            consume = commands.Basic.Consume(
                queue=queue, consumer_tag=f"c{index:02}", no_ack=not scenario.prefetch
            )
            self.connection.call(consume, commands.Basic.ConsumeOk)
        self.counter.feed(self.connection.unread)

    def read(self, *, measuring: bool) -> int:
        """Count what one read brings, ack it, and return the number of new deliveries."""
        nbytes = self.sock.recv_into(self.counter.space())
        if nbytes == 0:
            raise BrokerError(f"consumer cut off: {self.counter.unexplained()}")
        now_ns = time.monotonic_ns() if measuring else None
        new = self.counter.advance(nbytes, now_ns=now_ns)
        if self._ack_every and self.counter.count >= self._next_ack:
            self._ack()
        return new

    def _ack(self) -> None:
        tags = range(self._next_ack, self.counter.count + 1, self._ack_every)
        # Blocking is safe: acks for a whole prefetch window fit into a socket buffer.
        acks = encode_acks(tags, channel=self._channel, multiple=self._ack_every > 1)
        self.sock.sendall(acks)
        self._next_ack = tags[-1] + self._ack_every


class PublishLoop:
    """All publishers of a scenario on one selector."""

    def __init__(self, publishers: list[Publisher], scenario: LoadScenario, board: Board) -> None:
        self._publishers = publishers
        self._scenario = scenario
        self._board = board
        # select() takes microseconds where epoll rounds a time-out up to a whole millisecond.
        self._selector = selectors.SelectSelector()
        for publisher in publishers:
            self._selector.register(publisher.sock, selectors.EVENT_READ, publisher)

    def run(self) -> None:
        """Publish until told to stop."""
        while self._board[Slot.PHASE] == Phase.HOLD:
            time.sleep(PAUSE_S)
        if self._scenario.rate:
            self._run_at_rate()
        else:
            self._run_flat_out()

    def _run_flat_out(self) -> None:
        """As fast as confirms, the socket and the backlog bound allow."""
        board, copies = self._board, self._scenario.copies
        step = self._scenario.batch * copies
        while board[Slot.PHASE] != Phase.STOP:
            room = BACKLOG_MAX - (board[Slot.PUBLISHED] * copies - board[Slot.RECEIVED])
            published = 0
            for publisher in self._publishers:
                if room < step:
                    break
                if publisher.may_publish():
                    published += publisher.publish(time.monotonic_ns())
                    room -= step
            board[Slot.PUBLISHED] += published
            if not published:
                time.sleep(BACKLOG_PAUSE_S if room < step else PAUSE_S)
            self._serve(0)

    def _run_at_rate(self) -> None:
        """Open loop: a message bears the time at which it was due, however late it goes out."""
        board = self._board
        interval_ns = 1_000_000_000 // self._scenario.rate
        turns = cycle(self._publishers)
        publisher = next(turns)
        due_ns = time.monotonic_ns()
        while board[Slot.PHASE] != Phase.STOP:
            early_ns = due_ns - time.monotonic_ns()
            if early_ns > 0:
                self._serve(early_ns / 1e9)
            elif publisher.may_publish():
                board[Slot.PUBLISHED] += publisher.publish(due_ns)
                due_ns += interval_ns
                publisher = next(turns)
            else:
                self._serve(PHASE_POLL_S)

    def _serve(self, timeout_s: float) -> None:
        """Read confirms and write leftovers; wait at most `timeout_s` for either."""
        for publisher in self._publishers:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE * publisher.congested)
            if self._selector.get_key(publisher.sock).events != wanted:
                self._selector.modify(publisher.sock, wanted, publisher)
        confirmed = 0
        for key, events in self._selector.select(timeout_s):
            if events & selectors.EVENT_READ:
                confirmed += key.data.read()
            if events & selectors.EVENT_WRITE:
                key.data.flush()
        if confirmed:
            self._board[Slot.CONFIRMED] += confirmed


def publish(url: str, scenario: LoadScenario, board: Board, ready: Callable[[], None]) -> list[int]:
    """Open the publishers, call `ready`, and run them; they see no latencies."""
    publishers = [Publisher(url, scenario, index) for index in range(scenario.publishers)]
    ready()
    PublishLoop(publishers, scenario, board).run()
    return []


def consume(url: str, scenario: LoadScenario, board: Board, ready: Callable[[], None]) -> list[int]:
    """Open the consumers, call `ready`, run them, and return the latencies that they saw."""
    queues = queue_names(scenario)
    consumers = [
        Consumer(url, scenario, queues[index :: scenario.consumers])
        for index in range(scenario.consumers)
    ]
    ready()
    selector = selectors.SelectSelector()
    for consumer in consumers:
        selector.register(consumer.sock, selectors.EVENT_READ, consumer)
    while (phase := board[Slot.PHASE]) != Phase.STOP:
        new = 0
        for key, _ in selector.select(PHASE_POLL_S):
            new += key.data.read(measuring=phase == Phase.MEASURE)
        if new:
            board[Slot.RECEIVED] += new
            if not scenario.rate:
                time.sleep(PAUSE_S)
    return [latency for consumer in consumers for latency in consumer.counter.latencies_ns]


def run_worker(
    worker: Worker, url: str, scenario: LoadScenario, board: Board, pipe: Pipe, life_s: int
) -> None:
    """Entry point of a generator process; it reports through `pipe` and lives at most `life_s`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever becomes of the parent, the default action of SIGALRM ends this process.
    signal.alarm(life_s)
    try:
        pipe.send(Done(worker(url, scenario, board, lambda: pipe.send(Ready()))))
    except (BrokerError, OSError) as error:
        pipe.send(Failed(f"{worker.__name__}: {error or type(error).__name__}"))
