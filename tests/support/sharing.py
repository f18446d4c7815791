"""Which worker of pytest-xdist runs which tests, and in what order."""

from pathlib import PurePosixPath

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK = "spark"
CONSOLE = "tests/console/*"
# Of these directories Spark's session is used; not of files that start another, or none.
WITH_SPARK = ("tests/spark/*", "tests/etl/*", "tests/etl_store/test_postgres_*")
WITHOUT = ("tests/spark/test_examples.py", "tests/spark/test_fork_server.py")
# What takes longest goes first, so that nobody is left with it when the others are done.
LONG = (
    *WITHOUT,
    "tests/cluster/*",
    "tests/durability/*",
    "tests/cluster_simulation/*",
    "tests/simulation/*",
    "tests/commands/test_documentation.py",
    CONSOLE,
    "tests/registry/test_survival.py",
)


class Sharing(LoadFileScheduling):
    """Whole files go to a worker, as tests share fixtures; Spark and a browser to one."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def share_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    if _is_among(file, (CONSOLE,)):
        return CONSOLE
    return SPARK if _is_among(file, WITH_SPARK) and not _is_among(file, WITHOUT) else file


def put_in_order(items: list[pytest.Item]) -> None:
    for item in items:
        if SPARK in getattr(item, "fixturenames", ()) and share_of(item.nodeid) != SPARK:
            raise pytest.UsageError(f"{item.nodeid} would start another Spark: see {__name__}")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    share = share_of(item.nodeid)
    return 0 if share == SPARK else 1 if _is_among(share, LONG) else 2


def _is_among(file: str, patterns: tuple[str, ...]) -> bool:
    return any(PurePosixPath(file).match(pattern) for pattern in patterns)
