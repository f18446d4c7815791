"""Rows in PostgreSQL: each once, whoever is killed, and as they were."""

import datetime as dt
import json
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from clients.streams import connect
from spark.etl.postgres_sink import PostgresSink
from spark.etl.store import Store
from spark.etl.store_errors import DisconnectedError, FencedError, SinkError
from tests.etl_store.writing import BATCH, JOB, copy_stream, numbers, staging_tables
from tests.support.postgres import PostgresServer
from tests.support.process import ROOT
from tests.support.streams import declare_stream
from tests.support.waiting import eventually

ROWS = 1800
DRIVER_S = 400


@pytest.fixture
def tables(database):
    with psycopg.connect(libpq(database), autocommit=True) as connection:
        yield connection


def libpq(url: str) -> str:
    return url.replace("+psycopg", "")


@pytest.fixture
def sinks(database):
    """Makes sinks of the test's database that are closed with it."""
    made = []

    def make(*arguments, **options):
        made.append(PostgresSink(options.pop("url", database), *arguments, **options))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def test_all_types_arrive_as_they_were(spark, sinks, tables, database) -> None:
    elsewhere = f"{database}%20-ctimezone%3DAsia/Tokyo"
    moment = dt.datetime(2026, 11, 17, 12, 30, 15, 123456)  # noqa: DTZ001 - as Spark gives it
    row = (
        *(True, 5, 6, 7, 2**62, 0.5, 0.1, Decimal("12345.678"), 'a "b"\n\\', bytearray(b"\0\xff")),
        *(moment.date(), moment, moment, [1, None], {"k": 1}, {"a": 1, "b": "x"}),
    )
    schema = (
        "b boolean, y tinyint, s smallint, i int, l bigint, f float, d double, e decimal(12,3), "
        "t string, r binary, day date, at timestamp, local timestamp_ntz, "
        "list array<int>, map map<string,int>, struct struct<a:int,b:string>"
    )
    frame = spark.createDataFrame([row, (None,) * 16], schema)
    assert sinks("typed", url=elsewhere).write(frame, 0, "job", {})
    first, second = tables.execute("SELECT * FROM typed ORDER BY b NULLS LAST").fetchall()
    assert second == (None,) * 16
    assert first[:9] == row[:9]
    assert (bytes(first[9]), first[10], first[12]) == (b"\0\xff", moment.date(), moment)
    assert first[11] == moment.replace(tzinfo=dt.UTC)
    assert first[13:] == ([1, None], {"k": 1}, {"a": 1, "b": "x"})


def test_a_batch_is_written_once_with_its_offsets(spark, sinks, database, tables) -> None:
    frame = spark.range(1000).selectExpr("cast(id as int) number")
    sink = sinks("copied")
    assert sink.write(frame, 3, "job", {"orders": {0: 70, 1: 30}})
    assert not sink.write(frame, 3, "job", {"orders": {0: 70, 1: 30}})
    assert not sink.write(frame, 2, "job", {"orders": {0: 1}})
    assert sinks("copied").write(frame, 0, "another job", {})
    assert numbers(tables) == sorted([*range(1000)] * 2)
    assert staging_tables(tables) == []
    with Store.open(database) as store:
        saved = store.checkpoint(sink.checkpoint_name("job"))
    assert (saved["batch_id"], saved["offsets"]) == (3, {"orders": {0: 70, 1: 30}})


def test_a_batch_without_rows_is_noted_too(spark, sinks, tables) -> None:
    sink = sinks("copied")
    empty = spark.range(0).selectExpr("cast(id as int) number")
    assert sink.write(empty, 0, "job", {"orders": {0: 70}})
    assert not sink.write(empty, 0, "job", {"orders": {0: 70}})
    assert numbers(tables) == []


def test_an_upsert_keeps_the_last_row_of_each_key(spark, sinks, tables) -> None:
    sink = sinks("latest", "upsert", ("k",), order_by="v")
    first = spark.createDataFrame([("a", 1), ("a", 3), ("b", 1), ("a", 2)], "k string, v int")
    second = spark.createDataFrame([("b", 0), ("c", 5)], "k string, v int")
    sink.write(first, 0, "job", {})
    sink.write(second, 1, "job", {})
    rows = tables.execute("SELECT k, v FROM latest ORDER BY k").fetchall()
    assert rows == [("a", 3), ("b", 0), ("c", 5)]
    plain = sinks("newest", "upsert", ("k",))
    plain.write(first.coalesce(1), 0, "job", {})
    assert tables.execute("SELECT k, v FROM newest ORDER BY k").fetchall() == [
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        ("number smallint, w text", "cast(id as int) number", "is smallint"),
        ("number int check (number < 5)", "cast(id as int) number", "violates check"),
        ("number uuid", "cast(id as string) number", "invalid input syntax for type uuid"),
    ],
)
def test_rows_that_a_table_does_not_take_are_told_and_nothing_is_there(
    spark, sinks, tables, table, rows, said
) -> None:
    tables.execute(f"CREATE TABLE copied ({table})")
    sink = sinks("copied")
    with pytest.raises(SinkError, match=said):
        sink.write(spark.range(10).selectExpr(rows), 0, "job", {})
    assert tables.execute("SELECT count(*) FROM copied").fetchone() == (0,)
    assert staging_tables(tables) == []


