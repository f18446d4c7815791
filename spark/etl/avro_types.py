"""Types of Avro and of Spark: which column a field becomes, and the other way round."""

import json
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import types as t

PRIMITIVES: Final[dict[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}
LOGICAL: Final[dict[str, t.DataType]] = {
    "date": t.DateType(),
    "timestamp-millis": t.TimestampType(),
    "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(),
    "local-timestamp-micros": t.TimestampNTZType(),
    "uuid": t.StringType(),
}
Convert = Callable[[Any], Any]


class UnsupportedTypeError(ValueError):
    """There is no counterpart; the text says of what."""


# From Avro


def columns_of(text: str) -> t.StructType:
    """Of a schema that is a record. Raises UnsupportedTypeError."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise UnsupportedTypeError("the schema is no record, so it has no columns")
    found = _Names().column(schema)
    assert isinstance(found, t.StructType)
    return found


class _Names:
    """Named types, which may be used again by their names."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()

    def column(self, schema: Any) -> t.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]
            if schema in self._open:
                raise UnsupportedTypeError(f"{schema} refers to itself: Spark has no such type")
            if schema not in self._known:
                raise UnsupportedTypeError(f"type {schema} is not known here")
            return self.column(self._known[schema])
        kind = schema["type"]
        if not isinstance(kind, str) or kind not in (*PRIMITIVES, *_COMPLEX):
            return self.column(kind)
        return self._of_table(kind, schema)

    def _of_table(self, kind: str, schema: dict[str, Any]) -> t.DataType:
        logical = schema.get("logicalType")
        if logical == "decimal":
            return t.DecimalType(schema["precision"], schema.get("scale", 0))
        if logical in LOGICAL:
            return LOGICAL[logical]
        if kind == "array":
            return t.ArrayType(self.column(schema["items"]))
        if kind == "map":
            return t.MapType(t.StringType(), self.column(schema["values"]))
        if kind in ("enum", "fixed", "record"):
            return self._named(kind, schema)
        return PRIMITIVES[kind]

    def _named(self, kind: str, schema: dict[str, Any]) -> t.DataType:
        names = {schema["name"], _full_name(schema)}
        self._known.update(dict.fromkeys(names, schema))
        if kind != "record":
            return t.StringType() if kind == "enum" else t.BinaryType()
        self._open |= names
        fields = [
            t.StructField(each["name"], self.column(each["type"])) for each in schema["fields"]
        ]
        self._open -= names
        return t.StructType(fields)

    def _union(self, branches: list[Any]) -> t.DataType:
        others = [each for each in branches if each != "null"]
        if len(others) != 1:
            raise UnsupportedTypeError(f"a union of {branches}: only null and one other type")
        return self.column(others[0])


_COMPLEX: Final = ("array", "map", "enum", "fixed", "record")


def _full_name(schema: dict[str, Any]) -> str:
    namespace = schema.get("namespace")
    return f"{namespace}.{schema['name']}" if namespace else str(schema["name"])


def plain_row(text: str) -> Convert | None:
    """What makes of fastavro's values what Arrow takes; None if they are that already."""
    has_uuids = '"uuid"' in text
    has_maps = '"map"' in text
    if not has_uuids and not has_maps:
        return None
    columns = columns_of(text)
    return lambda row: _plain(row, columns)


def _plain(value: Any, kind: t.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {each.name: _plain(value.get(each.name), each.dataType) for each in kind}
    if isinstance(kind, t.ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if isinstance(kind, t.MapType):
        return [(name, _plain(each, kind.valueType)) for name, each in value.items()]
    return str(value) if isinstance(kind, t.StringType) else value


# To Avro


def avro_of(columns: t.StructType, name: str) -> dict[str, Any]:
    """A record with these fields, each of which may be null. Raises UnsupportedTypeError."""
    word = "".join(c if c.isalnum() else "_" for c in name)
    return _record(columns, word if word[:1].isalpha() else f"r{word}")


def _record(columns: t.StructType, name: str) -> dict[str, Any]:
    fields = [
        {
            "name": each.name,
            "type": ["null", _type(each.dataType, f"{name}_{each.name}")],
            "default": None,
        }
        for each in columns
    ]
    return {"type": "record", "name": name, "fields": fields}


_SIMPLE: Final[dict[type[t.DataType], str]] = {
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.BinaryType: "bytes",
    t.StringType: "string",
}


def _type(kind: t.DataType, name: str) -> Any:
    if type(kind) in _SIMPLE:
        return _SIMPLE[type(kind)]
    if isinstance(kind, t.TimestampType):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if isinstance(kind, t.TimestampNTZType):
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    if isinstance(kind, t.DateType):
        return {"type": "int", "logicalType": "date"}
    if isinstance(kind, t.DecimalType):
        decimal = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **decimal}
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": ["null", _type(kind.elementType, f"{name}_item")]}
    if isinstance(kind, t.StructType):
        return _record(kind, name)
    raise UnsupportedTypeError(f"{kind.simpleString()} ({name}) has no counterpart in Avro")
