"""A schema that a request brings, and what it refers to; it is parsed in a thread."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from broker.off_loop import Threads
from broker.registry import errors
from broker.registry.asking import NUMBER_MAX, checked_subject, parse_version
from broker.registry.avro_check import Parsed
from broker.registry.avro_text import (
    NAME_CHARS_MAX,
    TEXT_BYTES_MAX,
    InvalidSchemaError,
    compact,
    is_within,
)
from broker.registry.levels import Unit, objections
from broker.registry.state import AVRO, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from broker.registry.asking import Ask
    from broker.registry.state import Schemas

    T = TypeVar("T")

TYPES: Final = (AVRO,)
REFERENCES_MAX: Final = 100  # of a schema, those of its references included
SUPPORTS_BYTES_MAX: Final = 4 * 1024 * 1024
EXTRAS_BYTES_MAX: Final = 64 * 1024  # of metadata and rules, which are kept as they are
EXTRAS_DEPTH_MAX: Final = 20
THREADS: Final = 1  # parsing is all processor: more would only take turns with the loop

_threads = Threads(THREADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Not parsed yet."""

    text: str
    references: tuple[Reference, ...] = ()
    supports: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None
    wanted_id: int | None = None
    wanted_version: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Parsed, and compared with what it was to be compared with."""

    text: str
    digest: bytes
    objections: list[str] = field(default_factory=list)


def read_candidate(ask: Ask) -> Candidate:
    """Raises RegistryError. The user must be allowed to read what it refers to."""
    body = ask.body()
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if kind not in TYPES:
        raise errors.invalid_schema(
            f"schemas of type {str(kind)[:100]} are not served, only of type {', '.join(TYPES)}"
        )
    if not isinstance(text, str) or not text:
        raise errors.invalid_schema("there is no schema in the body")
    if len(text) > TEXT_BYTES_MAX:
        raise errors.RegistryError(42209, f"the schema is longer than {TEXT_BYTES_MAX} bytes")
    references = tuple(_references(ask, body.get("references")))
    return Candidate(
        text=text,
        references=references,
        supports=supports_of(ask.schemas, references),
        metadata=_extra(body, "metadata"),
        rules=_extra(body, "ruleSet"),
        wanted_id=_number(body, "id"),
        wanted_version=_number(body, "version"),
    )


def _references(ask: Ask, given: object) -> Iterable[Reference]:
    if given is None:
        return
    if not isinstance(given, list) or len(given) > REFERENCES_MAX:
        raise errors.invalid_schema(f"references are to be a list of at most {REFERENCES_MAX}")
    for one in given:
        if not isinstance(one, dict) or not all(
            isinstance(one.get(key), str) for key in ("name", "subject")
        ):
            raise errors.invalid_schema("a reference has a name, a subject and a version")
        if len(one["name"]) > NAME_CHARS_MAX or not one["name"].isprintable():
            raise errors.invalid_schema("the name of a reference is no name")
        subject = checked_subject(one["subject"])
        ask.require("read", subject)
        there = ask.schemas.versions(subject)
        version = parse_version(one.get("version"))
        if version is None:
            version = there[-1] if there else 0
        if version not in there:
            raise errors.invalid_schema(f"there is no version {version} of subject '{subject}'")
        yield Reference(one["name"], subject, version)


def supports_of(schemas: Schemas, references: Iterable[Reference]) -> tuple[str, ...]:
    """The texts of all that is referred to, each once, and after those that it refers to itself."""
    texts: dict[int, str] = {}
    begun: set[int] = set()
    size = 0
    waiting = [(reference, False) for reference in reversed([*references])]
    while waiting:
        reference, is_done = waiting.pop()
        version = schemas.subjects.get(reference.subject, {}).get(reference.version)
        if version is None:
            raise errors.invalid_schema(
                f"version {reference.version} of subject '{reference.subject}', which it "
                f"refers to, is gone"
            )
        schema = schemas.by_id[version.schema_id]
        if is_done:
            texts[schema.id] = schema.text
        elif schema.id not in begun:
            begun.add(schema.id)
            size += len(schema.text)
            waiting.append((reference, True))
            waiting += [(each, False) for each in reversed(schema.references)]
        if len(begun) > REFERENCES_MAX or size > SUPPORTS_BYTES_MAX:
            raise errors.invalid_schema("it refers to too much")
    return tuple(texts.values())


def unit_of(schemas: Schemas, subject: str, number: int) -> Unit:
    schema = schemas.by_id[schemas.subjects[subject][number].schema_id]
    return Unit(schema.text, supports_of(schemas, schema.references), number)


async def judge(candidate: Candidate, level: str = "NONE", earlier: Iterable[Unit] = ()) -> Judged:
    """Raises RegistryError 42201 if it is no schema."""
    units = list(earlier)

    def work() -> Judged:
        parsed = Parsed(candidate.text, candidate.supports)
        return Judged(parsed.text, _digest(candidate, parsed), objections(level, parsed, units))

    return await _in_a_thread(work)


async def _in_a_thread(work: Callable[[], T]) -> T:
    try:
        return await _threads(work)
    except InvalidSchemaError as error:
        raise errors.invalid_schema(str(error)) from None


def _digest(candidate: Candidate, parsed: Parsed) -> bytes:
    """The same for the same schema, however it is written."""
    parts = [
        *(AVRO, parsed.spelling, sorted(candidate.references)),
        *(candidate.metadata, candidate.rules),
    ]
    data = json.dumps(parts, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def _extra(body: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or not is_within(value, EXTRAS_DEPTH_MAX):
        raise errors.invalid_schema(f"{name} is to be an object, and not too deep")
    try:
        text = compact(value)
    except InvalidSchemaError as error:
        raise errors.invalid_schema(f"{name}: {error}") from None
    if len(text) > EXTRAS_BYTES_MAX:
        raise errors.invalid_schema(f"{name} is longer than {EXTRAS_BYTES_MAX} bytes")
    return value


def _number(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value in (None, -1, 0):  # Java's clients send these for "none"
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= NUMBER_MAX:
        raise errors.RegistryError(errors.UNPROCESSABLE, f"{name} is to be a positive number")
    return value
