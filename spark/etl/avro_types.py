"""Types of Avro and of Spark: which column a field becomes, and the other way round."""

from collections.abc import Callable, Mapping
from datetime import time
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


def columns_of(schema: Any, named: Mapping[str, Any]) -> t.StructType:
    """Of a schema that is a record, as `clients.schemas` parses it: names are in full, and what
    they stand for is in `named`. Raises UnsupportedTypeError."""
    found = _Walk(named).column(schema)
    if not isinstance(found, t.StructType):
        raise UnsupportedTypeError("the schema is no record, so it has no columns")
    return found


def plain_row(schema: Any, named: Mapping[str, Any]) -> Convert | None:
    """What makes of fastavro's values what Arrow takes; None if they are that already."""
    walk = _Walk(named)
    columns = walk.column(schema)
    return (lambda row: _plain(row, columns)) if walk.has_foreign else None


class _Walk:
    """Through a schema and the types that it names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []  # records that we are in
        self.has_foreign = False  # fastavro has values for something that Arrow does not take

    def column(self, schema: Any) -> t.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]
            if schema not in self._named:
                raise UnsupportedTypeError(f"type {schema} is not known here")
            return self.column(self._named[schema])
        kind = schema["type"]
        if not isinstance(kind, str) or kind not in (*PRIMITIVES, *_COMPLEX):
            return self.column(kind)
        return self._of_table(kind, schema)

    def _of_table(self, kind: str, schema: dict[str, Any]) -> t.DataType:
        logical = schema.get("logicalType")
        if logical == "decimal":
            return t.DecimalType(schema["precision"], schema.get("scale", 0))
        self.has_foreign |= kind == "map" or logical in _FOREIGN
        if logical in LOGICAL:
            return LOGICAL[logical]
        if kind == "array":
            return t.ArrayType(self.column(schema["items"]))
        if kind == "map":
            return t.MapType(t.StringType(), self.column(schema["values"]))
        if kind == "record":
            return self._record(schema)
        return _UNNAMED[kind] if kind in _UNNAMED else PRIMITIVES[kind]

    def _record(self, schema: dict[str, Any]) -> t.DataType:
        name = schema["name"]
        if name in self._open:
            way = " in ".join([name, *reversed(self._open[self._open.index(name) :])])
            raise UnsupportedTypeError(f"{name} refers to itself ({way}): Spark has no such type")
        self._open.append(name)
        fields = [
            t.StructField(each["name"], self.column(each["type"])) for each in schema["fields"]
        ]
        self._open.pop()
        return t.StructType(fields)

    def _union(self, branches: list[Any]) -> t.DataType:
        others = [each for each in branches if each != "null"]
        if len(others) != 1:
            names = ", ".join(each if isinstance(each, str) else each["type"] for each in branches)
            raise UnsupportedTypeError(f"a union of {names}: only null and one other type")
        return self.column(others[0])


_UNNAMED: Final[dict[str, t.DataType]] = {"enum": t.StringType(), "fixed": t.BinaryType()}
_COMPLEX: Final = ("array", "map", "enum", "fixed", "record")
_FOREIGN: Final = ("uuid", "time-millis", "time-micros")


def _plain(value: Any, kind: t.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {each.name: _plain(value.get(each.name), each.dataType) for each in kind}
    if isinstance(kind, t.ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if isinstance(kind, t.MapType):
        return [(name, _plain(each, kind.valueType)) for name, each in value.items()]
    if isinstance(value, time):
        return _since_midnight(value, kind)
    return str(value) if isinstance(kind, t.StringType) else value


def _since_midnight(value: time, kind: t.DataType) -> int:
    """As it was written: Spark's own type of this kind is too new for its other parts."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    micros = seconds * 1_000_000 + value.microsecond
    return micros // 1000 if isinstance(kind, t.IntegerType) else micros


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
