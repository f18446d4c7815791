"""Where the live entries of a group are: index → term, position and length, packed in arrays."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

# Entries in one chunk: removal in the middle moves at most so many, and its arrays' own size
# is less than a byte per entry.
CHUNK_ENTRIES_MAX: Final = 512
DELTA_MAX: Final = 2**32 - 1
TERM_MAX: Final = 2**32 - 1  # 4 bytes per entry; four thousand million elections are enough


class Located(NamedTuple):
    """A live entry; `position` is file number and offset of its record."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    term: int
    position: int
    length: int


class _Chunk:
    """Up to CHUNK_ENTRIES_MAX entries in four arrays: 20 bytes an entry."""

    __slots__ = ("base", "deltas", "lengths", "positions", "terms")

    def __init__(self, base: int) -> None:
        self.base = base
        self.deltas = array("I")
        self.terms = array("I")
        self.positions = array("Q")
        self.lengths = array("I")

    def insert(self, place: int, entry: Located) -> None:
        self.deltas.insert(place, entry.index - self.base)
        self.terms.insert(place, entry.term)
        self.positions.insert(place, entry.position)
        self.lengths.insert(place, entry.length)

    def remove(self, start: int, end: int) -> list[tuple[int, int]]:
        gone = list(zip(self.positions[start:end], self.lengths[start:end], strict=True))
        del self.deltas[start:end], self.terms[start:end]
        del self.positions[start:end], self.lengths[start:end]
        return gone

    def split(self) -> "_Chunk":
        """Take the upper half away into a chunk of its own."""
        half = len(self.deltas) // 2
        upper = _Chunk(self.base + self.deltas[half])
        shift = self.deltas[half]
        upper.deltas = array("I", [delta - shift for delta in self.deltas[half:]])
        upper.terms = self.terms[half:]
        upper.positions = self.positions[half:]
        upper.lengths = self.lengths[half:]
        self.remove(half, len(self.deltas))
        return upper


