"""What clients note down: each says what it did and saw, and nobody corrects it."""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

_BODY = struct.Struct(">8sQI")
BODY_BYTES_MIN = _BODY.size


class Key(NamedTuple):
    """A message: the session that published it (one channel's life) and its number there."""

    session: str
    number: int


class Outcome(Enum):
    """What a publisher was told."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"  # basic.nack: it may be there or not
    UNKNOWN = "unknown"  # the connection ended first: it may be there or not


def body_of(key: Key, size: int) -> bytes:
    """A body that names its message and cannot be mistaken for another or a damaged one."""
    head = bytes.fromhex(key.session)
    padding = bytes(max(0, size - BODY_BYTES_MIN))
    check = zlib.crc32(padding, zlib.crc32(head + key.number.to_bytes(8, "big")))
    return _BODY.pack(head, key.number, check) + padding


def key_of(body: bytes) -> Key | None:
    """The message that a body names; None if it is none of ours, or damaged."""
    if len(body) < BODY_BYTES_MIN:
        return None
    head, number, check = _BODY.unpack_from(body)
    padding = body[BODY_BYTES_MIN:]
    if zlib.crc32(padding, zlib.crc32(head + number.to_bytes(8, "big"))) != check:
        return None
    return Key(head.hex(), number)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a consumer got it; consumers are named by the life of their channel."""

    consumer: str
    key: Key | None
    redelivered: bool
    at: float = 0.0
    node: str = ""


@dataclass(frozen=True, slots=True)
class StreamRead:
    """A record as a reader got it; a reader goes on after the last one when it has to reconnect."""

    reader: str
    offset: int
    key: Key | None


@dataclass
class QueueHistory:
    """All that happened to one queue."""

    queue: str
    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def published(self, keys: list[Key]) -> None:
        """Before they are sent: until something is heard of them, nothing is known."""
        with self._lock:
            self.outcomes.update(dict.fromkeys(keys, Outcome.UNKNOWN))

    def heard(self, keys: list[Key], outcome: Outcome) -> None:
        with self._lock:
            self.outcomes.update(dict.fromkeys(keys, outcome))

    def delivered(self, delivery: Delivery) -> None:
        with self._lock:
            self.deliveries.append(delivery)

    def confirmed(self) -> set[Key]:
        with self._lock:
            return {key for key, one in self.outcomes.items() if one is Outcome.CONFIRMED}

    def seen(self) -> set[Key | None]:
        with self._lock:
            return {delivery.key for delivery in self.deliveries}


@dataclass
class StreamHistory:
    """All that happened to one stream."""

    stream: str
    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    reads: list[StreamRead] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def published(self, keys: list[Key]) -> None:
        with self._lock:
            self.outcomes.update(dict.fromkeys(keys, Outcome.UNKNOWN))

    def heard(self, keys: list[Key], outcome: Outcome) -> None:
        with self._lock:
            self.outcomes.update(dict.fromkeys(keys, outcome))

    def read(self, one: StreamRead) -> None:
        with self._lock:
            self.reads.append(one)

    def confirmed(self) -> set[Key]:
        with self._lock:
            return {key for key, one in self.outcomes.items() if one is Outcome.CONFIRMED}

    def seen_by(self, reader: str) -> set[Key | None]:
        with self._lock:
            return {one.key for one in self.reads if one.reader == reader}
