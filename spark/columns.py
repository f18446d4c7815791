"""The columns of a stream as Spark sees them, named and typed as those of Spark's Kafka source."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.errors import OptionError

HEADERS: Final = "headers"
HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: HEADERS_TYPE,
}


def full_schema(*, headers: bool) -> StructType:
    """All columns; headers cost more than the others, and are there when asked for."""
    return StructType(
        [StructField(name, kind) for name, kind in TYPES.items() if headers or name != HEADERS]
    )


def check_schema(schema: StructType) -> None:
    """A user's schema chooses columns. Raises OptionError if it asks for what there is not."""
    for field in schema.fields:
        kind = TYPES.get(field.name)
        if kind is None:
            raise OptionError(f"there is no column {field.name!r}; there are {', '.join(TYPES)}")
        if field.dataType != kind:
            raise OptionError(
                f"column {field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}"
            )
        if not field.nullable:
            raise OptionError(f"column {field.name} must be nullable")
    if not schema.fields:
        raise OptionError("a schema without columns")