class EntryIndex:
    """Live entries by index. Holes cost nothing; order of removal does not matter."""

    __slots__ = ("_chunks", "_starts")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._starts: list[int] = []  # each chunk's base, which is at most its first index

    def __len__(self) -> int:
        return sum([len(chunk.deltas) for chunk in self._chunks])

    def __iter__(self) -> Iterator[Located]:
        return self.select(0, self.last)

    @property
    def last(self) -> int:
        """The highest live index, 0 if there is none."""
        if not self._chunks:
            return 0
        chunk = self._chunks[-1]
        return chunk.base + chunk.deltas[-1]

    def append(self, index: int, term: int, position: int, length: int) -> None:
        """Add an entry above all others."""
        if self._chunks:
            chunk = self._chunks[-1]
            delta = index - chunk.base
            assert delta > chunk.deltas[-1], (index, self.last)
        if not self._chunks or len(chunk.deltas) >= CHUNK_ENTRIES_MAX or delta > DELTA_MAX:
            chunk = _Chunk(index)
            self._chunks.append(chunk)
            self._starts.append(index)
            delta = 0
        chunk.deltas.append(delta)
        chunk.terms.append(term)
        chunk.positions.append(position)
        chunk.lengths.append(length)

    def put(self, entry: Located) -> Located | None:
        """Add an entry anywhere; gives back the one that it replaces."""
        place = bisect_right(self._starts, entry.index) - 1
        if place < 0 or entry.index - self._starts[place] > DELTA_MAX:
            self._put_chunk(place + 1, entry)
            return None
        chunk = self._chunks[place]
        at = bisect_left(chunk.deltas, entry.index - chunk.base)
        if at == len(chunk.deltas) >= CHUNK_ENTRIES_MAX:
            self._put_chunk(place + 1, entry)
            return None
        old = None
        if at < len(chunk.deltas) and chunk.base + chunk.deltas[at] == entry.index:
            old = Located(entry.index, chunk.terms[at], chunk.positions[at], chunk.lengths[at])
            chunk.remove(at, at + 1)
        chunk.insert(at, entry)
        if len(chunk.deltas) >= 2 * CHUNK_ENTRIES_MAX:
            upper = chunk.split()
            self._chunks.insert(place + 1, upper)
            self._starts.insert(place + 1, upper.base)
        return old

    def _put_chunk(self, place: int, entry: Located) -> None:
        chunk = _Chunk(entry.index)
        chunk.insert(0, entry)
        self._chunks.insert(place, chunk)
        self._starts.insert(place, entry.index)

    def get(self, index: int) -> Located | None:
        place = bisect_right(self._starts, index) - 1
        if place < 0 or index - self._starts[place] > DELTA_MAX:
            return None
        chunk = self._chunks[place]
        delta = index - chunk.base
        at = bisect_left(chunk.deltas, delta)
        if at == len(chunk.deltas) or chunk.deltas[at] != delta:
            return None
        return Located(index, chunk.terms[at], chunk.positions[at], chunk.lengths[at])

    def select(self, first: int, last: int) -> Iterator[Located]:
        """Live entries from `first` to `last`, both included. Do not change the index meanwhile."""
        for place in range(max(bisect_right(self._starts, first) - 1, 0), len(self._chunks)):
            chunk = self._chunks[place]
            base = chunk.base
            if base > last:
                return
            for at in range(*_span(chunk, first, last)):
                yield Located(
                    base + chunk.deltas[at],
                    chunk.terms[at],
                    chunk.positions[at],
                    chunk.lengths[at],
                )

    def gap(self, first: int, last: int) -> int | None:
        """The lowest index from `first` to `last` that is not live; cheap where none is."""
        expected = first
        for place in range(max(bisect_right(self._starts, first) - 1, 0), len(self._chunks)):
            chunk = self._chunks[place]
            start, end = _span(chunk, expected, last)
            if start == end:
                continue
            lowest, highest = chunk.base + chunk.deltas[start], chunk.base + chunk.deltas[end - 1]
            if lowest != expected:
                break
            if highest - lowest != end - start - 1:
                return next(i for i in range(lowest, highest) if self.get(i) is None)
            expected = highest + 1
        return expected if expected <= last else None

    def remove(self, first: int, last: int) -> list[tuple[int, int]]:
        """Forget entries; gives back their positions and lengths."""
        gone: list[tuple[int, int]] = []
        place = max(bisect_right(self._starts, first) - 1, 0)
        empty_from = empty_to = place
        while place < len(self._chunks) and self._starts[place] <= last:
            chunk = self._chunks[place]
            start, end = _span(chunk, first, last)
            if start < end:
                gone += chunk.remove(start, end)
            place += 1
            if chunk.deltas:
                if empty_from == empty_to:
                    empty_from = empty_to = place
            else:
                empty_to = place
        del self._chunks[empty_from:empty_to], self._starts[empty_from:empty_to]
        self._merge(empty_from)
        self._merge(empty_from - 1)
        return gone

    def _merge(self, place: int) -> None:
        """Join a chunk to the one before if both are small: a chunk costs as much as 20 entries."""
        if not 0 < place < len(self._chunks):
            return
        lower, upper = self._chunks[place - 1], self._chunks[place]
        shift = upper.base - lower.base
        if len(lower.deltas) + len(upper.deltas) > CHUNK_ENTRIES_MAX // 2:
            return
        if shift + upper.deltas[-1] > DELTA_MAX:
            return
        lower.deltas.extend([shift + delta for delta in upper.deltas])
        lower.terms += upper.terms
        lower.positions += upper.positions
        lower.lengths += upper.lengths
        del self._chunks[place], self._starts[place]

    def move(self, index: int, old: int, new: int) -> bool:
        """Point an entry elsewhere, if it is still where it was."""
        place = bisect_right(self._starts, index) - 1
        if place < 0 or index - self._starts[place] > DELTA_MAX:
            return False
        chunk = self._chunks[place]
        delta = index - chunk.base
        at = bisect_left(chunk.deltas, delta)
        if at == len(chunk.deltas) or chunk.deltas[at] != delta or chunk.positions[at] != old:
            return False
        chunk.positions[at] = new
        return True


def _span(chunk: _Chunk, first: int, last: int) -> tuple[int, int]:
    """The places in a chunk that hold the indexes from `first` to `last`."""
    start = bisect_left(chunk.deltas, max(first - chunk.base, 0))
    return start, bisect_right(chunk.deltas, max(last - chunk.base, -1), start)
