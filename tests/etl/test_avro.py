"""Avro with the broker's registry: schemas that evolve under a pipeline that goes on."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pytest

from clients.schema_registry import IncompatibleSchemaError, Reference, SchemaRegistry
from clients.schemas import HEADER, AvroReader, AvroWriter
from clients.streams import connect
from spark.etl import Pipeline, PipelineError, SpecError
from spark.etl.explain import explain_lines
from tests.etl.scene import PipelineScene, ordered, running
from tests.support.process import BrokerProcess


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
FIRST, SECOND, THIRD = schema(ID), schema(ID, NOTE), schema({"name": "id", "type": "string"})


@pytest.fixture
def registry(broker: BrokerProcess) -> SchemaRegistry:
    return SchemaRegistry(broker.http_url(""))


def avro_pipeline(
    etl: PipelineScene, broker: BrokerProcess, source: str, target: str, **more: Any
) -> Pipeline:
    orders = {"topic": source, "format": "avro", "subject": f"{source}-value", **more}
    return etl.pipeline(
        {"orders": orders},
        [{"kind": "stream", "input": "orders", "topic": target, "format": "avro"}],
        registry=broker.http_url(""),
        trigger="100ms",
    )


def results(etl: PipelineScene, registry: SchemaRegistry, target: str) -> list[Any]:
    reader = AvroReader(registry)
    return [reader.decode(each.value) for each in etl.records(target)]


class Producer:
    """Writes all the time, and moves on to another schema when it is told."""

    PAUSE_S = 0.01  # between two records; so that a test is not about rates

    def __init__(self, url: str, stream: str, writer: AvroWriter, first: int) -> None:
        self.writer = writer
        self.written: list[int] = []
        self._url, self._stream, self._next = url, stream, first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with connect(self._url) as client, client.producer(self._stream) as producer:
            while not self._stop.wait(self.PAUSE_S):
                producer.send(self.writer.encode({"id": self._next, "note": "new"}))
                producer.flush()
                self.written.append(self._next)
                self._next += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_producers_and_readers_move_on_while_everything_runs(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    """From the first version to the second: a producer, the pipeline, another producer, while
    records are written all the time. Nothing is lost or there twice."""
    source, target = etl.declare(), etl.target()
    subject = f"{source}-value"
    old = AvroWriter(registry, subject, FIRST)
    one = Producer(etl.url, source, old, 0)
    two = Producer(etl.url, source, old, 1_000_000)

    def found() -> set[int]:
        return {row["id"] for row in results(etl, registry, target)}

    def has_read(producer: Producer) -> None:
        """Up to what it writes from now on."""
        last = producer.written[-1]
        wait(lambda: max(found() & set(producer.written), default=-1) > last, "what is written now")

    with one.at_work(), two.at_work():
        with running(etl, avro_pipeline(etl, broker, source, target, version=1)) as wait:
            wait(lambda: found() & set(one.written) and found() & set(two.written), "records")
            one.writer = AvroWriter(registry, subject, SECOND)
            has_read(one)
            with pytest.raises(IncompatibleSchemaError):
                AvroWriter(registry, subject, THIRD)
            has_read(one)
            has_read(two)
        before = len(one.written)
        with running(etl, avro_pipeline(etl, broker, source, target, version=2)) as wait:
            has_read(one)
            has_read(two)
            two.writer = AvroWriter(registry, subject, SECOND)
            with pytest.raises(IncompatibleSchemaError):
                AvroWriter(registry, subject, THIRD)
            has_read(two)
            one.stop()
            two.stop()
            written = sorted(one.written + two.written)
            wait(lambda: len(results(etl, registry, target)) >= len(written), "all of them")
    rows = results(etl, registry, target)
    assert sorted(row["id"] for row in rows) == written
    assert before < len(one.written)  # it did not wait for the pipeline to come back
    notes = {(row["id"] >= 1_000_000, row.get("note", "of the first version")) for row in rows}
    assert {(False, "of the first version"), (False, "new"), (True, None), (True, "new")} <= notes
    assert etl.letters(source) == []
    assert registry.versions(f"{target}-value") == [1, 2]


def test_what_is_not_of_a_schema_is_a_letter(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    source, target = etl.declare(), etl.target()
    writer = AvroWriter(registry, f"{source}-value", FIRST)
    sound = writer.encode({"id": 1})
    bad = [b"", b"\0\0\0\xff\x63x", sound[:-1], sound + b"x", b"x" + sound[1:], None]
    etl.send(source, [(sound, "sound"), *((value, n) for n, value in enumerate(bad))])
    etl.run(avro_pipeline(etl, broker, source, target))
    assert results(etl, registry, target) == [{"id": 1}]
    letters = {record.key: record.headers["x-etl-error"] for record in etl.letters(source)}
    said = ["too few", "not found", "do not fit schema", "bytes are left", "first byte", "is null"]
    assert len(letters) == len(etl.letters(source)) == len(bad)
    for number, words in enumerate(said):
        assert words in letters[str(number).encode()]


def test_types_are_found_by_their_names_and_in_other_subjects(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    """Also those of writers, whose schemas may refer to others than the reader's."""
    source, target = etl.declare(), etl.target()
    subject, elsewhere = f"{source}-value", f"{source}-address"
    city = {"name": "city", "type": "string"}
    country = {"name": "country", "type": "string", "default": "-"}
    address = {"type": "record", "name": "post.Addr", "fields": [city]}
    day = {"name": "open", "type": {"type": "int", "logicalType": "time-millis"}}
    item = {"type": "record", "name": "Item", "fields": [{"name": "tags", "type": TAGS}, day]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            ID,
            {"name": "home", "type": "post.Addr"},
            {"name": "first", "type": item},
            {"name": "more", "type": {"type": "array", "items": "shop.Item"}},
        ],
    }
    registry.register(elsewhere, address)
    old = AvroWriter(registry, subject, order, references=[Reference("post.Addr", elsewhere, 1)])
    registry.register(elsewhere, address | {"fields": [city, country]})
    new = AvroWriter(registry, subject, order, references=[Reference("post.Addr", elsewhere, 2)])
    thing = {"tags": {"a": "1"}, "open": 36_000_000}
    row = {"id": 1, "home": {"city": "Bonn"}, "first": thing, "more": [thing, thing]}
    moved = {"id": 2, "home": {"city": "Rome", "country": "IT"}}
    etl.send(source, [(old.encode(row), 1), (new.encode(row | moved), 2)])
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "format": "avro", "subject": subject}},
        [{"kind": "stream", "input": "orders", "topic": target}],
        registry=broker.http_url(""),
    )
    etl.run(pipeline)
    assert etl.letters(source) == []
    expected = [row | {"home": {"city": "Bonn", "country": "-"}}, row | moved]
    assert ordered(etl.rows(target)) == ordered(expected)


