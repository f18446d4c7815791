"""Builds the frames of a pipeline and the queries over them; starts nothing and asks no broker."""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from clients.schema_registry import SchemaError
from spark.etl import stateful, transforms
from spark.etl.errors import SpecError
from spark.etl.formats import decoded, parse_schema
from spark.etl.formats_avro import SinkSchema, avro_schema, avro_value, sink_schema
from spark.etl.frames import Flow, checks, failed, failing, sound
from spark.etl.importing import load
from spark.etl.job_names import job_of
from spark.etl.letters import letters
from spark.etl.lookups import looked_up
from spark.etl.past_queries import past_queries
from spark.etl.row_functions import applied
from spark.etl.spec import (
    Cast,
    Deduplicate,
    Filter,
    FrameFunction,
    Join,
    Lookup,
    PipelineSpec,
    RowFunction,
    Select,
    Source,
    Sql,
    State,
    Step,
    StreamSink,
    Validate,
    Window,
    inputs_of,
)
from spark.etl.spec_graph import event_times, needing_watermark
from spark.etl.spec_queries import QueryShape, query_shapes
from spark.etl.stream_sink import counted, fused_rows, result_rows
from spark.option_values import read_span_ms

RECORD_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
)
HEADER_COLUMN: Final = ", headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class Query:
    """One that Spark runs: for a sink, or for the dead letters of all that have no stream."""

    shape: QueryShape
    frame: DataFrame

    @property
    def name(self) -> str:
        return self.shape.name


