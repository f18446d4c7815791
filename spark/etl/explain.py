"""What a pipeline will do, in words: sources, schema behind each step, state, sinks, plans."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark.etl.dead_letters import dlq_of
from spark.etl.pipeline import Pipeline
from spark.etl.plan import Planner, Query
from spark.etl.sinks import guarantee_of
from spark.etl.spec import (
    Deduplicate,
    Join,
    PipelineSpec,
    Source,
    State,
    Step,
    StreamSink,
    Window,
    inputs_of,
)
from spark.etl.spec_graph import is_straight, upstream


def explain_lines(
    pipeline: Pipeline, spark: SparkSession | None = None, *, plan: bool
) -> list[str]:
    """Raises SpecError."""
    planner = pipeline.plan(spark)
    queries = planner.queries()
    return [*_lines(pipeline.spec, planner, queries, plan=plan)]


def _lines(
    spec: PipelineSpec, planner: Planner, queries: list[Query], *, plan: bool
) -> Iterator[str]:
    yield f"pipeline {spec.name}: a batch every {spec.trigger}, checkpoint {spec.checkpoint}"
    for source in spec.sources.values():
        yield ""
        yield from _source(spec, planner, source)
    for step in spec.steps.values():
        yield ""
        yield from _step(spec, planner, step)
    for query in queries:
        yield ""
        yield from _query(spec, query)
        if plan:
            yield from _plan(query)


def _source(spec: PipelineSpec, planner: Planner, source: Source) -> Iterator[str]:
    kind = "table" if source.is_table else "stream"
    yield f"source {source.name} ({kind} of {', '.join(source.topics)}, {source.format})"
    yield from _schema(planner, source.name)
    if source.event_time is not None:
        late = f", {source.watermark} late at most" if source.watermark else ""
        yield f"  event time: {source.event_time}{late}"
    for name in source.required:
        yield f"  must not be null: {name}"
    for name, condition in source.checks.items():
        yield f"  check {name}: {condition}"
    limits = spec.limits
    if limits.max_offsets_per_trigger is not None and not source.is_table:
        yield f"  a batch has up to {limits.max_offsets_per_trigger:,} records"


def _schema(planner: Planner, name: str) -> Iterator[str]:
    flow = planner.flow(name)
    schema = StructType([each for each in flow.frame.schema if each.name in flow.columns])
    for each in schema:
        yield f"    {each.name}: {each.dataType.simpleString()}"


def _step(spec: PipelineSpec, planner: Planner, step: Step) -> Iterator[str]:
    kind = type(step).__name__.lower()
    yield f"step {step.name} ({kind} of {', '.join(inputs_of(step))})"
    yield from _schema(planner, step.name)
    if state := _state(spec, step):
        yield f"  keeps: {state}"
    if not is_straight(spec, step.name):
        return
    if kind in ("cast", "validate", "rowfunction"):
        yield "  records that fail here become dead letters"


def _state(spec: PipelineSpec, step: Step) -> str:
    late = {
        spec.sources[each].watermark
        for each in upstream(spec, step.name)
        if each in spec.sources and spec.sources[each].watermark
    }
    behind = f"until the watermark ({' / '.join(sorted(map(str, late)))} behind) has passed"
    if isinstance(step, Window):
        return f"a row for each window and group, {behind} its end"
    if isinstance(step, Deduplicate):
        return f"a row for each {', '.join(step.keys)}, {behind} it"
    if isinstance(step, Join):
        return f"rows of both sides, {behind} all that they can be joined with"
    if isinstance(step, State):
        return f"what {step.processor} keeps for each {', '.join(step.keys)}"
    return ""


def _query(spec: PipelineSpec, query: Query) -> Iterator[str]:
    sink, shape = query.shape.sink, query.shape
    if sink is None:
        yield f"query {query.name} (dead letters)"
    else:
        target = f" to stream {sink.topic}" if isinstance(sink, StreamSink) else ""
        yield f"sink {query.name} ({sink.mode} rows of {sink.input}{target})"
    yield f"  {guarantee_of(sink)}"
    if shape.fused(spec):
        yield "  results and dead letters come out of one pass over the records"
    for each in shape.letters:
        topics = [
            dlq_of(topic)
            for name in upstream(spec, each.front)
            if name in spec.sources
            for topic in spec.sources[name].topics
        ]
        yield f"  dead letters of {', '.join(each.stages)}: to {', '.join(topics)}"


def _plan(query: Query) -> Iterator[str]:
    yield "  Spark's plan:"
    java: Any = query.frame.sparkSession._jvm  # noqa: SLF001 - DataFrame.explain only prints
    execution = query.frame._jdf.queryExecution()  # noqa: SLF001
    found = java.PythonSQLUtils.explainString(execution, "simple")
    for line in str(found).splitlines():
        yield f"    {line}"
