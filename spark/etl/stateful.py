"""Steps that keep something: windows, deduplication, joins of streams, state of one's own."""

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark.etl.errors import SpecError
from spark.etl.formats import parse_schema
from spark.etl.frames import Flow
from spark.etl.importing import load
from spark.etl.spec import Deduplicate, Join, PipelineSpec, State, Window
from spark.etl.spec_graph import event_times

_ANY_MS: Final = 10**12  # a watermark; so large that it is a long for the JVM
_TIMES: Final = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}


def windowed(spec: PipelineSpec, step: Window, frame: DataFrame) -> Flow:
    """A row for each window and group, once the watermark says that it is over."""
    time = step.time or event_times(spec, step.input)[0]
    _must_have(spec, step.name, "time", frame, time)
    if step.gap is not None:
        window = sql.session_window(sql.col(f"`{time}`"), step.gap)
    else:
        assert step.size is not None
        window = sql.window(sql.col(f"`{time}`"), step.size, step.slide)
    grouped = frame.groupBy(window.alias("_window"), *[sql.col(f"`{name}`") for name in step.by])
    found = grouped.agg(*[sql.expr(text).alias(name) for name, text in step.aggregates.items()])
    return Flow(
        found.select(
            sql.col("_window.start").alias("window_start"),
            sql.col("_window.end").alias("window_end"),
            *[f"`{name}`" for name in (*step.by, *step.aggregates)],
        ),
        straight=False,
    )


def deduplicated(spec: PipelineSpec, step: Deduplicate, frame: DataFrame) -> Flow:
    """The first row of each key; what comes again within the watermark is left out."""
    for name in step.keys:
        _must_have(spec, step.name, "keys", frame, name)
    return Flow(frame.dropDuplicatesWithinWatermark(list(step.keys)), straight=False)


def joined(spec: PipelineSpec, step: Join, left: DataFrame, right: DataFrame) -> Flow:
    """Rows of both with the same keys, in time of each other."""
    for side, frame in ((step.left, left), (step.right, right)):
        for name in step.on:
            _must_have(spec, step.name, f"on ({side})", frame, name)
    both = left.alias(step.left).join(
        right.alias(step.right), sql.expr(_condition(spec, step)), step.how
    )
    _must_end(spec, step, both)
    if step.columns:
        columns = [sql.expr(text).alias(name) for name, text in step.columns.items()]
        return Flow(both.select(*columns), straight=False)
    others = [name for name in right.columns if name not in step.on]
    for name in others:
        if name in left.columns:
            raise SpecError(
                f"{spec.file}: [[steps]] {step.name!r} columns: both sides have {name}: say which "
                f"columns there are to be, as in {{ {name} = '{step.left}.{name}' }}"
            )
    kept = [sql.col(f"{step.left}.`{name}`") for name in left.columns]
    kept += [sql.col(f"{step.right}.`{name}`") for name in others]
    return Flow(both.select(*kept), straight=False)


def _condition(spec: PipelineSpec, step: Join) -> str:
    parts = [f"`{step.left}`.`{name}` = `{step.right}`.`{name}`" for name in step.on]
    if step.condition is not None:
        return " AND ".join([*parts, f"({step.condition})"])
    (first,), (second,) = (event_times(spec, each) for each in (step.left, step.right))
    earlier, later = f"`{step.left}`.`{first}`", f"`{step.right}`.`{second}`"
    parts.append(f"{later} BETWEEN {earlier} AND {earlier} + INTERVAL {step.within}")
    return " AND ".join(parts)


def _must_end(spec: PipelineSpec, step: Join, both: DataFrame) -> None:
    """Spark itself asks for that only where a row without a match is a result."""
    plan: Any = both._jdf.queryExecution().analyzed()  # noqa: SLF001 - nothing else tells
    java: Any = both.sparkSession._jvm  # noqa: SLF001
    helper = java.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(plan):
        return
    sides = {step.left: plan.left().outputSet(), step.right: plan.right().outputSet()}
    for side, other in (step.left, step.right), (step.right, step.left):
        end = helper.getStateValueWatermark(
            sides[side], sides[other], plan.condition(), java.scala.Some(_ANY_MS)
        )
        if end.isEmpty():
            raise SpecError(
                f"{spec.file}: [[steps]] {step.name!r} condition: rows of {side} would be kept for "
                "ever, since nothing says how much later an event of the other side may be: use "
                f"within, or bound both event times by each other, as in '{step.right}.b BETWEEN "
                f"{step.left}.a AND {step.left}.a + INTERVAL 1 HOUR'"
            )


def with_state(spec: PipelineSpec, step: State, frame: DataFrame) -> Flow:
    where = f"{spec.file}: [[steps]] {step.name!r}"
    made = load(step.processor, spec.directory, f"{where} processor")
    if not (isinstance(made, type) and issubclass(made, StatefulProcessor)):
        raise SpecError(f"{where} processor: {step.processor} is no StatefulProcessor of Spark")
    for name in step.keys:
        _must_have(spec, step.name, "keys", frame, name)
    grouped = frame.groupBy(*[f"`{name}`" for name in step.keys])
    schema = parse_schema(step.schema, f"{where} schema")
    return Flow(
        grouped.transformWithState(made(), schema, "Append", _TIMES[step.time]), straight=False
    )


def _must_have(spec: PipelineSpec, step: str, key: str, frame: DataFrame, column: str) -> None:
    if column not in frame.columns:
        known = ", ".join(frame.columns)
        raise SpecError(
            f"{spec.file}: [[steps]] {step!r} {key}: there is no column {column}; there are {known}"
        )
