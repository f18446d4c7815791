"""Key compaction: of each key only the last record stays, and a deleted key goes altogether.

A pass first notes where each key stands last in the segments that no pass has seen yet. Then it
writes all sealed segments anew, the oldest first, without the records that a later one supersedes.
Offsets stay what they were. A tombstone goes once it is old: what it deleted is gone by then, being
in its own segment or in one that was swapped before.

A new segment is complete, and so is its index, before it gets its name; only then the old ones go.
A crash in between leaves both, and the higher generation counts (see recovery.py).
"""

from collections.abc import Generator, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from broker.protocol.chunk import Chunk, Record, read_header
from queues.stream.index import SparseIndex, Summary, empty_summary
from queues.stream.merging import MERGED_CHUNK_BYTES, ChunkBuilder
from queues.stream.segment import UNFINISHED_SUFFIX, Segment, room_wanted, write_file
from queues.stream.segments import Segments

# Keys that one pass looks after, at about 180 bytes each; with more, it takes more passes.
KEYS_MAX: Final = 200_000
# Longer keys are known by a digest of this length.
KEY_BYTES_MAX: Final = 16
# A pass is worth it when so much of the sealed bytes was never compacted.
DIRTY_SHARE_MIN: Final = 0.5


def cleaned_to(summaries: Sequence[Summary]) -> int:
    """The offset below which all is compacted."""
    return max([0, *[summary.cleaned_to for summary in summaries]])


def compaction_due(summaries: Sequence[Summary]) -> bool:
    """Whether a pass would be worth it; the last segment is the growing one."""
    clean = cleaned_to(summaries)
    sealed = summaries[:-1]
    dirty = sum([summary.size_bytes for summary in sealed if summary.end > clean])
    return dirty > 0 and dirty >= DIRTY_SHARE_MIN * sum([s.size_bytes for s in sealed])


def _known_as(key: bytes) -> bytes:
    return key if len(key) < KEY_BYTES_MAX else blake2b(key, digest_size=KEY_BYTES_MAX).digest()


class Compactor:
    """One pass, in steps of about one chunk. Steps and appends do not run at the same time."""

    def __init__(
        self,
        segments: Segments,
        *,
        now_ms: int,
        stable_end: int,
        hidden: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Only what is below `stable_end` is touched; `hidden` are offsets that never counted."""
        self._segments = segments
        self._tombstones_until_ms = now_ms - segments.options.tombstone_ms
        self._hidden = hidden
        self._last: dict[bytes, int] = {}  # key → the last offset at which it stands
        self._known_to = 0  # up to which offset that is so
        self._stable_end = stable_end
        self._steps = self._run()

    def step(self) -> bool:
        """Work a little; False when the pass is over."""
        return next(self._steps, None) is not None

    def close(self) -> None:
        """Give up; what is unfinished is removed."""
        self._steps.close()

    def _run(self) -> Generator[int, None, None]:
        sealed = [s for s in self._segments.sealed() if s.summary.end <= self._stable_end]
        clean = cleaned_to([segment.summary for segment in sealed])
        yield from self._note_keys(sealed, clean)
        concerned = [s for s in sealed if s.base < self._known_to]
        for group in self._groups(concerned):
            replaced = yield from self._rewrite(group)
            if not replaced:
                return  # a tombstone may only go after what it deleted: the next pass will see

    # Which records count

    def _note_keys(self, sealed: list[Segment], clean: int) -> Iterator[int]:
        for segment in sealed:
            if segment.summary.end <= clean:
                continue
            for chunk in self._chunks(segment):
                if chunk.header.end_offset <= clean:
                    continue
                if len(self._last) >= KEYS_MAX:
                    return
                for record in self._visible(chunk):
                    if record.key is not None:
                        self._last[_known_as(record.key)] = record.offset
                self._known_to = chunk.header.end_offset
                yield 1

    def _chunks(self, segment: Segment) -> Iterator[Chunk]:
        if not self._segments.pin(segment):
            return
        try:
            yield from self._segments.chunks_of(segment)
        finally:
            self._segments.unpin([segment])

    def _visible(self, chunk: Chunk) -> list[Record]:
        base = chunk.header.base_offset
        if any(first <= base < end for first, end in self._hidden):
            return []
        return chunk.records()

    def _stays(self, record: Record) -> bool:
        if record.key is None or record.offset >= self._known_to:
            return True
        if self._last.get(_known_as(record.key), -1) > record.offset:
            return False
        return record.value is not None or record.timestamp_ms >= self._tombstones_until_ms

    # Writing anew

    def _groups(self, concerned: list[Segment]) -> list[list[Segment]]:
        """Neighbours that fit together in one segment."""
        groups: list[list[Segment]] = []
        size = 0
        for segment in concerned:
            if (
                not groups
                or size + segment.summary.size_bytes > self._segments.options.segment_bytes
            ):
                groups.append([])
                size = 0
            groups[-1].append(segment)
            size += segment.summary.size_bytes
        return groups

    def _rewrite(self, group: list[Segment]) -> Generator[int, None, bool]:
        """False if retention took a segment of the group away meanwhile."""
        generation = max([segment.generation for segment in group]) + 1
        writer = _SegmentWriter(self._segments, group[0].base, generation)
        try:
            builder = ChunkBuilder(group[0].base)
            for segment in group:
                for chunk in self._chunks(segment):
                    end = chunk.header.end_offset
                    if not builder.covers(end):
                        writer.add(builder.build())
                    kept = [record for record in self._visible(chunk) if self._stays(record)]
                    builder.add(kept, end, chunk.header.latest_ms)
                    if builder.size_bytes >= MERGED_CHUNK_BYTES:
                        writer.add(builder.build())
                    yield 1
            writer.add(builder.build())
            if any(segment.dropped for segment in group):
                return False
            self._segments.replace(group, [writer.seal(self._known_to)])
            return True
        finally:
            writer.close()


class _SegmentWriter:
    """Writes one segment under a name that does not count, until it is sealed."""

    def __init__(self, segments: Segments, base: int, generation: int) -> None:
        self._disk = segments.disk
        self._segment = Segment(empty_summary(base), generation)
        self._index = SparseIndex()
        self._unfinished = self._segment.name + UNFINISHED_SUFFIX
        if self._unfinished in self._disk.list():
            self._disk.unlink(self._unfinished)
        self._file = self._disk.create(self._unfinished, 0)
        self._sealed = False

    def add(self, chunk: bytes | None) -> None:
        if chunk is None:
            return
        summary, header = self._segment.summary, read_header(chunk)
        assert header.base_offset == summary.end
        with room_wanted():
            self._file.pwritev([chunk], summary.size_bytes)
        self._index.add(header, summary.size_bytes)
        self._segment.summary = summary.with_chunk(header)

    def seal(self, known_to: int) -> Segment:
        segment = self._segment
        segment.summary = segment.summary._replace(cleaned_to=min(known_to, segment.summary.end))
        with room_wanted():
            self._file.datasync()
            write_file(self._disk, segment.index_name, self._index.encode(segment.summary))
        self._disk.sync_directory()
        self._disk.rename(self._unfinished, segment.name)
        self._sealed = True
        self._disk.sync_directory()
        return segment

    def close(self) -> None:
        self._file.close()
        if not self._sealed:
            self._disk.unlink(self._unfinished)
