"""Avro with schemas from a registry: values to bytes and back, in Confluent's wire format.

    0           a magic byte, always 0
    1 to 4      the id of the schema that the value was written by, big-endian
    5 …         the value in Avro's binary encoding

A writer registers its schema once, and is refused one that the subject's compatibility level does
not allow. A reader gets the writer's schema by its id, and resolves it to a schema of its own if it
has one: fields that were added have their defaults, fields that are gone are left out.

    registry = SchemaRegistry("http://127.0.0.1:15672")
    writer = AvroWriter(registry, "orders-value", schema)
    reader = AvroReader(registry, schema=newer_schema)
    assert reader.decode(writer.encode({"id": 1})) == {"id": 1, "note": ""}

Both can be shared by threads and sent to other processes, and block as the registry's client does:
only for a schema that they have not seen before. Needs fastavro (`pip install leveret[schemas]`).
"""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any, Final

import fastavro

from clients.schema_registry import (
    CACHED_MAX,
    LATEST,
    IncompatibleSchemaError,
    InvalidSchemaError,
    Reference,
    RegistryRefusedError,
    RegistryUnreachableError,
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistry,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastavro.types import Schema as AvroSchema

__all__ = (
    "AvroReader",
    "AvroWriter",
    "IncompatibleSchemaError",
    "InvalidSchemaError",
    "Reference",
    "RegistryRefusedError",
    "RegistryUnreachableError",
    "SchemaDataError",
    "SchemaError",
    "SchemaNotFoundError",
    "SchemaRegistry",
    "parsed_schema",
    "subject_of",
    "wire_id",
)

MAGIC: Final = 0
HEADER: Final = struct.Struct(">BI")
REFERENCES_DEPTH_MAX: Final = 32


class SchemaDataError(SchemaError):
    """A value does not fit its schema, or bytes are not what they should be."""


def subject_of(topic: str, *, key: bool = False) -> str:
    """The subject that Confluent's serializers use for a topic."""
    return f"{topic}-key" if key else f"{topic}-value"


def wire_id(data: bytes) -> int:
    """The id of the schema that a value was written by. Raises SchemaDataError."""
    if len(data) < HEADER.size:
        raise SchemaDataError(f"{len(data)} bytes are too few for the wire format")
    magic, schema_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SchemaDataError(f"the first byte is {magic}, not the wire format's 0")
    return int(schema_id)


class _Parsed:
    """A schema as fastavro has it; made where it is used, so that nothing of it has to travel."""

    def __init__(
        self, registry: SchemaRegistry, text: str, references: Sequence[Reference]
    ) -> None:
        self.named: dict[str, Any] = {}
        try:
            _add_references(registry, references, self.named, set(), REFERENCES_DEPTH_MAX)
            self.schema: AvroSchema = fastavro.parse_schema(json.loads(text), self.named)
        except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
            raise SchemaDataError(f"fastavro cannot use the schema: {error!r}") from error


def parsed_schema(
    registry: SchemaRegistry, text: str, references: Sequence[Reference] = ()
) -> tuple[AvroSchema, dict[str, Any]]:
    """A schema with all names in full, and the named types that it uses, wherever they are defined.

    Raises SchemaError.
    """
    found = _Parsed(registry, text, references)
    return found.schema, found.named


def _add_references(
    registry: SchemaRegistry,
    references: Sequence[Reference],
    named: dict[str, Any],
    seen: set[int],
    depth_left: int,
) -> None:
    if not depth_left:
        raise SchemaDataError("schemas refer to each other too deep")
    for reference in references:
        found = registry.version(reference.subject, reference.version)
        if found.id not in seen:
            seen.add(found.id)
            _add_references(registry, found.references, named, seen, depth_left - 1)
            fastavro.parse_schema(json.loads(found.schema), named)


class AvroWriter:
    """Values of one schema, for one subject."""

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        schema: object = None,
        *,
        references: Sequence[Reference] = (),
        register: bool = True,
    ) -> None:
        """Without a schema, the subject's latest is used. `register`: it may be a new version;
        else it must be one already.

        Raises IncompatibleSchemaError, or another SchemaError.
        """
        if schema is None:
            latest = registry.version(subject, LATEST)
            text, self.schema_id, references = latest.schema, latest.id, latest.references
        else:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            if register:
                self.schema_id = registry.register(subject, text, references)
            else:
                self.schema_id = registry.look_up(subject, text, references).id
        self._registry, self._text, self._references = registry, text, tuple(references)
        self._start()

    def _start(self) -> None:
        self._parsed = _Parsed(self._registry, self._text, self._references).schema
        self._header = HEADER.pack(MAGIC, self.schema_id)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_registry", "_text", "_references", "schema_id")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def encode(self, value: object) -> bytes:
        """Raises SchemaDataError if the value is none of the schema's."""
        buffer = io.BytesIO()
        buffer.write(self._header)
        try:
            fastavro.schemaless_writer(buffer, self._parsed, value)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise SchemaDataError(f"the value does not fit its schema: {error}") from error
        return buffer.getvalue()


class AvroReader:
    """Values of any schema that the registry has."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        schema: object = None,
        subject: str | None = None,
        references: Sequence[Reference] = (),
    ) -> None:
        """Values are read as `schema`, or as the latest of `subject`; else as they were written."""
        self._registry = registry
        text = schema if isinstance(schema, str) or schema is None else json.dumps(schema)
        if text is None and subject is not None:
            latest = registry.version(subject, LATEST)
            text, references = latest.schema, latest.references
        self._text, self._references = text, tuple(references)
        self._start()

    def _start(self) -> None:
        self._writers: dict[int, AvroSchema] = {}
        self._reader: AvroSchema | None = None
        if self._text is not None:
            self._reader = _Parsed(self._registry, self._text, self._references).schema

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_registry", "_text", "_references")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def decode(self, data: bytes) -> Any:
        """Raises SchemaDataError, or SchemaNotFoundError if the registry does not know the id."""
        schema_id = wire_id(data)
        writer = self._writers.get(schema_id) or self._find(schema_id)
        buffer = io.BytesIO(data)
        buffer.seek(HEADER.size)
        try:
            value = fastavro.schemaless_reader(buffer, writer, self._reader)
        except fastavro.read.SchemaResolutionError as error:
            raise SchemaDataError(
                f"what was written by schema {schema_id} cannot be read by the reader's: {error}"
            ) from error
        except (EOFError, ValueError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise SchemaDataError(f"the bytes do not fit schema {schema_id}: {error!r}") from error
        if buffer.tell() != len(data):
            left = len(data) - buffer.tell()
            raise SchemaDataError(f"{left} bytes are left after a value of schema {schema_id}")
        return value

    def _find(self, schema_id: int) -> AvroSchema:
        if len(self._writers) >= CACHED_MAX:
            self._writers.clear()
        found = _Parsed(self._registry, *self._registry.schema(schema_id)).schema
        self._writers[schema_id] = found
        return found
