"""Tests of Spark come last: its session is by far what takes longest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.streams import Streams
from tests.support.process import BrokerProcess

HERE = Path(__file__).parent
TIMEOUT_S = 300  # a test's own; the first one starts a JVM


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        item.add_marker(pytest.mark.leveret_only)
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture
def streams(broker: BrokerProcess, spark: SparkSession) -> Iterator[Streams]:
    """Streams of one test at the shared broker."""
    found = Streams(broker.amqp_url(), spark)
    yield found
    found.clean_up()
