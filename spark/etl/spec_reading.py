"""A pipeline's file, from TOML to values: pure parsing, no Spark and no broker."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

from clients.stream_address import Address
from spark.errors import OptionError
from spark.etl.errors import SpecError
from spark.etl.past_queries import LOCK, NEW_ENDING, SHAPE_ENDING
from spark.etl.spec import (
    FORMATS,
    RAW_SCHEMA,
    Format,
    LetterAlarm,
    Limits,
    Mode,
    ParquetSink,
    PipelineSpec,
    PostgresSink,
    Schema,
    Sink,
    Source,
    Step,
    StreamSink,
    TestSink,
)
from spark.etl.spec_graph import check_graph
from spark.etl.spec_queries import LETTERS_NAME
from spark.etl.spec_steps import read_step
from spark.etl.spec_tables import SpecTable
from spark.etl.store import DEFAULT_URL as DEFAULT_STORE
from spark.places import read_place

FILE_BYTES_MAX: Final = 1024 * 1024
STEPS_MAX: Final = 100  # Spark takes minutes to plan more of them in a row
PARTITIONS_MAX: Final = 1024
RESTARTS_MAX: Final = 1000
DEFAULT_BROKER: Final = "amqp://guest:guest@127.0.0.1:5672/%2F"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")  # also a view of SQL
_SINK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")  # also a directory
# What else is in the directory of the checkpoints (checkpoints.py).
_TAKEN_NAMES: Final = (LETTERS_NAME, LOCK)
_TAKEN_ENDINGS: Final = (SHAPE_ENDING, NEW_ENDING)
WINDOW_S_MAX: Final = 86_400
_TOPIC_BYTES_MAX: Final = 251  # `.dlq` goes behind it
_MODES: Final[dict[str, tuple[Mode, ...]]] = {
    "stream": ("append", "complete"),
    "parquet": ("append",),
    "postgres": ("append", "update"),
    "console": ("append", "update", "complete"),
    "memory": ("append", "update", "complete"),
}


def read_file(path: Path) -> PipelineSpec:
    """Raises SpecError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SpecError(f"{path}: it has more than {FILE_BYTES_MAX} bytes")
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: its tables are too deep in each other") from None
    return read_spec(values, str(path), path.resolve().parent)


def read_spec(values: Mapping[str, Any], file: str, directory: Path) -> PipelineSpec:
    """What a file says, or a program in its place. Raises SpecError."""
    whole = SpecTable(file, "the file", values)
    head = SpecTable(file, "[pipeline]", whole.needed_table("pipeline"))
    limits = SpecTable(file, "[limits]", whole.peek("limits") or {})
    settings = SpecTable(file, "[spark]", whole.peek("spark") or {})
    letters = SpecTable(file, "[dead_letters]", whole.peek("dead_letters") or {})
    whole.asked("limits", "spark", "dead_letters", "sources", "steps", "sinks")
    whole.done()
    name = _named(head, "name", head.needed("name"), _SINK_NAME)
    checkpoint = _checkpoint(head, directory)
    spec = PipelineSpec(
        name=name,
        broker=_broker(head),
        checkpoint=checkpoint,
        store=head.text("store") or DEFAULT_STORE,
        sources=_sources(whole),
        steps=_steps(whole),
        sinks=_sinks(whole, directory),
        registry=head.text("registry"),
        http=head.text("http"),
        trigger=head.span("trigger", "1s") or "",
        broker_timeout=head.span("broker_timeout", "30s") or "",
        limits=_limits(limits),
        letter_alarm=_letter_alarm(letters),
        spark=settings.settings(),
        directory=directory,
        file=file,
    )
    head.done()
    check_graph(spec)
    return spec


def _checkpoint(table: SpecTable, directory: Path) -> str:
    given = table.needed("checkpoint")
    if "://" in given:
        table.fail("checkpoint", "a directory of this machine, or one that is mounted here")
    return str(directory / given)


def _broker(table: SpecTable) -> str:
    url = table.text("broker", DEFAULT_BROKER) or ""
    try:
        Address.of_url(url)
    except ValueError as error:
        table.fail("broker", str(error))
    return url


def _limits(table: SpecTable) -> Limits:
    default = Limits()
    found = Limits(
        table.number("max_offsets_per_trigger", default.max_offsets_per_trigger),
        table.number("max_bytes_per_trigger", default.max_bytes_per_trigger),
        table.span("batch_target"),
        table.number("restarts", default.restarts, minimum=0, maximum=RESTARTS_MAX) or 0,
    )
    table.done()
    return found


def _letter_alarm(table: SpecTable) -> LetterAlarm:
    default = LetterAlarm()
    found = LetterAlarm(
        table.share("alarm_rate"),
        table.number("alarm_window_s", default.window_s, maximum=WINDOW_S_MAX) or 0,
    )
    table.done()
    return found


