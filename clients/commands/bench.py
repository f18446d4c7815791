"""`leveret bench`: how much a broker takes and gives, and how long a message is on its way."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, Final

import click
import trio
from rich.table import Table

from broker.command_output import print_json, print_table
from clients.amqp_url import Target
from clients.commands.connecting import amqp_options
from clients.commands.load import QUEUES, SIZE_MIN, Load, Plan
from clients.commands.progress import progress
from clients.commands.running import InterruptedByUserError, run_until_done
from clients.trio_background import in_background

SIZE_MAX: Final = 16 * 1024 * 1024
PERCENTILES: Final = (50, 95, 99, 99.9)
MB: Final = 1_000_000


def _number(
    flag: str, default: int, least: int, text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    kind = click.IntRange(min=least)
    return click.option(flag, type=kind, default=default, show_default=True, help=text)


@click.command()
@click.option(
    "--type",
    "queue_type",
    type=click.Choice(list(QUEUES)),
    default="quorum",
    show_default=True,
    help="Of the queues.",
)
@_number("--queues", 1, 1, "How many; they are made for this and deleted in the end.")
@_number("--publishers", 1, 1, "Each with a connection of its own.")
@_number("--consumers", 1, 0, "Each with a connection of its own.")
@click.option(
    "--size",
    type=click.IntRange(SIZE_MIN, SIZE_MAX),
    default=1024,
    show_default=True,
    help="Bytes of a body.",
)
@_number("--window", 1000, 1, "Unconfirmed messages of a publisher.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, 65535),
    default=500,
    show_default=True,
    help="Unacked messages of a consumer.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long to publish.",
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Messages a second, of all publishers."
)
@click.option("--confirm/--no-confirm", default=True, show_default=True, help="Publisher confirms.")
@click.option("--ack/--no-ack", default=True, show_default=True, help="Acks of the consumers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@amqp_options
def bench(target: Target, *, as_json: bool, **options: Any) -> None:
    """Publish and consume as fast as it goes, or at a --rate, and measure.

    Latency is from before the publish to the delivery. At full speed that is mostly waiting in
    line: measure it at a rate that the broker bears.
    """
    run = _Run(target, Plan(**options))
    done = run_until_done(run.run)
    if run.load.published_s:
        result = run.result()
        print_json(result) if as_json else _print(result)
    if not done:
        raise InterruptedByUserError("the figures are of what was done so far")


class _Run:
    """A load, watched."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self.load = Load(target, plan)
        self._plan = plan
        self._intervals: list[dict[str, int]] = []
        self._cpu_s = self._wall_s = 0.0

    async def run(self, stop: trio.Event) -> None:
        """Raises one ClickException, of however many."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        try:
            with progress("seconds", max(1, round(self._plan.seconds))) as tell:

                async def watch() -> None:
                    await self._watch(tell)

                async with in_background(watch):
                    await self.load.run(stop)
        except BaseExceptionGroup as group:
            failures = group.subgroup(click.ClickException)
            if failures is None:
                raise
            raise _first(failures) from None
        finally:
            self._cpu_s = time.process_time() - cpu_s
            self._wall_s = time.perf_counter() - wall_s

    async def _watch(self, tell: Callable[[int, str], None]) -> None:
        """What happens in each second."""
        counts = self.load.counts
        names = ("published", "confirmed", "consumed")
        before = dict.fromkeys(names, 0)
        async for second in _seconds():
            now = {name: getattr(counts, name) for name in names}
            self._intervals.append({name: now[name] - before[name] for name in names})
            before = now
            last = self._intervals[-1]
            tell(second, f"{last['published']:,}/s out, {last['consumed']:,}/s in")

    def result(self) -> dict[str, Any]:
        load, counts, plan = self.load, self.load.counts, self._plan
        found: dict[str, Any] = {"plan": asdict(plan)}
        spans = {
            "published": load.published_s,
            "confirmed": load.published_s,
            "consumed": load.consumed_s,
        }
        for name, seconds in spans.items():
            count = getattr(counts, name)
            per_s = count / seconds if seconds else 0.0
            found[name] = {
                "messages": count,
                "per_second": round(per_s, 1),
                "mb_per_second": round(per_s * plan.size / MB, 3),
            }
        latencies = counts.latencies
        found["latency_ms"] = {
            **{f"p{each}": _ms(latencies.percentile_s(each)) for each in PERCENTILES},
            "max": _ms(latencies.most_s),
        }
        found["missing"] = max(0, load.expected - counts.consumed)
        # Where this is near one, it was this command that was measured.
        found["generator_cpu"] = round(self._cpu_s / self._wall_s, 2)
        found["intervals"] = self._intervals
        return found


async def _seconds() -> AsyncIterator[int]:
    start = trio.current_time()
    second = 0
    while True:
        second += 1
        await trio.sleep_until(start + second)
        yield second


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _print(result: dict[str, Any]) -> None:
    rates = Table("", "messages", "per second", "MB/s")
    for name in ("published", "confirmed", "consumed"):
        found = result[name]
        cells = (found["messages"], found["per_second"], found["mb_per_second"])
        rates.add_row(name, *(f"{cell:,}" for cell in cells))
    print_table(rates)
    if result["consumed"]["messages"]:
        latency = Table("latency", *result["latency_ms"])
        latency.add_row("ms", *(f"{each:,}" for each in result["latency_ms"].values()))
        print_table(latency)
    if result["missing"]:
        click.echo(f"{result['missing']:,} messages did not come", err=True)
    click.echo(f"this command used {result['generator_cpu']:.0%} of a core", err=True)
