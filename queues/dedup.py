"""Which messages a queue has seen lately, by the digest of their id or of their body.

    encoded   0           4
              +-----------+--------------------------------------------+
              | count u32 | items, each: digest 16 bytes, until u64 ms |
              +-----------+--------------------------------------------+

Items stand in the order in which they were added; integers are big-endian.
"""

import struct
from collections import deque
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16  # among 10^9 different ids two share a digest with a chance of 10^-21
UNTIL_MS_MAX: Final = 2**64 - 1
# More than 3,000 messages a second over the default window of five minutes. It bounds what one
# queue can cost: about 170 bytes each in memory, and 24 in a checkpoint.
SEEN_MAX: Final = 1_000_000

# Stale marks are left in line up to so many, or up to as many as there are valid ones.
_STALE_MIN: Final = 1024
_ADDED_BITS: Final = 48  # a million a second for nine years
_ADDED_MAX: Final = 2**_ADDED_BITS - 1
_COUNT = struct.Struct(">I")
_ITEM = struct.Struct(f">{DIGEST_BYTES}sQ")


def digest_of_id(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=DIGEST_BYTES, person=b"leveret id").digest()


def digest_of_body(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=DIGEST_BYTES, person=b"leveret body").digest()


def digest_of_letter(queue: bytes, sequence: int, frames: bytes) -> bytes:
    """What a dead letter is known by: the queue, and the message there, that it comes from."""
    digest = blake2b(frames, digest_size=DIGEST_BYTES, person=b"leveret letter", key=queue)
    digest.update(sequence.to_bytes(8, "big"))
    return digest.digest()


class _Line:
    """Digests in ascending order of their marks."""

    __slots__ = ("digests", "marks")

    def __init__(self) -> None:
        self.digests: deque[bytes] = deque()
        self.marks: deque[int] = deque()


class DedupWindow:
    """Digests, each remembered until its own time: at `until_ms` it is forgotten.

    Beyond SEEN_MAX the one that was added first goes first.

    A mark is one integer: until when, and in the low bits the running number of the addition. It
    sorts by time, tells which is oldest, and costs one small object per digest.

    Times ascend from one digest to the next unless the window of the queue was made shorter. The
    marks stand in as few lines as keep every line ascending: one as a rule, and one more for each
    time that the window got shorter while something of before is still remembered.
    """

    __slots__ = ("_added", "_lines", "_marks", "_stale")

    def __init__(self) -> None:
        self._marks: dict[bytes, int] = {}  # in the order in which they were added
        self._added = 0  # ever
        self._lines: list[_Line] = []
        self._stale = 0  # marks in lines whose digest has a later one

    def __len__(self) -> int:
        return len(self._marks)

    def seen(self, digest: bytes, now_ms: int) -> bool:
        return self._marks.get(digest, 0) >> _ADDED_BITS > now_ms

    def add(self, digest: bytes, until_ms: int) -> None:
        """Remember it until then, or longer if that was said before."""
        assert len(digest) == DIGEST_BYTES
        assert 0 < until_ms <= UNTIL_MS_MAX
        before = self._marks.pop(digest, 0)
        until_ms = max(until_ms, before >> _ADDED_BITS)
        self._added += 1
        mark = self._marks[digest] = until_ms << _ADDED_BITS | self._added
        self._line_up(digest, mark)
        if before:
            self._stale += 1
            if self._stale > max(_STALE_MIN, len(self._marks)):
                self._line_up_anew()
        while len(self._marks) > SEEN_MAX:
            self._drop_first(min(self._lines, key=lambda line: line.marks[0] & _ADDED_MAX))

    def evict(self, now_ms: int) -> None:
        """Forget what is over."""
        lasting = (now_ms + 1) << _ADDED_BITS
        for line in self._lines.copy():
            while line.marks and line.marks[0] < lasting:
                self._drop_first(line)

    def encode(self) -> bytes:
        items = [_ITEM.pack(digest, mark >> _ADDED_BITS) for digest, mark in self._marks.items()]
        return _COUNT.pack(len(items)) + b"".join(items)

    @classmethod
    def decode(cls, data: bytes) -> "DedupWindow":
        count = int.from_bytes(data[: _COUNT.size], "big")
        if len(data) != _COUNT.size + count * _ITEM.size:
            raise ValueError(f"{len(data)} bytes for {count} digests")
        window = cls()
        for digest, until_ms in _ITEM.iter_unpack(memoryview(data)[_COUNT.size :]):
            window.add(digest, until_ms)
        return window

    def _line_up(self, digest: bytes, mark: int) -> None:
        for line in self._lines:
            if line.marks[-1] < mark:
                break
        else:
            line = _Line()
            self._lines.append(line)
        line.digests.append(digest)
        line.marks.append(mark)

    def _line_up_anew(self) -> None:
        self._lines.clear()
        self._stale = 0
        for digest, mark in self._marks.items():
            self._line_up(digest, mark)

    def _drop_first(self, line: _Line) -> None:
        digest, mark = line.digests.popleft(), line.marks.popleft()
        if not line.marks:
            self._lines.remove(line)
        if self._marks.get(digest) == mark:
            del self._marks[digest]
        else:
            self._stale -= 1
