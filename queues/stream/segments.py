"""The segments of a partition: appending, reading by offset or time, retention.

One thread at a time appends, retains or compacts, and holds `writing` meanwhile where there may be
several; any number of others read. The lock guards what is in memory and is not held while on the
disk, but for opening a file. A reader pins its segments: what retention or compaction takes away
meanwhile it can still read to the end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Final

from broker.protocol.chunk import Chunk, Header, Record, read_header
from broker.protocol.stream_errors import OffsetOutOfRangeError
from queues.storage.disk import Disk
from queues.storage.errors import OutOfSpaceError
from queues.stream.errors import StreamDeletedError
from queues.stream.index import SparseIndex, Summary, decode_summary, empty_summary
from queues.stream.options import StreamOptions
from queues.stream.ranges import Ranges
from queues.stream.segment import (
    Segment,
    build_index,
    corrupt,
    read_chunk,
    remove_segment,
    room_wanted,
    walk,
    write_file,
)

# Sealed segments whose file is kept open and whose index is kept in memory.
OPEN_SEGMENTS_MAX: Final = 4
# A file of this name says that the log's checkpoint may not know where these segments end: they, or
# the checkpoint, came from another replica.
REPLACED: Final = "replaced"


class Segments:
    """Made by `queues.stream.recovery.open_segments`. The last one grows, the others are sealed."""

    def __init__(self, disk: Disk, options: StreamOptions, segments: list[Segment]) -> None:
        self.disk = disk
        self.options = options
        self._lock = Lock()
        self.writing = Lock()
        self._open: dict[Segment, None] = {}  # sealed ones with a file, least recently used first
        self.replaced = REPLACED in disk.list()
        self.anew = False  # what was here is gone; until all is here that takes its place
        self._set(segments)

    def _set(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._growing = segments[-1]
        self._bases = [segment.base for segment in segments]
        sealed = [segment.summary for segment in segments[:-1]]
        # The latest time of any record up to the end of each sealed segment.
        self._times = list(accumulate([summary.latest_ms for summary in sealed], max))
        self._sealed_bytes = sum([summary.size_bytes for summary in sealed])

    # Asking

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    @property
    def end(self) -> Summary:
        """The growing segment: its `end` is the offset to be appended next."""
        return self._growing.summary

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return self._sealed_bytes + self._growing.summary.size_bytes

    def summaries(self) -> list[Summary]:
        with self._lock:
            return [segment.summary for segment in self._segments]

    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    # Appending

    def append(self, chunks: Sequence[bytes]) -> Summary:
        """As `append_chunks`, of chunks that nobody has looked into."""
        return self.append_chunks([Chunk(chunk, read_header(chunk)) for chunk in chunks])

    def append_chunks(self, chunks: Sequence[Chunk]) -> Summary:
        """Write chunks and sync them. OutOfSpaceError: those above `end` are to be given again."""
        pending: list[Chunk] = []
        size = self._growing.summary.size_bytes
        expected = self._growing.summary.end
        for chunk in chunks:
            if size >= self.options.segment_bytes:
                self._write(pending)
                self.roll()
                pending, size = [], 0
            assert chunk.header.base_offset == expected, "chunks follow each other"
            expected = chunk.header.end_offset
            pending.append(chunk)
            size += chunk.header.size_bytes
        self._write(pending)
        return self._growing.summary

    def _write(self, chunks: list[Chunk]) -> None:
        if not chunks:
            return
        growing = self._growing
        with room_wanted():
            self._open_growing()
            assert growing.file is not None
            pieces = [piece for chunk in chunks for piece in chunk.pieces]
            growing.file.pwritev(pieces, growing.summary.size_bytes)
            growing.file.datasync()
        with self._lock:
            for chunk in chunks:
                if growing.index is not None:
                    growing.index.add(chunk.header, growing.summary.size_bytes)
                growing.summary = growing.summary.with_chunk(chunk.header)

    def _open_growing(self) -> None:
        """A partition's file is made with its first chunk: many never get one."""
        growing = self._growing
        if growing.file is not None:
            return
        with self._lock:
            if growing.name in self.disk.list():
                growing.file = growing.file or self.disk.open(growing.name)
                return
            growing.file = self.disk.create(growing.name, 0)
        self.disk.sync_directory()

    def roll(self) -> None:
        """Seal the growing segment and begin a new one. OutOfSpaceError: it still grows."""
        full = self._growing
        if not full.summary.size_bytes:
            return
        growing = Segment(empty_summary(full.summary.end), 0)
        # First the new file and then the index: what has a successor is never written to again.
        with room_wanted():
            growing.file = self.disk.create(growing.name, 0)
        growing.index = SparseIndex()
        self.disk.sync_directory()
        self.save_index(full)
        with self._lock:
            self._open[full] = None
            self._set([*self._segments, growing])
            self._close_some()

    def save_index(self, segment: Segment) -> None:
        """Without room for it, the next start makes it anew."""
        self.pin(segment)
        try:
            index = self._index_of(segment)
            with room_wanted():
                write_file(self.disk, segment.index_name, index.encode(segment.summary))
            self.disk.sync_directory()
        except OutOfSpaceError:
            pass
        finally:
            self.unpin([segment])

    # Reading

    def read(self, offset: int, end_offset: int, max_bytes: int) -> list[Chunk]:
        """The chunks as `locate` finds them, checked."""
        with self.locate(offset, end_offset, max_bytes) as found:
            return found.read()

    def locate(self, offset: int, end_offset: int, max_bytes: int) -> Ranges:
        """Whole chunks from the one that covers `offset` on, before `end_offset`, at least one.

        Nothing if the offset is not in the segments yet. OffsetOutOfRangeError if not any more.
        """
        found = Ranges(self.unpin, offset)
        try:
            while offset < end_offset and found.size_bytes < max_bytes:
                segment = self._pin_at(offset)
                if segment is None:
                    break
                room = max_bytes - found.size_bytes
                if not self._locate_in(segment, offset, end_offset, room, found):
                    break
                offset = found.next_offset
        except BaseException:
            found.close()
            raise
        return found

    def _locate_in(
        self, segment: Segment, offset: int, end_offset: int, room: int, found: Ranges
    ) -> bool:
        """Add what one pinned segment has. False if nothing of it fits."""
        added = False
        try:
            index = self._index_of(segment)
            with self._lock:
                summary = segment.summary
                near = index.by_offset(offset)
            start, header = self._chunk_at(segment, near, offset)
            limit = start + room
            if found.ranges and start + header.size_bytes > limit:
                return False
            end, next_offset = summary.size_bytes, summary.end
            if end > limit or next_offset > end_offset:
                end, next_offset = self._end_in(segment, index, start, limit, end_offset)
            found.add(segment, start, end, next_offset)
            added = True
        finally:
            if not added:
                self.unpin([segment])
        return added

    def _chunk_at(self, segment: Segment, near: int, offset: int) -> tuple[int, Header]:
        for position, header in self._walk(segment, near):
            if header.end_offset > offset:
                return position, header
        raise corrupt(segment.name, near, f"no chunk covers offset {offset}")

    def _end_in(
        self, segment: Segment, index: SparseIndex, start: int, limit: int, end_offset: int
    ) -> tuple[int, int]:
        """Where to end so that neither limit is passed, but behind the chunk at `start`."""
        with self._lock:
            near = max(start, min(index.by_position(limit), index.by_offset(end_offset)))
        end, next_offset = start, 0
        for position, header in self._walk(segment, near):
            end, next_offset = position, header.base_offset
            over = next_offset >= end_offset or end + header.size_bytes > limit
            if over and position != start:
                break
            end, next_offset = end + header.size_bytes, header.end_offset
        return end, next_offset

    def seek_time(self, time_ms: int) -> int | None:
        """The offset of the first record of this time or later, None if there is none here."""
        offset = 0
        while True:
            with self._lock:
                place = max(bisect_left(self._times, time_ms), bisect_left(self._bases, offset))
                if place >= len(self._segments):
                    return None
                segment = self._segments[place]
                self._pin(segment)
            try:
                found = self._seek_in(segment, time_ms)
            finally:
                self.unpin([segment])
            if found is not None:
                return found
            if segment is self._growing:
                return None
            offset = segment.summary.end

    def _seek_in(self, segment: Segment, time_ms: int) -> int | None:
        if not segment.summary.size_bytes or segment.summary.latest_ms < time_ms:
            return None
        index = self._index_of(segment)
        with self._lock:
            near = index.by_time(time_ms)
        for position, header in self._walk(segment, near):
            if header.records and header.latest_ms >= time_ms:
                assert segment.file is not None
                chunk = read_chunk(segment.file, segment.name, position, header)
                times = chunk.timestamps.tolist()
                return chunk.offset_of(next(n for n, t in enumerate(times) if t >= time_ms))
        return None

    def chunks_of(self, segment: Segment) -> Iterator[Chunk]:
        """All chunks of a segment that the caller has pinned."""
        assert segment.file is not None
        for position, header in self._walk(segment, 0):
            yield read_chunk(segment.file, segment.name, position, header)

    def _walk(self, segment: Segment, position: int) -> Iterator[tuple[int, Header]]:
        assert segment.file is not None
        return walk(segment.file, segment.name, position, segment.summary.size_bytes)

    # Files and indexes in use

    def _pin_at(self, offset: int) -> Segment | None:
        with self._lock:
            end = self._growing.summary.end
            if offset < self._bases[0]:
                raise OffsetOutOfRangeError(offset, self._bases[0], end)
            if offset >= end:
                return None
            segment = self._segments[bisect_right(self._bases, offset) - 1]
            self._pin(segment)
            return segment

    def pin(self, segment: Segment) -> bool:
        """Keep a segment's file open until `unpin`. False if it is no part of the stream now."""
        with self._lock:
            if not segment.dropped:
                self._pin(segment)
            return not segment.dropped

    def _pin(self, segment: Segment) -> None:
        """With the lock."""
        if segment.dropped:
            raise StreamDeletedError  # what retention or compaction drops, nobody finds
        if segment.file is None and segment.summary.size_bytes:
            segment.file = self.disk.open(segment.name)
        segment.pins += 1
        if segment is not self._growing:
            self._open.pop(segment, None)
            self._open[segment] = None
            self._close_some()

    def unpin(self, segments: Sequence[Segment]) -> None:
        with self._lock:
            for segment in segments:
                segment.pins -= 1
                if segment.dropped:
                    self._close(segment)
            self._close_some()

    def _close_some(self) -> None:
        idle = [segment for segment in self._open if not segment.pins]
        for segment in idle[: max(0, len(self._open) - OPEN_SEGMENTS_MAX)]:
            del self._open[segment]
            self._close(segment)

    def rest(self) -> None:
        """Nothing happens here for now: files that nobody reads are closed, until they are used."""
        with self._lock:
            for segment in [segment for segment in self._open if not segment.pins]:
                del self._open[segment]
                self._close(segment)
            growing = self._growing
            if growing.file is not None and not growing.pins:
                growing.file.close()
                growing.file = None  # its index stays, to be added to

    def _close(self, segment: Segment) -> None:
        if not segment.pins and segment.file is not None:
            segment.file.close()
            segment.file = segment.index = None

    def _index_of(self, segment: Segment) -> SparseIndex:
        """The index of a pinned segment, from its file or else from the segment itself."""
        if segment.index is not None:
            return segment.index
        index, position = SparseIndex(), 0
        if segment is not self._growing and (stored := self._stored_index(segment)) is not None:
            index, position = stored, segment.summary.size_bytes
        assert segment.file is not None
        while True:
            with self._lock:
                end = segment.summary.size_bytes
                if position == end:
                    segment.index = segment.index or index
                    return segment.index
            build_index(segment.file, segment.name, index, position, end)
            position = end

    def _stored_index(self, segment: Segment) -> SparseIndex | None:
        try:
            file = self.disk.open(segment.index_name)
        except FileNotFoundError:
            return None
        try:
            data = file.pread(file.size_bytes(), 0)
        finally:
            file.close()
        return SparseIndex.decode(data) if decode_summary(data) == segment.summary else None

    # Taking away

    def retention_due(self, now_ms: int) -> bool:
        """Whether `retain` would find anything to delete."""
        with self._lock:
            sealed = len(self._segments) > 1
            growing = self._growing.summary
            if growing.size_bytes and self._expired(growing, now_ms):
                return True
            return sealed and self._too_much(self._segments[0].summary, now_ms)

    def _expired(self, summary: Summary, now_ms: int) -> bool:
        age = self.options.max_age_ms
        return age is not None and summary.latest_ms < now_ms - age

    def _too_much(self, oldest: Summary, now_ms: int) -> bool:
        size = self._sealed_bytes + self._growing.summary.size_bytes
        limit = self.options.max_bytes
        return self._expired(oldest, now_ms) or (limit is not None and size > limit)

    def retain(self, now_ms: int) -> bool:
        """Delete the oldest segments as far as age and size ask for it; whether any went."""
        growing = self._growing.summary
        if growing.size_bytes and self._expired(growing, now_ms):
            self.roll()
        went = False
        while len(self._segments) > 1 and self._too_much(self._segments[0].summary, now_ms):
            self.replace(self._segments[:1], [])
            went = True
        return went

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put segments that are durable in the place of others, whose files go."""
        with self._lock:
            place = self._segments.index(old[0])
            assert self._segments[place : place + len(old)] == list(old)
            segments = list(self._segments)
            segments[place : place + len(old)] = new
            self._set(segments)
            for segment in old:
                segment.dropped = True
                self._open.pop(segment, None)
                self._close(segment)
        for segment in old:
            # The oldest first and one by one, so that no crash leaves a hole in the offsets.
            remove_segment(self.disk, segment.name, segment.index_name)

    # Records of another replica

    def last_record(self) -> Record | None:
        """None if there is none, or if compaction left none in the last chunk."""
        end = self.end.end
        if end == self.first_offset:
            return None
        records = self.read(end - 1, end, 1)[-1].records()
        return records[-1] if records else None

    def mark_replaced(self) -> None:
        """Before anything of another replica gets here."""
        if not self.replaced:
            with room_wanted():
                self.disk.create(REPLACED, 0).close()
            self.disk.sync_directory()
            self.replaced = True

    def clear_replaced(self) -> None:
        """The log has a checkpoint of these segments."""
        self.disk.unlink(REPLACED)
        self.disk.sync_directory()
        self.replaced = False

    def begin_anew(self, base: int) -> None:
        """All that is here goes, and what comes next begins at this offset."""
        growing = Segment(empty_summary(base), 0)
        growing.index = SparseIndex()
        self.anew = True
        with self._lock:
            old = self._segments
            self._set([growing])
            for segment in old:
                segment.dropped = True
                self._open.pop(segment, None)
                self._close(segment)
        names = set(self.disk.list())
        for segment in old:
            if segment.name in names:
                remove_segment(self.disk, segment.name, segment.index_name)

    def close(self) -> None:
        """Let the files go. Nobody reads or appends any more."""
        for segment in self._segments:
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    def remove(self) -> None:
        """The stream is deleted. Readers go on with what they have open."""
        with self._lock:
            for segment in self._segments:
                segment.dropped = True
                self._close(segment)
        self.disk.remove()
