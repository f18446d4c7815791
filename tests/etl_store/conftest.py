"""One PostgreSQL server, and stores in it and in SQLite, for the tests of the ETL's operations."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.etl.store import Store
from tests.support.postgres import PostgresServer

HERE = Path(__file__).parent
TIMEOUT_S = 300  # a test's own; the first one may start a JVM
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.leveret_only)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
    items.sort(key=lambda item: HERE in item.path.parents and "spark" in item.fixturenames)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of a schema of the test's own."""
    return postgres.new_schema(f"test{next(_numbers)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'etl.db'}"
    return request.getfixturevalue("database")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as store:
        yield store


@pytest.fixture
def local_store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'etl.db'}") as store:
        yield store
