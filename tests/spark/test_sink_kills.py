"""Drivers and brokers that are killed while a query runs: no row is lost, none is there twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from clients.streams import StreamClient, connect
from tests.spark.writing import copying, count, fill, run_copy, values
from tests.support.ports import free_ports
from tests.support.process import ROOT, TRACEBACK, BrokerProcess
from tests.support.scene import Scene
from tests.support.streams import declare_stream
from tests.support.waiting import eventually
from tests.support.wire import WireChannel

ROWS = 3000  # several batches
DRIVER_DEADLINE_S = 240


@pytest.fixture
def client(amqp_url: str) -> Iterator[StreamClient]:
    with connect(amqp_url) as client:
        yield client


def run_driver(url: str, streams: tuple[str, str], directory: Path, moment: str, batch: int) -> int:
    """Its exit code; whatever it started is over, too."""
    command = [sys.executable, "-m", "tests.spark.killed_driver", url, *streams]
    command += [str(directory), moment, str(batch)]
    log = directory / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(DRIVER_DEADLINE_S)
    finally:
        end_session(process)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """The session is the process's own, so nobody else is in it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def noted(directory: Path) -> set[int]:
    """Batches that the checkpoint knows to be done."""
    names = (path.name for path in (directory / "checkpoint" / "commits").iterdir())
    return {int(name) for name in names if name.isdigit()}


@pytest.mark.timeout(900)  # four times as long as it takes where everything is slow
def test_a_driver_that_is_killed_around_its_commits_writes_every_row_once(
    spark: SparkSession,
    amqp_url: str,
    client: StreamClient,
    scene: Scene,
    channel: WireChannel,
    tmp_path: Path,
) -> None:
    source = declare_stream(scene, channel, partitions=2)
    target = declare_stream(scene, channel, partitions=3)
    fill(client, source, ROWS)
    written = 0
    for moment, batch in (("after", 1), ("before", 2)):
        assert run_driver(amqp_url, (source, target), tmp_path, moment, batch) != 0
        assert max(noted(tmp_path)) == batch - 1, (tmp_path / "log").read_text()
        before, written = written, count(client, target)
        assert (written > before) == (moment == "after")
        assert written < ROWS
    run_copy(spark, amqp_url, (source, target), tmp_path / "checkpoint")
    assert values(client, target) == list(range(ROWS))


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


def test_a_query_outlives_its_broker_and_its_result_is_exact(
    spark: SparkSession, restartable: Callable[[], BrokerProcess], tmp_path: Path
) -> None:
    broker = restartable()
    url = broker.amqp_url()
    scene = Scene(url)
    channel = scene.channel()
    source = declare_stream(scene, channel, partitions=2)
    target = declare_stream(scene, channel, partitions=3)
    with connect(url) as client:
        query = copying(spark, url, (source, target), tmp_path / "checkpoint").start()
        for kill in range(2):
            written = count(client, target)
            fill(client, source, ROWS, first=kill * ROWS)
            eventually(
                lambda written=written: count(client, target) > written,
                "a batch",
                within_s=DRIVER_DEADLINE_S,
            )
            broker.kill()
            broker = restartable()
        query.processAllAvailable()
        query.stop()
        assert values(client, target) == list(range(2 * ROWS))
