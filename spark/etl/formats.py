"""Bytes of records to columns and back. JSON and CSV are read in the JVM, Avro is in formats_avro.

What cannot be read becomes an error of its row, and of no other.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from spark.etl.errors import SpecError
from spark.etl.formats_avro import CORRUPT, avro_row
from spark.etl.frames import ENCODED, ERROR, ERROR_TYPE, HIDDEN, RECORD, error
from spark.etl.spec import Source

DECODE_ERROR: Final = "DecodeError"
ROW: Final = "_row"
_RESERVED: Final = (*HIDDEN, ROW, CORRUPT, ENCODED)
# What is not there is null, so that all records of a stream have the same columns.
_TO_JSON: Final = {"ignoreNullFields": "false"}
# Spark reads the first JSON value of a text and does not look at the rest. In a frame it must: what
# follows the object is then in the middle of an array, which has two elements if all is well. The
# line break ends a comment, which options may allow.
_FRAMED: Final = "v"
_FRAMED_SIZE: Final = 2
_FRAME: Final = (f'{{"{_FRAMED}":[', "\n,null]}")
_JSON_SPACE: Final = " \t\r\n"


def parse_schema(ddl: str, where: str) -> StructType:
    """Needs Spark. Raises SpecError."""
    try:
        schema = StructType.fromDDL(ddl)
    except Exception as problem:  # noqa: BLE001 - whatever Spark's parser raises
        reason = " ".join(str(problem).split())[:200]
        raise SpecError(f"{where}: Spark cannot read the schema: {reason}") from None
    assert isinstance(schema, StructType)
    for name in schema.fieldNames():
        if name in _RESERVED:
            raise SpecError(f"{where}: a column may not have the name {name}")
    if len({name.lower() for name in schema.fieldNames()}) != len(schema.fieldNames()):
        raise SpecError(f"{where}: a column is there twice (upper and lower case are the same)")
    return schema


def decoded(
    source: Source, records: DataFrame, schema: StructType, registry: str | None
) -> DataFrame:
    """Columns of the schema, `_record` and `_error`; of a record that failed, null columns."""
    if source.is_table:  # a null value deletes a key; nothing is wrong with it
        records = records.where(sql.col("value").isNotNull())
    record = sql.struct(*records.columns).alias(RECORD)
    if source.format == "raw":
        return records.select("value", record, sql.lit(None).cast(ERROR_TYPE).alias(ERROR))
    row = row_of(source, sql.col("value"), schema, registry)
    with_row = records.select(record, row.alias(ROW))
    failure = failure_of(source, sql.col(f"{RECORD}.value"), schema)
    return with_row.select(*columns_in(source, schema), RECORD, failure.alias(ERROR))


def row_of(source: Source, value: Column, schema: StructType, registry: str | None) -> Column:
    """What `columns_in` and `failure_of` find as `_row`: the schema's columns, and `_corrupt`,
    which says that something is wrong."""
    if source.format == "raw":
        return sql.struct(value.alias("value"), sql.lit(None).cast("string").alias(CORRUPT))
    if source.format == "avro":
        return avro_row(source, value, schema, registry)
    text = once(value).cast("string")
    if source.format == "json":
        framed = sql.concat(sql.lit(_FRAME[0]), text, sql.lit(_FRAME[1]))
        return sql.from_json(framed, _framed(schema), _options(source))
    ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in _wider(schema))
    return sql.from_csv(text, ddl, _options(source))


def columns_in(source: Source, schema: StructType) -> list[Column]:
    """The schema's columns, out of `_row`."""
    row = _content(source)
    return [row[name].alias(name) for name in schema.fieldNames()]


def _content(source: Source) -> Column:
    row = sql.col(ROW)
    return sql.get(row[_FRAMED], sql.lit(0)) if source.format == "json" else row


def _wider(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def _framed(schema: StructType) -> StructType:
    """Of a JSON value between the two parts of the frame."""
    return _wider(StructType([StructField(_FRAMED, ArrayType(schema))]))


def _options(source: Source) -> dict[str, str]:
    """The source's own before ours; Spark does not tell upper from lower case in their names."""
    own = {name.lower(): value for name, value in source.options.items()}
    return {
        "allowsinglequotes": "false",
        **own,
        "mode": "PERMISSIVE",
        "columnnameofcorruptrecord": CORRUPT,
    }


def once(value: Column) -> Column:
    """The same value, from which Spark computes nothing twice. It would move filters in front of
    what was read from the value, and read it again there for each column that they mention;
    not if it believes that the result may be another."""
    return sql.when(sql.spark_partition_id() >= 0, value)


def failure_of(source: Source, value: Column, schema: StructType) -> Column:
    """Null, or why the value could not be read; `_row` is what came of it."""
    row = sql.col(ROW)

    def failure(message: Column) -> Column:
        return error(source.name, DECODE_ERROR, message)

    no_value = sql.when(value.isNull(), failure(sql.lit("the value is null")))
    if source.format in ("avro", "raw"):
        return no_value.when(row[CORRUPT].isNotNull(), failure(row[CORRUPT]))
    text = value.cast("string")
    is_text = no_value.when(~sql.is_valid_utf8(text), failure(sql.lit("the value is not UTF-8")))
    # Which columns have no value is as near as Spark comes to what is wrong.
    content = _content(source)
    missing = [sql.when(content[name].isNull(), sql.lit(name)) for name in schema.fieldNames()]
    words = sql.lit(f"not {source.format.upper()} of this schema; without a value: ")
    misfit = sql.concat(words, sql.concat_ws(", ", *missing))
    if source.format == "json":
        return is_text.when(_is_no_object(), failure(_json_reason(source, text, schema, misfit)))
    is_empty = sql.octet_length(text) == 0
    return is_text.when(is_empty | row.isNull(), failure(sql.lit("the value is empty"))).when(
        row[CORRUPT].isNotNull(), failure(misfit)
    )


def _is_no_object() -> Column:
    """Between the two parts of the frame there is anything but one object of the schema."""
    row = sql.col(ROW)
    found = row[_FRAMED]
    first, second = sql.get(found, sql.lit(0)), sql.get(found, sql.lit(1))
    is_one = (sql.size(found) == _FRAMED_SIZE) & first.isNotNull() & second.isNull()
    return row[CORRUPT].isNotNull() | ~is_one


def _json_reason(source: Source, text: Column, schema: StructType, misfit: Column) -> Column:
    """Computed for what has failed, and only then."""
    bare = sql.btrim(text, sql.lit(_JSON_SPACE))
    alone = sql.from_json(text, _wider(schema), _options(source))
    return (
        sql.when(bare == "", "the value is empty")
        .when(bare.startswith("\ufeff"), "not JSON: it begins with a byte order mark")
        .when(bare.startswith("["), "a JSON array, where one object is expected")
        .when(bare == "null", "JSON's null, where an object is expected")
        .when(alone[CORRUPT].isNull(), "there is more behind the JSON object")
        .otherwise(misfit)
    )


def json_value(columns: list[str]) -> Column:
    """A row as JSON."""
    return sql.to_json(sql.struct(*[sql.col(f"`{name}`") for name in columns]), _TO_JSON)
