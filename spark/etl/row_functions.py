"""Python functions of single rows, in Arrow batches: one that raises is an error of its row."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from spark.etl.arrow_values import scalar_udf, to_arrow, to_python
from spark.etl.formats import parse_schema
from spark.etl.frames import ERROR, RECORD, Flow, is_sound
from spark.etl.importing import load
from spark.etl.spec import PipelineSpec, RowFunction

Row: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[[Row], Row | None]

MESSAGE_CHARS_MAX: Final = 1000
_RESULT: Final = "_result"


def applied(spec: PipelineSpec, step: RowFunction, flow: Flow) -> Flow:
    where = f"{spec.file}: [[steps]] {step.name!r}"
    function = load(step.function, spec.directory, f"{where} function")
    schema = parse_schema(step.schema, f"{where} schema")
    given = sql.struct(*[sql.col(f"`{name}`") for name in flow.columns])
    result = row_udf(function, schema)(sql.when(is_sound(), given)).alias(_RESULT)
    frame = flow.frame.select(RECORD, ERROR, result)
    kind = sql.col(_RESULT)["type"]
    failure = sql.struct(
        sql.lit(step.name).alias("stage"),
        kind.alias("type"),
        sql.col(_RESULT)["message"].alias("message"),
    )
    frame = frame.where(~is_sound() | sql.col(_RESULT)["kept"])
    columns = [sql.col(_RESULT)["row"][name].alias(name) for name in schema.fieldNames()]
    new_error = sql.when(is_sound() & kind.isNotNull(), failure).otherwise(sql.col(ERROR))
    return Flow(frame.select(*columns, RECORD, new_error.alias(ERROR)), straight=True)


def row_udf(function: Function, schema: StructType) -> Callable[[Column], Column]:
    """From a struct to a struct: the row, whether it is kept, and what the function raised."""
    kind = StructType(
        [
            StructField("row", schema),
            StructField("kept", BooleanType()),
            StructField("type", StringType()),
            StructField("message", StringType()),
        ]
    )
    arrow = to_arrow_type(kind, timezone="UTC")

    def run(rows: pa.Array) -> pa.Array:
        results = [_call(function, row) for row in to_python(rows)]
        return to_arrow(results, arrow, _failed)

    return scalar_udf(run, kind)


def _call(function: Function, row: Row | Exception | None) -> Row:
    """The row, whether it is kept, type and message of an error."""
    if row is None:  # it failed before
        return {"kept": True}
    if isinstance(row, Exception):  # Python has no such values
        return _failed(row)
    try:
        found = function(row)
        if found is not None and not isinstance(found, dict):
            raise TypeError(f"the function returned {type(found).__name__}, not a dict or None")
    except Exception as error:  # noqa: BLE001 - that is what dead letters are for
        return _failed(error)
    return {"row": found, "kept": found is not None}


def _failed(error: Exception) -> Row:
    return {"kept": True, "type": type(error).__name__, "message": str(error)[:MESSAGE_CHARS_MAX]}