class Planner:
    """Of one pipeline, in a session that is its own. Raises SpecError for what Spark refuses."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession) -> None:
        self._spec = spec
        self.spark = spark
        self._flows: dict[str, Flow] = {}
        self._sound: dict[str, DataFrame] = {}
        self._schemas: list[SinkSchema] = []

    def queries(self) -> list[Query]:
        shapes = query_shapes(self._spec, past_queries(self._spec.path))
        return [Query(shape, self._frame(shape)) for shape in shapes]

    def register_schemas(self) -> None:
        """Of the queries' sinks. Raises SpecError."""
        for each in self._schemas:
            try:
                each.register()
            except SchemaError as error:
                raise SpecError(f"{each.where} subject {each.subject}: {error}") from error

    def flow(self, name: str) -> Flow:
        """Behind a source or a step. The same frame each time, so that Spark reads it once."""
        if name not in self._flows:
            self._flows[name] = self._make(name)
        return self._flows[name]

    def sound(self, name: str) -> DataFrame:
        """The same without what failed, with the watermark of its source."""
        if name not in self._sound:
            self._sound[name] = self._with_watermark(name)
        return self._sound[name]

    # Queries

    def _frame(self, shape: QueryShape) -> DataFrame:
        where = f"[[sinks]] {shape.name!r}"
        try:
            return self._rows(shape)
        except PySparkException as error:
            raise SpecError(f"{self._spec.file}: {where}: {first_line(error)}") from error

    def _rows(self, shape: QueryShape) -> DataFrame:
        job = job_of(self._spec, shape.name)
        sink, others = shape.sink, list(shape.letters)
        parts: list[DataFrame] = []
        if isinstance(sink, StreamSink):
            if shape.fused(self._spec):
                flow, stages = self.flow(sink.input), shape.owned(sink.input)
                parts.append(fused_rows(sink, flow, job, stages, self._avro(sink, flow)))
                others = [each for each in others if each.front != sink.input]
            else:
                frame = self.sound(sink.input)
                value = self._avro(sink, Flow(frame, straight=False))
                parts.append(result_rows(sink, frame, value))
        elif sink is not None:
            return self.sound(sink.input)
        parts += [letters(failed(self.flow(each.front), each.stages), job) for each in others]
        rows = reduce(DataFrame.unionByName, parts)
        return counted(rows, of_letters=sink is None) if shape.letters else rows

    def _avro(self, sink: StreamSink, flow: Flow) -> Column | None:
        if sink.format != "avro":
            return None
        schema = sink_schema(sink, flow, self._spec.registry, self._spec.file)
        schema.check()
        self._schemas.append(schema)
        return avro_value(schema, flow)

    # Frames

    def _make(self, name: str) -> Flow:
        spec = self._spec
        is_source = name in spec.sources
        where = f"[sources.{name}]" if is_source else f"[[steps]] {name!r}"
        try:
            if is_source:
                return self._source(spec.sources[name], where)
            return self._step(spec.steps[name])
        except PySparkException as error:
            raise SpecError(f"{spec.file}: {where}: {first_line(error)}") from error

    def _source(self, source: Source, where: str) -> Flow:
        schema = self.schema_of(source)
        frame = decoded(source, self._records(source), schema, self._spec.registry)
        frame = failing(frame, checks(source.name, source.required, source.checks))
        if source.event_time is not None and source.event_time not in schema.fieldNames():
            raise SpecError(
                f"{self._spec.file}: {where} event_time: there is no column {source.event_time}"
            )
        return Flow(frame, straight=True)

    def schema_of(self, source: Source) -> StructType:
        where = f"{self._spec.file}: [sources.{source.name}]"
        if source.format == "avro":
            return avro_schema(source, self._spec.registry, where)
        assert source.schema.ddl is not None
        return parse_schema(source.schema.ddl, f"{where} schema")

    def _records(self, source: Source) -> DataFrame:
        spec, limits = self._spec, self._spec.limits
        options = {
            "url": spec.broker,
            "subscribe": ",".join(source.topics),
            "startingOffsets": source.start,
            "reconnectTimeout": spec.broker_timeout,
            "includeHeaders": str(source.headers).lower(),
        }
        if limits.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(limits.max_offsets_per_trigger)
        if limits.max_bytes_per_trigger is not None:
            options["maxBytesPerTrigger"] = str(limits.max_bytes_per_trigger)
        if limits.batch_target is not None:
            options["adaptiveTargetMs"] = str(read_span_ms(limits.batch_target))
        columns = RECORD_COLUMNS + (HEADER_COLUMN if source.headers else "")
        reader = self.spark.readStream.format("leveret").schema(columns)
        return reader.options(**options).load()

    def _step(self, step: Step) -> Flow:
        if isinstance(step, Filter):
            return transforms.filtered(step, self.flow(step.input))
        if isinstance(step, Select):
            return transforms.selected(step, self.flow(step.input))
        if isinstance(step, Cast):
            return transforms.casted(step, self.flow(step.input))
        if isinstance(step, Validate):
            return transforms.validated(step, self.flow(step.input))
        if isinstance(step, RowFunction):
            return applied(self._spec, step, self.flow(step.input))
        if isinstance(step, Lookup):
            table = self.schema_of(self._spec.sources[step.table])
            return looked_up(self._spec, step, self.flow(step.input), table)
        return self._of_frames(step)

    def _of_frames(self, step: Step) -> Flow:
        """What is not made of single records any more."""
        spec = self._spec
        frames = {name: self.sound(name) for name in inputs_of(step)}
        if isinstance(step, Sql):
            return transforms.queried(step, self.spark, frames)
        if isinstance(step, FrameFunction):
            return self._called(step, *frames.values())
        first, *others = frames.values()
        if isinstance(step, Join):
            return stateful.joined(spec, step, first, *others)
        if isinstance(step, Window):
            return stateful.windowed(spec, step, first)
        if isinstance(step, Deduplicate):
            return stateful.deduplicated(spec, step, first)
        assert isinstance(step, State)
        return stateful.with_state(spec, step, first)

    def _called(self, step: FrameFunction, *frames: DataFrame) -> Flow:
        where = f"{self._spec.file}: [[steps]] {step.name!r} function"
        function = load(step.function, self._spec.directory, where)
        try:
            found = function(*frames)
        except PySparkException:
            raise
        except Exception as error:
            raise SpecError(f"{where}: {step.function} raised {error!r}") from error
        if not isinstance(found, DataFrame):
            raise SpecError(f"{where}: {step.function} returned {type(found).__name__}, no frame")
        return Flow(found, straight=False)

    def _with_watermark(self, name: str) -> DataFrame:
        flow = self.flow(name)
        frame = sound(flow)
        if not flow.straight:
            return frame
        source = self._spec.sources[_source_of(self._spec, name)]
        if source.event_time is None or source.watermark is None:
            return frame
        for time in event_times(self._spec, name):
            if time in frame.columns:
                return frame.withWatermark(time, source.watermark)
        for step in needing_watermark(self._spec, name):
            raise SpecError(
                f"{self._spec.file}: [[steps]] {step.name!r} input: the event time of source "
                f"{source.name}, {source.event_time}, is gone behind {name}, so that what the step "
                f"keeps would be kept for ever: let {name} keep the column"
            )
        return frame


def _source_of(spec: PipelineSpec, name: str) -> str:
    while name in spec.steps:
        (name,) = inputs_of(spec.steps[name])
    return name


def first_line(error: Exception) -> str:
    """Of what Spark says, without the plan that it shows behind it."""
    text = str(error).strip().split("\n", 1)[0]
    return " ".join(text.split())[:500]
