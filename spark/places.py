"""Offsets of partitions, and the words of the options that say where to begin and to end."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from broker.protocol.stream_messages import Partition, PartitionMetadata
from clients.streams import StreamClient
from spark.errors import OptionError
from spark.option_values import COUNT_MAX, read_span_ms

Offsets: TypeAlias = dict[Partition, int]
OffsetJson: TypeAlias = dict[str, dict[str, int | str]]
Known: TypeAlias = Mapping[Partition, PartitionMetadata]

UID: Final = "uid"  # among the partitions of a stream in the JSON: which stream of that name it was
LATEST: Final = -1  # in the JSON of offsets, as Kafka has it
EARLIEST: Final = -2


# Spark compares offsets by their JSON text, which is in the order of the dict: always the same one.


def encode(offsets: Mapping[Partition, int], uids: Mapping[str, str]) -> OffsetJson:
    found: OffsetJson = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.stream, {})[str(partition.number)] = offset
    for stream, numbers in found.items():
        if stream in uids:
            numbers[UID] = uids[stream]
    return found


def decode(offsets: Mapping[str, Mapping[str, Any]]) -> Offsets:
    return {
        Partition(stream, int(number)): offset
        for stream, numbers in offsets.items()
        for number, offset in numbers.items()
        if number != UID
    }


def uids_of(offsets: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Checkpoints of earlier versions have none."""
    return {stream: numbers[UID] for stream, numbers in offsets.items() if UID in numbers}


@dataclass(frozen=True, slots=True)
class Edge:
    """LATEST or EARLIEST of every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class Given:
    """An offset for each partition, LATEST and EARLIEST among them."""

    offsets: tuple[tuple[Partition, int], ...]


@dataclass(frozen=True, slots=True)
class Time:
    """The first records of this time or later; what has none is read from its end."""

    ms: int


@dataclass(frozen=True, slots=True)
class Times:
    """The same with a time for each partition."""

    ms: tuple[tuple[Partition, int], ...]


@dataclass(frozen=True, slots=True)
class Ago:
    """The time that was so long ago when the query began."""

    ms: int


Place: TypeAlias = Edge | Given | Time | Times | Ago


# Reading options


def read_place(name: str, text: str) -> Place:
    """Of startingOffsets and endingOffsets. Raises OptionError."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Edge(EARLIEST if word.lower() == "earliest" else LATEST)
    if word.startswith("-") and (ago_ms := read_span_ms(word[1:])) is not None:
        return Ago(ago_ms)
    if word.startswith("{"):
        return Given(_read_numbers(name, word, minimum=EARLIEST))
    raise OptionError(
        f"{name}={text!r}: earliest, latest, a time ago such as '-10 minutes', "
        'or JSON such as {"orders": {"0": 23, "1": -1}}'
    )


def read_times(name: str, text: str) -> Place:
    """Of startingOffsetsByTimestamp and endingOffsetsByTimestamp. Raises OptionError."""
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) < 16:
        return Time(int(word))
    if word.startswith("{"):
        return Times(_read_numbers(name, word, minimum=0))
    raise OptionError(
        f"{name}={text!r}: milliseconds since 1970, "
        'or JSON such as {"orders": {"0": 1700000000000}} with them for each partition'
    )


def _read_numbers(name: str, text: str, *, minimum: int) -> tuple[tuple[Partition, int], ...]:
    found = []
    for stream, numbers in read_json(name, text).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{name}: {stream!r} needs a number for each of its partitions")
        for number, value in numbers.items():
            if not (number.isascii() and number.isdigit()):
                raise OptionError(f"{name}: {number!r} is no partition of {stream!r}")
            if type(value) is not int or not minimum <= value <= COUNT_MAX:
                raise OptionError(f"{name}: {value!r} for {stream!r} {number}")
            found.append((Partition(stream, int(number)), value))
    return tuple(sorted(found))


def read_json(name: str, text: str) -> dict[str, Any]:
    """An object, in which nothing is said twice. Raises OptionError."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise OptionError(f"{name}: something is there twice: {text}")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise OptionError(f"{name}: no JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{name}: a JSON object with a stream at least, not {text}")
    return found


# Finding offsets


def resolve(name: str, place: Place, client: StreamClient, known: Known, now_ms: int) -> Offsets:
    """Where that is in each of these partitions. Raises OptionError if it is nowhere."""
    match place:
        case Edge(which):
            return {each: _edge(which, told) for each, told in known.items()}
        case Given(offsets):
            _must_be_all(name, dict(offsets), known)
            return {each: _given(name, each, offset, known) for each, offset in offsets}
        case Time(ms):
            return _at(client, dict.fromkeys(known, ms), known)
        case Ago(ms):
            return _at(client, dict.fromkeys(known, max(0, now_ms - ms)), known)
        case Times(times):
            _must_be_all(name, dict(times), known)
            return _at(client, dict(times), known)


def _edge(which: int, told: PartitionMetadata) -> int:
    return told.first_offset if which == EARLIEST else told.stable_offset


def _given(name: str, partition: Partition, offset: int, known: Known) -> int:
    told = known[partition]
    if offset < 0:
        return _edge(offset, told)
    if offset > told.next_offset:
        raise OptionError(
            f"{name}: {partition.stream!r} {partition.number} has records up to offset "
            f"{told.next_offset}, and {offset} is beyond"
        )
    return offset


def _must_be_all(name: str, given: Iterable[Partition], known: Known) -> None:
    for each in sorted(set(given) ^ known.keys()):
        what = "is not said" if each in known else "is no partition that is read"
        raise OptionError(f"{name}: {each.stream!r} {each.number} {what}")


def _at(client: StreamClient, times: Mapping[Partition, int], known: Known) -> Offsets:
    """One question for each stream and time."""
    asked: dict[tuple[str, int], list[int]] = {}
    for partition, ms in times.items():
        asked.setdefault((partition.stream, ms), []).append(partition.number)
    found: Offsets = {}
    for (stream, ms), numbers in asked.items():
        for number, offset in client.offsets(stream, ms, numbers).items():
            partition = Partition(stream, number)
            found[partition] = min(offset, known[partition].stable_offset)
    return found
