"""Drivers and brokers that are killed while a pipeline runs: its results are exact all the same."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from clients.streams import StreamClient
from spark.etl import demo_streams
from spark.etl.dead_letters import dlq_of
from spark.etl.demo_data import Event as DemoEvent
from spark.etl.demo_data import Shop as DemoShop
from spark.etl.demo_pipeline import demo_values
from tests.etl.faker_data import END, OPENING, Shop, moment_of, text_of
from tests.etl.scene import PipelineScene, ordered, running
from tests.spark.test_sink_kills import DRIVER_DEADLINE_S, end_session
from tests.support.ports import free_ports
from tests.support.process import ROOT, TRACEBACK, BrokerProcess

LAST = {"id": -1, "user": "end", "cents": 1, "at": text_of(OPENING + END)}
BAD = 30


def pipeline_values(etl: PipelineScene, source: str, target: str) -> dict[str, Any]:
    """Sums of windows, whose state a restart must bring back, and dead letters beside them."""
    return {
        "pipeline": {
            "name": "killed",
            "broker": etl.url,
            "checkpoint": "checkpoint",
            "store": f"sqlite:///{etl.directory / 'etl.db'}",
            "broker_timeout": "5s",
            "trigger": "100ms",
        },
        "limits": {"max_offsets_per_trigger": 150},
        "sources": {
            "orders": {
                "topic": source,
                "schema": "id bigint, user string, cents bigint, at timestamp",
                "event_time": "at",
                "watermark": "20 minutes",
                "check": {"price": "cents > 0"},
            }
        },
        "steps": [
            {
                "name": "sums",
                "kind": "window",
                "input": "orders",
                "size": "10 minutes",
                "by": ["user"],
                "aggregates": {"cents": "sum(cents)"},
            }
        ],
        "sinks": [{"kind": "stream", "name": "out", "input": "sums", "topic": target}],
    }


def fill(etl: PipelineScene, source: str, orders: list[Any]) -> None:
    """In the order of their times, as far as partitions go; bad ones between them."""
    by_time = sorted(orders, key=lambda order: order["at"])
    every = len(by_time) // BAD
    for place in range(BAD):
        by_time[place * every] = by_time[place * every] | {"cents": 0}
    orders[:] = [order for order in by_time if order["cents"]]
    etl.fill(source, by_time, key="user")


def expected(orders: list[Any]) -> list[Any]:
    sums: Counter[tuple[str, str]] = Counter()
    for order in orders:
        moment = moment_of(order["at"])
        start = moment - (moment - OPENING) % timedelta(minutes=10)
        sums[text_of(start), order["user"]] += order["cents"]
    return [
        {
            "window_start": start,
            "window_end": text_of(moment_of(start) + timedelta(minutes=10)),
            "user": user,
            "cents": cents,
        }
        for (start, user), cents in sums.items()
    ]


def run_and_kill(etl: PipelineScene, values: dict[str, Any], batches: int) -> None:
    """In a process of its own, whose driver is killed behind so many batches."""
    (etl.directory / "pipeline.json").write_text(json.dumps(values))
    log = etl.directory / "log"
    command = [sys.executable, "-m", "tests.etl.killed_pipeline", str(etl.directory), str(batches)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        assert process.wait(DRIVER_DEADLINE_S) == 9, log.read_text()
    finally:
        end_session(process)


@pytest.mark.timeout(900)  # four times as long as it takes where everything is slow
def test_a_driver_that_is_killed_has_written_everything_once(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    orders = Shop().orders(1500)
    fill(etl, source, orders)
    etl.fill(source, [LAST], key="user")
    values = pipeline_values(etl, source, target)
    run_and_kill(etl, values, 4)
    assert len(etl.letters(source)) < BAD
    etl.run(etl.pipeline_of(values))
    assert ordered(etl.rows(target)) == ordered(expected(orders))
    letters = [
        (each.headers["x-etl-partition"], each.headers["x-etl-offset"])
        for each in etl.letters(source)
    ]
    assert len(letters) == len(set(letters)) == BAD


# The demo's pipeline: two streams joined, a table looked up, windows behind both

STRETCHES, STRETCH_MS, EVENTS = 40, 1000, 200
START_MS = int(OPENING.timestamp() * 1000)
LONG_AFTER = text_of(OPENING + END)


class DemoEvents:
    """What the demo's shop made, and what must come of it."""

    def __init__(self, client: StreamClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self.shop = DemoShop()
        self._by_kind: dict[str, list[bytes]] = defaultdict(list)
        self._append("users", self.shop.all_users())
        for number in range(STRETCHES):
            start_ms = START_MS + number * STRETCH_MS
            for kind, some in self.shop.stretch(start_ms, STRETCH_MS, EVENTS).items():
                self._append(kind, some)

    def _append(self, kind: str, some: list[DemoEvent]) -> None:
        demo_streams.append(self._client, self._prefix + kind, some)
        self._by_kind[kind] += [event.value for event in some]

    def end(self) -> None:
        """Lets the watermarks pass everything else."""
        last = {
            "impressions": {"ad": "end", "page": "end", "shown": LONG_AFTER},
            "clicks": {"ad": "end", "clicked": LONG_AFTER},
            "orders": {"id": 0, "user": "end", "cents": 1, "at": LONG_AFTER},
        }
        for kind, row in last.items():
            event = DemoEvent(b"end", json.dumps(row).encode())
            demo_streams.append(self._client, self._prefix + kind, [event])

    def clicks_by_page(self) -> list[Any]:
        shown = {row["ad"]: row for row in map(json.loads, self._by_kind["impressions"])}
        counts: Counter[tuple[str, str]] = Counter()
        for click in map(json.loads, self._by_kind["clicks"]):
            seen = shown[click["ad"]]
            after = moment_of(click["clicked"]) - moment_of(seen["shown"])
            assert timedelta(0) <= after <= timedelta(seconds=5)
            counts[_five_seconds(seen["shown"]), seen["page"]] += 1
        return [
            {**_window(start), "page": page, "clicks": count}
            for (start, page), count in counts.items()
        ]

    def revenue(self) -> list[Any]:
        countries = {row["user"]: row["country"] for row in map(json.loads, self._by_kind["users"])}
        cents: dict[tuple[str, str], list[int]] = defaultdict(list)
        for value in self._by_kind["orders"]:
            order = json.loads(value) if value.endswith(b"}") else {"cents": 0}
            if order["cents"] > 0:
                place = _five_seconds(order["at"]), countries[order["user"]]
                cents[place].append(order["cents"])
        return [
            {**_window(start), "country": country, "orders": len(some), "euros": sum(some) / 100}
            for (start, country), some in cents.items()
        ]


def _five_seconds(text: str) -> str:
    moment = moment_of(text)
    return text_of(moment - (moment - OPENING) % timedelta(seconds=5))


def _window(start: str) -> dict[str, str]:
    end = text_of(moment_of(start) + timedelta(seconds=5))
    return {"window_start": start, "window_end": end}


@pytest.mark.timeout(900)
def test_the_demos_totals_are_exact_when_its_driver_is_killed(etl: PipelineScene) -> None:
    prefix = f"killed-{etl.directory.name}."
    demo_streams.declare(etl.url, prefix)
    targets = [f"{prefix}clicks-by-page", f"{prefix}revenue"]
    try:
        events = DemoEvents(etl.client, prefix)
        values = demo_values(etl.url, etl.directory, prefix)
        for name in ("impressions", "clicks", "orders"):
            values["sources"][name]["watermark"] = "1 minute"  # all of it is there at once
        values["limits"] = {"max_offsets_per_trigger": 1000}
        run_and_kill(etl, values, 3)
        assert not etl.rows(targets[0])  # what they hold is in state, which the next run needs
        events.end()
        etl.run(etl.pipeline_of(values))
        by_page, revenue = (
            [row for row in etl.rows(target) if "end" not in row.values()] for target in targets
        )
        assert ordered(by_page) == ordered(events.clicks_by_page())
        assert ordered(row for row in revenue if row["country"]) == ordered(events.revenue())
        assert 0 < events.shop.bad == len(etl.letters(f"{prefix}orders"))
    finally:
        sources = [prefix + name for name in demo_streams.SOURCES]
        demo_streams.delete(etl.url, *targets, *sources, *map(dlq_of, sources))


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """A broker of the test's own, always on the same port, with the same data."""
    (port,) = free_ports(1)
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "broker", "--amqp-port", str(port)))
        return started[-1]

    yield start
    for process in started:
        if process.alive:
            assert process.stop() == 0, process.log_text()
        assert TRACEBACK not in process.log_text(), process.log_text()


@pytest.mark.timeout(900)
def test_a_pipeline_waits_for_its_broker_and_goes_on(
    spark: SparkSession, restartable: Callable[[], BrokerProcess], tmp_path: Path
) -> None:
    """The broker is killed, stays away until the query gave up, and comes back."""
    broker = restartable()
    etl = PipelineScene(broker.amqp_url(), spark, tmp_path)
    source, target = etl.declare(), etl.target()
    orders = Shop().orders(600)
    values = pipeline_values(etl, source, target)
    kinds: list[str] = []
    pipeline = etl.pipeline_of(values)
    with running(etl, pipeline, lambda event: kinds.append(event.kind)) as wait:
        fill(etl, source, orders)
        wait(lambda: "batch" in kinds, "a batch")
        broker.kill()
        wait(lambda: "paused" in kinds, "a pause")
        restartable()
        wait(lambda: "resumed" in kinds, "it goes on")
        etl.fill(source, [LAST], key="user")
        wanted = len(expected(orders))
        wait(lambda: len(etl.records(target)) >= wanted, "results")
    assert ordered(etl.rows(target)) == ordered(expected(orders))
    assert len(etl.letters(source)) == BAD
    etl.client.close()
