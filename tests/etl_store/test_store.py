"""The ETL store, in SQLite and in PostgreSQL: what is saved is there, once, whoever saves it."""

import subprocess
import sys
from dataclasses import replace

import pytest
from sqlalchemy import inspect, text, update
from sqlalchemy.schema import CreateTable

from spark.etl import letters_table, store_tables
from spark.etl import store as store_module
from spark.etl.letters_table import DeadLetter, Selection
from spark.etl.store import JobMetric, Store
from spark.etl.store_errors import StoreError
from tests.support.process import ROOT

LETTER = DeadLetter(
    job="orders",
    topic="orders",
    partition=1,
    offset=41,
    error_type="DecodeError",
    error_message="no JSON",
    raw_message=b"\xff\x00{",
    key=None,
    headers={"a": "text", "b": b"\xff", "none": None},
    message_ms=1_700_000_000_123,
    failed_ms=1_700_000_001_456,
    dlq_topic="orders.dlq",
    dlq_partition=0,
    dlq_offset=7,
)
METRIC = JobMetric("orders", 7, 1000, 2, 1.5, 250, 1_700_000_000_123)


def all_letters(store: Store, **selection) -> list[DeadLetter]:
    with store.reading() as connection:
        return letters_table.find(connection, Selection(**selection), limit=1000)


# Checkpoints


def test_a_checkpoint_is_what_was_saved_last(store: Store) -> None:
    assert store.checkpoint("orders") is None
    assert store.save_checkpoint(None, "orders", 0, {"a": {0: 5, 1: 7}, "b": {0: 1}})
    assert store.save_checkpoint(None, "orders", 1, {"a": {0: 9}})
    store.save_checkpoint(None, "another", 9, {"a": {0: 1000}})
    found = store.checkpoint("orders")
    assert found["batch_id"] == 1
    assert found["offsets"] == {"a": {0: 9, 1: 7}, "b": {0: 1}}
    assert found["updated_ms"] > 1_700_000_000_000


@pytest.mark.parametrize("batch", [3, 2])
def test_a_batch_that_is_not_newer_changes_nothing(store: Store, batch: int) -> None:
    store.save_checkpoint(None, "orders", 3, {"a": {0: 5}})
    assert not store.save_checkpoint(None, "orders", batch, {"a": {0: 99}, "b": {0: 1}})
    assert store.checkpoint("orders")["offsets"] == {"a": {0: 5}}


def test_a_checkpoint_without_offsets_keeps_its_batch(store: Store) -> None:
    store.save_checkpoint(None, "orders", 4, {})
    assert store.checkpoint("orders")["batch_id"] == 4
    assert store.checkpoint("orders")["offsets"] == {}
    assert not store.save_checkpoint(None, "orders", 4, {"a": {0: 1}})


def test_a_checkpoint_is_saved_with_the_callers_transaction_or_not_at_all(store: Store) -> None:
    def save_and_fail() -> None:
        with store.writing() as connection:
            store.save_checkpoint(connection, "orders", 0, {"a": {0: 5}})
            assert store.checkpoint("orders", connection)["batch_id"] == 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save_and_fail()
    assert store.checkpoint("orders") is None


def test_a_checkpoint_can_be_forgotten(store: Store) -> None:
    store.save_checkpoint(None, "orders", 4, {"a": {0: 5}})
    assert store.forget_checkpoint("orders")
    assert not store.forget_checkpoint("orders")
    assert store.save_checkpoint(None, "orders", 0, {"a": {0: 1}})


# Dead letters


def test_a_dead_letter_comes_back_as_it_was(store: Store) -> None:
    assert store.add_dead_letters([LETTER]) == 1
    (found,) = all_letters(store)
    assert found == LETTER
    assert found.id == 1


def test_a_dead_letter_is_there_once_by_its_own_place(store: Store) -> None:
    changes = ({"dlq_offset": 8}, {"dlq_partition": 1}, {"dlq_topic": "b.dlq"}, {"failed_ms": 5})
    others = [replace(LETTER, **change) for change in changes]
    assert store.add_dead_letters([LETTER, LETTER, *others]) == 5
    assert store.add_dead_letters([replace(LETTER, error_message="again"), *others]) == 0
    assert [each.error_message for each in all_letters(store)] == ["no JSON"] * 5


def test_what_a_database_cannot_hold_as_text_is_replaced_and_cut(store: Store) -> None:
    odd = replace(LETTER, error_message="a\0b\ud800" + "x" * 10_000, headers={"\0": "\0"})
    store.add_dead_letters([odd])
    (found,) = all_letters(store)
    assert found.error_message.startswith("a\N{REPLACEMENT CHARACTER}b?x")
    assert len(found.error_message) == letters_table.TEXT_CHARS_MAX
    assert found.headers == {"\0": "\0"}
    assert found.raw_message == LETTER.raw_message


