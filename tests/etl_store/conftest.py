"""One PostgreSQL server, and stores in it and in SQLite, for the tests of the ETL's operations."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.etl.store import Store
from tests.support.postgres import PostgresServer

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.leveret_only)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of one of the test's own."""
    return postgres.new_database(f"test{next(_numbers)}")


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
