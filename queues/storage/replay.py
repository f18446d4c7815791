"""Frames of the log in the order of their sequence: which count, which were torn, which are lost.

A frame that cannot be read leaves a hole. Frames after it wait until one says that the hole had
been synced: then it is corruption and they count. If none does, it was a torn write, and it and all
after it were never promised to anybody: a later file goes on with the hole's own sequence, or the
log ends there. A file says with which sequence it begins: what older ones have from there on is
void, and what they lack before it is lost.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from queues.storage.frames import (
    FILE_HEADER_BYTES,
    WITNESS_SPAN_BYTES,
    RecordHead,
    ScannedFrame,
    Witnesses,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a file. `gids` is whom it hurts: None if that cannot be told."""

    file: str
    offset: int
    what: str
    gids: frozenset[int] | None
    record: RecordHead | None = None  # the one that is lost, if it is only one
    until: int = 0  # number of the file with which what is known goes on, if it is another one

    @property
    def where(self) -> str:
        return f"{self.file} at byte {self.offset}: {self.what}"


@dataclass(slots=True)
class _Arrival:
    """A frame with where it was found, and which of its payloads are bad."""

    file: str
    number: int
    frame: ScannedFrame
    bad: list[int]


class Replay:
    """Feed it what a scan finds, file by file; it applies what counts."""

    def __init__(self, apply: Callable[[int, ScannedFrame, list[int]], None]) -> None:
        self._apply = apply
        self._waiting: list[_Arrival] = []
        self._hole: tuple[str, int] | None = None  # file and offset of bytes that are no frame
        self._torn: tuple[str, int] | None = None  # the same, if a frame had been begun there
        self._next: int | None = None  # the sequence that is applied next
        self._synced = 0
        self._unsynced: deque[tuple[int, ScannedFrame]] = deque()
        self._recent: deque[ScannedFrame] = deque()
        self._recent_bytes = 0
        self._file = ""  # that is being read
        self._file_number = 0
        self._file_first = 0
        self._file_limit: int | None = None
        self.findings: list[Finding] = []

    @property
    def next_sequence(self) -> int:
        return self._next if self._next is not None else 1

    def begin_file(self, file: str, number: int, first: int, limit: int | None) -> None:
        """What is fed next is in this file.

        It begins with the sequence `first`, 0 if it does not say, and was made when all before that
        was synced. What it has from `limit` on, where the next file begins, is void.
        """
        self._file, self._file_number = file, number
        self._file_first, self._file_limit = first, limit
        if not first or self._next is None:
            return
        self._waiting = [each for each in self._waiting if each.frame.sequence < first]
        self._settle()
        if self._next >= first:
            self._hole = self._torn = None  # the older file ends there, and nothing is lost

    def bad_bytes(self, file: str, offset: int, claimed: int | None) -> None:
        """No frame where one could be: the end of what was written, or a hole."""
        if self._hole is None:
            self._hole = (file, offset)
            self._torn = (file, offset) if claimed == self.next_sequence else None

    def frame(self, file: str, number: int, frame: ScannedFrame, bad: list[int]) -> None:
        if self._file_limit is not None and frame.sequence >= self._file_limit:
            return  # a later file was begun instead
        arrival = _Arrival(file, number, frame, bad)
        self._drop_stale(arrival)
        if self._next is None:
            self._first(arrival)
        if frame.sequence < self.next_sequence:
            return  # left over from before a cut
        if frame.sequence == self._next and not self._waiting and not bad:
            self._count(arrival)
            return
        self._waiting.append(arrival)
        if frame.synced >= self.next_sequence:
            self._settle()

    def _drop_stale(self, arrival: _Arrival) -> None:
        """A later file goes on from a cut: what older ones have from there on was never promised.

        For files that do not say where they begin.
        """
        if self._waiting and self._waiting[0].file != arrival.file:
            sequence = arrival.frame.sequence
            self._waiting = [
                each
                for each in self._waiting
                if each.file == arrival.file or each.frame.sequence < sequence
            ]

    def _first(self, arrival: _Arrival) -> None:
        if self._hole is not None and not arrival.frame.synced:
            self._next = 1  # nothing ever reached the disk for certain
            return
        self._next = arrival.frame.sequence
        if self._hole is not None:
            what = "frames before the first sound one"
            self._lost(self._hole, what, None, arrival.number)
            self._hole = None

    def _count(self, arrival: _Arrival) -> None:
        frame = arrival.frame
        self._apply(arrival.number, frame, arrival.bad)
        self._next = frame.sequence + 1
        self._hole = self._torn = None
        self._synced = max(self._synced, frame.synced)
        self._unsynced.append((arrival.number, frame))
        while self._unsynced and self._unsynced[0][1].sequence <= self._synced:
            self._unsynced.popleft()
        self._recent.append(frame)
        self._recent_bytes += frame.size_bytes
        while self._recent_bytes - self._recent[0].size_bytes >= WITNESS_SPAN_BYTES:
            self._recent_bytes -= self._recent.popleft().size_bytes

    def _settle(self) -> None:
        """What waited had been synced: holes between are corruption."""
        # Of files that do not say where they begin, an older one may hold what was never promised.
        doubtful = not self._file_first and len({each.file for each in self._waiting}) > 1
        for arrival in self._waiting:
            frame = arrival.frame
            if frame.sequence > self.next_sequence:
                known = frame.witness_from <= self.next_sequence and not doubtful
                gids = frozenset(frame.witnesses) if known else None
                where = self._hole or (arrival.file, frame.offset)
                what = f"lost frames {self.next_sequence} to {frame.sequence - 1}"
                self._lost(where, what, gids, arrival.number)
            for head in _picked(frame, arrival.bad):
                what = f"bad payload in frame {frame.sequence}"
                where = (arrival.file, head.offset)
                self.findings.append(Finding(*where, what, frozenset([head.gid]), head))
            self._count(arrival)
        self._waiting.clear()

    def _lost(
        self, where: tuple[str, int], what: str, gids: frozenset[int] | None, until: int
    ) -> None:
        self.findings.append(Finding(*where, what, gids, until=until))

    def end(self) -> str | None:
        """No more files. Says what was cut, if anything was."""
        torn = self._torn
        first = self._file_first
        if self._next is not None and self._next < first:
            # The last file was begun after them, and nothing in it can be read.
            where = self._hole or (self._file, FILE_HEADER_BYTES)
            what = f"lost frames {self._next} to {first - 1}"
            self._lost(where, what, None, self._file_number)
            self._next = first
            self._waiting.clear()
            return None
        if self._waiting:
            torn = self._hole or (self._waiting[0].file, self._waiting[0].frame.offset)
            self._waiting.clear()
        if torn is None:
            return None
        return f"torn write cut from {torn[0]} at byte {torn[1]}, frame {self.next_sequence}"

    def unsynced(self) -> list[tuple[int, ScannedFrame]]:
        """Frames that count although nothing says that they reached the disk."""
        return list(self._unsynced)

    def witnesses(self) -> Witnesses:
        """The groups of the last frames, for the next one to vouch for."""
        witnesses = Witnesses(self.next_sequence)
        for frame in self._recent:
            gids = {head.gid for head in frame.heads()}
            witnesses.saw(frame.sequence, gids, frame.size_bytes)
        return witnesses


def _picked(frame: ScannedFrame, places: list[int]) -> list[RecordHead]:
    heads = list(frame.heads()) if places else []
    return [heads[place] for place in places]
