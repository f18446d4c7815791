"""Avro records with schemas from the registry, in Confluent's wire format, to rows and back.

fastavro reads and writes them in Arrow batches. A record that cannot be read is an error of its
row; a registry that does not answer fails the batch, which then runs again.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from clients.schema_registry import (
    IncompatibleSchemaError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistry,
)
from clients.schemas import AvroReader, AvroWriter, SchemaDataError
from spark.etl.arrow_values import scalar_udf, to_arrow
from spark.etl.avro_types import UnsupportedTypeError, avro_of, columns_of, plain_row
from spark.etl.errors import SpecError
from spark.etl.spec import Source, StreamSink

CORRUPT = "_corrupt"


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


def reader_schema(source: Source, registry: str | None, where: str) -> tuple[str, Any]:
    """As text, and what it refers to. Raises SpecError."""
    subject = source.schema.subject
    assert subject is not None
    version = "latest" if source.schema.version is None else source.schema.version
    try:
        found = registry_at(registry, where).version(subject, version)
    except SchemaError as error:
        raise SpecError(f"{where} subject: {error}") from error
    return found.schema, found.references


def avro_schema(source: Source, registry: str | None, where: str) -> StructType:
    """The columns of a source. Raises SpecError."""
    text, _ = reader_schema(source, registry, where)
    try:
        return columns_of(text)
    except UnsupportedTypeError as error:
        raise SpecError(f"{where} subject: {error}") from error


def avro_row(source: Source, value: Column, schema: StructType, registry: str | None) -> Column:
    """A struct of the schema's columns, and `_corrupt` with what is wrong."""
    where = f"[sources.{source.name}]"
    text, references = reader_schema(source, registry, where)
    reader = AvroReader(registry_at(registry, where), schema=text, references=references)
    kind = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    arrow = to_arrow_type(kind, timezone="UTC")
    convert = plain_row(text)

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


def avro_value(sink: StreamSink, columns: StructType, registry: str | None, file: str) -> Column:
    """Rows in a schema of these columns, which is registered. Raises SpecError."""
    where = f"{file}: [[sinks]] {sink.name!r}"
    assert sink.subject is not None
    try:
        schema = avro_of(columns, sink.subject)
        writer = AvroWriter(registry_at(registry, where), sink.subject, schema)
    except (IncompatibleSchemaError, UnsupportedTypeError, SchemaError) as error:
        raise SpecError(f"{where} subject {sink.subject}: {error}") from error

    def write(rows: pa.Array) -> pa.Array:
        values = [None if row is None else writer.encode(row) for row in rows.to_pylist()]
        return pa.array(values, pa.binary())

    return scalar_udf(write, BinaryType())(
        sql.struct(*[sql.col(f"`{name}`") for name in columns.fieldNames()])
    )
