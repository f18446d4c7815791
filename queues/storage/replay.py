"""Frames of the log in the order of their sequence: which count, which were torn, which are lost.

A frame that cannot be read leaves a hole. Frames after it wait until one says that the hole had
been synced: then it is corruption and they count. If none does, it was a torn write, and it and all
after it were never promised to anybody: a later file goes on with the hole's own sequence, or the
log ends there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from queues.storage.frames import WITNESS_SPAN_BYTES, RecordHead, ScannedFrame, Witnesses


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a file. `gids` is whom it hurts: None if that cannot be told."""

    file: str
    offset: int
    what: str
    gids: frozenset[int] | None
    record: RecordHead | None = None  # the one that is lost, if it is only one


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
        self.findings: list[Finding] = []

    @property
    def next_sequence(self) -> int:
        return self._next if self._next is not None else 1

    def bad_bytes(self, file: str, offset: int, claimed: int | None) -> None:
        """No frame where one could be: the end of what was written, or a hole."""
        if self._hole is None:
            self._hole = (file, offset)
            self._torn = (file, offset) if claimed == self.next_sequence else None

    def frame(self, file: str, number: int, frame: ScannedFrame, bad: list[int]) -> None:
        arrival = _Arrival(file, number, frame, bad)
        if self._next is None:
            self._first(arrival)
        if frame.sequence < self.next_sequence:
            return  # left over from before a cut
        if frame.sequence == self._next and (not self._waiting or self._waiting[0].file != file):
            self._waiting.clear()
        if frame.sequence == self._next and not self._waiting and not bad:
            self._count(arrival)
            return
        self._waiting.append(arrival)
        if frame.synced >= self.next_sequence:
            self._settle()

    def _first(self, arrival: _Arrival) -> None:
        if self._hole is not None and not arrival.frame.synced:
            self._next = 1  # nothing ever reached the disk for certain
            return
        self._next = arrival.frame.sequence
        if self._hole is not None:
            self._lost(self._hole, "frames before the first sound one", None)
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
        for arrival in self._waiting:
            frame = arrival.frame
            if frame.sequence > self.next_sequence:
                known = frame.witness_from <= self.next_sequence
                gids = frozenset(frame.witnesses) if known else None
                where = self._hole or (arrival.file, frame.offset)
                what = f"lost frames {self.next_sequence} to {frame.sequence - 1}"
                self._lost(where, what, gids)
            for head in _picked(frame, arrival.bad):
                what = f"bad payload in frame {frame.sequence}"
                where = (arrival.file, head.offset)
                self.findings.append(Finding(*where, what, frozenset([head.gid]), head))
            self._count(arrival)
        self._waiting.clear()

    def _lost(self, where: tuple[str, int], what: str, gids: frozenset[int] | None) -> None:
        self.findings.append(Finding(*where, what, gids))

    def end(self) -> str | None:
        """No more files. Says what was cut, if anything was."""
        torn = self._torn
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
