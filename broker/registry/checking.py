"""Compatibility of a schema with what a subject has, without registering it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.registry.candidates import judge, read_candidate, unit_of
from broker.registry.levels import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.registry.asking import Ask


async def check_version(ask: Ask) -> dict[str, Any]:
    """With one version, by the level of the subject."""
    subject = ask.require_read()
    await ask.call.up_to_date()
    number = ask.version()
    return await _check(ask, subject, LEVELS[ask.schemas.level(subject)].counting([number]))


async def check_all(ask: Ask) -> dict[str, Any]:
    """As registering would: with the last version, or with all."""
    subject = ask.require_read()
    await ask.call.up_to_date()
    versions = ask.schemas.versions(subject)
    return await _check(ask, subject, LEVELS[ask.schemas.level(subject)].counting(versions))


async def _check(ask: Ask, subject: str, numbers: Sequence[int]) -> dict[str, Any]:
    candidate = read_candidate(ask)
    earlier = [unit_of(ask.schemas, subject, number) for number in reversed(numbers)]
    level = ask.schemas.level(subject)
    judged = await judge(candidate, level, earlier)
    answer: dict[str, Any] = {"is_compatible": not judged.objections}
    if ask.flag("verbose"):
        answer["messages"] = [*judged.objections]
        if judged.objections:
            answer["messages"].append(f"{{compatibility: '{level}'}}")
    return answer