TAGS = {"type": "map", "values": "string"}


def test_a_schema_that_cannot_be_used_is_told(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    source = etl.declare()
    registry.register(f"{source}-value", '"string"')
    link = {"name": "next", "type": ["null", "Order"], "default": None}
    registry.register(f"{source}-list", schema(ID, link))
    for subject, said in (
        ("nowhere", "subject: "),
        (f"{source}-value", "is no record"),
        (f"{source}-list", "Order refers to itself"),
    ):
        pipeline = etl.pipeline(
            {"orders": {"topic": source, "format": "avro", "subject": subject}},
            [{"kind": "console", "input": "orders"}],
            registry=broker.http_url(""),
        )
        with pytest.raises(SpecError) as error:
            pipeline.validate(etl.spark)
        assert said in str(error.value)
        assert "[sources.orders]" in str(error.value)


def test_who_only_looks_leaves_no_trace_in_the_registry(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    source, target = etl.declare(), etl.target()
    subject = f"{target}-value"
    etl.fill(source, [{"id": 1}])

    def pipeline(columns: str, checkpoint: str = "checkpoint") -> Pipeline:
        return etl.pipeline(
            {"orders": {"topic": source, "schema": columns}},
            [{"kind": "stream", "input": "orders", "topic": target, "format": "avro"}],
            registry=broker.http_url(""),
            checkpoint=checkpoint,
        )

    fine = pipeline("id bigint")
    fine.validate(etl.spark)
    explain_lines(fine, etl.spark, plan=True)
    planner = fine.plan(etl.spark)
    planner.queries()
    assert subject not in registry.subjects()

    etl.run(fine)
    assert registry.versions(subject) == [1]
    assert results(etl, registry, target) == [{"id": 1}]

    other = pipeline("id string", "another")
    for look in (other.validate, lambda spark: explain_lines(other, spark, plan=False), other.run):
        with pytest.raises(SpecError, match=r"not compatible: .*MISSING_UNION_BRANCH"):
            look(etl.spark)
    assert registry.versions(subject) == [1]

    # What was fine when it was planned is refused if it is not when it starts.
    registry.delete(subject)
    registry.register(subject, {"type": "record", "name": "Other", "fields": [ID]})
    with pytest.raises(SpecError, match=f"{subject}: .*NAME_MISMATCH"):
        planner.register_schemas()


def without_logical_type(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != "logicalType"}


def test_what_avro_cannot_hold_fails_its_row_only(
    etl: PipelineScene, broker: BrokerProcess, registry: SchemaRegistry
) -> None:
    """A year that Python does not have is no trouble; text that is not UTF-8 is a dead letter, of
    the sink that cannot write it."""
    source, plain, target = etl.declare(), etl.target(), etl.target()
    times = ["2026-11-20T09:00:00Z", "+99999-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]
    rows = [{"id": n, "at": at, "text": "6f6b"} for n, at in enumerate(times)]
    etl.fill(source, [*rows, {"id": 3, "at": times[0], "text": "ff"}])
    etl.send(source, [(b"nonsense", None)])
    columns = {
        "id": "id",
        "at": "at",
        "day": "cast(at AS date)",
        "inner": "named_struct('ats', array(at))",
        "text": "cast(unhex(text) AS string)",
    }
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": "id bigint, at timestamp, text string"}},
        [
            {"kind": "stream", "name": "a", "input": "ids", "topic": plain},
            {"kind": "stream", "name": "b", "input": "it", "topic": target, "format": "avro"},
        ],
        [
            {"name": "it", "kind": "select", "input": "orders", "columns": columns},
            {"name": "ids", "kind": "select", "input": "it", "columns": {"id": "id"}},
        ],
        registry=broker.http_url(""),
    )
    etl.run(pipeline)
    assert sorted(row["id"] for row in etl.rows(plain)) == [0, 1, 2, 3]
    written = registry.version(f"{target}-value").schema
    numbers = fastavro.parse_schema(json.loads(written, object_hook=without_logical_type))
    found: dict[int, Any] = {}
    for record in etl.records(target):
        row: Any = fastavro.schemaless_reader(
            io.BytesIO(record.value[HEADER.size :]), numbers, None
        )
        found[row["id"]] = row
    assert sorted(found) == [0, 1, 2]
    assert found[1]["at"] == found[1]["inner"]["ats"][0] == 3_093_496_444_800_000_000
    assert (found[0]["day"], found[1]["day"]) == (20_777, 35_804_357)
    letters = {record.value: record.headers for record in etl.letters(source)}
    assert len(etl.letters(source)) == len(letters) == 2
    assert letters.pop(b"nonsense")["x-etl-error-type"] == "DecodeError"
    (headers,) = letters.values()
    assert headers["x-etl-error-type"] == "EncodeError"
    assert "UnicodeDecodeError" in headers["x-etl-error"]


def test_where_there_is_no_record_to_blame_a_row_that_does_not_fit_ends_the_pipeline(
    etl: PipelineScene, broker: BrokerProcess
) -> None:
    """At once: the next attempt would end in the same way."""
    source, target = etl.declare(), etl.target()
    etl.fill(source, [{"text": "ff"}])
    query = "SELECT cast(unhex(text) AS string) AS text FROM orders"
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": "text string"}},
        [{"kind": "stream", "input": "it", "topic": target, "format": "avro"}],
        [{"name": "it", "kind": "sql", "inputs": ["orders"], "query": query}],
        registry=broker.http_url(""),
    )
    with pytest.raises(PipelineError, match=r"\[\[sinks\]\] 'stream': UnicodeDecodeError"):
        etl.run(pipeline)
    assert [event.kind for event in etl.events if event.kind == "paused"] == []
    assert etl.records(target) == []
