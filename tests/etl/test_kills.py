"""Drivers and brokers that are killed while a pipeline runs: its results are exact all the same."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

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


@pytest.mark.timeout(900)  # four times as long as it takes where everything is slow
def test_a_driver_that_is_killed_has_written_everything_once(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    orders = Shop().orders(1500)
    fill(etl, source, orders)
    etl.fill(source, [LAST], key="user")
    values = pipeline_values(etl, source, target)
    (etl.directory / "pipeline.json").write_text(json.dumps(values))
    log = etl.directory / "log"
    command = [sys.executable, "-m", "tests.etl.killed_pipeline", str(etl.directory), "4"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        assert process.wait(DRIVER_DEADLINE_S) == 9, log.read_text()
    finally:
        end_session(process)
    assert len(etl.letters(source)) < BAD
    etl.run(etl.pipeline_of(values))
    assert ordered(etl.rows(target)) == ordered(expected(orders))
    letters = [
        (each.headers["x-etl-partition"], each.headers["x-etl-offset"])
        for each in etl.letters(source)
    ]
    assert len(letters) == len(set(letters)) == BAD


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
