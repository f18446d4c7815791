"""What pipelines do on this machine, broker and Spark beside each other.

    python -m benchmarks.etl [--events 1000000] [--only stateless,stateful,recovery]

`stateless`: JSON read, checked, filtered and written as JSON, exactly once. `stateful`: the demo's
pipeline, with a join of two streams, a table and windows. Both read what is there already, in
batches of the default size; the first run warms the JVM and is not counted. Rates are from the
start of the first batch to the end, and from the start of the query. `recovery`: a pipeline
in a process of its own is killed (SIGKILL) and started again, until its first batch is done; what
is told is the median of three. Nothing of an earlier benchmark's archive of classes is used.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import brokers
from clients.streams import connect
from spark.etl import Pipeline, class_archive
from spark.etl.demo_data import Shop
from spark.etl.demo_pipeline import demo_values
from spark.etl.demo_streams import append, declare
from spark.etl.local_spark import start_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.etl.events import Event

STRETCH_MS: Final = 250
EVENTS_PER_S: Final = 20_000  # of event time
START_MS: Final = 1_790_000_000_000
TURNS: Final = 3  # that count, of which the best is told
BUDGETS: Final = {
    "stateless": "80,000 events/s",
    "stateful": "20,000 events/s",
    "recovery": "30 s",
}


def fill(url: str, prefix: str, events: int, now_ms: int = START_MS) -> int:
    """How many there are."""
    shop = Shop()
    with connect(url) as client:
        append(client, f"{prefix}users", shop.all_users())
        while shop.made < events:
            made = shop.stretch(now_ms, STRETCH_MS, EVENTS_PER_S * STRETCH_MS // 1000)
            for kind, some in made.items():
                append(client, prefix + kind, some)
            now_ms += STRETCH_MS
    return shop.made


def stateless_values(url: str, directory: Path, prefix: str) -> dict[str, Any]:
    values = demo_values(url, directory, prefix)
    values["sources"] = {"impressions": values["sources"]["impressions"]}
    values["steps"] = [
        {"name": "some", "kind": "filter", "input": "impressions", "where": "page <> '/'"},
        {
            "name": "short",
            "kind": "select",
            "input": "some",
            "columns": {"ad": "ad", "user": "upper(user)", "page": "page", "shown": "shown"},
        },
    ]
    values["sinks"] = [
        {
            "kind": "stream",
            "name": "out",
            "input": "short",
            "topic": f"{prefix}out{directory.name}",
            "key": "ad",
            "partitions": 2,
        }
    ]
    return values


@dataclass
class Run:
    """A pipeline over all that is there: from its start, and from the start of its first batch."""

    started: float
    first: float | None = None
    ended: float = 0.0

    def listen(self, event: Event) -> None:
        if event.text:
            print(f"{event.query} {event.kind}: {event.text}", file=sys.stderr)
        if event.batch is not None and self.first is None:
            self.first = time.perf_counter() - event.batch.took_ms / 1000

    @property
    def whole_s(self) -> float:
        return self.ended - self.started

    @property
    def batches_s(self) -> float:
        assert self.first is not None
        return self.ended - self.first


def timed(values: dict[str, Any], spark: SparkSession) -> Run:
    run = Run(time.perf_counter())
    Pipeline.from_dict(values).run(spark, once=True, listener=run.listen)
    run.ended = time.perf_counter()
    return run


def rate(kind: str, url: str, home: Path, events: int, spark: SparkSession) -> str:
    prefix = f"bench.{kind}."
    declare(url, prefix)
    made = fill(url, prefix, events)
    if kind == "stateless":
        made = sum(each.next_offset for each in _partitions(url, f"{prefix}impressions"))
    make = stateless_values if kind == "stateless" else demo_values
    best = (0.0, 0.0)
    for turn in range(1 + TURNS):
        directory = home / f"{kind}{turn}"
        directory.mkdir()
        run = timed(make(url, directory, prefix), spark)
        print(
            f"{kind} {turn}: {made:,} events in {run.whole_s:.1f} s, "
            f"{run.batches_s:.1f} s from the first batch on",
            file=sys.stderr,
        )
        if turn:
            best = max(best, (made / run.batches_s, made / run.whole_s))
    return f"{best[0]:,.0f} events/s, {best[1]:,.0f} with the start of the query"


def _partitions(url: str, stream: str) -> Any:
    with connect(url) as client:
        return client.metadata(stream)[stream]


def recovery(url: str, home: Path) -> float:
    """Seconds from the start of a process after a kill to its first batch, in the median."""
    prefix, directory = "bench.recovery.", home / "recovery"
    declare(url, prefix)
    directory.mkdir()
    fill(url, prefix, 200_000)
    values = demo_values(url, directory, prefix)
    values["limits"] = {"max_offsets_per_trigger": 10_000}
    file = directory / "pipeline.json"
    file.write_text(json.dumps(values))
    print(f"first start: {_until_batches(directory, 6):.1f} s to six batches", file=sys.stderr)
    took = []
    for turn in range(1, 1 + TURNS):
        fill(url, prefix, 50_000, START_MS + turn * 60_000)
        took.append(_until_batches(directory, 1))
    print(f"recoveries: {', '.join(f'{each:.1f} s' for each in took)}", file=sys.stderr)
    return statistics.median(took)


def _until_batches(directory: Path, count: int) -> float:
    """Run it, and kill it after so many, once it has its archive of classes, as a pipeline that
    has run for a few minutes does; the time until the last of these batches."""
    archive = class_archive.find()
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.etl", "--run", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if json.loads(line)["event"] == "batch":
                count -= 1
                if not count:
                    break
        took = time.perf_counter() - started
        threading.Thread(target=process.stdout.read, daemon=True).start()
        while archive is not None and not archive.is_made and process.poll() is None:
            time.sleep(0.2)
        return took
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_one(directory: Path) -> None:
    """The process that is killed."""
    values = json.loads((directory / "pipeline.json").read_text())

    def listen(event: Event) -> None:
        print(json.dumps({"event": event.kind, "query": event.query}), flush=True)

    Pipeline.from_dict(values).run(listener=listen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", default="stateless,stateful,recovery")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        run_one(options.run)
        return
    table = Table("work", "measured", "asked")
    with (
        tempfile.TemporaryDirectory(prefix="leveret-bench-") as directory,
        brokers.leveret() as broker,
    ):
        home, chosen = Path(directory), options.only.split(",")
        os.environ[class_archive.PLACE] = str(home / "classes")
        if "recovery" in chosen:
            table.add_row("recovery", f"{recovery(broker.url, home):.1f} s", BUDGETS["recovery"])
        kinds = [kind for kind in ("stateless", "stateful") if kind in chosen]
        if kinds:
            spec = Pipeline.from_dict(demo_values(broker.url, home, "x.")).spec
            spark = start_local(spec)
            for kind in kinds:
                found = rate(kind, broker.url, home, options.events, spark)
                table.add_row(kind, found, BUDGETS[kind])
            spark.stop()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
