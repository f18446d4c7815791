"""Which columns of a DataFrame are written, and as what: those that Spark's Kafka sink takes."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from spark.errors import OptionError

COLUMNS: Final = ("key", "value", "headers", "topic", "partition")
_BYTES: Final = (StringType, BinaryType)
_NUMBERS: Final = (IntegerType, ByteType, ShortType, LongType)
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def check_columns(schema: StructType, *, topic: str | None) -> None:
    """Columns that mean nothing to a stream are left out. Raises OptionError for bad ones."""
    names = schema.fieldNames()
    if "value" not in names:
        raise OptionError(
            f"there is no column value, only {', '.join(names) or 'none'}: select "
            "to_json(struct(*)) as value, for example"
        )
    if topic is None and "topic" not in names:
        raise OptionError("which stream? There is neither the option topic nor a column topic")
    for name in COLUMNS:
        count = names.count(name)
        if count > 1:
            raise OptionError(f"there are {count} columns {name}")
        if count:
            _check_type(name, schema[name].dataType)


def _check_type(name: str, kind: DataType) -> None:
    found = kind.simpleString()
    if name in ("key", "value") and not isinstance(kind, _BYTES):
        raise OptionError(f"column {name} is {found}; cast it to string or binary")
    if name == "topic" and not isinstance(kind, StringType):
        raise OptionError(f"column topic is {found}; it must be string")
    if name == "partition" and not isinstance(kind, _NUMBERS):
        raise OptionError(f"column partition is {found}; it must be int")
    if name == "headers" and not _are_headers(kind):
        raise OptionError(f"column headers is {found}; it must be {_HEADERS}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    if [field.name for field in fields] != ["key", "value"]:
        return False
    return isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, _BYTES)
