"""Avro with the broker's registry: schemas that evolve under a pipeline that goes on."""

from typing import Any

import pytest

from clients.schema_registry import IncompatibleSchemaError, SchemaRegistry
from clients.schemas import AvroReader, AvroWriter
from spark.etl import SpecError
from tests.etl.scene import PipelineScene, ordered, running
from tests.support.process import BrokerProcess


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
CENTS = {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
FIRST, SECOND = schema(ID), schema(ID, NOTE)


def test_producers_and_readers_move_on_one_after_the_other(
    etl: PipelineScene, broker: BrokerProcess
) -> None:
    source, target = etl.declare(), etl.target()
    registry = SchemaRegistry(broker.http_url(""))
    subject = f"{source}-value"
    old = AvroWriter(registry, subject, FIRST)

    def pipeline(version: int) -> Any:
        orders = {"topic": source, "format": "avro", "subject": subject, "version": version}
        return etl.pipeline(
            {"orders": orders},
            [{"kind": "stream", "input": "orders", "topic": target, "format": "avro"}],
            registry=broker.http_url(""),
            trigger="100ms",
        )

    def results() -> list[Any]:
        return [AvroReader(registry).decode(each.value) for each in etl.records(target)]

    etl.send(source, [(old.encode({"id": n}), n) for n in range(5)])
    with running(etl, pipeline(1)) as wait:
        wait(lambda: len(results()) == 5, "the old ones")
        new = AvroWriter(registry, subject, SECOND)  # the producer is the first to move on
        etl.send(source, [(new.encode({"id": n, "note": "new"}), n) for n in range(5, 10)])
        with pytest.raises(IncompatibleSchemaError):
            AvroWriter(registry, subject, schema({"name": "id", "type": "string"}))
        wait(lambda: len(results()) == 10, "the new ones")
    assert ordered(results()) == ordered({"id": n} for n in range(10))
    etl.send(source, [(old.encode({"id": 10}), 10), (new.encode({"id": 11, "note": "x"}), 11)])
    etl.send(source, [(b"", 12), (b"\0\0\0\0\x63x", 13), (old.encode({"id": 1})[:-1], 14)])
    etl.run(pipeline(2))
    added = [row for row in results() if row["id"] > 9]
    assert ordered(added) == ordered([{"id": 10, "note": None}, {"id": 11, "note": "x"}])
    letters = {record.key: record.headers["x-etl-error"] for record in etl.letters(source)}
    assert set(letters) == {b"12", b"13", b"14"}
    assert "too few" in letters[b"12"]
    assert registry.versions(f"{target}-value") == [1, 2]


def test_a_schema_that_cannot_be_used_is_told(etl: PipelineScene, broker: BrokerProcess) -> None:
    source = etl.declare()
    registry = SchemaRegistry(broker.http_url(""))
    registry.register(f"{source}-value", '"string"')
    for subject, said in (("nowhere", "subject: "), (f"{source}-value", "is no record")):
        pipeline = etl.pipeline(
            {"orders": {"topic": source, "format": "avro", "subject": subject}},
            [{"kind": "console", "input": "orders"}],
            registry=broker.http_url(""),
        )
        with pytest.raises(SpecError) as error:
            pipeline.validate(etl.spark)
        assert said in str(error.value)
        assert "[sources.orders]" in str(error.value)
