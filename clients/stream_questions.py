"""What a client may ask about streams, groups and offsets: plans for both clients."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Operation, Refused, Status
from clients.stream_errors import RefusedError
from clients.stream_plans import Plan, asked

_PLACES: Final = {"first": wire.FIRST, "last": wire.LAST, "next": wire.NEXT}
# A transaction that holds an offset is decided soon; a node that is lost has its groups elsewhere.
NOT_YET: Final = (Status.UNAVAILABLE, Status.OFFSET_UNSTABLE)


def streams() -> Plan[dict[str, int]]:
    found = yield from asked(wire.Empty(), wire.StreamList, Operation.LIST_STREAMS)
    return {each.stream: each.partitions for each in found.streams}


def metadata(names: Iterable[str]) -> Plan[dict[str, tuple[wire.PartitionMetadata, ...]]]:
    """Raises RefusedError if one is not there."""
    found = yield from asked(wire.Metadata(tuple(names)), wire.MetadataAnswer)
    for each in found.streams:
        if each.status != Status.OK:
            raise RefusedError(Refused(each.status, f"stream {each.stream!r}"))
    return {each.stream: each.partitions for each in found.streams}


def identities(names: Iterable[str]) -> Plan[dict[str, str]]:
    """The uids of those that are there; none of them from a broker that does not tell."""
    try:
        found = yield from asked(wire.Identify(tuple(names)), wire.Identities)
    except RefusedError as error:
        if error.status != Status.UNKNOWN_OPERATION:
            raise
        return {}
    return {each.stream: each.uid for each in found.streams if each.status == Status.OK}


def partition_counts(names: Iterable[str]) -> Plan[dict[str, int]]:
    found = yield from metadata(names)
    return {name: len(partitions) for name, partitions in found.items()}


def offsets(stream: str, place: str | int, partitions: Iterable[int] = ()) -> Plan[dict[int, int]]:
    """At "first", "last", "next", or at a time in ms; of all partitions or of these."""
    if isinstance(place, str):
        if place not in _PLACES:
            raise ValueError(f"no place {place!r}: one of {', '.join(_PLACES)}, or a time in ms")
        request = wire.OffsetFor(stream, _PLACES[place], 0, tuple(partitions))
    else:
        request = wire.OffsetFor(stream, wire.TIMESTAMP, place, tuple(partitions))
    found = yield from asked(request, wire.OffsetsFound)
    return {each.partition: each.offset for each in found.offsets}


def groups() -> Plan[tuple[wire.GroupListed, ...]]:
    found = yield from asked(wire.Empty(), wire.GroupList, Operation.LIST_GROUPS)
    return found.groups


def described_group(name: str) -> Plan[wire.GroupDescription]:
    found = yield from asked(wire.DescribeGroup(name), wire.GroupDescription)
    return found


def committed(
    group: str, partitions: Iterable[wire.Partition] = ()
) -> Plan[dict[wire.Partition, wire.CommittedOffset]]:
    """Waits for a transaction that is about to move one of them."""
    request = wire.FetchOffsets(group, tuple(partitions))
    found = yield from asked(request, wire.CommittedOffsets, unless=NOT_YET)
    return {each.partition: each for each in found.offsets}


def offsets_reset(group: str, positions: Mapping[wire.Partition, int]) -> Plan[None]:
    told = tuple(wire.Position(*each) for each in sorted(positions.items()))
    yield from asked(wire.ResetOffsets(group, told), wire.Empty, unless=NOT_YET)
