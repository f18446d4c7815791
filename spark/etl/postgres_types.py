"""Spark's types as PostgreSQL's: of the columns of a new table, and of those a table may have."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)
from sqlalchemy import TextClause, text

from spark.etl.store_errors import SinkError

NAME_BYTES_MAX: Final = 63  # of PostgreSQL; it would cut longer ones
COLUMNS_MAX: Final = 1500  # PostgreSQL has room for 1600 at most
WRITER: Final = "_etl_writer"  # columns of staging tables
ROW: Final = "_etl_row"

_PLAIN: Final[dict[type[DataType], str]] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    CharType: "text",
    VarcharType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNTZType: "timestamp without time zone",
    NullType: "text",
}
_NESTED: Final = (ArrayType, MapType, StructType, VariantType)
# What a column may be instead: nothing is lost on the way there.
_WIDER: Final[dict[str, tuple[str, ...]]] = {
    "boolean": (),
    "smallint": ("integer", "bigint", "numeric", "real", "double precision"),
    "integer": ("bigint", "numeric", "double precision"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "double precision": (),
    "numeric": (),
    "bytea": (),
    "date": ("timestamp without time zone",),
    "timestamp with time zone": (),
    "timestamp without time zone": (),
    "jsonb": ("json", "text"),
}


def is_nested(kind: DataType) -> bool:
    """Such values are written as JSON."""
    return isinstance(kind, _NESTED)


def type_of(field: StructField) -> str:
    """Of the column in a new table. Raises SinkError."""
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if is_nested(kind):
        return "jsonb"
    for known, name in _PLAIN.items():
        if isinstance(kind, known):
            return name
    raise SinkError(
        f"column {field.name!r} is {kind.simpleString()}, for which PostgreSQL has no type: cast it"
    )


def fits(field: StructField, column: str) -> bool:
    """Whether a column of this type takes the field's values; `column` is without its length."""
    own = type_of(field).partition("(")[0]
    if own == "text":  # PostgreSQL reads text as uuid, inet, an enumeration …
        return column not in _WIDER or column == "jsonb"
    return column == own or column in _WIDER[own]


def check_columns(fields: Sequence[StructField]) -> None:
    """Raises SinkError for what no table can have."""
    if not 0 < len(fields) <= COLUMNS_MAX:
        raise SinkError(f"{len(fields)} columns; a table has 1 to {COLUMNS_MAX}")
    names = [field.name for field in fields]
    for name in names:
        if name in (WRITER, ROW):
            raise SinkError(f"column {name!r}: the name is taken, for staging")
        if names.count(name) > 1:
            raise SinkError(f"column {name!r} is there twice")
        check_name(name)
    for field in fields:
        type_of(field)


def check_name(name: str) -> None:
    if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise SinkError(f"{name!r} is no name in PostgreSQL: 1 to {NAME_BYTES_MAX} bytes")


def quoted(name: str) -> str:
    """An identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def statement(words: str) -> TextClause:
    """SQL with quoted names in it, whatever is in them; `@name@` stands for a parameter."""
    return text(words.replace(":", "\\:").replace("@writers@", ":writers"))
