"""One measured run: declare, warm up, read counters and clocks around a window, clean up."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from pamqp import commands

from benchmarks.brokers import ProcessTree
from benchmarks.load import (
    EXCHANGE,
    Done,
    Failed,
    Phase,
    Ready,
    Slot,
    consume,
    publish,
    queue_names,
    run_worker,
)
from benchmarks.scenarios import topic_binding
from benchmarks.wire import BrokerError, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

    from benchmarks.brokers import Broker
    from benchmarks.load import Board, Report, Worker
    from benchmarks.scenarios import LoadScenario

WARM_UP_S = 1.0
OPEN_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What one broker did in one window; times per message are CPU microseconds."""

    scenario: str
    broker: str
    received_per_s: float
    confirmed_per_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_p999_ms: float | None
    broker_us_per_message: float | None
    broker_rss_mb: float | None
    publisher_us_per_message: float
    consumer_us_per_message: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters and CPU clocks at one moment."""

    at_s: float
    published: int
    confirmed: int
    received: int
    broker_cpu_s: float | None
    publisher_cpu_s: float
    consumer_cpu_s: float


class Generator:
    """The two generator processes of one run; a context manager that outlives neither."""

    def __init__(self, url: str, scenario: LoadScenario, life_s: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.board: Board = self._context.RawArray(ctypes.c_uint64, len(Slot))
        self._pipes: list[Pipe] = []
        self._processes = [
            self._start(worker, url, scenario, life_s) for worker in (consume, publish)
        ]
        self.consumer, self.publisher = (
            ProcessTree(process.pid) for process in self._processes if process.pid
        )

    def _start(
        self, worker: Worker, url: str, scenario: LoadScenario, life_s: int
    ) -> multiprocessing.process.BaseProcess:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=run_worker,
            args=(worker, url, scenario, self.board, theirs, life_s),
            daemon=True,
        )
        process.start()
        theirs.close()
        self._pipes.append(ours)
        return process

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.board[Slot.PHASE] = Phase.STOP
        for process in self._processes:
            process.join(STOP_TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    def run_for(self, phase: Phase, seconds: float) -> None:
        """Let the processes work for a while; raise at once if one fails."""
        self.board[Slot.PHASE] = phase
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            speaking = wait(self._pipes, left)
            for pipe in self._pipes:
                if pipe in speaking:
                    raise BrokerError(f"a generator process ended early: {_receive(pipe)}")

    def gather(self, timeout_s: float) -> list[Report]:
        """One report of each process, consumers first."""
        deadline = time.monotonic() + timeout_s
        reports = []
        for pipe in self._pipes:
            if not pipe.poll(max(0.0, deadline - time.monotonic())):
                raise BrokerError("a generator process does not answer")
            reports.append(_receive(pipe))
        return reports


def _receive(pipe: Pipe) -> Report:
    try:
        report: Report = pipe.recv()
    except EOFError:
        raise BrokerError("a generator process died") from None
    if isinstance(report, Failed):
        raise BrokerError(report.reason)
    return report


def measure_load(broker: Broker, scenario: LoadScenario, seconds: float) -> LoadResult:
    """Run `scenario` against `broker` and measure a window of `seconds`."""
    with topology(broker.url, scenario):
        return measure_declared(broker, scenario, seconds)


def measure_declared(broker: Broker, scenario: LoadScenario, seconds: float) -> LoadResult:
    """The same, where what the scenario needs is there."""
    life_s = int(WARM_UP_S + seconds + OPEN_TIMEOUT_S + STOP_TIMEOUT_S)
    with Generator(broker.url, scenario, life_s) as generator:
        assert all(isinstance(one, Ready) for one in generator.gather(OPEN_TIMEOUT_S))
        generator.run_for(Phase.WARM_UP, WARM_UP_S)
        before = _sample(generator, broker)
        generator.run_for(Phase.MEASURE, seconds)
        after = _sample(generator, broker)
        rss_bytes = broker.processes.rss_bytes() if broker.processes else None
        generator.board[Slot.PHASE] = Phase.STOP
        consumed, _ = generator.gather(STOP_TIMEOUT_S)
    assert isinstance(consumed, Done)
    return _result(broker, scenario, before, after, sorted(consumed.latencies_ns), rss_bytes)


def _sample(generator: Generator, broker: Broker) -> Sample:
    board = generator.board
    return Sample(
        at_s=time.monotonic(),
        published=board[Slot.PUBLISHED],
        confirmed=board[Slot.CONFIRMED],
        received=board[Slot.RECEIVED],
        broker_cpu_s=broker.processes.cpu_s() if broker.processes else None,
        publisher_cpu_s=generator.publisher.cpu_s(),
        consumer_cpu_s=generator.consumer.cpu_s(),
    )


def _result(
    broker: Broker,
    scenario: LoadScenario,
    before: Sample,
    after: Sample,
    latencies_ns: list[int],
    rss_bytes: int | None,
) -> LoadResult:
    elapsed_s = after.at_s - before.at_s
    received = after.received - before.received
    published = after.published - before.published
    if not received:
        raise BrokerError("no delivery in the measured window")
    broker_us = None
    if before.broker_cpu_s is not None and after.broker_cpu_s is not None:
        broker_us = (after.broker_cpu_s - before.broker_cpu_s) * 1e6 / received
    confirmed_per_s = (after.confirmed - before.confirmed) / elapsed_s
    return LoadResult(
        scenario=scenario.name,
        broker=broker.name,
        received_per_s=received / elapsed_s,
        confirmed_per_s=confirmed_per_s if scenario.confirm_window else None,
        latency_p50_ms=percentile_ms(latencies_ns, 0.5),
        latency_p99_ms=percentile_ms(latencies_ns, 0.99),
        latency_p999_ms=percentile_ms(latencies_ns, 0.999),
        broker_us_per_message=broker_us,
        broker_rss_mb=rss_bytes / 1e6 if rss_bytes is not None else None,
        publisher_us_per_message=(after.publisher_cpu_s - before.publisher_cpu_s)
        * 1e6
        / max(1, published),
        consumer_us_per_message=(after.consumer_cpu_s - before.consumer_cpu_s) * 1e6 / received,
    )


def percentile_ms(ordered_ns: Sequence[int], fraction: float) -> float | None:
    """Nearest-rank percentile of sorted nanoseconds, in milliseconds."""
    if not ordered_ns:
        return None
    rank = min(len(ordered_ns) - 1, int(len(ordered_ns) * fraction))
    return ordered_ns[rank] / 1e6


@contextmanager
def topology(url: str, scenario: LoadScenario) -> Iterator[None]:
    """Declare the scenario's exchange, queues and bindings; delete them afterwards."""
    connection = Connection(url)
    try:
        _delete(connection, scenario)
        _declare(connection, scenario)
        yield
    finally:
        connection.close()
        connection = Connection(url)
        _delete(connection, scenario)
        connection.close()


def _declare(connection: Connection, scenario: LoadScenario) -> None:
    queues = queue_names(scenario)
    for queue in queues:
        declare = commands.Queue.Declare(
            queue=queue, durable=scenario.durable, arguments={"x-queue-type": scenario.queue_type}
        )
        connection.call(declare, commands.Queue.DeclareOk)
    if scenario.routing == "direct":
        return
    exchange = commands.Exchange.Declare(exchange=EXCHANGE, exchange_type=scenario.routing)
    connection.call(exchange, commands.Exchange.DeclareOk)
    if scenario.routing == "fanout":
        bindings = [(queue, "") for queue in queues]
    else:
        bindings = [
            (queues[index % len(queues)], topic_binding(index))
            for index in range(scenario.bindings)
        ]
    for queue, key in bindings:
        bind = commands.Queue.Bind(queue=queue, exchange=EXCHANGE, routing_key=key)
        connection.call(bind, commands.Queue.BindOk)


def _delete(connection: Connection, scenario: LoadScenario) -> None:
    for queue in queue_names(scenario):
        connection.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    if scenario.routing != "direct":
        connection.call(commands.Exchange.Delete(exchange=EXCHANGE), commands.Exchange.DeleteOk)
