"""How fresh nodes become a cluster, and how one more finds its place in it.

A fresh node asks all that are listed for their cards, round after round. Whoever has a table with
this node in it hands it over with its card. While all are fresh, the one with the lowest name fixes
the cluster's id and the table, on its own disk first; from there the others get it by asking. A
crash anywhere leaves a node either fresh, asking again, or with the table, handing it on.

A fresh node that meets a cluster whose table lacks it waits to be added: it does not know what a
node of its name may have promised before.
"""

import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import cbor2
import trio

from broker.cluster.hello import HelloFailedError, receive_exactly
from broker.cluster.identity import check_bytes
from broker.cluster.table import (
    UUID_BYTES,
    PeerInfo,
    Table,
    from_plain,
    number_of,
    peer_info,
    to_plain,
)
from queues.raft.messages import NodeId

CARD_BYTES_MAX: Final = 1024 * 1024
_LENGTH: Final = struct.Struct(">I")


class Card(NamedTuple):
    """What a node shows to one that asks."""

    info: PeerInfo
    listed: tuple[str, ...]  # names, sorted
    cluster: bytes | None  # None while it is fresh
    table: Table


class Take(NamedTuple):
    """This node's place."""

    cluster: bytes
    number: NodeId
    table: Table


class Join(NamedTuple):
    """There is a cluster; it has to add this node first."""

    reason: str


class Wait(NamedTuple):
    """Not yet, and why."""

    reason: str


Outcome: TypeAlias = Take | Join | Wait


def decide(
    mine: Card,
    others: Mapping[str, Card],
    new_cluster: Callable[[], bytes] = lambda: os.urandom(UUID_BYTES),
) -> Outcome:
    """What a fresh node does after a round of asking; `others` are those that answered, by name."""
    formed = {name: card for name, card in others.items() if card.cluster is not None}
    for card in formed.values():
        number = number_of(card.table, mine.info.uuid)
        if card.cluster is not None and number is not None:
            if card.table[number].name != mine.info.name:
                return Wait(f"the cluster knows this node as {card.table[number].name}")
            return Take(card.cluster, number, card.table)
    if formed:
        return Join(f"it waits to be added to the cluster of node {min(formed)}")
    if missing := sorted(set(mine.listed) - {mine.info.name} - set(others)):
        return Wait(f"not all listed nodes answer yet: {', '.join(missing)}")
    for name, card in sorted(others.items()):
        if card.listed != mine.listed:
            return Wait(f"node {name} lists {', '.join(card.listed)}, this one others")
    if mine.info.name != min(mine.listed):
        return Wait(f"node {min(mine.listed)} has not yet fixed the table")
    infos = sorted([mine.info, *(card.info for card in others.values())])
    if len({info.uuid for info in infos}) < len(infos):
        return Wait("two nodes have the same uuid: one's data directory is a copy of the other's")
    table = dict(enumerate(infos, start=1))
    return Take(new_cluster(), infos.index(mine.info) + 1, table)


async def exchange(stream: trio.abc.Stream, mine: Card) -> Card:
    """Show cards to each other, behind the hello."""
    data = _encode(mine)
    try:
        await stream.send_all(_LENGTH.pack(len(data)) + data)
    except trio.BrokenResourceError as error:
        raise HelloFailedError("the connection broke") from error
    (length,) = _LENGTH.unpack(await receive_exactly(stream, _LENGTH.size))
    if length > CARD_BYTES_MAX:
        raise HelloFailedError(f"its card has {length} bytes")
    return _decode(await receive_exactly(stream, length))


def _encode(card: Card) -> bytes:
    return cbor2.dumps([list(card.info), list(card.listed), card.cluster, to_plain(card.table)])


def _decode(data: bytes) -> Card:
    try:
        value: Any = cbor2.loads(data)
        info, listed, cluster, table = value
        if not all(isinstance(name, str) for name in listed):
            raise ValueError("it lists what are no names")
        if cluster is not None:
            check_bytes(cluster, "cluster id")
        return Card(peer_info(*info), tuple(listed), cluster, from_plain(table))
    except (cbor2.CBORDecodeError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise HelloFailedError(f"its card cannot be read: {error}") from error
