"""Schemas and versions as answers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.registry.state import AVRO

if TYPE_CHECKING:
    from broker.registry.state import Schema, Schemas


def guid_of(schema: Schema) -> str:
    """A name for a schema that is the same in all registries of this kind."""
    return str(UUID(bytes=schema.digest))


def schema_row(schema: Schema) -> dict[str, Any]:
    """As in Confluent's answers what is usual is not said: the type AVRO, no references."""
    row: dict[str, Any] = {"schema": schema.text, "guid": guid_of(schema)}
    if schema.type != AVRO:
        row["schemaType"] = schema.type
    if schema.references:
        row["references"] = [
            {"name": name, "subject": subject, "version": version}
            for name, subject, version in schema.references
        ]
    if schema.metadata is not None:
        row["metadata"] = schema.metadata
    if schema.rules is not None:
        row["ruleSet"] = schema.rules
    return row


def version_row(schemas: Schemas, subject: str, number: int) -> dict[str, Any]:
    version = schemas.subjects[subject][number]
    row: dict[str, Any] = {"subject": subject, "version": number, "id": version.schema_id}
    if version.deleted:
        row["deleted"] = True
    return row | schema_row(schemas.by_id[version.schema_id])