def _named(table: SpecTable, key: str, name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(name):
        table.fail(key, f"{name!r} is no name: letters, digits and underscores, a letter first")
    return name


# Sources


def _sources(whole: SpecTable) -> dict[str, Source]:
    found = {}
    for name, values in whole.named_tables("sources").items():
        table = SpecTable(whole.file, f"[sources.{name}]", values)
        found[_named(table, "", name, _NAME)] = _source(table, name)
        table.done()
    return found


def _source(table: SpecTable, name: str) -> Source:
    is_table = table.choice("kind", ("stream", "table"), "stream") == "table"
    form = cast("Format", table.choice("format", FORMATS, "json"))
    event_time, watermark = table.text("event_time"), table.span("watermark")
    if watermark is not None and event_time is None:
        table.fail("event_time", "the column that watermark is for: it is missing")
    if is_table and event_time is not None:
        table.fail("event_time", "a table has none: rows are looked up as they are now")
    return Source(
        name=name,
        topics=_topics(table),
        format=form,
        schema=_schema(table, form),
        is_table=is_table,
        start=_start(table),
        event_time=event_time,
        watermark=watermark,
        required=table.texts("required"),
        checks=table.texts_by_name("check"),
        options=table.texts_by_name("options"),
        headers=table.flag("headers", default=True),
    )


def _topics(table: SpecTable) -> tuple[str, ...]:
    if table.has("topic") == table.has("topics"):
        table.fail("topic", "the name of a stream, or topics, a list of them: one is needed")
    topics = table.texts("topics") if table.has("topics") else (table.needed("topic"),)
    for topic in topics:
        _topic(table, "topic", topic)
    return topics or table.fail("topics", "the list is empty")


def _topic(table: SpecTable, key: str, topic: str) -> str:
    if len(topic.encode()) > _TOPIC_BYTES_MAX or "," in topic or topic != topic.strip():
        table.fail(
            key, f"a name of 1 to {_TOPIC_BYTES_MAX} bytes without a comma, or spaces around it"
        )
    return topic


def _start(table: SpecTable) -> str:
    start = table.text("start", "earliest") or ""
    try:
        read_place("start", start)
    except OptionError as error:
        table.fail("start", str(error).removeprefix("start: "))
    return start


def _schema(table: SpecTable, form: Format) -> Schema:
    ddl, subject = _ddl(table), table.text("subject")
    version = table.number("version")
    if form == "avro":
        if subject is None or ddl is not None:
            table.fail("subject", "avro has its schema in the registry: the subject's name")
        return Schema(None, subject, version)
    if subject is not None or version is not None:
        table.fail("subject", f"{form} has no subject; it is for avro")
    if form == "raw":
        if ddl is not None:
            table.fail("schema", f"raw has the column {RAW_SCHEMA}, no other schema")
        return Schema(RAW_SCHEMA)
    return Schema(ddl or table.fail("schema", "columns, as in 'id bigint, at timestamp': missing"))


def _ddl(table: SpecTable) -> str | None:
    """Spark's DDL, or the same as a table of names and types."""
    if isinstance(table.peek("schema"), dict):
        fields = table.texts_by_name("schema")
        return ", ".join(f"`{name}` {kind}" for name, kind in fields.items())
    return table.text("schema")


# Steps


def _steps(whole: SpecTable) -> dict[str, Step]:
    found: dict[str, Step] = {}
    tables = whole.listed_tables("steps")
    if len(tables) > STEPS_MAX:
        whole.fail("steps", f"there are {len(tables)}, and {STEPS_MAX} at most")
    for place, values in enumerate(tables, 1):
        table = SpecTable(whole.file, f"[[steps]] {place}", values)
        name = _named(table, "name", table.needed("name"), _NAME)
        table.name = f"[[steps]] {name!r}"
        if name in found:
            table.fail("name", "another step has it")
        found[name] = read_step(table, name)
    return found


# Sinks


def _sinks(whole: SpecTable, directory: Path) -> dict[str, Sink]:
    found: dict[str, Sink] = {}
    for place, values in enumerate(whole.listed_tables("sinks"), 1):
        table = SpecTable(whole.file, f"[[sinks]] {place}", values)
        kind = table.choice("kind", _MODES)
        name = _named(table, "name", table.text("name", kind) or "", _SINK_NAME)
        table.name = f"[[sinks]] {name!r}"
        if name in found:
            table.fail("name", "another sink has it")
        if name in _TAKEN_NAMES or name.endswith(_TAKEN_ENDINGS):
            table.fail("name", "it is taken, by what a checkpoint has beside its sinks")
        found[name] = _sink(table, name, kind, directory)
        table.done()
    if not found:
        whole.fail("", "there are no [[sinks]]: nothing would come out")
    return found


def _sink(table: SpecTable, name: str, kind: str, directory: Path) -> Sink:
    source = table.needed("input")
    mode = cast("Mode", table.choice("mode", _MODES[kind], "append"))
    if kind == "stream":
        return _stream_sink(table, name, source, mode)
    if kind == "parquet":
        path = table.needed("path")
        local = path if "://" in path else str(directory / path)
        return ParquetSink(name, source, local, table.texts("partition_by"), mode)
    if kind == "postgres":
        keys = table.texts("keys")
        if mode == "update" and not keys:
            table.fail("keys", "the columns that say which row to update: it is missing")
        return PostgresSink(name, source, table.needed("url"), table.needed("table"), keys, mode)
    return TestSink(name, source, cast("Literal['console', 'memory']", kind), mode)


def _stream_sink(table: SpecTable, name: str, source: str, mode: Mode) -> StreamSink:
    topic = _topic(table, "topic", table.needed("topic"))
    form = cast("Format", table.choice("format", ("json", "avro", "raw"), "json"))
    subject = table.text("subject")
    if subject is not None and form != "avro":
        table.fail("subject", f"{form} has no subject; it is for avro")
    if form == "avro" and subject is None:
        subject = f"{topic}-value"
    guarantee = table.choice("guarantee", ("exactly_once", "at_least_once"), "exactly_once")
    return StreamSink(
        name=name,
        input=source,
        topic=topic,
        format=form,
        key=table.text("key"),
        subject=subject,
        guarantee=cast("Literal['exactly_once', 'at_least_once']", guarantee),
        partitions=table.number("partitions", maximum=PARTITIONS_MAX),
        mode=mode,
    )
