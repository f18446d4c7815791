"""A group's log in memory: terms as runs for the whole log, payloads only where still needed."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from queues.raft.messages import Entry


def batches(
    entries: Sequence[Entry], entries_max: int, bytes_max: int
) -> Iterator[tuple[list[Entry], int]]:
    """In parts within both limits, but of at least one entry; with the size of each part."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(entry.payload)
        if batch and (size + length > bytes_max or len(batch) == entries_max):
            yield batch, size
            batch, size = [], 0
        batch.append(entry)
        size += length
    yield batch, size


class RaftLog:
    """Places `offset` .. `last`. What lies before is compacted; of `offset` only the term is known.

    Entries from `held_from` on have their payload in memory. The rest is on disk, and the host
    reads it back when a follower needs it (Ready.reads).
    """

    __slots__ = ("_held", "_starts", "_terms", "held_bytes", "held_from", "last", "offset")

    def __init__(
        self,
        offset: int = 0,
        offset_term: int = 0,
        runs: Iterable[tuple[int, int]] = (),
        last: int | None = None,
    ) -> None:
        """`runs`: (first index, term) of each run of one term after `offset`, in order."""
        self.offset = offset
        self.last = offset if last is None else last
        self._starts = [offset]
        self._terms = [offset_term]
        for start, term in runs:
            self._begin_run(start, term)
        assert self._starts[-1] <= self.last
        self._held: list[Entry] = []
        self.held_from = self.last + 1
        self.held_bytes = 0

    def _begin_run(self, start: int, term: int) -> None:
        if term != self._terms[-1]:
            assert term > self._terms[-1], "terms never fall along a log"
            self._starts.append(start)
            self._terms.append(term)

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def term_at(self, index: int) -> int:
        if index == self.last:
            return self._terms[-1]
        assert self.offset <= index < self.last, "no such place in the log"
        return self._terms[bisect_right(self._starts, index) - 1]

    def matches(self, index: int, term: int) -> bool:
        return self.offset <= index <= self.last and self.term_at(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends there has at least all that this one has."""
        return (last_term, last_index) >= (self._terms[-1], self.last)

    def append(self, term: int, payload: bytes) -> int:
        index = self.last = self.last + 1
        if term != self._terms[-1]:
            self._begin_run(index, term)
        self._held.append(Entry(index, term, payload))
        self.held_bytes += len(payload)
        return index

    def extend(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.last + 1, "a log has no gaps"
            self.last = entry.index
            if entry.term != self._terms[-1]:
                self._begin_run(entry.index, entry.term)
            self._held.append(entry)
            self.held_bytes += len(entry.payload)

    def truncate(self, index: int) -> None:
        """Drop `index` and all after it."""
        assert self.offset < index <= self.last
        while self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        keep = max(index - self.held_from, 0)
        self.held_bytes -= sum(len(entry.payload) for entry in self._held[keep:])
        del self._held[keep:]
        self.held_from = min(self.held_from, index)
        self.last = index - 1

    def conflict(self, entries: Sequence[Entry]) -> int | None:
        """First index of `entries` where this log has another term, or has nothing yet."""
        for entry in entries:
            if entry.index > self.last or self.term_at(entry.index) != entry.term:
                return entry.index
        return None

    def hint(self, index: int, term: int) -> tuple[int, int]:
        """The last place up to `index` whose term is not above `term`, and its term.

        Two logs that differ at (index, term) can agree only there or before: it lets a leader step
        back over whole terms instead of single entries.
        """
        index = min(index, self.last)
        if index < self.offset:
            return index, 0
        run = bisect_right(self._starts, index) - 1
        while run > 0 and self._terms[run] > term:
            index = self._starts[run] - 1
            run -= 1
        if self._terms[run] > term:
            return self.offset - 1, 0  # if at all, in what is compacted
        return index, self._terms[run]

    def held(self, first: int, last: int) -> list[Entry] | None:
        """Entries first .. last, or None if their payloads are no longer in memory."""
        if first < self.held_from:
            return None
        base = self.held_from
        return self._held[first - base : last - base + 1]

    def batch(self, first: int, entries_max: int, bytes_max: int) -> tuple[list[Entry], int]:
        """As many as fit, but at least one, and their size; none if not in memory."""
        held = self.held(first, min(self.last, first + entries_max - 1))
        if held is None:
            return [], 0
        size = 0
        for count, entry in enumerate(held):
            size += len(entry.payload)
            if size > bytes_max and count:
                return held[:count], size - len(entry.payload)
        return held, size

    def release(self, index: int) -> None:
        """Payloads up to `index` are needed no more."""
        count = index - self.held_from + 1
        if count <= 0:
            return
        held = self._held
        if count >= len(held):
            held.clear()
            self.held_bytes = 0
        else:
            self.held_bytes -= sum(len(entry.payload) for entry in held[:count])
            del held[:count]
        self.held_from = index + 1

    def compact(self, index: int) -> None:
        """A snapshot covers everything up to `index`: forget it but for its last term."""
        assert self.offset <= index <= self.last
        run = bisect_right(self._starts, index) - 1
        del self._starts[:run], self._terms[:run]
        self._starts[0] = self.offset = index
        self.release(index)

    def reset(self, offset: int, offset_term: int) -> None:
        """Start anew after an installed snapshot."""
        self.offset = self.last = offset
        self._starts = [offset]
        self._terms = [offset_term]
        self._held = []
        self.held_from = offset + 1
        self.held_bytes = 0
