"""The parts that a snapshot travels in; snapshots.py draws them."""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, named like one
from typing import Final

from queues.storage.log_store import StoredEntry

PART_BYTES_MAX: Final = 256 * 1024  # of one part: others get their turn in between

HEAD: Final = Struct(">B16sQ")
PLACE: Final = Struct(">QQ")  # index and term
NUMBER: Final = Struct(">Q")
_ENTRY: Final = Struct(">QQI")


class From(IntEnum):
    """What a message is, by the side that it comes from."""

    OFFER = 1  # the leader
    WANT = 2  # the member
    ENTRIES = 3
    FILES = 4
    STATE = 5
    END = 6
    TAKEN = 7  # the member
    DONE = 8
    NEED = 9
    REPAIR = 10  # the leader


def decode_head(body: bytes | memoryview) -> tuple[From, bytes, int]:
    try:
        what, uid, number = HEAD.unpack_from(body)
        return From(what), uid, number
    except StructError as error:
        raise ValueError(f"not a part of a snapshot: {error}") from None


def encode_entries(entries: Iterable[StoredEntry]) -> list[bytes]:
    pieces: list[bytes] = []
    for entry in entries:
        pieces.append(_ENTRY.pack(entry.index, entry.term, len(entry.payload)))
        pieces.append(entry.payload)
    return pieces


def decode_entries(body: bytes) -> list[StoredEntry]:
    """ValueError if there is less than it says."""
    entries, place = [], 0
    while place < len(body):
        try:
            index, term, length = _ENTRY.unpack_from(body, place)
        except StructError as error:
            raise ValueError(f"not an entry: {error}") from None
        start = place + _ENTRY.size
        place = start + length
        if place > len(body):
            raise ValueError("an entry is cut short")
        entries.append(StoredEntry(index, term, body[start:place]))
    return entries
