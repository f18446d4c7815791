"""Schemas by id and by guid, and the list of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.registry import errors
from broker.registry.candidates import TYPES
from broker.registry.rows import schema_row, version_row
from broker.registry.subjects import shown_versions, wanted_subjects

if TYPE_CHECKING:
    from broker.registry.asking import Ask
    from broker.registry.state import Schema

CONTEXT: Final = "."
PAGE_MAX: Final = 1000  # schemas in a list, as Confluent's has it
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024


async def _find(ask: Ask) -> Schema:
    """Deleted ones too, until they are deleted for good: there may be data written by them."""
    wanted = ask.schema_id()
    if wanted not in ask.schemas.by_id:
        await ask.call.up_to_date()  # another node may have made it a moment ago
    if wanted not in ask.schemas.by_id:
        raise errors.schema_not_found(wanted)
    return _readable(ask, ask.schemas.by_id[wanted])


def _readable(ask: Ask, schema: Schema) -> Schema:
    if not ask.may_read_schema(schema.id):
        raise errors.denied(ask.call.user.name, "Read", f"Schema: {schema.id}")
    return schema


async def get_schema(ask: Ask) -> dict[str, Any]:
    row = schema_row(await _find(ask))
    if ask.flag("fetchMaxId"):
        row["maxId"] = ask.schemas.next_id - 1
    return row


async def get_text(ask: Ask) -> str:
    return (await _find(ask)).text


async def get_versions(ask: Ask) -> list[dict[str, Any]]:
    uses = await _uses(ask)
    return ask.page([{"subject": subject, "version": number} for subject, number in uses])


async def get_subjects(ask: Ask) -> list[str]:
    return ask.page(sorted({subject for subject, _ in await _uses(ask)}))


async def _uses(ask: Ask) -> list[tuple[str, int]]:
    schema = await _find(ask)
    uses = ask.readable_uses(schema.id, deleted=ask.flag("deleted"))
    only = ask.text("subject")
    return [use for use in uses if not only or use[0] == only]


async def get_by_guid(ask: Ask) -> dict[str, Any]:
    schema = await _find_guid(ask)
    return {"id": schema.id, **schema_row(schema)}


async def get_ids(ask: Ask) -> list[dict[str, Any]]:
    schema = await _find_guid(ask)
    return [{"context": CONTEXT, "id": schema.id}]


async def _find_guid(ask: Ask) -> Schema:
    text = ask.call.parameter("guid")[:100]
    try:
        digest = UUID(text).bytes
    except ValueError:
        raise errors.schema_not_found(text) from None
    if digest not in ask.schemas.by_digest:
        await ask.call.up_to_date()
    if digest not in ask.schemas.by_digest:
        raise errors.schema_not_found(text)
    return _readable(ask, ask.schemas.by_id[ask.schemas.by_digest[digest]])


async def list_schemas(ask: Ask) -> list[dict[str, Any]]:
    """A page of them: of so many that an answer stays small enough to be held in memory."""
    latest = ask.flag("latestOnly")
    found: list[tuple[str, int]] = []
    for subject in await wanted_subjects(ask):
        numbers = shown_versions(ask, subject)
        found += [(subject, number) for number in (numbers[-1:] if latest else numbers)]
    rows: list[dict[str, Any]] = []
    size = 0
    for subject, number in ask.page(found)[:PAGE_MAX]:
        if number not in ask.schemas.subjects.get(subject, {}):
            continue  # gone meanwhile
        rows.append(version_row(ask.schemas, subject, number))
        size += len(rows[-1]["schema"])
        if size > PAGE_BYTES_MAX:
            break
    return rows


async def list_types(_ask: Ask) -> list[str]:
    return list(TYPES)


async def list_contexts(ask: Ask) -> list[str]:
    return ask.page([CONTEXT])
