"""What a pipeline is: sources, steps and sinks as plain values, without Spark."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

Format: TypeAlias = Literal["json", "avro", "csv", "raw"]
Mode: TypeAlias = Literal["append", "update", "complete"]

FORMATS: Final[tuple[Format, ...]] = ("json", "avro", "csv", "raw")
RAW_SCHEMA: Final = "value binary"


@dataclass(frozen=True, slots=True)
class Schema:
    """Where the columns of a source come from: Spark's DDL, or a subject of the registry."""

    ddl: str | None = None
    subject: str | None = None
    version: int | None = None  # None: the latest


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    topics: tuple[str, ...]
    format: Format
    schema: Schema
    is_table: bool = False  # a compacted stream: the latest value of each key
    start: str = "earliest"
    event_time: str | None = None
    watermark: str | None = None
    required: tuple[str, ...] = ()
    checks: dict[str, str] = field(default_factory=dict)  # name: condition that must hold
    options: dict[str, str] = field(default_factory=dict)  # of the format
    headers: bool = True  # a dead letter keeps those of its record


# Steps. All of them have a name, and names of their inputs.


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    input: str
    where: str


@dataclass(frozen=True, slots=True)
class Select:
    """Columns by name and expression; `keep` says whether the input's own stay as well."""

    name: str
    input: str
    columns: dict[str, str]
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Cast:
    name: str
    input: str
    types: dict[str, str]


@dataclass(frozen=True, slots=True)
class Validate:
    name: str
    input: str
    required: tuple[str, ...]
    checks: dict[str, str]


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of a dict that returns a dict, or None to drop the row."""

    name: str
    input: str
    function: str
    schema: str


@dataclass(frozen=True, slots=True)
class FrameFunction:
    """A function of DataFrames that returns one."""

    name: str
    inputs: tuple[str, ...]
    function: str


@dataclass(frozen=True, slots=True)
class Sql:
    name: str
    inputs: tuple[str, ...]
    query: str


@dataclass(frozen=True, slots=True)
class Window:
    """Tumbling with a size, sliding with a slide too, or sessions with a gap."""

    name: str
    input: str
    by: tuple[str, ...]
    aggregates: dict[str, str]
    size: str | None = None
    slide: str | None = None
    gap: str | None = None
    time: str | None = None  # the column; None: the event time of the source


@dataclass(frozen=True, slots=True)
class Deduplicate:
    name: str
    input: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    name: str
    left: str
    right: str
    on: tuple[str, ...]
    within: str | None
    condition: str | None
    how: Literal["inner", "left"]
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Each row with the row of a table that has its key, as it is when the row is processed."""

    name: str
    input: str
    table: str
    key: str
    how: Literal["inner", "left"]
    columns: dict[str, str]  # of the table, by the names they get; none: all


@dataclass(frozen=True, slots=True)
class State:
    name: str
    input: str
    keys: tuple[str, ...]
    processor: str
    schema: str
    time: Literal["none", "processing", "event"]


Step: TypeAlias = (
    Filter
    | Select
    | Cast
    | Validate
    | RowFunction
    | FrameFunction
    | Sql
    | Window
    | Deduplicate
    | Join
    | Lookup
    | State
)
# They hand on each record by itself, with where it came from: what fails becomes a dead letter.
STRAIGHT: Final = (Filter, Select, Cast, Validate, RowFunction, Lookup)
STATEFUL: Final = (Window, Deduplicate, Join, State)


def inputs_of(step: Step) -> tuple[str, ...]:
    """Streams, not the table of a lookup."""
    if isinstance(step, FrameFunction | Sql):
        return step.inputs
    if isinstance(step, Join):
        return (step.left, step.right)
    return (step.input,)


# Sinks


@dataclass(frozen=True, slots=True)
class StreamSink:
    name: str
    input: str
    topic: str
    format: Format
    key: str | None = None
    subject: str | None = None  # of the registry, for avro
    guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    partitions: int | None = None  # to declare the stream with if it is not there
    mode: Mode = "append"


@dataclass(frozen=True, slots=True)
class ParquetSink:
    name: str
    input: str
    path: str
    partition_by: tuple[str, ...] = ()
    mode: Mode = "append"


@dataclass(frozen=True, slots=True)
class PostgresSink:
    name: str
    input: str
    url: str
    table: str
    keys: tuple[str, ...] = ()  # upsert by these; none: rows are added
    mode: Mode = "append"


@dataclass(frozen=True, slots=True)
class TestSink:
    """To look at: the console, or a table in the memory of the driver."""

    __test__ = False

    name: str
    input: str
    kind: Literal["console", "memory"]
    mode: Mode = "append"


Sink: TypeAlias = StreamSink | ParquetSink | PostgresSink | TestSink


@dataclass(frozen=True, slots=True)
class Limits:
    max_offsets_per_trigger: int | None = 100_000  # of each source
    max_bytes_per_trigger: int | None = 32 * 1024 * 1024  # a broker stages 64 MiB of a partition
    batch_target: str | None = None  # how long a batch is to take: intake adapts to it
    restarts: int = 5  # in a row without a batch, for what may pass or not


@dataclass(frozen=True, slots=True)
class LetterAlarm:
    """When too many records fail: their share over a window of time."""

    rate: float | None = None  # None: no alarm
    window_s: int = 60


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    name: str
    broker: str
    checkpoint: str
    store: str
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    registry: str | None = None
    http: str | None = None  # the broker's, where metrics are reported
    trigger: str = "1 seconds"
    broker_timeout: str = "30 seconds"  # that it may be away before a batch is given up
    limits: Limits = field(default_factory=Limits)
    letter_alarm: LetterAlarm = field(default_factory=LetterAlarm)
    spark: dict[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=Path.cwd)  # functions are imported from there, too
    file: str = "pipeline"

    @property
    def tables(self) -> dict[str, Source]:
        return {name: each for name, each in self.sources.items() if each.is_table}

    @property
    def path(self) -> Path:
        """Of the checkpoints."""
        return Path(self.checkpoint)
