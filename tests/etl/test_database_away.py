"""A database that is killed while a pipeline writes to it: each row is there once all the same."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark.etl import Pipeline, PipelineError, sinks
from spark.etl.events import Event
from spark.etl.postgres_sink import PostgresSink
from spark.etl.store import Offsets, Store
from spark.etl.store_errors import DisconnectedError
from tests.etl.scene import WITHIN_S, PipelineScene, running
from tests.etl_store.writing import numbers, staging_tables
from tests.support.postgres import PostgresServer

BATCH = 100
BATCHES = 6
ROWS = BATCH * BATCHES
KILLED_AT = 2  # the third batch
QUERY = "postgres"
STOP_S = 10.0  # far less than a sink waits for its server, and time for a machine that is busy
_numbers = itertools.count()


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    """A server that may crash and loses nothing that it committed."""
    server = PostgresServer(durable=True)
    yield server
    server.close()


class Murder:
    """Of a server, once, at a moment of a batch."""

    def __init__(self, server: PostgresServer, moment: str) -> None:
        self.server = server
        self.moment = moment
        self.done = threading.Event()

    def at(self, moment: str, batch: int) -> bool:
        """Whether it happened now."""
        if self.done.is_set() or (moment, batch) != (self.moment, KILLED_AT):
            return False
        self.server.crash()
        self.done.set()
        return True


class MortalSink(PostgresSink):
    """As a pipeline's own; whether it waits for its server is the test's to say."""

    murder: Murder
    patience_s: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, retry_s=self.patience_s, **options)
        self._batch = -1

    def _attempt(self, frame: DataFrame, batch_id: int, job: str, offsets: Offsets) -> bool:
        self._batch = batch_id
        written = super()._attempt(frame, batch_id, job, offsets)
        if self.murder.at("committed", batch_id):
            raise DisconnectedError("nobody was told of the commit")
        return written

    def _copy(self, frame: DataFrame, staging: str) -> Any:
        self.murder.at("staging", self._batch)
        copied = super()._copy(frame, staging)
        self.murder.at("staged", self._batch)
        return copied


class Seen:
    """What a pipeline told of its query."""

    def __init__(self) -> None:
        self.absences: list[str] = []  # of the database, for which it was paused
        self.records = 0  # of batches that are done

    def __call__(self, event: Event) -> None:
        if event.query != QUERY:
            return
        if event.kind == "paused" and DisconnectedError.__name__ in event.text:
            self.absences.append(event.text)
        self.records += event.batch.records if event.batch is not None else 0


def into_postgres(etl: PipelineScene, source: str, database: str) -> Pipeline:
    """Two failures in a row end it, unless they are taken for an absence."""
    return etl.pipeline(
        {"orders": {"topic": source, "schema": "number bigint"}},
        [{"kind": "postgres", "input": "orders", "url": database, "table": "copied"}],
        trigger="100ms",
        limits={"max_offsets_per_trigger": BATCH, "restarts": 1},
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("moment", "patience_s"), [("staged", 0.0), ("committed", 0.0), ("staging", WITHIN_S)]
)
def test_a_database_that_is_killed_and_comes_back_has_each_row_once(
    etl: PipelineScene,
    mortal: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    patience_s: float,
) -> None:
    """It is back when the query was paused for the second time, or while a patient one waits."""
    schema = f"{moment}{next(_numbers)}"
    database = mortal.new_schema(schema)
    murder = Murder(mortal, moment)
    monkeypatch.setattr(MortalSink, "murder", murder, raising=False)
    monkeypatch.setattr(MortalSink, "patience_s", patience_s, raising=False)
    monkeypatch.setattr(sinks, "PostgresTable", MortalSink)
    source = etl.declare()
    etl.fill(source, [{"number": number} for number in range(ROWS)])
    seen = Seen()
    with running(etl, into_postgres(etl, source, database), seen) as wait:
        wait(murder.done.is_set, "a batch at which the server is killed")
        if not patience_s:
            wait(lambda: len(seen.absences) >= 2, "two pauses")
        mortal.start()
        wait(lambda: seen.records >= ROWS, "the last batch")
    assert bool(seen.absences) == (not patience_s), seen.absences
    with mortal.connect() as connection:
        assert numbers(connection, f"{schema}.copied") == list(range(ROWS))
        assert staging_tables(connection, schema) == []
    ends = {int(number): end for number, end in etl.client.offsets(source, "next").items()}
    assert sum(ends.values()) == ROWS
    with Store.open(database) as store:
        saved = store.checkpoint(f"test.{QUERY}/copied")
    assert saved is not None
    assert saved["offsets"] == {source: ends}


def test_a_pipeline_that_is_run_again_in_the_same_process_is_not_refused_by_itself(
    etl: PipelineScene, mortal: PostgresServer
) -> None:
    """The lock of its job goes with the query that has it."""
    database = mortal.new_schema("again")
    source = etl.declare()
    pipeline = into_postgres(etl, source, database)
    for first in (0, 100):
        etl.fill(source, [{"number": number} for number in range(first, first + 100)])
        etl.run(pipeline)
    with mortal.connect() as connection:
        assert numbers(connection, "again.copied") == list(range(200))


def test_a_database_that_refuses_ends_the_pipeline_in_a_line(
    etl: PipelineScene, mortal: PostgresServer
) -> None:
    source = etl.declare()
    etl.fill(source, [{"number": 1}])
    began = time.monotonic()
    nowhere = mortal.url.removesuffix("/postgres") + "/nowhere"
    with pytest.raises(PipelineError) as error:
        etl.run(into_postgres(etl, source, nowhere))
    assert "SinkError" in str(error.value)
    assert 'database "nowhere" does not exist' in str(error.value)
    assert "\n" not in str(error.value)
    assert {event.kind for event in etl.events if event.query == QUERY} == {"started", "failed"}
    assert time.monotonic() - began < 60


def test_a_stop_is_heeded_while_a_database_is_waited_for(etl: PipelineScene) -> None:
    source = etl.declare()
    etl.fill(source, [{"number": 1}])
    told: list[Event] = []
    stopped = 0.0
    pipeline = into_postgres(etl, source, "postgresql://postgres@127.0.0.1:1/postgres")
    with running(etl, pipeline, told.append) as wait:
        wait(lambda: any(event.kind == "waiting" for event in told), "a wait that is told")
        stopped = time.monotonic()
    assert time.monotonic() - stopped < STOP_S
    (waiting,) = [event.text for event in told if event.kind == "waiting"]
    assert waiting.startswith("job test.postgres tries batch 0 again: ")
    assert not any(event.kind in ("paused", "failed") for event in told)


def test_rows_that_a_table_cannot_hold_are_dead_letters_where_a_source_checks_them(
    etl: PipelineScene, mortal: PostgresServer
) -> None:
    """As the error says, and docs/etl.md."""
    source, database = etl.declare(partitions=1), mortal.new_schema("checked")
    etl.fill(source, [{"id": 1, "text": "x"}, {"id": None}, {"id": 2, "text": "a\0b"}])
    orders: dict[str, Any] = {"topic": source, "schema": "id bigint, text string"}
    sink = {"kind": "postgres", "input": "orders", "url": database, "table": "kept", "keys": ["id"]}
    with pytest.raises(PipelineError) as error:
        etl.run(etl.pipeline({"orders": orders}, [sink]))
    assert "table kept: column 'id' is null in some rows" in str(error.value)
    assert f"(batch 0: {source} partition 0 from offset 0 to 3)" in str(error.value)
    orders |= {"required": ["id"], "check": {"text": "instr(text, char(0)) = 0"}}
    etl.run(etl.pipeline({"orders": orders}, [sink], checkpoint="another"))
    with mortal.connect() as connection:
        assert connection.execute("SELECT id, text FROM checked.kept").fetchall() == [(1, "x")]
    letters = [json.loads(record.value) for record in etl.letters(source)]
    assert [row["id"] for row in letters] == [None, 2]
