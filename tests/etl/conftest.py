"""Tests of pipelines, beside those of Spark at the end: both use the same session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.etl.scene import PipelineScene
from tests.support.process import BrokerProcess

HERE = Path(__file__).parent
TIMEOUT_S = 300  # a test's own; the first one starts a JVM


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            item.add_marker(pytest.mark.leveret_only)
    items.sort(key=lambda item: HERE in item.path.parents and "spark" in item.fixturenames)


@pytest.fixture
def etl(broker: BrokerProcess, spark: SparkSession, tmp_path: Path) -> Iterator[PipelineScene]:
    """Streams and pipelines of one test at the shared broker."""
    found = PipelineScene(broker.amqp_url(), spark, tmp_path)
    yield found
    found.clean_up()