def test_many_dead_letters_are_found_by_what_they_are(store: Store) -> None:
    rows = [
        replace(
            LETTER,
            offset=offset,
            dlq_offset=offset,
            job=f"job{offset % 3}",
            error_type="abc"[offset % 2],
        )
        for offset in range(1200)
    ]
    assert store.add_dead_letters(rows) == 1200
    with store.reading() as connection:
        chosen = Selection(job="job1", error_type="b")
        assert letters_table.count(connection, chosen) == 200
        assert letters_table.counts_by_job(connection) == {"job0": 400, "job1": 400, "job2": 400}
        page = letters_table.find(connection, chosen, after=600, limit=3)
        assert [each.offset for each in page] == [601, 607, 613]
        assert [each.offset for each in letters_table.newest(connection, chosen, limit=2)] == [
            1195,
            1189,
        ]
        assert letters_table.ids(connection, Selection(ids=(3, 99_999))) == [3]
        some = Selection(jobs=("job0", "job2"), error_type="b")
        assert letters_table.count(connection, some) == 400


def test_strangers_are_chosen_by_their_stream(store: Store) -> None:
    stranger = replace(LETTER, job="", topic="orders.dlq", dlq_offset=8)
    another = replace(stranger, topic="b.dlq", dlq_topic="b.dlq")
    store.add_dead_letters([LETTER, stranger, another])
    with store.reading() as connection:
        assert letters_table.ids(connection, Selection(jobs=("orders",))) == [1]
        assert letters_table.ids(connection, Selection(strangers_in=("orders.dlq",))) == [2]
        both = Selection(jobs=("orders",), strangers_in=("orders.dlq",))
        assert letters_table.ids(connection, both) == [1, 2]


def test_replays_are_counted(store: Store) -> None:
    store.add_dead_letters([replace(LETTER, dlq_offset=number) for number in range(1100)])
    with store.writing() as connection:
        letters_table.count_replays(connection, range(1, 1001), 1_700_000_000_000)
    assert len(all_letters(store, replayed=False)) == 100
    replayed = all_letters(store, replayed=True)
    assert {(each.replay_count, each.replayed_ms) for each in replayed} == {(1, 1_700_000_000_000)}


# Metrics


def test_a_metric_is_recorded_once_and_summed_up(store: Store) -> None:
    second = replace(METRIC, batch_id=8, processed=500, errors=0, recorded_ms=1_700_000_001_000)
    for metric in (METRIC, METRIC, second, replace(METRIC, job="other")):
        store.record_metric(metric)
    assert store.metrics("orders") == [second, METRIC]
    orders, other = store.totals()
    assert (orders.job, orders.processed, orders.errors, orders.batches) == ("orders", 1500, 2, 2)
    assert orders.last == second
    assert (other.job, other.processed) == ("other", 1000)


def test_old_metrics_go_and_sums_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "METRICS_KEPT", 5)
    monkeypatch.setattr(store_module, "PRUNE_EVERY", 10)
    store.record_metric(replace(METRIC, job="other"))
    for batch in range(20):
        store.record_metric(replace(METRIC, batch_id=batch))
    assert [each.batch_id for each in store.metrics("orders")] == [19, 18, 17, 16, 15]
    sums = {each.job: (each.processed, each.batches) for each in store.totals()}
    assert sums == {"orders": (20_000, 20), "other": (1000, 1)}
    assert len(store.metrics("other")) == 1


# Opening


def test_a_store_is_the_same_when_it_is_opened_again(store: Store, store_url: str) -> None:
    store.save_checkpoint(None, "orders", 0, {"a": {0: 5}})
    with Store.open(store_url) as again:
        assert again.id == store.id
        assert again.checkpoint("orders")["offsets"] == {"a": {0: 5}}


def test_a_store_of_a_newer_version_is_left_alone(store: Store, store_url: str) -> None:
    with store.writing() as connection:
        table = store_tables.schema
        newer = update(table).where(table.c.name == "version").values(value="3")
        connection.execute(newer)
    with pytest.raises(StoreError, match=r"version 3.* up to 2"):
        Store.open(store_url)


