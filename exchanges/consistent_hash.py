"""The consistent-hash exchange: one destination per message, picked by a hash, in shares by weight.

The binding key is the weight, an integer of at least 1. What is hashed is the routing key or, by
exchange argument, a header (`hash-header`) or a property (`hash-property`: message_id,
correlation_id or timestamp). `match` finds the properties among the headers under the reserved
names in `PROPERTY_HEADERS`, where the caller puts them. Messages without the header or property
all go to the same destination.

The hash names one of 16,384 slots; a slot belongs to the destination with the highest score for
it (weighted rendezvous hashing). A destination that comes takes slots from the others in
proportion to its weight, one that goes leaves its own to them, and no other slot moves. RabbitMQ's
plugin uses jump hashing, which renumbers the buckets behind a removed one and so moves far more.
Scores come from the destination's name, so the choice is the same after a restart and on every
node.

A second binding of the same destination does not count, as in the plugin: the first one's weight
holds. When that one is unbound, the next takes its place (the plugin loses the destination).
"""

import math
import re
from hashlib import blake2b
from typing import Final
from zlib import crc32

from exchanges.table import Arguments, Destination, Found
from exchanges.values import canonical

# Shares come out within some 3 % at 10 destinations and 8 % at 100, and remembering every owner
# takes a megabyte at most.
SLOTS: Final = 16_384

PROPERTY_HEADERS: Final = {
    "message_id": "\0message_id",
    "correlation_id": "\0correlation_id",
    "timestamp": "\0timestamp",
}

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class _Member:
    """A destination: the weights it is bound with, oldest first, and the salt of its scores."""

    __slots__ = ("salt", "weights")

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.weights: list[int] = []

    def score(self, slot: int) -> float:
        digest = blake2b(slot.to_bytes(4, "big"), digest_size=8, key=self.salt).digest()
        # 53 bits and a half: a float strictly between 0 and 1, whose logarithm is below 0.
        chance = ((int.from_bytes(digest, "big") >> 11) + 0.5) / (1 << 53)
        return -self.weights[0] / math.log(chance)


class ConsistentHashTable:
    __slots__ = ("_header", "_members", "_owners", "_salts", "reads_headers")

    reads_every_key = False

    def __init__(self, exchange_arguments: Arguments) -> None:
        self._header = _hashed_header(exchange_arguments)
        self.reads_headers = self._header is not None
        self._members: dict[Destination, _Member] = {}
        self._salts: set[bytes] = set()
        # Filled as slots are asked for, emptied when a binding changes.
        self._owners: dict[int, Destination] = {}

    def bind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        member = self._members.get(destination)
        if member is None:
            member = self._members[destination] = _Member(self._new_salt(destination.name))
        member.weights.append(int(key))
        self._owners.clear()

    def unbind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        member = self._members[destination]
        member.weights.remove(int(key))
        if not member.weights:
            del self._members[destination]
            self._salts.remove(member.salt)
        self._owners.clear()

    def match(self, key: str, headers: Arguments, found: Found) -> None:
        if not self._members:
            return
        hashed = key if self._header is None else repr(canonical(headers.get(self._header)))
        slot = crc32(hashed.encode("utf-8", "surrogatepass")) % SLOTS
        owner = self._owners.get(slot)
        if owner is None:
            owner = self._owners[slot] = self._pick_owner(slot)
        found[owner] = None

    def _pick_owner(self, slot: int) -> Destination:
        members = self._members
        return max(members, key=lambda destination: members[destination].score(slot))

    def _new_salt(self, name: str) -> bytes:
        """A queue and an exchange may share a name: the later one gets a salt of its own."""
        twin = 0
        while (salt := _salt(name, twin)) in self._salts:
            twin += 1
        self._salts.add(salt)
        return salt


def validate(key: str, _arguments: Arguments) -> None:
    if _INTEGER.fullmatch(key) is None:
        raise ValueError(f"The binding key must be an integer: {key!r}")
    if int(key) < 1:
        raise ValueError("The binding key must be greater than 0")


def _salt(name: str, twin: int) -> bytes:
    return blake2b(f"{twin}:{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _hashed_header(exchange_arguments: Arguments) -> str | None:
    """Where `match` looks for what is hashed; None for the routing key."""
    named = [n for n in ("hash-header", "hash-property") if n in exchange_arguments]
    if not named:
        return None
    if len(named) == 2:
        raise ValueError("hash-header and hash-property are mutually exclusive")
    value = exchange_arguments[named[0]]
    if not isinstance(value, str):
        raise ValueError(f"{named[0]} must be a string: {value!r}")
    if named[0] == "hash-header":
        return value
    if value not in PROPERTY_HEADERS:
        raise ValueError(f"Unsupported property: {value}")
    return PROPERTY_HEADERS[value]
