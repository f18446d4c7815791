"""Results as a table with ratios, and as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.idle import IdleResult
from benchmarks.measure import LoadResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Result = LoadResult | IdleResult

PIPED_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Column:
    """One measured number: which field, under which heading, printed how."""

    field: str
    heading: str
    form: str


LOAD_COLUMNS = (
    Column("received_per_s", "msg/s", ",.0f"),
    Column("confirmed_per_s", "confirms/s", ",.0f"),
    Column("latency_p50_ms", "p50 ms", ",.2f"),
    Column("latency_p99_ms", "p99 ms", ",.2f"),
    Column("latency_p999_ms", "p99.9 ms", ",.2f"),
    Column("broker_us_per_message", "CPU µs", ",.2f"),
    Column("broker_rss_mb", "RSS MB", ",.0f"),
    Column("publisher_us_per_message", "pub µs", ",.2f"),
    Column("consumer_us_per_message", "con µs", ",.2f"),
)
IDLE_COLUMNS = (
    Column("connections", "connections", ",.0f"),
    Column("kb_per_connection", "KB/connection", ",.1f"),
    Column("cpu_percent", "CPU %", ",.2f"),
    Column("broker_rss_mb", "RSS MB", ",.0f"),
)
# What the generator itself used is no property of a broker.
_WITHOUT_RATIO = {"publisher_us_per_message", "consumer_us_per_message", "connections"}


def combine(runs: Sequence[Result]) -> Result:
    """The median of each number over repeated runs of one scenario on one broker."""
    first = runs[0]
    medians: dict[str, object] = {}
    for one in fields(first):
        values = [getattr(run, one.name) for run in runs]
        numeric = isinstance(values[0], int | float) and None not in values
        medians[one.name] = median(values) if numeric else values[0]
    return type(first)(**medians)  # type: ignore[arg-type]


def ratio(ours: Result, theirs: Result, field: str) -> float | None:
    """Ours over theirs, where both have the number."""
    over, under = getattr(ours, field), getattr(theirs, field)
    if field in _WITHOUT_RATIO or over is None or not under:
        return None
    return float(over / under)


def print_tables(results: Sequence[Result]) -> None:
    """A table of the idle scenarios and one of the loads, as far as there are any."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    idle = [one for one in results if isinstance(one, IdleResult)]
    loads = [one for one in results if isinstance(one, LoadResult)]
    for title, columns, rows in (("idle", IDLE_COLUMNS, idle), ("load", LOAD_COLUMNS, loads)):
        if rows:
            console.print(_table(title, columns, rows))


def _table(title: str, columns: Sequence[Column], results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("scenario", no_wrap=True)
    table.add_column("broker", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for scenario, by_broker in _by_scenario(results).items():
        label = scenario
        for broker, result in by_broker.items():
            table.add_row(label, broker, *(_cell(result, column) for column in columns))
            label = ""
        if ours_and_theirs := _pair(by_broker):
            cells = [_ratio_cell(*ours_and_theirs, column.field) for column in columns]
            table.add_row(label, "ratio", *cells, style="bold")
        table.add_section()
    return table


def _by_scenario(results: Sequence[Result]) -> dict[str, dict[str, Result]]:
    grouped: dict[str, dict[str, Result]] = {}
    for one in results:
        grouped.setdefault(one.scenario, {})[one.broker] = one
    return grouped


def _pair(by_broker: dict[str, Result]) -> tuple[Result, Result] | None:
    if by_broker.keys() >= {"leveret", "rabbitmq"}:
        return by_broker["leveret"], by_broker["rabbitmq"]
    return None


def _cell(result: Result, column: Column) -> str:
    value = getattr(result, column.field)
    return "-" if value is None else format(value, column.form)


def _ratio_cell(ours: Result, theirs: Result, field: str) -> str:
    value = ratio(ours, theirs, field)
    return "" if value is None else f"{value:.2f}x"


def write_json(path: Path, results: Sequence[Result], *, seconds: float, repeat: int) -> None:
    """All numbers, the ratios, and what they were measured on."""
    ratios = {
        scenario: {
            column.field: value
            for column in (*IDLE_COLUMNS, *LOAD_COLUMNS)
            if hasattr(pair[0], column.field) and (value := ratio(*pair, column.field)) is not None
        }
        for scenario, by_broker in _by_scenario(results).items()
        if (pair := _pair(by_broker))
    }
    document = {
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "seconds": seconds,
        "repeat": repeat,
        "results": [asdict(one) for one in results],
        "ratios_leveret_over_rabbitmq": ratios,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
