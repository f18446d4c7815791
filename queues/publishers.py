"""Who published into a queue, and how far: a batch that is sent again is not stored again.

A publisher that may have to repeat itself, because the queue's leader may change before it answers,
names itself by a session and numbers its batches. What is remembered of a session is in the log, so
that every replica knows it.

    encoded   0           4
              +-----------+------------------------------------------------------------------+
              | count u32 | sessions, the one that was quiet for longest first, each:        |
              |           | session 16 bytes, seq u64, used u64 ms, vague u64, batches u32,  |
              |           | and each batch: seq u64, refused u32, positions u32 each         |
              +-----------+------------------------------------------------------------------+
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SESSION_BYTES: Final = 16
# A publisher that has not been heard of for so long does not wait for an answer any more.
IDLE_MS: Final = 60 * 60 * 1000
# Between two batches no more than this counts as having passed. A new leader's clock may be hours
# ahead, and what is sent again after the change must still be known.
GAP_MS: Final = 5 * 60 * 1000
# Bounds what one queue can cost: about 300 bytes each.
SESSIONS_MAX: Final = 10_000
# Positions of refused messages that are remembered of one session: a few windows of confirms.
REFUSED_MAX: Final = 1024

_COUNT = struct.Struct(">I")
_SESSION = struct.Struct(f">{SESSION_BYTES}sQQQI")
_BATCH = struct.Struct(">QI")


class Origin(NamedTuple):
    """Where a batch comes from. A session's numbers start at 1 and come in order."""

    session: bytes
    seq: int


class Note(NamedTuple):
    """A batch as the log tells of it: the places in it of messages that were refused."""

    session: bytes
    seq: int
    refused: tuple[int, ...] = ()


class Publisher:
    """One session: its last batch, and which messages of earlier ones were not taken."""

    __slots__ = ("refused", "refused_count", "seq", "used_ms", "vague")

    def __init__(self, seq: int, used_ms: int) -> None:
        self.seq = seq
        self.used_ms = used_ms  # by the stamp of the leader that took the last batch
        self.refused: dict[int, tuple[int, ...]] = {}  # seq → places in the batch, ascending seq
        self.refused_count = 0
        self.vague = 0  # of batches up to this one it is not known any more

    def refuse(self, seq: int, places: tuple[int, ...]) -> None:
        self.refused[seq] = places
        self.refused_count += len(places)
        while self.refused_count > REFUSED_MAX:
            self.vague = next(iter(self.refused))
            self.refused_count -= len(self.refused.pop(self.vague))

    def refused_of(self, seq: int, count: int) -> Sequence[int]:
        """Places of refused messages in a batch of `count`: all of them where that is in doubt."""
        return range(count) if seq <= self.vague else self.refused.get(seq, ())


class Publishers:
    """Sessions in the order of their last use, by the log: the same on every replica."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Publisher] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, origin: Origin) -> Publisher | None:
        """The publisher, if this batch of it is in the log."""
        publisher = self._known.get(origin.session)
        return publisher if publisher is not None and origin.seq <= publisher.seq else None

    def last(self, session: bytes) -> int:
        """The last batch of a session; 0 for one that is not known."""
        publisher = self._known.get(session)
        return publisher.seq if publisher is not None else 0

    def apply(self, time_ms: int, notes: Iterable[Note]) -> None:
        """These batches came, at this time; who was quiet for too long is forgotten."""
        self._close_gap(time_ms)
        for note in notes:
            publisher = self._known.pop(note.session, None) or Publisher(0, time_ms)
            publisher.seq = max(publisher.seq, note.seq)
            publisher.used_ms = time_ms
            if note.refused:
                publisher.refuse(note.seq, note.refused)
            self._known[note.session] = publisher
        while self._known:
            first = next(iter(self._known))
            is_idle = self._known[first].used_ms + IDLE_MS < time_ms
            if not is_idle and len(self._known) <= SESSIONS_MAX:
                break
            del self._known[first]

    def _close_gap(self, time_ms: int) -> None:
        """Move all uses forward, if the last one seems to be longer ago than a gap counts."""
        if self._known:
            last = self._known[next(reversed(self._known))]
            excess_ms = time_ms - last.used_ms - GAP_MS
            if excess_ms > 0:
                for publisher in self._known.values():
                    publisher.used_ms += excess_ms

    def encode(self) -> bytes:
        pieces = [_COUNT.pack(len(self._known))]
        for session, one in self._known.items():
            head = _SESSION.pack(session, one.seq, one.used_ms, one.vague, len(one.refused))
            pieces.append(head)
            for seq, places in one.refused.items():
                pieces += (_BATCH.pack(seq, len(places)), pack_places(places))
        return b"".join(pieces)

    @classmethod
    def decode(cls, data: bytes, pos: int) -> tuple["Publishers", int]:
        """What stands there, and where it ends."""
        publishers = cls()
        (count,) = _COUNT.unpack_from(data, pos)
        pos += _COUNT.size
        for _ in range(count):
            session, seq, used_ms, vague, batches = _SESSION.unpack_from(data, pos)
            pos += _SESSION.size
            publisher = publishers._known[session] = Publisher(seq, used_ms)
            publisher.vague = vague
            for _ in range(batches):
                refused_seq, number = _BATCH.unpack_from(data, pos)
                places, pos = unpack_places(data, pos + _BATCH.size, number)
                publisher.refuse(refused_seq, places)
        return publishers, pos


def pack_places(places: Sequence[int]) -> bytes:
    return struct.pack(f">{len(places)}I", *places)


def unpack_places(data: bytes, pos: int, count: int) -> tuple[tuple[int, ...], int]:
    """So many of them, and where they end."""
    return struct.unpack_from(f">{count}I", data, pos), pos + 4 * count
