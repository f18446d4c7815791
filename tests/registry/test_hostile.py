"""Schemas that are meant to hurt: refused in words, while the node goes on serving others."""

import json
import threading
import time

import pytest

from broker.registry.avro_check import Parsed, why_unreadable
from broker.registry.avro_text import (
    BRANCHES_MAX,
    DEPTH_MAX,
    FIELDS_MAX,
    TEXT_BYTES_MAX,
    Budget,
    InvalidSchemaError,
)
from tests.registry.conftest import Web, field, record

pytestmark = pytest.mark.leveret_only


def nested(levels):
    schema = "int"
    for level in range(levels):
        schema = record(field("f", schema), name=f"R{level}")
    return schema


def arrays(levels):
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


HOSTILE = {
    "no text": "",
    "spaces": "   ",
    "no JSON": "{",
    "a number": "5",
    "null": "null",
    "NaN": "NaN",
    "a huge number": '{"type":"fixed","name":"F","size":' + "9" * 5000 + "}",
    "a lone surrogate": '"\\ud800"',
    "half a character in a note": json.dumps(record(doc="\ud800")),
    "a number beyond all numbers": '{"type":"record","name":"R","fields":[],"x":1e999}',
    "a default beyond all numbers": json.dumps(record(field("a", "double", default=1.0))).replace(
        "1.0", "1e999"
    ),
    "brackets": "[" * 100_000,
    "braces": '{"a":' * 100_000,
    "records in records": json.dumps(nested(DEPTH_MAX)),
    "arrays of arrays": arrays(DEPTH_MAX * 2),
    "too many fields": json.dumps(record(*(field(f"f{n}") for n in range(FIELDS_MAX + 1)))),
    "too many types in a union": json.dumps(
        [record(name=f"R{n}") for n in range(BRANCHES_MAX + 1)]
    ),
    "a type in terms of itself": '{"type":"array","items":"R"}',
    "a name that is none": json.dumps(record(name="a b")),
    "a name of newlines": json.dumps(record(name="a\n")),
    "a field's name that is none": json.dumps(record(field("a-b"))),
    "a field twice": json.dumps(record(field("a"), field("a"))),
    "a type twice": json.dumps([record(), record()]),
    "a type twice in a union": '["int","int"]',
    "a union in a union": '["int",["null"]]',
    "an unknown type": '{"type":"integer"}',
    "a type that is a list": '{"type":["int"]}',
    "fields that are none": '{"type":"record","name":"R","fields":5}',
    "symbols that are none": '{"type":"enum","name":"E","symbols":"AB"}',
    "a symbol twice": '{"type":"enum","name":"E","symbols":["A","A"]}',
    "a default that is no symbol": '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
    "a negative size": '{"type":"fixed","name":"F","size":-1}',
    "a default of another type": json.dumps(record(field("a", default="x"))),
    "a default too large": json.dumps(record(field("a", default=2**31))),
    "aliases that are none": json.dumps(record(aliases=[5])),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_schema_is_refused_in_words(web, subject, text):
    answer = web.register(subject, text)
    assert answer.code == 42201, answer
    assert len(answer.json["message"]) < 5000
    assert web.call("GET", "subjects", subject, "versions").code == 40401


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"properties": {"a": "\ud800"}}},
        {"metadata": {"x": float("inf")}},
        {"ruleSet": {"x": "y" * 100_000}},
        {"metadata": {"x": [[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]}},
        {"references": [{"name": "\ud800", "subject": "s", "version": 1}]},
        {"references": [{"name": "n", "subject": "s", "version": 1}] * 101},
    ],
)
def test_what_else_comes_with_a_schema_is_looked_at(web, subject, unique, more):
    assert web.register(subject, unique, **more).code == 42201
    assert web.call("GET", "subjects", subject, "versions").code == 40401


