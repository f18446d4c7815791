"""A schema that changes while producers and readers go on: clients.schemas over a stream."""

import io
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor

import fastavro
import pytest

from clients.schemas import (
    AvroReader,
    AvroWriter,
    IncompatibleSchemaError,
    InvalidSchemaError,
    Reference,
    RegistryRefusedError,
    RegistryUnreachableError,
    SchemaDataError,
    SchemaNotFoundError,
    SchemaRegistry,
    subject_of,
    wire_id,
)
from clients.streams import connect
from tests.registry.conftest import field, fresh, record
from tests.support.ports import free_ports

pytestmark = pytest.mark.leveret_only

NOTE = field("note", ["null", "string"], default=None)
PRICE = field("price", "double", default=1.5)


@pytest.fixture
def versions(unique):
    """An order, with a note, with a price as well and without the note again."""
    base = unique["fields"]
    return [{**unique, "fields": [*base, *more]} for more in ([], [NOTE], [NOTE, PRICE], [PRICE])]


def test_the_wire_format_is_confluents(registry, subject, unique):
    writer = AvroWriter(registry, subject, unique)
    data = writer.encode({"a": 1})
    assert data == struct.pack(">bI", 0, writer.schema_id) + b"\x02"
    assert wire_id(data) == writer.schema_id
    assert AvroReader(registry).decode(data) == {"a": 1}


def test_producers_and_readers_are_rolled_one_after_another(broker, api, registry, versions):
    """Every reader reads what every producer has written, whichever was there first."""
    queue, subject = fresh("stream"), fresh("order-value")
    registry.set_level("FULL_TRANSITIVE", subject)
    arguments = {"x-queue-type": "stream"}
    answer = api.call("PUT", "queues", "/", queue, body={"durable": True, "arguments": arguments})
    assert answer.status == 201
    with connect(broker.amqp_url()) as streams:
        with streams.producer(queue) as producer:
            for number, schema in enumerate(versions):
                writer = AvroWriter(registry, subject, schema)
                value = {"a": number, "note": f"n{number}", "price": float(number)}
                producer.send(writer.encode(value))
        reader = streams.reader(queue, 0, 0, end=len(versions))
        rows = [each.value for each in reader]
    assert [wire_id(row) for row in rows] == [
        registry.look_up(subject, schema).id for schema in versions
    ]
    for schema in versions:
        reader = AvroReader(registry, schema=schema)
        got = [reader.decode(row) for row in rows]
        assert [each["a"] for each in got] == [0, 1, 2, 3]
        names = {each["name"] for each in schema["fields"]}
        assert all(each.keys() == names for each in got)
        if "note" in names:
            assert [each["note"] for each in got] == [None, "n1", "n2", None]
        if "price" in names:
            assert [each["price"] for each in got] == [1.5, 1.5, 2.0, 3.0]
    latest = AvroReader(registry, subject=subject)
    assert latest.decode(rows[0]) == {"a": 0, "price": 1.5}


def test_a_producer_with_an_incompatible_schema_is_refused(registry, subject, unique):
    AvroWriter(registry, subject, unique)
    bad = {**unique, "fields": [field("a", "string")]}
    with pytest.raises(IncompatibleSchemaError, match="cannot read data of version 1") as caught:
        AvroWriter(registry, subject, bad)
    assert caught.value.code == 409
    assert registry.versions(subject) == [1]
    why = registry.objections(subject, bad)
    assert "TYPE_MISMATCH" in why[0]
    assert registry.objections(subject, unique) == []
    with pytest.raises(SchemaNotFoundError):
        AvroWriter(registry, subject, bad, register=False)
    assert AvroWriter(registry, subject).encode({"a": 3})[5:] == b"\x06"