# As version 1 has made it.
LETTERS_1 = """
CREATE TABLE "ETLDeadLetter" (
    id {number}, job_name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    "offset" BIGINT NOT NULL, error_type TEXT NOT NULL, error_message TEXT NOT NULL,
    raw_message {binary}, key {binary}, headers TEXT NOT NULL, message_timestamp {moment},
    failed_at {moment} NOT NULL, replay_count INTEGER NOT NULL, replayed_at {moment},
    UNIQUE (job_name, topic, partition, "offset")
)"""
SQLITE = {
    "number": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    "binary": "BLOB",
    "moment": "DATETIME",
}
POSTGRESQL = {
    "number": "BIGSERIAL NOT NULL PRIMARY KEY",
    "binary": "BYTEA",
    "moment": "TIMESTAMP WITH TIME ZONE",
}


def make_version_1(store: Store) -> None:
    types = SQLITE if store.engine.dialect.name == "sqlite" else POSTGRESQL
    old = [each for each in store_tables.letters.columns if not each.name.startswith("dlq_")]
    with store.writing() as connection:
        connection.execute(text('ALTER TABLE "ETLDeadLetter" RENAME TO was'))
        connection.execute(text(LETTERS_1.format(**types)))
        names = ", ".join(f'"{each.name}"' for each in old if each.name != "id")
        copied = f'INSERT INTO "ETLDeadLetter" ({names}) SELECT {names} FROM was ORDER BY id'
        connection.execute(text(copied))
        connection.execute(text("DROP TABLE was"))
        table = store_tables.schema
        connection.execute(update(table).where(table.c.name == "version").values(value="1"))


def test_a_store_of_version_1_is_upgraded_with_what_it_has(store: Store, store_url: str) -> None:
    store.add_dead_letters(
        [replace(LETTER, offset=number, dlq_offset=number) for number in range(3)]
    )
    store.save_checkpoint(None, "orders", 0, {"a": {0: 5}})
    make_version_1(store)
    with Store.open(store_url) as upgraded:
        assert upgraded.id == store.id
        assert upgraded.checkpoint("orders")["offsets"] == {"a": {0: 5}}
        before = {"dlq_topic": None, "dlq_partition": None, "dlq_offset": None}
        assert all_letters(upgraded) == [
            replace(LETTER, offset=number, **before) for number in range(3)
        ]
        assert upgraded.add_dead_letters([LETTER, LETTER, replace(LETTER, dlq_offset=9)]) == 2
        old, new = all_letters(upgraded)[:3], all_letters(upgraded)[3:]
        assert [each.id for each in old] == [1, 2, 3] < [each.id for each in new]
    assert "ETLDeadLetter_place" in str(CreateTable(store_tables.letters))  # as it was for others
    with Store.open(store_url) as again:
        assert len(all_letters(again)) == 5
        new = inspect(again.engine)
        assert {each["name"] for each in new.get_indexes("ETLDeadLetter")} >= {
            "ETLDeadLetter_job",
            "ETLDeadLetter_newest",
        }
        (only,) = new.get_unique_constraints("ETLDeadLetter")
        assert only["column_names"] == ["dlq_topic", "dlq_partition", "dlq_offset", "failed_at"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("etl.db", "sqlite:///FILE"),
        ("mysql://u:secret@h/d", "mysql: a store is in SQLite or in PostgreSQL"),
        ("sqlite:////no/such/directory/etl.db", "unable to open"),
        ("postgresql://u:secret@127.0.0.1:1/d", "onnection"),
    ],
)
def test_a_wrong_url_is_told_without_its_password(url: str, said: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


WRITER = """
import sys
from spark.etl.store import JobMetric, Store
url, job = sys.argv[1:]
store = Store.open(url)
for batch in range(20):
    store.record_metric(JobMetric("shared", batch, 1, 0, 0.0, 1, int(job) * 1000 + batch))
    store.save_checkpoint(None, job, batch, {"a": {0: batch}})
"""


def test_several_processes_open_and_write_at_once(store_url: str) -> None:
    command = [sys.executable, "-c", WRITER, store_url]
    started = [subprocess.Popen([*command, str(job)], cwd=ROOT) for job in range(2)]
    assert [process.wait(100) for process in started] == [0, 0]
    with Store.open(store_url) as store:
        assert [store.checkpoint(str(job))["batch_id"] for job in range(2)] == [19, 19]
        (total,) = store.totals()
        assert (total.processed, total.batches) == (40, 40)


def test_people_can_read_times_in_the_tables(store: Store) -> None:
    store.record_metric(METRIC)
    with store.reading() as connection:
        (found,) = connection.execute(text('SELECT recorded_at FROM "ETLJobMetric"')).one()
    assert str(found).startswith("2023-11-14 22:13:20.123")