def test_odd_metadata_is_kept_and_found(web, subject, unique):
    web.registered(subject, unique, metadata={"properties": 5})
    path = ("subjects", subject, "metadata")
    assert web.call("GET", *path).json["metadata"] == {"properties": 5}
    assert web.call("GET", *path, key="a", value="b").code == 40403


def test_a_schema_that_is_too_large_is_refused(web, subject):
    assert web.register(subject, record(doc="x" * TEXT_BYTES_MAX)).code == 42209
    assert web.register(subject, record(doc="x" * 5 * TEXT_BYTES_MAX)).code == 42209


def test_the_largest_schema_there_may_be_is_kept(web, subject):
    doc = "ü" * (TEXT_BYTES_MAX // 2 - 100)
    one = web.registered(subject, json.dumps(record(doc=doc), ensure_ascii=False))
    text = web.call("GET", "schemas", "ids", str(one)).json["schema"]
    assert json.loads(text)["doc"] == doc


def test_odd_schemas_that_are_none_the_less_schemas_are_taken(web, subject):
    odd = [
        '"null"',
        "[]",
        record(),
        {"type": "int", "logicalType": ["no", "text"]},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 99},
        record(field("a", ["null", "string"], default="not the first")),
        record(field("self", ["null", "R"], default=None)),
        {**record(), "type": "error"},
        nested(40),
    ]
    web.call("PUT", "config", subject, body={"compatibility": "NONE"})
    for schema in odd:
        web.registered(subject, schema)
    assert len(web.call("GET", "subjects", subject, "versions").json) == len(odd)


# What would take for ever


def braid(levels, last):
    """Records that use the one before twice: two to the power of `levels` ways down."""
    fields = [field("r0", record(field("x", last), name="R0"))]
    for n in range(1, levels):
        strands = (field("a", f"R{n - 1}"), field("b", f"R{n - 1}"))
        fields.append(field(f"r{n}", record(*strands, name=f"R{n}")))
    return record(*fields, name="Braid")


def test_the_same_finding_many_times_over_is_told_in_short():
    reader, writer = (Parsed(json.dumps(braid(60, kind))) for kind in ("int", "string"))
    why = why_unreadable(reader, writer, Budget())
    assert why is not None
    assert len(why) <= 1000


def test_a_default_in_unions_of_unions_is_found_out_in_time():
    types = [record(field("x", "Top"), name=f"R{n}") for n in range(60)]
    value = {"x": {"u": {"x": {"u": {"x": {"u": {"x": {"u": {"x": {"u": 5}}}}}}}}}}
    top = record(field("u", types), field("d", "R0", default=value), name="Top")
    with pytest.raises(InvalidSchemaError):
        Parsed(json.dumps(top))


def test_too_many_pairs_of_types_are_not_compared():
    names = [f"R{n}" for n in range(450)]
    writer = [record(field("x"), name=name) for name in names]
    reader = [record(field("x", "string"), name=name) for name in names]
    with pytest.raises(InvalidSchemaError, match="too long"):
        why_unreadable(Parsed(json.dumps(reader)), Parsed(json.dumps(writer)), Budget())


def test_others_are_served_while_a_large_schema_is_checked(web, broker, subject):
    large = record(*(field(f"f{n}", ["null", "string"], default=None) for n in range(FIELDS_MAX)))
    web.registered(subject, large)
    results = []

    def register():
        mine = Web(broker.host, broker.http_port)
        results.append(mine.register(subject, {**large, "doc": "again"}).status)

    thread = threading.Thread(target=register)
    thread.start()
    asked = 0
    while thread.is_alive() or not asked:
        assert web.call("GET", "subjects", subject, "versions").status == 200
        asked += 1
        time.sleep(0.001)
    thread.join()
    assert results == [200]


@pytest.mark.parametrize("number", ["0" * 11 + "1" + "9" * 5000, "9" * 5000, "\u00b2", "-1", "x"])
def test_an_id_that_nothing_can_have_is_not_found(web, number):
    assert web.call("GET", "schemas", "ids", number).code == 40403
