"""Which messages of a durable queue are alive: the deterministic machine behind its log.

Every replica applies the same commands and holds the same live set; only the leader also has the
messages themselves in hand. An entry of the log is needed as long as one message in it is alive.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Final

from queues.commands import (
    DELAY,
    DELIVERED,
    ENQUEUE,
    ORIGIN,
    REACHED_FROM,
    RETURN,
    SEEN,
    SETTLE,
    Range,
    decode_delays,
    decode_delivered,
    decode_origins,
    decode_ranges,
    decode_seen,
    enqueued_count,
    ranges_of,
    split_commands,
)
from queues.dedup import DedupWindow
from queues.live_checkpoint import (
    CHECKPOINT_VERSION,
    COUNT,
    DUE,
    HEAD,
    MORE,
    Columns,
    FrozenLiveSet,
    read_entries,
)
from queues.publishers import Publishers

ANYTHING: Final = 2**64 - 1  # any live message may have been delivered

# Dead slots in front are cut off in bulk: seldom enough to be free, often enough to stay small.
_COMPACT_SLOTS: Final = 4096


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """An entry with live messages: its index in the log and the sequences that it brought."""

    index: int
    first: int
    count: int


class LiveSet:
    """Live messages by entry, in arrays: some twenty bytes per entry, none per message."""

    __slots__ = (
        "_counts",
        "_first",
        "_head",
        "_index",
        "_remaining",
        "_settled",
        "_size",
        "_whole",
        "delivered",
        "due",
        "live",
        "next_sequence",
        "publishers",
        "seen",
        "taken",
    )

    def __init__(self) -> None:
        self.next_sequence = 0
        self.live = 0  # messages
        self.delivered = ANYTHING  # nothing from here on was delivered: known after a clean stop
        self.taken = 0  # earlier ones were delivered, or so it seems; later ones hardly
        self.due: dict[int, int] = {}  # sequence of a live message that had to wait → until when
        self.seen = DedupWindow()
        self.publishers = Publishers()
        # One slot per entry, ascending; the slots before `_head` are dead.
        self._index = array("Q")
        self._first = array("Q")
        self._size = array("I")
        self._remaining = array("I")
        self._head = 0
        self._whole = True  # no slot behind the head is known to be dead
        self._settled: dict[int, int] = {}  # index of a partly settled entry → bitmap
        self._counts: dict[int, int] = {}  # sequence → how often it was returned

    def __len__(self) -> int:
        return self.live

    # Applying

    def apply(self, index: int, entry: bytes) -> list[int]:
        """Carry out an entry's commands; the indexes of entries that nobody needs any more.

        An entry that enqueues nothing is needed until the next checkpoint, and not in this list.
        """
        released: list[int] = []
        self.delivered = ANYTHING
        for kind, start, end in split_commands(entry):
            if kind == ENQUEUE:
                self._enqueue(index, enqueued_count(entry, start))
            elif kind == SETTLE:
                for first, count in decode_ranges(entry, start, end):
                    self._settle(first, count, released)
            elif kind == RETURN:
                for first, count in decode_ranges(entry, start, end):
                    if first >= REACHED_FROM:
                        self.taken = max(self.taken, first - REACHED_FROM)
                        continue
                    for sequence in range(first, first + count):
                        if self.is_live(sequence):
                            self._counts[sequence] = self._counts.get(sequence, 0) + 1
            elif kind == DELIVERED:
                self.delivered = decode_delivered(entry, start)
            else:
                self._apply_rare(kind, entry, start, end)
        if released:
            self._drop_dead_slots()
        return released

    def _apply_rare(self, kind: int, entry: bytes, start: int, end: int) -> None:
        if kind == DELAY:
            delays = decode_delays(entry, start, end)
            if delays and not self._just_came([sequence for sequence, _ in delays]):
                delays = [each for each in delays if self.is_live(each[0])]
            self.due.update(delays)
        elif kind == SEEN:
            time_ms, ids = decode_seen(entry, start, end)
            self.seen.evict(time_ms)
            for digest, until_ms in ids:
                self.seen.add(digest, until_ms)
        elif kind == ORIGIN:
            self.publishers.apply(*decode_origins(entry, start, end))
        else:
            raise ValueError(f"unknown command {kind} in a queue's log")

    def _just_came(self, sequences: list[int]) -> bool:
        """All of them are of the last entry, of which nothing is settled: seen at a glance."""
        whole = len(self._index) > self._head and self._remaining[-1] == self._size[-1]
        return whole and min(sequences) >= self._first[-1] and max(sequences) < self.next_sequence

    def _enqueue(self, index: int, count: int) -> None:
        assert not len(self._index) or index >= self._index[-1], "entries are applied in order"
        if len(self._index) > self._head and self._index[-1] == index:
            self._size[-1] += count  # a second batch in the same entry
            self._remaining[-1] += count
        else:
            self._index.append(index)
            self._first.append(self.next_sequence)
            self._size.append(count)
            self._remaining.append(count)
        self.next_sequence += count
        self.live += count

    def _settle(self, first: int, count: int, released: list[int]) -> None:
        """Settle a range that may span entries. What is settled already stays so."""
        last = min(first + count, self.next_sequence)
        slot = self._slot(first)
        while slot < len(self._index) and self._first[slot] < last:
            start = max(first, self._first[slot]) - self._first[slot]
            end = min(last - self._first[slot], self._size[slot])
            if start < end and self._remaining[slot]:
                self._settle_in(slot, start, end, released)
            slot += 1

    def _settle_in(self, slot: int, start: int, end: int, released: list[int]) -> None:
        index = self._index[slot]
        bits = ((1 << (end - start)) - 1) << start
        before = self._settled.get(index, 0)
        fresh = (bits & ~before).bit_count()
        self._remaining[slot] -= fresh
        self.live -= fresh
        sequences = range(self._first[slot] + start, self._first[slot] + end)
        if self._counts:
            for sequence in sequences:
                self._counts.pop(sequence, None)
        if not self.due:
            self.taken = max(self.taken, sequences.stop)
        else:
            for sequence in sequences:
                if self.due.pop(sequence, None) is None:
                    self.taken = max(self.taken, sequence + 1)
        if self._remaining[slot]:
            self._settled[index] = before | bits
            return
        self._settled.pop(index, None)
        self._whole = False
        released.append(index)

    def _drop_dead_slots(self) -> None:
        while self._head < len(self._index) and not self._remaining[self._head]:
            self._head += 1
        if self._head >= _COMPACT_SLOTS and self._head * 2 >= len(self._index):
            for column in (self._index, self._first, self._size, self._remaining):
                del column[: self._head]
            self._head = 0
        self._whole = self._head == len(self._index)

    # Asking

    def _slot(self, sequence: int) -> int:
        """The slot of the entry that brought this sequence, or that follows it."""
        return max(self._head, bisect_right(self._first, sequence, self._head) - 1)

    def is_live(self, sequence: int) -> bool:
        slot = self._slot(sequence)
        if slot >= len(self._index) or not self._remaining[slot]:
            return False
        sub = sequence - self._first[slot]
        if not 0 <= sub < self._size[slot]:
            return False
        return not self._settled.get(self._index[slot], 0) >> sub & 1

    def entry_of(self, sequence: int) -> LiveEntry | None:
        """The entry that brought a live message."""
        if not self.is_live(sequence):
            return None
        slot = self._slot(sequence)
        return LiveEntry(self._index[slot], self._first[slot], self._size[slot])

    def count_of(self, sequence: int) -> int:
        """How often this message was returned."""
        return self._counts.get(sequence, 0)

    def entries_from(self, sequence: int) -> Iterator[LiveEntry]:
        """Entries with live messages that brought this sequence or later ones, in order."""
        for slot in range(self._slot(sequence), len(self._index)):
            if self._remaining[slot] and self._first[slot] + self._size[slot] > sequence:
                yield LiveEntry(self._index[slot], self._first[slot], self._size[slot])

    def indexes(self) -> "array[int]":
        """Of all entries with live messages, ascending."""
        alive = slice(self._head, None)
        if self._whole:
            return self._index[alive]
        return array("Q", compress(self._index[alive], self._remaining[alive]))

    def alive_in(self, entry: LiveEntry) -> list[bool]:
        """Which of an entry's messages are alive."""
        slot = self._slot(entry.first)
        if (
            slot == len(self._index)
            or self._index[slot] != entry.index
            or not self._remaining[slot]
        ):
            return [False] * entry.count  # it died since it was asked for
        settled = self._settled.get(entry.index, 0)
        return [not settled >> sub & 1 for sub in range(entry.count)]

    def ranges(self) -> list[Range]:
        """All live sequences as ranges: for tests and tools."""
        sequences = [
            entry.first + sub
            for entry in self.entries_from(0)
            for sub, alive in enumerate(self.alive_in(entry))
            if alive
        ]
        return ranges_of(sequences)

    # Checkpoints

    def freeze(self) -> FrozenLiveSet:
        """The whole state, without any message, to be encoded while this goes on."""
        alive = slice(self._head, None)
        columns = Columns(
            self._index[alive],
            self._first[alive],
            self._size[alive],
            self._remaining[alive],
            self.live,
        )
        return FrozenLiveSet(
            columns,
            self._settled.copy(),
            self._counts.copy(),
            self.due.copy(),
            next_sequence=self.next_sequence,
            delivered=self.delivered,
            taken=self.taken,
            tail=self.publishers.encode() + self.seen.encode(),
        )

    def checkpoint(self) -> bytes:
        """The same at once, for what is small."""
        frozen = self.freeze()
        for _ in frozen.slices():
            pass
        return frozen.state

    @classmethod
    def restore(cls, checkpoint: bytes) -> "LiveSet":
        version, next_sequence, delivered, entries, counts = HEAD.unpack_from(checkpoint)
        if not 1 <= version <= CHECKPOINT_VERSION:
            raise ValueError(f"checkpoint of version {version}, expected {CHECKPOINT_VERSION}")
        live = cls()
        live.next_sequence = next_sequence
        live.delivered = delivered
        columns, live._settled, pos = read_entries(checkpoint, version, entries)
        live._index, live._first = columns.index, columns.first
        live._size, live._remaining = columns.size, columns.remaining
        live.live = columns.live
        for _ in range(counts):
            sequence, count = COUNT.unpack_from(checkpoint, pos)
            live._counts[sequence] = count
            pos += COUNT.size
        if version > 1:
            live._restore_more(checkpoint, pos, version)
        return live

    def _restore_more(self, checkpoint: bytes, pos: int, version: int) -> None:
        self.taken, delays = MORE.unpack_from(checkpoint, pos)
        pos += MORE.size
        end = pos + delays * DUE.size
        self.due = dict(DUE.iter_unpack(checkpoint[pos:end]))
        if version > 2:
            self.publishers, end = Publishers.decode(checkpoint, end)
        self.seen = DedupWindow.decode(checkpoint[end:])
