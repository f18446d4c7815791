"""A PostgreSQL server that refuses is told at once; one that is away is waited for until a stop."""

import threading
import time

import psycopg
import pytest

from spark.etl.postgres_refusals import is_refusal
from spark.etl.postgres_sink import PostgresSink
from spark.etl.store_errors import DisconnectedError, SinkError
from tests.support.waiting import eventually

NOBODY = "postgresql://postgres@127.0.0.1:1/postgres"


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('connection to server failed: FATAL:  database "shop" does not exist', True),
        ('FATAL:  password authentication failed for user "etl"', True),
        ("fe_sendauth: no password supplied", True),
        ('FATAL:  role "etl" does not exist', True),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "etl"', True),
        ("connection refused", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  the database system is shutting down", False),
        ("FATAL:  sorry, too many clients already", False),
        ("server closed the connection unexpectedly", False),
        ("could not translate host name to address", False),
    ],
)
def test_what_a_server_says_is_a_refusal_or_passes(said: str, refused: bool) -> None:
    assert is_refusal(psycopg.OperationalError(said)) is refused


@pytest.fixture
def login(postgres):
    """A user of the test's own, who may log in and no more."""
    with postgres.connect() as connection:
        connection.execute("CREATE ROLE visitor LOGIN")
        connection.execute("CREATE TABLE guarded (number int)")
    yield postgres.url.replace("postgres@", "visitor@")
    with postgres.connect() as connection:
        connection.execute("DROP OWNED BY visitor; DROP ROLE visitor; DROP TABLE guarded")


def test_a_refusal_ends_the_batch_at_once(spark, postgres, login) -> None:
    frame = spark.range(3).selectExpr("cast(id as int) number")
    nowhere = postgres.url.removesuffix("/postgres") + "/nowhere"
    nobody = postgres.url.replace("postgres@", "nobody@")
    for url, said in (
        (nowhere, 'database "nowhere" does not exist'),
        (nobody, 'role "nobody" does not exist'),
        (login, "permission denied"),
    ):
        waits: list[str] = []
        sink = PostgresSink(url, "guarded", waiting=waits.append)
        began = time.monotonic()
        with pytest.raises(SinkError, match=said) as error:
            sink.write(frame, 0, "job", {})
        assert "\n" not in str(error.value)
        assert time.monotonic() - began < 10
        assert waits == []
        sink.close()


def test_a_wait_is_told_once_and_ends_with_a_stop(spark) -> None:
    stop, waits = threading.Event(), []
    sink = PostgresSink(NOBODY, "copied", stop=stop, waiting=waits.append)
    raised = []

    def write() -> None:
        try:
            sink.write(spark.range(3).selectExpr("cast(id as int) number"), 7, "job", {})
        except DisconnectedError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: waits, "a wait that is told")
    time.sleep(1)  # in which it tries again
    stop.set()
    thread.join(2)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert len(waits) == 1
    assert "job job tries batch 7 again: " in waits[0]


def test_rows_that_cannot_be_there_are_told_with_column_and_offsets(spark, database) -> None:
    before, after = {"orders": {0: 10, 1: 5}}, {"orders": {0: 12, 1: 5}}
    rows = spark.createDataFrame([("a", "x"), (None, "y")], "k string, v string")
    sink = PostgresSink(database, "latest", "upsert", ("k",))
    assert sink.write(rows.limit(1), 0, "job", before)
    with pytest.raises(SinkError) as error:
        sink.write(rows, 1, "job", after)
    assert str(error.value) == (
        "table latest: column 'k' is null in some rows, and it is among the keys: a step of kind "
        "validate with required = ['k'] keeps such rows out "
        "(batch 1: orders partition 0 from offset 10 to 12)"
    )
    zero = spark.createDataFrame([("a\0b", "x")], "k string, v string")
    with pytest.raises(SinkError, match=r"column 'k' has a text with a zero byte.*offset 10 to 12"):
        sink.write(zero, 1, "job", after)
    sink.close()
