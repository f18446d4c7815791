"""A broker with little memory: publishers too fast and too many, and a consumer that is stuck.

Everything published must be confirmed and must come out exactly once, in memory that is far less
than all of it. Run with `python -m benchmarks.pressure`.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import brokers
from benchmarks.idle import raise_file_limit
from benchmarks.memory_limit import memory_limit
from benchmarks.numbered import Collector, Publisher, declared, drive
from benchmarks.wire import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.brokers import Broker, ProcessTree

MIB = 1024 * 1024
BODY_BYTES = 1024
STUCK_MESSAGES = 10_000
SAMPLE_S = 0.02
PIPED_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one scenario took, and what became of its messages."""

    scenario: str
    published: int
    published_mb: float
    seconds: float
    peak_rss_mb: float
    verdict: str


class Peak:
    """The most memory that a process had in use, by looking often."""

    def __init__(self, processes: ProcessTree) -> None:
        self._processes = processes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.rss_bytes = processes.rss_bytes()
        self._thread.start()

    def _watch(self) -> None:
        with suppress(psutil.NoSuchProcess):
            while not self._stop.wait(SAMPLE_S):
                self.rss_bytes = max(self.rss_bytes, self._processes.rss_bytes())

    def stop(self) -> float:
        """In megabytes."""
        self._stop.set()
        self._thread.join()
        return self.rss_bytes / 1e6


def exactly_once(collector: Collector, expected: set[int]) -> str:
    found = set(collector.numbers)
    twice = len(collector.numbers) - len(found)
    lost, invented = len(expected - found), len(found - expected)
    if lost or twice or invented:
        raise BrokerError(f"{lost} lost, {twice} delivered twice, {invented} out of nowhere")
    return "all confirmed, each delivered once"


def slow_consumer(broker: Broker, options: argparse.Namespace, *, durable: bool) -> Outcome:
    """One publisher at full speed; a consumer that acks few a second, and in the end all."""
    queue = f"slow-{'durable' if durable else 'transient'}"
    with ExitStack() as stack:
        stack.enter_context(declared(broker.url, queue, durable=durable))
        publisher = Publisher(
            broker.url, queue, first=0, body_bytes=BODY_BYTES, durable=durable, window=2000
        )
        stack.callback(publisher.close)
        collector = Collector(broker.url, queue, body_bytes=BODY_BYTES, prefetch=500)
        stack.callback(collector.close)
        peak, began = _peak(broker), time.monotonic()
        collector.rate_per_s = options.slow_rate
        end = began + options.seconds
        drive(
            [publisher],
            collector,
            lambda: time.monotonic() > end,
            within_s=options.seconds + options.patience,
        )
        publisher.stop_at = publisher.sent
        collector.rate_per_s = None
        drive(
            [publisher],
            collector,
            lambda: publisher.done and collector.received >= publisher.sent,
            within_s=options.patience,
        )
        verdict = exactly_once(collector, set(range(publisher.sent)))
        if list(collector.numbers) != sorted(collector.numbers):
            raise BrokerError("delivered out of order")
        return _outcome(queue, publisher.sent, began, peak, verdict)


def crowd(broker: Broker, options: argparse.Namespace, *, durable: bool) -> Outcome:
    """Hundreds of publishers and no consumer; then one who takes everything."""
    queue = f"crowd-{'durable' if durable else 'transient'}"
    with ExitStack() as stack:
        stack.enter_context(declared(broker.url, queue, durable=durable))
        publishers = []
        for place in range(options.publishers):
            publisher = Publisher(
                broker.url,
                queue,
                first=place * options.each,
                body_bytes=BODY_BYTES,
                durable=durable,
                window=options.each,
            )
            publisher.stop_at = options.each
            publishers.append(publisher)
            stack.callback(publisher.close)
        peak, began = _peak(broker), time.monotonic()
        drive(publishers, None, lambda: all(p.done for p in publishers), within_s=options.patience)
        total = options.publishers * options.each
        collector = Collector(broker.url, queue, body_bytes=BODY_BYTES, prefetch=500)
        stack.callback(collector.close)
        drive([], collector, lambda: collector.received >= total, within_s=options.patience)
        verdict = exactly_once(collector, set(range(total)))
        return _outcome(f"{queue} ({options.publishers})", total, began, peak, verdict)


