"""Reading records back: from frames not yet written, else from the files in few large reads."""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from queues.storage.errors import CorruptRecordError
from queues.storage.frames import CRC_BYTES, Frame, check_payload, seed_of
from queues.storage.state import State

if TYPE_CHECKING:
    from queues.storage.disk import File
    from queues.storage.files import StoredFile

# Records closer than this are read in one go: cheaper than another call.
READ_GAP_BYTES: Final = 16 * 1024
READ_BYTES_MAX: Final = 1024 * 1024


class PendingFrames:
    """Frames that have a place but are not on disk yet, in order."""

    __slots__ = ("_frames", "size_bytes")

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.size_bytes = 0

    def add(self, frames: list[Frame]) -> None:
        self._frames.extend(frames)
        self.size_bytes += sum([frame.size_bytes for frame in frames])

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.size_bytes -= self._frames.popleft().size_bytes

    def first(self) -> Frame | None:
        return self._frames[0] if self._frames else None

    def payload(self, position: int) -> bytes | None:
        """The payload of the record that will be at this position."""
        frames = self._frames
        if not frames or position < frames[0].start:
            return None
        frame = frames[bisect_right(frames, position, key=lambda frame: frame.start) - 1]
        if position >= frame.start + frame.size_bytes:
            return None  # in a segment, whose number may be above those of the frames
        place = bisect_left(frame.offsets, position & 0xFFFFFFFF)
        assert frame.offsets[place] == position & 0xFFFFFFFF
        return frame.records[place][4]


class Wanted:
    """Records to read, as position and length. Made, pinned and unpinned under the store's lock."""

    def __init__(
        self, state: State, pending: PendingFrames, records: list[tuple[int, int]]
    ) -> None:
        self.store_id = state.store_id
        self.payloads = [pending.payload(position) for position, _ in records]
        self.records = records
        self.files: dict[int, StoredFile] = {}
        self.handles: dict[int, File] = {}
        for payload, (position, _) in zip(self.payloads, records, strict=True):
            number = position >> 32
            if payload is None and number not in self.files:
                self.files[number] = state.files[number]
                self.handles[number] = state.files.handle(number)

    def pin(self) -> None:
        for file in self.files.values():
            file.pins += 1

    def unpin(self) -> None:
        for file in self.files.values():
            file.pins -= 1


def read_records(wanted: Wanted, gid: int) -> list[bytes]:
    """The payloads, in the order asked for. CorruptRecordError names the first bad one."""
    payloads = wanted.payloads
    records = wanted.records
    missing = [place for place, payload in enumerate(payloads) if payload is None]
    missing.sort(key=lambda place: records[place][0])
    for run in _runs([(*records[place], place) for place in missing]):
        number = run[0][0] >> 32
        start = run[0][0]
        length = run[-1][0] + CRC_BYTES + run[-1][1] - start
        data = memoryview(wanted.handles[number].pread(length, start & 0xFFFFFFFF))
        seed = seed_of(wanted.store_id, number)
        for position, size, place in run:
            record = data[position - start : position - start + CRC_BYTES + size]
            if len(record) < CRC_BYTES + size or not check_payload(record, seed):
                name = wanted.files[number].name
                raise CorruptRecordError(gid, name, position & 0xFFFFFFFF)
            payloads[place] = bytes(record[CRC_BYTES:])
    return [payload for payload in payloads if payload is not None]


def _runs(places: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Split sorted records into stretches worth one read each."""
    runs: list[list[tuple[int, int, int]]] = []
    start = end = 0
    for position, length, place in places:
        after = position + CRC_BYTES + length
        far = position - end > READ_GAP_BYTES or position >> 32 != start >> 32
        if not runs or far or after - start > READ_BYTES_MAX:
            runs.append([])
            start = position
        runs[-1].append((position, length, place))
        end = after
    return runs
