"""Subjects and their versions: listed, read, registered, deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from broker.registry import errors
from broker.registry.candidates import judge, read_candidate, unit_of
from broker.registry.changing import Changer, commit, tokens
from broker.registry.levels import LEVELS
from broker.registry.rows import version_row
from broker.registry.state import AVRO, IMPORT, READWRITE, REGISTER

if TYPE_CHECKING:
    from broker.registry.asking import Ask
    from broker.registry.candidates import Candidate

_ALL_CONTEXTS = (":*:", ":.:")  # what a prefix of subjects may begin with
_AT_A_TIME = 200  # names, between which others have their turn


# Reading


async def wanted_subjects(ask: Ask) -> list[str]:
    """By prefix, those that the user may read."""
    prefix = ask.text("subjectPrefix")
    for context in _ALL_CONTEXTS:
        prefix = prefix.removeprefix(context)
    found: list[str] = []
    for number, name in enumerate(sorted(n for n in ask.schemas.subjects if n.startswith(prefix))):
        if number % _AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()  # there may be very many
        if ask.may_read(name):
            found.append(name)
    return found


def shown_versions(ask: Ask, subject: str) -> list[int]:
    """With those that are deleted, or only them, if the request says so."""
    if ask.flag("deletedOnly", "deleted_only"):
        there = ask.schemas.subjects.get(subject, {})
        return [number for number, version in there.items() if version.deleted]
    return ask.schemas.versions(subject, deleted=ask.flag("deleted"))


async def list_subjects(ask: Ask) -> list[str]:
    names = await wanted_subjects(ask)
    if ask.flag("deletedOnly", "deleted_only"):
        return ask.page([name for name in names if not ask.schemas.versions(name)])
    return ask.page([name for name in names if shown_versions(ask, name)])


async def list_versions(ask: Ask) -> list[int]:
    subject = ask.require_read()
    found = shown_versions(ask, subject)
    if not found:
        raise errors.subject_not_found(subject)
    return ask.page(found)


async def get_version(ask: Ask) -> dict[str, Any]:
    subject = ask.require_read()
    return version_row(ask.schemas, subject, ask.version(deleted=ask.flag("deleted")))


async def get_text(ask: Ask) -> str:
    """The schema of a version and nothing else; not quoted once more."""
    row = await get_version(ask)
    return str(row["schema"])


async def get_referrers(ask: Ask) -> list[int]:
    subject = ask.require_read()
    ids = ask.schemas.referrers(subject, ask.version(deleted=True))
    return ask.page([each for each in ids if ask.may_read_schema(each)])


async def get_with_metadata(ask: Ask) -> dict[str, Any]:
    """The newest version whose metadata has these properties."""
    subject = ask.require_read()
    query = ask.call.request.query
    wanted = dict(zip(query.get("key", []), query.get("value", []), strict=False))
    numbers = ask.schemas.versions(subject, deleted=ask.flag("deleted"))
    if not numbers:
        raise errors.subject_not_found(subject)
    for number in reversed(numbers):
        row = version_row(ask.schemas, subject, number)
        properties = row.get("metadata", {}).get("properties")
        told = properties if isinstance(properties, dict) else {}
        if all(told.get(key) == value for key, value in wanted.items()):
            return row
    raise errors.schema_not_found()


async def look_up(ask: Ask) -> dict[str, Any]:
    """Which version of the subject a schema is."""
    subject = ask.require_read()
    candidate = read_candidate(ask)
    deleted = ask.flag("deleted")
    if not ask.schemas.versions(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    judged = await judge(candidate)
    number = ask.schemas.find(subject, judged.digest, deleted=deleted)
    if number is None:
        raise errors.schema_not_found()
    return version_row(ask.schemas, subject, number)


# Registering


async def register(changer: Changer, ask: Ask) -> dict[str, Any]:
    subject = ask.subject
    ask.require("write", subject)
    return await changer.until_made(partial(_register, ask, subject))


async def _register(ask: Ask, subject: str) -> dict[str, Any]:
    """Found, or made and then found."""
    await ask.call.up_to_date()
    candidate = read_candidate(ask)
    touched = {subject, *(reference.subject for reference in candidate.references)}
    seen = tokens(ask, touched)
    level, versions = ask.schemas.level(subject), ask.schemas.versions(subject)
    importing = ask.schemas.mode(subject) == IMPORT
    counting = () if importing else LEVELS[level].counting(versions)
    earlier = [unit_of(ask.schemas, subject, number) for number in reversed(counting)]
    judged = await judge(candidate, level, earlier)
    if (number := ask.schemas.find(subject, judged.digest)) is not None:
        return _registered(ask, subject, number)
    _check_mode(ask, subject, candidate)
    if judged.objections:
        raise errors.incompatible(subject, judged.objections, level)
    _check_numbers(ask, subject, candidate, judged.digest)
    references = [list(reference) for reference in candidate.references]
    content = (AVRO, judged.text, references, candidate.metadata, candidate.rules)
    ids = (candidate.wanted_id, candidate.wanted_version)
    await commit(ask, touched, seen, [REGISTER, subject, *ids, judged.digest, *content])
    made = ask.schemas.find(subject, judged.digest)
    if made is None:  # and deleted by somebody else at once
        raise errors.schema_not_found()
    return _registered(ask, subject, made)


def _registered(ask: Ask, subject: str, number: int) -> dict[str, Any]:
    return version_row(ask.schemas, subject, number)


def _check_mode(ask: Ask, subject: str, candidate: Candidate) -> None:
    mode = ask.schemas.mode(subject)
    if mode not in (READWRITE, IMPORT):
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")
    if mode == READWRITE and candidate.wanted_id is not None:
        raise errors.not_permitted(f"Subject {subject} is not in import mode")
    if mode == IMPORT and candidate.wanted_id is None:
        raise errors.not_permitted(f"Subject {subject} is in import mode: an id is needed")


def _check_numbers(ask: Ask, subject: str, candidate: Candidate, digest: bytes) -> None:
    """That the id and version that are asked for can be had."""
    schemas, wanted = ask.schemas, candidate.wanted_id
    if wanted is not None:
        there = schemas.by_id.get(wanted)
        if there is not None and there.digest != digest:
            raise errors.RegistryError(42207, f"Id {wanted} is another schema's")
        if schemas.by_digest.get(digest, wanted) != wanted:
            text = f"The schema has id {schemas.by_digest[digest]} already, not {wanted}"
            raise errors.RegistryError(42207, text)
    version = candidate.wanted_version
    if version is not None:
        every = schemas.versions(subject, deleted=True)
        is_next = version == max(every, default=0) + 1
        if version in every or (not is_next and schemas.mode(subject) != IMPORT):
            raise errors.RegistryError(42202, f"Version {version} is not the next one")


# Deleting


async def delete_subject(changer: Changer, ask: Ask) -> list[int]:
    subject = ask.subject
    ask.require("configure", subject)
    permanent = ask.flag("permanent")

    async def attempt() -> list[int]:
        await ask.call.up_to_date()
        _check_writable(ask, subject)
        seen = tokens(ask, [subject])
        live = ask.schemas.versions(subject)
        numbers = ask.schemas.versions(subject, deleted=permanent)
        if subject not in ask.schemas.subjects:
            raise errors.subject_not_found(subject)
        if permanent and live:
            raise errors.subject_not_deleted(subject)
        if not permanent and not live:
            raise errors.subject_deleted(subject)
        _check_unreferenced(ask, subject, numbers)
        changes = [_deletion(ask, subject, number, permanent=permanent) for number in numbers]
        if subject in ask.schemas.configs:
            changes.append(["-subject-config", subject])
        if subject in ask.schemas.modes:
            changes.append(["-subject-mode", subject])
        await commit(ask, [subject], seen, *changes)
        return numbers

    return await changer.until_made(attempt)


async def delete_version(changer: Changer, ask: Ask) -> int:
    subject = ask.subject
    ask.require("configure", subject)
    permanent = ask.flag("permanent")

    async def attempt() -> int:
        await ask.call.up_to_date()
        _check_writable(ask, subject)
        seen = tokens(ask, [subject])
        number = ask.version(deleted=True)
        is_deleted = ask.schemas.subjects[subject][number].deleted
        if permanent and not is_deleted:
            raise errors.version_not_deleted(subject, number)
        if not permanent and is_deleted:
            raise errors.version_deleted(subject, number)
        _check_unreferenced(ask, subject, [number])
        await commit(ask, [subject], seen, _deletion(ask, subject, number, permanent=permanent))
        return number

    return await changer.until_made(attempt)


def _check_writable(ask: Ask, subject: str) -> None:
    if ask.schemas.mode(subject) not in (READWRITE, IMPORT):
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")


def _check_unreferenced(ask: Ask, subject: str, numbers: list[int]) -> None:
    for number in numbers:
        ids = ask.schemas.referrers(subject, number)
        if ids:
            raise errors.referenced(subject, number, ids)


def _deletion(ask: Ask, subject: str, number: int, *, permanent: bool) -> list[Any]:
    if permanent:
        return ["-subject-version", subject, number]
    schema_id = ask.schemas.subjects[subject][number].schema_id
    return ["subject-version", subject, number, schema_id, True]
