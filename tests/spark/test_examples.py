"""The example programs for Spark, run as their readers would run them, only started faster."""

from pathlib import Path

import pytest

from spark.fork_keeper import start_fork_server
from tests.examples.page import SESSIONS, run
from tests.spark.session import SETTINGS, spark_home
from tests.support.process import BrokerProcess

DEADLINE_S = 280  # a JVM takes its time where others are at work


@pytest.fixture
def quick_spark(tmp_path: Path) -> dict[str, str]:
    """An environment in which a program's own session has the settings of these tests."""
    settings = [
        f'--conf "{name}={text.format(directory=tmp_path)}"' for name, text in SETTINGS.items()
    ]
    return {
        "PYSPARK_SUBMIT_ARGS": " ".join([*settings, "pyspark-shell"]),
        "SPARK_HOME": str(spark_home(tmp_path)),
        "PYSPARK_PYTHON": str(start_fork_server()),
    }


def stripped(output: str) -> list[str]:
    return [line.rstrip() for line in output.strip().splitlines()]


def test_words_are_counted(broker: BrokerProcess, quick_spark: dict[str, str]) -> None:
    name = "spark_wordcount.py"
    output = run(broker, name, deadline_s=DEADLINE_S, **quick_spark)
    assert stripped(output) == stripped(SESSIONS[name].output)


def test_orders_are_added_up_and_plotted(
    broker: BrokerProcess, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    name, picture = "spark_orders.py", tmp_path / "orders.svg"
    output = run(broker, name, "--svg", str(picture), deadline_s=DEADLINE_S, **quick_spark)
    assert stripped(output) == stripped(SESSIONS[name].output)
    svg = picture.read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "36,723" in svg