def stuck_consumer(broker: Broker, options: argparse.Namespace, *, body_bytes: int) -> Outcome:
    """What it costs that a consumer holds many messages, beside that they wait in their queue."""
    queue = f"stuck-{body_bytes}"
    processes = _processes(broker)
    with ExitStack() as stack:
        stack.enter_context(declared(broker.url, queue, durable=False))
        publisher = Publisher(
            broker.url, queue, first=0, body_bytes=body_bytes, durable=False, window=1000
        )
        publisher.stop_at = STUCK_MESSAGES
        stack.callback(publisher.close)
        empty = processes.rss_bytes()
        began, peak = time.monotonic(), _peak(broker)
        drive([publisher], None, lambda: publisher.done, within_s=options.patience)
        ready = processes.rss_bytes()
        collector = Collector(
            broker.url, queue, body_bytes=body_bytes, prefetch=STUCK_MESSAGES, acks=False
        )
        stack.callback(collector.close)
        drive(
            [],
            collector,
            lambda: collector.received >= STUCK_MESSAGES,
            within_s=options.patience,
        )
        held = processes.rss_bytes()
        exactly_once(collector, set(range(STUCK_MESSAGES)))
        verdict = (
            f"{(held - ready) / 1e6:+.1f} MB over ready, {(held - empty) / 1e6:+.1f} MB over "
            f"empty, of which {STUCK_MESSAGES * body_bytes / 1e6:.1f} MB are bodies"
        )
        return _outcome(f"{queue} unacked", STUCK_MESSAGES, began, peak, verdict, body_bytes)


def _outcome(
    scenario: str,
    published: int,
    began: float,
    peak: Peak,
    verdict: str,
    body_bytes: int = BODY_BYTES,
) -> Outcome:
    return Outcome(
        scenario=scenario,
        published=published,
        published_mb=published * body_bytes / 1e6,
        seconds=time.monotonic() - began,
        peak_rss_mb=peak.stop(),
        verdict=verdict,
    )


def _processes(broker: Broker) -> ProcessTree:
    if broker.processes is None:
        raise BrokerError(f"cannot see the process of {broker.name}")
    return broker.processes


def _peak(broker: Broker) -> Peak:
    return Peak(_processes(broker))


def _scenarios(options: argparse.Namespace) -> dict[str, Callable[[Broker], Outcome]]:
    return {
        "slow-transient": lambda broker: slow_consumer(broker, options, durable=False),
        "slow-durable": lambda broker: slow_consumer(broker, options, durable=True),
        "crowd-transient": lambda broker: crowd(broker, options, durable=False),
        "crowd-durable": lambda broker: crowd(broker, options, durable=True),
        "stuck-16": lambda broker: stuck_consumer(broker, options, body_bytes=16),
        "stuck-1024": lambda broker: stuck_consumer(broker, options, body_bytes=1024),
    }


def main() -> int:
    """Each scenario on a broker of its own; the exit status is 1 if any of them failed."""
    options = _parse()
    raise_file_limit(options.publishers + 10)
    outcomes: list[Outcome] = []
    failures = 0
    limit_words = ""
    for name, run in _scenarios(options).items():
        if options.only not in name:
            continue
        print(f"{name} …", file=sys.stderr)
        with _limited_broker(options.memory_mb * MIB) as (broker, words):
            limit_words = words
            try:
                outcomes.append(run(broker))
            except (BrokerError, OSError, psutil.NoSuchProcess) as error:
                failures += 1
                print(f"{name} failed: {error}", file=sys.stderr)
    _print(outcomes, options.memory_mb, limit_words)
    return 1 if failures else 0


@contextmanager
def _limited_broker(limit_bytes: int) -> Iterator[tuple[Broker, str]]:
    with (
        memory_limit(limit_bytes) as limit,
        brokers.leveret(prefix=limit.prefix, flags=limit.flags) as broker,
    ):
        yield broker, limit.words


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pressure", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only scenarios so named")
    parser.add_argument("--memory-mb", type=int, default=512, help="the broker's memory limit")
    parser.add_argument("--seconds", type=float, default=20.0, help="of publishing at full speed")
    parser.add_argument("--slow-rate", type=float, default=1000.0, help="acks a second meanwhile")
    parser.add_argument("--publishers", type=int, default=500)
    parser.add_argument("--each", type=int, default=2000, help="messages of each of them")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for a phase")
    return parser.parse_args()


def _print(outcomes: list[Outcome], memory_mb: int, limit_words: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    table = Table(title=f"{memory_mb} MiB of memory ({limit_words}), bodies of 1 KB", box=None)
    for heading in ("scenario", "messages", "MB", "seconds", "peak RSS MB", "outcome"):
        table.add_column(heading, justify="left" if heading in ("scenario", "outcome") else "right")
    for one in outcomes:
        table.add_row(
            one.scenario,
            f"{one.published:,}",
            f"{one.published_mb:,.0f}",
            f"{one.seconds:.1f}",
            f"{one.peak_rss_mb:,.0f}",
            one.verdict,
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
