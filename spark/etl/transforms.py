"""Steps without state: filter, select, cast, validate and SQL, from frame to frame."""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark.etl.frames import ERROR, HIDDEN, RECORD, Flow, checks, error, failing, is_sound
from spark.etl.spec import Cast, Filter, Select, Sql, Validate

CAST_ERROR: Final = "CastError"
SHOWN_CHARS: Final = 80  # of a value that cannot be cast


def filtered(step: Filter, flow: Flow) -> Flow:
    """What failed before goes along: it is nobody's to drop."""
    condition = sql.expr(step.where)
    if flow.straight:
        condition = ~is_sound() | condition
    return Flow(flow.frame.where(condition), flow.straight)


def selected(step: Select, flow: Flow) -> Flow:
    kept = [name for name in flow.columns if name not in step.columns] if step.keep else []
    columns = [sql.col(f"`{name}`") for name in kept]
    columns += [guarded(text, flow).alias(name) for name, text in step.columns.items()]
    hidden = list(HIDDEN) if flow.straight else []
    return Flow(flow.frame.select(*columns, *hidden), flow.straight)


def guarded(expression: str, flow: Flow) -> Column:
    """Evaluated for sound rows only. It cannot multiply rows either, which failed ones would
    not survive: that is for SQL."""
    column = sql.expr(expression)
    return sql.when(is_sound(), column) if flow.straight else column


def casted(step: Cast, flow: Flow) -> Flow:
    """A value that is there and has no counterpart in the new type is an error of its row."""
    frame = flow.frame
    new = {name: sql.col(f"`{name}`").try_cast(kind) for name, kind in step.types.items()}
    if flow.straight:
        frame = failing(frame, [_cast_failure(step, name, new[name]) for name in new])
        kept = {name: sql.col(f"`{name}`") for name in flow.columns} | new
        columns = [column.alias(name) for name, column in kept.items()]
        return Flow(frame.select(*columns, RECORD, ERROR), straight=True)
    return Flow(frame.withColumns(new), straight=False)


def _cast_failure(step: Cast, name: str, new: Column) -> tuple[Column, Column]:
    old = sql.col(f"`{name}`")
    shown = sql.substring(old.cast("string"), 1, SHOWN_CHARS)
    told = sql.concat(sql.lit(f"column {name} is no {step.types[name]}: "), shown)
    return old.isNotNull() & new.isNull(), error(step.name, CAST_ERROR, told)


def validated(step: Validate, flow: Flow) -> Flow:
    """Behind a window or a join there is no record to blame: such rows are left out."""
    found = checks(step.name, step.required, step.checks)
    if flow.straight:
        return Flow(failing(flow.frame, found), straight=True)
    frame = flow.frame
    for condition, _ in found:
        frame = frame.where(~condition)
    return Flow(frame, straight=False)


def queried(step: Sql, spark: SparkSession, inputs: dict[str, DataFrame]) -> Flow:
    """The inputs are views by their names, in a session that is the pipeline's own."""
    for name, frame in inputs.items():
        frame.createOrReplaceTempView(name)
    return Flow(spark.sql(step.query), straight=False)
