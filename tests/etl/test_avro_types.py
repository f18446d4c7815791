"""Which columns a schema of Avro becomes: names, references, and what Spark has no type for."""

import json
from typing import Any

import pytest

from clients.schema_registry import Reference, Registered, SchemaRegistry
from clients.schemas import parsed_schema
from spark.etl.avro_types import UnsupportedTypeError, columns_of

CITY = {"name": "city", "type": "string"}


class Shelf(SchemaRegistry):
    """A registry without a server: subjects of one version."""

    def __init__(self, **schemas: tuple[Any, tuple[Reference, ...]]) -> None:
        self.schemas = schemas

    def version(self, subject: str, version: int | str = 1) -> Registered:
        schema, references = self.schemas[subject]
        number = [*self.schemas].index(subject)
        return Registered(subject, int(version), number, json.dumps(schema), references)


def record(name: str, *fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def columns(schema: Any, registry: SchemaRegistry | None = None, *refers: Reference) -> str:
    found = parsed_schema(registry or Shelf(), json.dumps(schema), refers)
    return columns_of(*found).simpleString()


ADDRESS = record("Addr", CITY)
BOTH = "struct<home:struct<city:string>,work:struct<city:string>>"
NAMES: list[tuple[Any, str]] = [
    (record("Order", field("home", ADDRESS), field("work", "Addr")), BOTH),
    (
        record("Order", field("home", ADDRESS), field("work", "shop.Addr"), namespace="shop"),
        BOTH,
    ),
    (record("Order", field("home", ADDRESS), field("work", "Addr"), namespace="shop"), BOTH),
    (record("shop.Order", field("home", ADDRESS), field("work", "shop.Addr")), BOTH),
    (
        record(
            "shop.Order",
            field("home", ADDRESS | {"namespace": "post"}),
            field("work", ["null", "post.Addr"]),
        ),
        BOTH,
    ),
    (
        record(
            "Order",
            field("a", {"type": "enum", "name": "E", "symbols": ["X"]}),
            field("b", {"type": "array", "items": "x.E"}),
            field("c", {"type": "fixed", "name": "F", "size": 2}),
            field("d", {"type": "map", "values": "F"}),
            namespace="x",
        ),
        "struct<a:string,b:array<string>,c:binary,d:map<string,binary>>",
    ),
]


@pytest.mark.parametrize(("schema", "expected"), NAMES)
def test_a_type_is_used_again_by_its_name(schema: Any, expected: str) -> None:
    assert columns(schema) == expected


def test_what_a_schema_refers_to_is_found_however_deep() -> None:
    place = record("post.Place", CITY)
    address = record("post.Addr", field("at", "post.Place"))
    shelf = Shelf(place=(place, ()), address=(address, (Reference("post.Place", "place", 1),)))
    order = record("shop.Order", field("home", "post.Addr"), field("work", "post.Place"))
    refers = (Reference("post.Addr", "address", 1), Reference("post.Place", "place", 1))
    expected = "struct<home:struct<at:struct<city:string>>,work:struct<city:string>>"
    assert columns(order, shelf, *refers) == expected


REFUSED: list[tuple[Any, str]] = [
    ('"string"', "the schema is no record"),
    (
        record("a.Node", field("next", ["null", "Node"])),
        "a.Node refers to itself (a.Node in a.Node): Spark has no such type",
    ),
    (
        record("A", field("b", record("B", field("a", {"type": "array", "items": "A"})))),
        "A refers to itself (A in B in A)",
    ),
    (record("A", field("b", ["int", "string"])), "a union of int, string: only null and one"),
]


@pytest.mark.parametrize(("schema", "said"), REFUSED)
def test_what_spark_has_no_type_for_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(UnsupportedTypeError) as error:
        columns(json.loads(schema) if isinstance(schema, str) else schema)
    assert said in str(error.value)
