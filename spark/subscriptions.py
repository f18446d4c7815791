"""Which partitions a query reads: streams by name, by pattern, or partitions one by one."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from broker.protocol import stream_messages as wire
from broker.protocol.stream_messages import Partition, PartitionMetadata
from broker.protocol.stream_wire import Refused, Status
from clients.stream_errors import RefusedError
from clients.stream_questions import identities
from clients.streams import StreamClient
from spark.errors import OptionError
from spark.option_values import Options
from spark.places import read_json


@dataclass(frozen=True, slots=True)
class Named:
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    pattern: str  # of the whole name; internal streams, "__…", never match


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: tuple[Partition, ...]


Subscription: TypeAlias = Named | Matching | Assigned


class Seen(NamedTuple):
    """What the broker says of partitions, and what it does not know."""

    partitions: dict[Partition, PartitionMetadata]
    missing: tuple[str, ...]  # for people
    uids: Mapping[str, str]  # of streams; a broker of an earlier version does not tell


def subscription_of(options: Options) -> Subscription:
    """Raises OptionError unless exactly one of the three is given."""
    given = options.given("subscribe", "subscribePattern", "assign")
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise OptionError(f"one of subscribe, subscribePattern and assign is needed, not {said}")
    text = options.text(given[0]) or ""
    if given[0] == "subscribe":
        return _named(text)
    return _matching(text) if given[0] == "subscribePattern" else _assigned(text)


def _named(text: str) -> Named:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise OptionError(f"subscribe={text!r}: names of streams, separated by commas, each once")
    return Named(tuple(sorted(names)))


def _matching(text: str) -> Matching:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern={text!r}: {error}") from None
    if not text:
        raise OptionError("subscribePattern is empty")
    return Matching(text)


def _assigned(text: str) -> Assigned:
    found = []
    for stream, numbers in read_json("assign", text).items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError(f"assign: {stream!r} needs a list of partitions, such as [0, 1]")
        for number in numbers:
            if type(number) is not int or number < 0:
                raise OptionError(f"assign: {number!r} is no partition of {stream!r}")
            found.append(Partition(stream, number))
    if len(set(found)) != len(found):
        raise OptionError(f"assign: a partition is there twice: {text}")
    return Assigned(tuple(sorted(found)))


# Asking


def look(subscription: Subscription, client: StreamClient) -> Seen:
    """What there is now of that."""
    match subscription:
        case Named(streams):
            return look_at(streams, client)
        case Matching(pattern):
            wanted = re.compile(pattern)
            names = [
                name
                for name in client.streams()
                if wanted.fullmatch(name) and not name.startswith("__")
            ]
            return look_at(names, client)._replace(missing=())  # may be deleted by now
        case Assigned(partitions):
            seen = look_at(sorted({each.stream for each in partitions}), client)
            lacking = [each for each in partitions if each not in seen.partitions]
            return Seen(
                {each: seen.partitions[each] for each in partitions if each in seen.partitions},
                tuple(f"{each.stream!r} {each.number}" for each in lacking),
                seen.uids,
            )


def look_at(streams: Iterable[str], client: StreamClient) -> Seen:
    """All partitions of these. Raises RefusedError if one may not be read or is damaged."""
    names = list(streams)
    found: dict[Partition, PartitionMetadata] = {}
    missing = []
    uids: dict[str, str] = {}
    for start in range(0, len(names), wire.STREAMS_MAX):
        asked = wire.Metadata(tuple(names[start : start + wire.STREAMS_MAX]))
        # First, so that a stream that takes its place meanwhile is seen at the next look.
        uids |= client.connection.run(identities(asked.streams))
        for each in client.connection.ask(asked, wire.MetadataAnswer).streams:
            if each.status == Status.STREAM_NOT_FOUND:
                missing.append(repr(each.stream))
            elif each.status != Status.OK:
                raise RefusedError(Refused(each.status, f"stream {each.stream!r}"))
            for told in each.partitions:
                found[Partition(each.stream, told.number)] = told
    return Seen(found, tuple(missing), uids)
