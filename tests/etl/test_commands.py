"""`leveret etl` as people use it, in processes of its own; and what it says when it cannot."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import leveret
from clients import cli
from clients.amqp_url import Endpoint
from spark.etl import PipelineError
from spark.etl.events import Batch, Event, batch_of
from spark.etl.report import Chart, html, rates
from spark.etl.terminal import LiveView, line_of
from tests.etl.scene import PipelineScene
from tests.spark.session import SETTINGS, spark_home
from tests.spark.test_sink_kills import DRIVER_DEADLINE_S, end_session
from tests.support.process import ROOT, clean_environment

assert cli  # it adds the commands

FILE = """
[pipeline]
name = "copy"
broker = "{url}"
checkpoint = "checkpoint"
store = "sqlite:///{directory}/etl.db"
trigger = "100ms"
[spark]
{settings}
[sources.orders]
topic = "{source}"
schema = "id bigint"
[[sinks]]
kind = "stream"
name = "out"
input = "orders"
topic = "{target}"
"""


def leveret_etl(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(leveret, ["etl", *arguments])
    return result.exit_code, result.output


def test_a_file_is_checked_without_spark(tmp_path: Path) -> None:
    file = str(ROOT / "examples" / "etl" / "shop.toml")
    code, output = leveret_etl("validate", "--quick", file)
    assert (code, output) == (0, f"{file}: pipeline shop is fine: 4 sources, 4 steps, 2 sinks\n")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[pipeline]\n")
    code, output = leveret_etl("validate", str(wrong))
    assert code == 1
    assert output == f"Error: {wrong}: [pipeline] name: it is missing\n"


def test_without_spark_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.commands.etl.MODULE", "pyspark_that_is_not_there")
    code, output = leveret_etl("run", "x.toml")
    assert code == 1
    assert "pip install 'leveret[spark]'" in output


def test_explain_says_what_will_happen(etl: PipelineScene) -> None:
    code, output = leveret_etl("explain", str(ROOT / "examples" / "etl" / "shop.toml"))
    assert code == 0, output
    for line in (
        "source users (table of shop.users, json)",
        "    clicks: bigint",
        "  keeps: rows of both sides, until the watermark (5 seconds behind) has passed",
        "sink revenue (append rows of revenue to stream shop.revenue)",
        "  exactly once: what a batch writes is one transaction of the broker",
        "  dead letters of orders: to shop.orders.dlq",
        "  Spark's plan:",
    ):
        assert line in output


@pytest.mark.timeout(900)
def test_run_ends_in_good_order_when_it_is_told_to(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    etl.fill(source, [{"id": n} for n in range(10)])
    settings = {**SETTINGS, "spark.master": "local[2,3]"}
    file = etl.directory / "copy.toml"
    file.write_text(
        FILE.format(
            url=etl.url,
            source=source,
            target=target,
            directory=etl.directory,
            settings="\n".join(
                f'"{name}" = "{text.format(directory=etl.directory)}"'
                for name, text in settings.items()
            ),
        )
    )
    environment = {"SPARK_HOME": str(spark_home(etl.directory)), "PYSPARK_PYTHON": sys.executable}
    with (etl.directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "clients.cli", "etl", "run", "--json", str(file)],
            cwd=ROOT,
            env=clean_environment(environment),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "batch":
                break
        os.kill(process.pid, signal.SIGTERM)
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait(DRIVER_DEADLINE_S) == 0, (etl.directory / "log").read_text()
    finally:
        end_session(process)
    assert rest[-1]["event"] == "stopped"
    assert sorted(row["id"] for row in etl.rows(target)) == list(range(10))


def test_the_demo_looks_where_all_commands_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And says no password when it finds nobody there."""
    asked: list[object] = []

    def nobody(endpoint: object) -> bool:
        asked.append(endpoint)
        return True

    def no_streams(url: str, *_: object) -> None:
        raise PipelineError(url)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spark.etl.demo._answers", nobody)
    monkeypatch.setattr("spark.etl.demo_streams.declare", no_streams)
    monkeypatch.setenv("AMQP_URL", "amqp://elsewhere:1")
    monkeypatch.setenv("LEVERET_AMQP_URL", "amqp://127.0.0.1:7")
    monkeypatch.setenv("LEVERET_USER", "ann")
    code, output = leveret_etl("demo", "--vhost", "v", "--password", "p")
    assert (code, output) == (1, "Error: amqp://ann:p@127.0.0.1:7/v\n")
    assert asked == [Endpoint("127.0.0.1", 7)]


# What is shown


def test_a_first_batch_has_the_records_that_it_read() -> None:
    """Spark does not say where it began, which with start = "latest" is at the end."""
    source = {"startOffset": None, "endOffset": {"a": {"0": 5000}}, "numInputRows": 0}
    progress: dict[str, Any] = {"batchId": 0, "durationMs": {}, "sources": [source]}
    assert batch_of(progress, 0).records == 0
    source["numInputRows"] = 30
    assert batch_of(progress, 0).records == 30
    source["numInputRows"] = 10_000  # a plan that reads everything twice
    assert batch_of(progress, 0).records == 5000
    source["startOffset"] = {"a": {"0": 4990}}
    assert batch_of(progress, 0).records == 10


BATCH = Batch(3, 1000, 2, 500, 70, 0, "", 0, 9_500_000)


def test_a_line_says_what_a_batch_was() -> None:
    line = line_of(Event("batch", "out", batch=BATCH))
    assert line.endswith(
        "out batch 3: 1,000 records in 500 ms (2,000/s), 2 dead letters, 70 behind"
    )
    assert line_of(Event("paused", "out", "no broker")).endswith("out paused: no broker")


def test_the_table_adds_up() -> None:
    view = LiveView("shop")
    view.listen(Event("started", "out"))
    for _ in range(2):
        view.listen(Event("batch", "out", batch=BATCH))
    cells = [list(column.cells) for column in view._table().columns]
    first = [each[0] for each in cells]
    assert first == ["out", "running", "3", "2,000", "2,000", "70", "4", "9.5"]


def test_a_report_is_html_that_nothing_can_break_out_of() -> None:
    chart = Chart("a & b", "rows", {"<x>": [(0, 1), (2, 5)], "one": [(1, 1)]})
    text = html("<demo>", {"bad": "<script>"}, [chart, Chart("empty", "")], {"t": [("a",), (1,)]})
    assert "<script>" not in text
    assert "&lt;demo&gt;" in text
    assert "<polyline" in text
    assert "<circle" in text
    assert rates([(0, 0), (2, 10), (2, 10), (3, 11)]) == [(2, 5), (3, 1)]
