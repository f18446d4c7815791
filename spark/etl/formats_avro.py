"""Avro records with schemas from the registry, in Confluent's wire format, to rows and back.

fastavro reads and writes them in Arrow batches. A record that cannot be read is an error of its
row; a registry that does not answer fails the batch, which then runs again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from clients.schema_registry import (
    Reference,
    RegistryRefusedError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistry,
)
from clients.schemas import AvroReader, AvroWriter, SchemaDataError, parsed_schema
from spark.errors import RowError
from spark.etl.arrow_values import as_numbers, scalar_udf, to_arrow, to_python
from spark.etl.avro_types import Convert, UnsupportedTypeError, avro_of, columns_of, plain_row
from spark.etl.errors import SpecError
from spark.etl.frames import Flow, is_sound
from spark.etl.spec import Source, StreamSink

CORRUPT: Final = "_corrupt"
WRITERS_MAX: Final = 100  # of a process; a pipeline has one for each sink
_WRITTEN: Final = StructType(
    [StructField("value", BinaryType()), StructField("message", StringType())]
)
_WRITTEN_ARROW: Final = to_arrow_type(_WRITTEN)


def registry_at(url: str | None, where: str) -> SchemaRegistry:
    """With the login that the URL has. Raises SpecError."""
    if url is None:
        raise SpecError(f"{where}: avro needs [pipeline] registry, as in 'http://127.0.0.1:15672'")
    parts = urlsplit(url)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        return SchemaRegistry(
            place,
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
        )
    except ValueError as error:
        raise SpecError(f"{where}: [pipeline] registry: {error}") from error


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """Of a source, as the registry has it."""

    registry: SchemaRegistry
    text: str
    references: tuple[Reference, ...]
    columns: StructType
    convert: Convert | None


def reader_schema(source: Source, registry: str | None, where: str) -> ReaderSchema:
    """Raises SpecError."""
    subject = source.schema.subject
    assert subject is not None
    version = "latest" if source.schema.version is None else source.schema.version
    place = registry_at(registry, where)
    try:
        found = place.version(subject, version)
        parsed = parsed_schema(place, found.schema, found.references)
        columns, convert = columns_of(*parsed), plain_row(*parsed)
    except (SchemaError, UnsupportedTypeError) as error:
        raise SpecError(f"{where} subject: {error}") from error
    return ReaderSchema(place, found.schema, found.references, columns, convert)


def avro_schema(source: Source, registry: str | None, where: str) -> StructType:
    """The columns of a source. Raises SpecError."""
    return reader_schema(source, registry, where).columns


def avro_row(source: Source, value: Column, schema: StructType, registry: str | None) -> Column:
    """A struct of the schema's columns, and `_corrupt` with what is wrong."""
    found = reader_schema(source, registry, f"[sources.{source.name}]")
    reader = AvroReader(found.registry, schema=found.text, references=found.references)
    kind = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    arrow = to_arrow_type(kind, timezone="UTC")
    convert = found.convert

    def read(values: pa.Array) -> pa.Array:
        rows = [_read_one(reader, convert, each) for each in values.to_pylist()]
        return to_arrow(rows, arrow, lambda error: {CORRUPT: str(error)})

    return scalar_udf(read, kind)(value)


def _read_one(
    reader: AvroReader, convert: Callable[[Any], Any] | None, value: bytes | None
) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        row = reader.decode(value)
    except (SchemaDataError, SchemaNotFoundError) as error:
        return {CORRUPT: str(error)}
    if convert is not None:
        row = convert(row)
    found: dict[str, Any] = row
    return found


def avro_value(schema: "SinkSchema", flow: Flow) -> Column:
    """Rows in this schema: a struct of the bytes, or of why there are none."""
    may_fail = flow.straight

    def write(rows: pa.Array) -> pa.Array:
        writer = _writer(schema)
        found = [_write_one(writer, row) for row in to_python(as_numbers(rows))]
        problem = next((each["message"] for each in found if each["message"]), None)
        if problem is not None and not may_fail:  # there is no record to blame
            raise RowError(f"{schema.where}: {problem}")
        return pa.array(found, _WRITTEN_ARROW)

    row = sql.struct(*[sql.col(f"`{name}`") for name in flow.columns])
    return scalar_udf(write, _WRITTEN)(sql.when(is_sound(), row) if flow.straight else row)


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """Made of a sink's columns, for its subject. Who only plans a pipeline checks it; it is
    registered when the pipeline runs."""

    registry: str
    subject: str
    text: str
    where: str

    def check(self) -> None:
        """Raises SpecError if the subject would not take it."""
        try:
            objections = registry_at(self.registry, self.where).objections(self.subject, self.text)
        except SchemaNotFoundError:  # of the subject, which is to come
            return
        except SchemaError as error:
            raise SpecError(f"{self.where} subject {self.subject}: {error}") from error
        if objections:
            told = "; ".join(objections)
            raise SpecError(f"{self.where} subject {self.subject}: not compatible: {told}")

    def register(self) -> AvroWriter:
        """It may have been before. Raises SpecError if the subject does not take it, and
        SchemaError if the registry does not answer."""
        try:
            return AvroWriter(registry_at(self.registry, self.where), self.subject, self.text)
        except RegistryRefusedError as error:
            raise SpecError(f"{self.where} subject {self.subject}: {error}") from error


def sink_schema(sink: StreamSink, flow: Flow, registry: str | None, file: str) -> SinkSchema:
    """Raises SpecError."""
    where = f"{file}: [[sinks]] {sink.name!r}"
    assert sink.subject is not None
    columns = flow.frame.select(*[f"`{name}`" for name in flow.columns]).schema
    registry_at(registry, where)
    assert registry is not None
    try:
        schema = avro_of(columns, sink.subject)
    except UnsupportedTypeError as error:
        raise SpecError(f"{where} subject {sink.subject}: {error}") from error
    return SinkSchema(registry, sink.subject, json.dumps(schema), where)


@lru_cache(maxsize=WRITERS_MAX)
def _writer(schema: SinkSchema) -> AvroWriter:
    """This process's own."""
    return schema.register()


def _write_one(writer: AvroWriter, row: Any) -> dict[str, Any]:
    if row is None:  # it failed before
        return {"value": None, "message": None}
    if isinstance(row, Exception):
        return {"value": None, "message": f"{type(row).__name__}: {row}"}
    try:
        return {"value": writer.encode(row), "message": None}
    except SchemaDataError as error:
        return {"value": None, "message": str(error)}
