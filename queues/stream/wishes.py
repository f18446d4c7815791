"""What a consumer of a stream asks for: where to begin, which partitions, which records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from queues.arguments import InvalidArgumentError, InvalidValueError
from queues.stream.arguments import age_ms
from queues.stream.filtering import HeaderFilter

OFFSET: Final = "x-stream-offset"
PARTITIONS: Final = "x-stream-partitions"
FILTER: Final = "x-stream-filter"
GROUP: Final = "x-group"
INSTANCE: Final = "x-group-instance"
OFFSET_MAX: Final = 2**63 - 1
NAME_CHARACTERS_MAX: Final = 255  # of groups and their members, as of queues


class Edge(Enum):
    FIRST = "first"  # the oldest record that there is
    LAST = "last"  # the newest one
    NEXT = "next"  # the one that is published next


@dataclass(frozen=True, slots=True)
class At:
    """An offset, in every partition that is read."""

    offset: int


@dataclass(frozen=True, slots=True)
class Since:
    time_ms: int


Start: TypeAlias = Edge | At | Since


@dataclass(frozen=True, slots=True)
class ReaderWishes:
    start: Start
    partitions: tuple[int, ...]
    filter: HeaderFilter | None


def read_wishes(arguments: Mapping[str, object], partitions: int, now_ms: int) -> ReaderWishes:
    """The arguments of basic.consume; raises InvalidArgumentError."""
    return ReaderWishes(
        start_of(arguments.get(OFFSET, "next"), now_ms),
        _partitions(arguments.get(PARTITIONS), partitions),
        _filter(arguments.get(FILTER)),
    )


def read_membership(arguments: Mapping[str, object]) -> tuple[str, str] | None:
    """The group to read for and the member's instance, or None; raises InvalidArgumentError."""
    group, instance = arguments.get(GROUP), arguments.get(INSTANCE, "")
    if group is None:
        if instance:
            raise InvalidArgumentError(INSTANCE, f"there is no {GROUP}")
        return None
    for name, value in ((GROUP, group), (INSTANCE, instance)):
        if not isinstance(value, str) or len(value) > NAME_CHARACTERS_MAX:
            raise InvalidArgumentError(
                name, f"expected a text of at most {NAME_CHARACTERS_MAX} characters, got {value!r}"
            )
    if not group:
        raise InvalidArgumentError(GROUP, "expected a name")
    if PARTITIONS in arguments:
        raise InvalidArgumentError(PARTITIONS, "which partitions are read is up to the group")
    return str(group), str(instance)


def start_of(value: object, now_ms: int) -> Start:
    """Where `x-stream-offset` says to begin: a word, a number, a time, or how long ago."""
    if isinstance(value, str):
        if value in ("first", "last", "next"):
            return Edge(value)
        try:
            return Since(now_ms - age_ms(value))
        except InvalidValueError:
            pass
    elif isinstance(value, datetime):
        return Since(int(value.timestamp() * 1000))
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= OFFSET_MAX:
        return At(value)
    raise InvalidArgumentError(
        OFFSET,
        "expected first, last, next, an offset, a timestamp, or a length of time as 7D, "
        f"got {value!r}",
    )


def _partitions(value: object, partitions: int) -> tuple[int, ...]:
    if value is None:
        return tuple(range(partitions))
    wanted = value if isinstance(value, list) else [value]
    for number in wanted:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < partitions:
            raise InvalidArgumentError(
                PARTITIONS, f"expected numbers from 0 to {partitions - 1}, got {number!r}"
            )
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidArgumentError(PARTITIONS, "expected at least one number, none twice")
    return tuple(wanted)


def _filter(value: object) -> HeaderFilter | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(FILTER, f"expected a table of headers, got {value!r}")
    return HeaderFilter(value)