def test_errors_are_told_apart(registry, subject, unique):
    with pytest.raises(InvalidSchemaError):
        registry.register(subject, "no schema")
    with pytest.raises(SchemaNotFoundError):
        registry.version(subject)
    with pytest.raises(SchemaNotFoundError):
        AvroReader(registry).decode(struct.pack(">bI", 0, 2**31 - 1))
    with pytest.raises(RegistryRefusedError, match="42203"):
        registry.set_level("SIDEWAYS", subject)
    writer = AvroWriter(registry, subject, unique)
    with pytest.raises(SchemaDataError, match="does not fit"):
        writer.encode({"a": "text"})
    with pytest.raises(SchemaDataError):
        writer.encode({})
    reader = AvroReader(registry)
    good = writer.encode({"a": 1})
    for bad in (b"", b"\x00\x00", b"\x01" + good[1:], good[:-1], good + b"x"):
        with pytest.raises(SchemaDataError):
            reader.decode(bad)
    narrow = AvroReader(registry, schema={**unique, "fields": [field("a", "string")]})
    with pytest.raises(SchemaDataError, match="cannot be read"):
        narrow.decode(good)


def test_nobody_answers():
    (port,) = free_ports(1)
    registry = SchemaRegistry(f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryUnreachableError):
        registry.subjects()


def test_addresses_that_do_not_answer_are_passed_over(broker, subject, unique):
    (port,) = free_ports(1)
    registry = SchemaRegistry(f"http://127.0.0.1:{port}, {broker.http_url('')}")
    assert registry.register(subject, unique) == registry.version(subject).id


def test_what_is_known_is_not_asked_for_again(start_broker, unique):
    broker = start_broker()
    registry = SchemaRegistry(broker.http_url(""))
    writer = AvroWriter(registry, "s", unique)
    data = writer.encode({"a": 1})
    reader = AvroReader(registry)
    reader.decode(data)
    broker.stop()
    assert registry.register("s", unique) == writer.schema_id
    assert AvroWriter(registry, "s", unique).encode({"a": 1}) == data
    assert reader.decode(data) == {"a": 1}
    assert registry.schema(writer.schema_id)[0]


def test_writers_and_readers_travel_to_other_processes(registry, subject, unique):
    """As to Spark's executors."""
    writer = pickle.loads(pickle.dumps(AvroWriter(registry, subject, unique)))
    newer = {**unique, "fields": [*unique["fields"], NOTE]}
    reader = pickle.loads(pickle.dumps(AvroReader(registry, schema=newer)))
    assert reader.decode(writer.encode({"a": 1})) == {"a": 1, "note": None}
    error = pickle.loads(pickle.dumps(IncompatibleSchemaError(409, 409, "no")))
    assert (error.status, error.message) == (409, "no")


def test_threads_share_a_registry(registry, unique):
    def work(number):
        writer = AvroWriter(registry, fresh(), {**unique, "doc": str(number % 3)})
        return AvroReader(registry).decode(writer.encode({"a": number}))["a"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(24))) == list(range(24))


def test_schemas_in_parts(broker, registry, unique):
    inner = unique["name"]
    used, user = fresh(), fresh()
    registry.register(used, unique)
    references = [Reference(inner, used, 1)]
    outer = record(
        field("i", inner), field("many", {"type": "array", "items": inner}), name="Outer"
    )
    writer = AvroWriter(registry, user, outer, references=references)
    value = {"i": {"a": 1}, "many": [{"a": 2}]}
    fresh_reader = AvroReader(SchemaRegistry(broker.http_url("")))
    assert fresh_reader.decode(writer.encode(value)) == value
    assert AvroReader(registry, subject=user).decode(writer.encode(value)) == value


def test_subjects_are_named_as_confluents_serializers_name_them():
    assert subject_of("orders") == "orders-value"
    assert subject_of("orders", key=True) == "orders-key"


def test_what_fastavro_writes_is_what_the_wire_has(registry, subject, unique):
    """Nothing but the header is added."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(unique), {"a": -5})
    assert AvroWriter(registry, subject, unique).encode({"a": -5})[5:] == buffer.getvalue()
