"""Bytes of records to columns and back. JSON and CSV are read in the JVM, Avro is in formats_avro.

What cannot be read becomes an error of its row, and of no other.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from spark.etl.errors import SpecError
from spark.etl.formats_avro import CORRUPT, avro_row
from spark.etl.frames import ERROR, ERROR_TYPE, HIDDEN, RECORD, error
from spark.etl.spec import Source

DECODE_ERROR: Final = "DecodeError"
ROW: Final = "_row"
_RESERVED: Final = (*HIDDEN, ROW, CORRUPT)
# What is not there is null, so that all records of a stream have the same columns.
_TO_JSON: Final = {"ignoreNullFields": "false"}


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
    record = sql.struct(*records.columns).alias(RECORD)
    if source.format == "raw":
        return records.select("value", record, sql.lit(None).cast(ERROR_TYPE).alias(ERROR))
    row = row_of(source, sql.col("value"), schema, registry)
    with_row = records.select(record, row.alias(ROW))
    columns = [sql.col(ROW)[name].alias(name) for name in schema.fieldNames()]
    failure = failure_of(source, sql.col(f"{RECORD}.value"), schema)
    return with_row.select(*columns, RECORD, failure.alias(ERROR))


def row_of(source: Source, value: Column, schema: StructType, registry: str | None) -> Column:
    """A struct of the schema's columns and `_corrupt`, which says that something is wrong."""
    if source.format == "raw":
        return sql.struct(value.alias("value"), sql.lit(None).cast("string").alias(CORRUPT))
    if source.format == "avro":
        return avro_row(source, value, schema, registry)
    options = {**source.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    wider = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    text = once(value).cast("string")
    if source.format == "json":
        return sql.from_json(text, wider, options)
    ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in wider.fields)
    return sql.from_csv(text, ddl, options)


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
    # Which columns have no value is as near as Spark comes to what is wrong.
    missing = [sql.when(row[name].isNull(), sql.lit(name)) for name in schema.fieldNames()]
    words = f"not {source.format.upper()} of this schema; without a value: "
    return (
        no_value.when(
            ~sql.is_valid_utf8(value.cast("string")), failure(sql.lit("the value is not UTF-8"))
        )
        .when(row.isNull(), failure(sql.lit("the value is empty")))
        .when(
            row[CORRUPT].isNotNull(),
            failure(sql.concat(sql.lit(words), sql.concat_ws(", ", *missing))),
        )
    )


def json_value(columns: list[str]) -> Column:
    """A row as JSON."""
    return sql.to_json(sql.struct(*[sql.col(f"`{name}`") for name in columns]), _TO_JSON)
