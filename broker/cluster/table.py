"""Who belongs to the cluster: the table of its nodes by number."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from queues.raft.messages import NodeId

UUID_BYTES = 16
NAME_CHARS_MAX = 255
NUMBER_MAX = 2**62  # of nodes and of their boots


class PeerInfo(NamedTuple):
    """A node as the others know it."""

    name: str
    uuid: bytes  # of its data directory: an emptied one has another
    address: str  # host:port at which it listens for nodes


Table: TypeAlias = dict[NodeId, PeerInfo]


def number_of(table: Mapping[NodeId, PeerInfo], uuid: bytes) -> NodeId | None:
    return next((number for number, info in table.items() if info.uuid == uuid), None)


def to_plain(table: Mapping[NodeId, PeerInfo]) -> dict[int, list[Any]]:
    """As CBOR holds it."""
    return {number: list(info) for number, info in table.items()}


def from_plain(value: object) -> Table:
    """Back from what a file or a peer holds; ValueError for what is no table."""
    if not isinstance(value, dict):
        raise ValueError("the table of nodes is no map")
    table: Table = {}
    for number, row in value.items():
        if type(number) is not int or not 0 < number < NUMBER_MAX:
            raise ValueError("the table of nodes has a number that is none")
        if not isinstance(row, list | tuple) or len(row) != len(PeerInfo._fields):
            raise ValueError("the table of nodes has a row that is none")
        table[number] = peer_info(*row)
    for field in ("name", "uuid"):
        if len({getattr(info, field) for info in table.values()}) < len(table):
            raise ValueError(f"the table of nodes has the same {field} twice")
    return table


def peer_info(name: object, uuid: object, address: object) -> PeerInfo:
    """Checked; ValueError if it is none."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise ValueError("a node's name is no text of 1 to 255 characters")
    if not isinstance(uuid, bytes) or len(uuid) != UUID_BYTES:
        raise ValueError("a node's uuid does not have 16 bytes")
    if not isinstance(address, str):
        raise ValueError("a node's address is no text")
    split_address(address)
    return PeerInfo(name, uuid, address)


def split_address(address: str) -> tuple[str, int]:
    """Host and port out of `host:port` or `[host]:port`; ValueError if it is neither."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no address of the form host:port")
    return host, int(port)
