"""Where results go: Parquet, tables to look at; and dead letters that then have their own query."""

import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark.etl import PipelineError
from spark.etl.checkpoints import batch_offsets
from spark.etl.events import Event
from tests.etl.scene import PipelineScene

SCHEMA = "id bigint, user string"
ROWS = [{"id": n, "user": f"u{n % 3}"} for n in range(40)]


def test_parquet_and_a_query_for_dead_letters(etl: PipelineScene) -> None:
    """The second sink reads the same source, and writes no dead letter a second time."""
    source = etl.declare()
    etl.fill(source, ROWS)
    etl.send(source, [(b"{", "bad")])
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": SCHEMA}},
        [
            {"kind": "parquet", "input": "orders", "path": "out", "partition_by": ["user"]},
            {"kind": "parquet", "name": "again", "input": "orders", "path": "again"},
        ],
    )
    for _ in range(2):  # the second time there is nothing new
        etl.run(pipeline)
    for name in ("out", "again"):
        assert sorted(pq.read_table(etl.directory / name)["id"].to_pylist()) == list(range(40))
    assert (etl.directory / "out" / "user=u1").is_dir()
    assert [record.value for record in etl.letters(source)] == [b"{"]
    ends = {int(number): end for number, end in etl.client.offsets(source, "next").items()}
    for name in ("parquet", "dead-letters"):
        assert batch_offsets(etl.directory / "checkpoint" / name, 0) == {source: ends}


def test_a_checkpoint_of_another_query_is_refused(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    schema = f"{SCHEMA}, at timestamp"
    orders = {"topic": source, "schema": schema, "event_time": "at", "watermark": "1s"}
    sinks = [{"kind": "stream", "name": "out", "input": "once", "topic": target}]

    def keys(*names: str) -> list[dict[str, object]]:
        step = {"name": "once", "kind": "deduplicate", "input": "some", "keys": list(names)}
        some = {"name": "some", "kind": "filter", "input": "orders", "where": f"id > {len(names)}"}
        return [some, step]

    etl.run(etl.pipeline({"orders": orders}, sinks, keys("id")))
    changed = etl.pipeline({"orders": orders}, sinks, keys("id", "user"))
    with pytest.raises(PipelineError) as error:
        etl.run(changed)
    assert "sink 'out' was changed" in str(error.value)
    assert "step 'once' keys was ['id']" in str(error.value)
    other = [sinks[0] | {"input": "some"}]
    with pytest.raises(PipelineError, match="step 'once' was there"):
        etl.run(etl.pipeline({"orders": orders}, other, keys("id")[:1]))


@pytest.mark.parametrize("noted", [True, False])
def test_dead_letters_are_not_written_again_for_a_new_sink(
    etl: PipelineScene, *, noted: bool
) -> None:
    """Nor when the sink that wrote them is gone; nor with a checkpoint that notes no owners."""
    source = etl.declare()
    first, second = (
        {"kind": "stream", "name": name, "input": "orders", "topic": etl.target()}
        for name in ("first", "second")
    )

    def run(bad: bytes, *sinks: dict[str, object]) -> None:
        etl.send(source, [(bad, "bad")])
        etl.run(etl.pipeline({"orders": {"topic": source, "schema": SCHEMA}}, list(sinks)))

    run(b"{1", second)
    if not noted:
        file = etl.directory / "checkpoint" / "second.json"
        shape = json.loads(file.read_text())
        assert shape.pop("letters") == ["orders"]
        file.write_text(json.dumps(shape))
    run(b"{2", first, second)
    assert sorted(record.value for record in etl.letters(source)) == [b"{1", b"{2"]
    run(b"{3", first)
    assert sorted(record.value for record in etl.letters(source)) == [b"{1", b"{2", b"{3"]


def test_a_batch_too_large_for_a_transaction_has_a_way_out(etl: PipelineScene) -> None:
    """Smaller limits are not one: Spark runs the batch again as it planned it."""
    source, target = etl.declare(partitions=1), etl.target(partitions=1)
    steps = [
        {
            "name": "large",
            "kind": "map",
            "input": "orders",
            "columns": {"x": "repeat('x', 1000000)"},
        }
    ]

    def run(first: int, count: int, guarantee: str, limit: int) -> None:
        etl.fill(source, [{"id": number} for number in range(first, first + count)])
        sink = {"kind": "stream", "input": "large", "topic": target, "guarantee": guarantee}
        sources = {"orders": {"topic": source, "schema": "id bigint"}}
        limits = {"max_offsets_per_trigger": limit}
        etl.run(etl.pipeline(sources, [sink], steps, limits=limits))

    for limit in (1000, 10):
        with pytest.raises(PipelineError) as error:
            run(0, 80 if limit == 1000 else 0, "exactly_once", limit)
        assert "let it run once with deliveryGuarantee=at_least_once" in str(error.value)
        assert "have smaller ones from then on (maxOffsetsPerTrigger, max_o" in str(error.value)
    assert etl.records(target) == []
    run(80, 0, "at_least_once", 10)
    run(80, 20, "exactly_once", 10)
    assert sorted(row["id"] for row in etl.rows(target)) == list(range(100))
    assert [event.batch.records for event in etl.events if event.batch] == [80, 10, 10]


def test_two_processes_do_not_share_a_checkpoint(etl: PipelineScene) -> None:
    source, target = etl.declare(), etl.target()
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": SCHEMA}},
        [{"kind": "stream", "input": "orders", "topic": target}],
    )
    stop, refused = threading.Event(), []

    def listen(event: Event) -> None:
        if event.kind == "started":
            with pytest.raises(PipelineError) as error:
                etl.run(pipeline)
            refused.append(str(error.value))
            stop.set()

    pipeline.run(etl.spark, stop=stop, listener=listen)
    assert "another process runs a pipeline with this checkpoint" in refused[0]


def test_a_stream_that_is_missing_is_told(etl: PipelineScene, tmp_path: Path) -> None:
    sinks = [{"kind": "console", "input": "orders"}]
    with pytest.raises(PipelineError, match="there is no stream 'nowhere'"):
        etl.run(etl.pipeline({"orders": {"topic": "nowhere", "schema": SCHEMA}}, sinks))
    source = etl.declare()
    sinks = [{"kind": "stream", "input": "orders", "topic": f"{source}.none"}]
    with pytest.raises(PipelineError, match="partitions = N"):
        etl.run(etl.pipeline({"orders": {"topic": source, "schema": SCHEMA}}, sinks))
