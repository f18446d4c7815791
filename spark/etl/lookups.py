"""A step that adds to each row what a table has for its key."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from spark.etl.errors import SpecError
from spark.etl.formats import ROW, columns_in, failure_of, row_of
from spark.etl.frames import Flow, checks, is_sound
from spark.etl.spec import Lookup, PipelineSpec
from spark.etl.tables import lookup_udf

_OUTER, _VALUE, _FOUND = "_outer", "_value", "_found"


def looked_up(spec: PipelineSpec, step: Lookup, flow: Flow, schema: StructType) -> Flow:
    """The table's value is read as its source says; what cannot be read, or fails its checks, is
    not there for this step (and a dead letter of the table's stream)."""
    source = spec.sources[step.table]
    look = lookup_udf(spec.broker, spec.broker_timeout, source.topics)
    key = sql.expr(step.key).cast("string").cast("binary")
    if flow.straight:
        key = sql.when(is_sound(), key)
    outer = sql.struct(*flow.frame.columns).alias(_OUTER)
    frame = flow.frame.select(outer, look(key).alias(_VALUE))
    frame = frame.select("*", row_of(source, sql.col(_VALUE), schema, spec.registry).alias(ROW))
    inner = columns_in(source, schema)
    is_found = failure_of(source, sql.col(_VALUE), schema).isNull()
    frame = frame.select(_OUTER, is_found.alias(_FOUND), *inner)
    for condition, _ in checks(source.name, source.required, source.checks):
        frame = frame.withColumn(_FOUND, sql.col(_FOUND) & ~condition)
    return _put_together(spec, step, flow, schema, frame)


def _put_together(
    spec: PipelineSpec, step: Lookup, flow: Flow, schema: StructType, frame: DataFrame
) -> Flow:
    wanted = step.columns or {name: f"`{name}`" for name in schema.fieldNames()}
    for name in wanted:
        if name in flow.columns:
            raise SpecError(
                f"{spec.file}: [[steps]] {step.name!r} columns: {step.input} has {name} too: say "
                f"which columns of the table are wanted, as in {{ {step.table}_{name} = '{name}' }}"
            )
    columns = [
        sql.when(sql.col(_FOUND), sql.expr(text)).alias(name) for name, text in wanted.items()
    ]
    if step.how == "inner":
        hit = sql.col(_FOUND)
        if flow.straight:
            hit = hit | sql.col(f"{_OUTER}._error").isNotNull()
        frame = frame.where(hit)
    return Flow(frame.select(f"{_OUTER}.*", *columns), flow.straight)