def test_a_second_driver_of_a_job_is_kept_out(spark, sinks, tables) -> None:
    frame = spark.range(3).selectExpr("cast(id as int) number")
    first, second = sinks("copied"), sinks("copied", lock_wait_s=0)
    first.write(frame, 0, "job", {})
    with pytest.raises(FencedError, match="another driver runs job 'job/copied'"):
        second.write(frame, 1, "job", {})
    first.close()
    assert second.write(frame, 1, "job", {})
    assert numbers(tables) == [0, 0, 1, 1, 2, 2]


def test_another_checkpoint_of_spark_is_told_apart(spark, sinks, monkeypatch) -> None:
    frame = spark.range(3).selectExpr("cast(id as int) number")
    sink = sinks("copied")
    monkeypatch.setattr("spark.etl.postgres_sink._query_id", lambda _frame: "first")
    sink.write(frame, 5, "job", {})
    monkeypatch.setattr("spark.etl.postgres_sink._query_id", lambda _frame: "second")
    with pytest.raises(SinkError, match="up to batch 5 with another checkpoint"):
        sink.write(frame, 0, "job", {})


def test_a_server_that_is_not_there_is_waited_for_in_vain(spark, sinks) -> None:
    sink = sinks("copied", url="postgresql://postgres@127.0.0.1:1/postgres", retry_s=0)
    with pytest.raises(DisconnectedError):
        sink.write(spark.range(3).selectExpr("cast(id as int) number"), 0, "job", {})


# Kills


@pytest.fixture(scope="module")
def mortal():
    """A server that may crash and loses nothing that it committed."""
    server = PostgresServer(durable=True)
    yield server
    server.close()


class CrashingSink(PostgresSink):
    """The server crashes once, when the rows of a batch are staged."""

    server: PostgresServer
    crashed = False

    def _copy(self, frame, staging):
        copied = super()._copy(frame, staging)
        if not self.crashed:
            self.crashed = True
            self.server.crash()
            self.server.start()
        return copied


def test_a_server_that_crashes_with_staged_rows_loses_none(spark, mortal) -> None:
    sink = CrashingSink(mortal.new_schema("crashed"), "copied")
    sink.server = mortal
    frame = spark.range(1000).selectExpr("cast(id as int) number")
    assert sink.write(frame, 0, "job", {})
    assert sink.crashed
    sink.close()
    with mortal.connect() as connection:
        assert numbers(connection, "crashed.copied") == list(range(1000))
        assert staging_tables(connection, "crashed") == []


def test_a_server_that_is_restarted_while_tasks_copy_loses_none(spark, mortal, tmp_path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"

    def slowly(batches):
        for place, batch in enumerate(batches):
            if place == 1:
                Path(began).touch()
                eventually(Path(go).exists, "leave to go on", within_s=120)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = spark.range(1000, numPartitions=1).selectExpr("cast(id as int) number")
    frame = frame.mapInArrow(slowly, "number int")
    sink = PostgresSink(mortal.new_schema("restarted"), "copied")
    written: list[bool] = []
    thread = threading.Thread(target=lambda: written.append(sink.write(frame, 0, "job", {})))
    thread.start()
    try:
        eventually(began.exists, "rows under way", within_s=120)
        mortal.stop()
        mortal.start()
    finally:
        go.touch()
        thread.join(200)
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert written == [True]
    sink.close()
    with mortal.connect() as connection:
        assert numbers(connection, "restarted.copied") == list(range(1000))


def run_driver(*arguments: str, directory: Path) -> int:
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.etl_store.killed_driver", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process.wait(DRIVER_S)


@pytest.mark.timeout(900)  # four times as long as it takes where everything is slow
def test_a_driver_that_is_killed_around_its_commits_writes_every_row_once(
    spark, amqp_url, scene, channel, database, tables, tmp_path
) -> None:
    stream = declare_stream(scene, channel)
    with connect(amqp_url) as client, client.producer(stream) as producer:
        for number in range(ROWS):
            producer.send(b"%d" % number, key=b"key")
    for moment, batch in (("copied", 1), ("committed", 2)):
        given = (amqp_url, stream, database, str(tmp_path), moment, str(batch))
        code = run_driver(*given, directory=tmp_path)
        assert code == -9, (tmp_path / "log").read_text()
        there = batch if moment == "copied" else batch + 1
        assert len(numbers(tables)) == there * BATCH, (tmp_path / "log").read_text()
        assert (tmp_path / "checkpoint" / "commits" / str(batch - 1)).exists()
        assert not (tmp_path / "checkpoint" / "commits" / str(batch)).exists()
        assert len(staging_tables(tables)) == (moment == "copied")
    sink = PostgresSink(database, "copied")
    copy_stream(spark, amqp_url, stream, sink, tmp_path / "checkpoint")
    sink.close()
    assert numbers(tables) == list(range(ROWS))
    assert staging_tables(tables) == []
    with Store.open(database) as store:
        saved = store.checkpoint(sink.checkpoint_name(JOB))
    metadata = json.loads((tmp_path / "checkpoint" / "metadata").read_text())
    assert saved["query_id"] == metadata["id"]
