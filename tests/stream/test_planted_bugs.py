"""Mistakes that would lose, invent or hide records: the walk must catch each of them."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from broker.protocol.chunk import Chunk, Header, read_header
from broker.protocol.stream_errors import CorruptChunkError
from queues.stream import recovery
from queues.stream.compaction import Compactor, _SegmentWriter
from queues.stream.index import SparseIndex, Summary
from queues.stream.segment import Segment, remove_segment
from queues.stream.segments import Segments
from tests.stream.test_segments_model import ALL, COMPACTED
from tests.stream.walk import run
from tests.support.simdisk import SimDisk, SimFile

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 150


def appended_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimFile.datasync

    def datasync(self: SimFile) -> None:
        if not self._name.endswith(".segment"):
            real(self)

    monkeypatch.setattr(SimFile, "datasync", datasync)


def new_names_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimDisk, "sync_directory", lambda self: None)


def compacted_segments_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimFile.datasync

    def datasync(self: SimFile) -> None:
        if not self._name.endswith(".segment.tmp"):
            real(self)

    monkeypatch.setattr(SimFile, "datasync", datasync)


def compacted_segments_named_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _SegmentWriter.__init__

    def init(self: _SegmentWriter, segments: Segments, base: int, generation: int) -> None:
        real(self, segments, base, generation)
        segments.disk.rename(self._unfinished, self._segment.name)
        self._unfinished = self._segment.name

    monkeypatch.setattr(_SegmentWriter, "__init__", init)


def replaced_segments_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _SegmentWriter.seal

    class Hasty(Compactor):
        def _rewrite(self, group: list[Segment]) -> Iterator[int]:
            def seal(writer: _SegmentWriter, known_to: int) -> Segment:
                for segment in group:
                    remove_segment(writer._disk, segment.name, segment.index_name)
                new = real(writer, known_to)
                for segment in group:
                    writer._disk.create(segment.name, 0)
                return new

            monkeypatch.setattr(_SegmentWriter, "seal", seal)
            return (yield from original(self, group))

    original = Compactor._rewrite
    monkeypatch.setattr(Compactor, "_rewrite", Hasty._rewrite)


def newest_segments_compacted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Compactor._groups

    def groups(self: Compactor, concerned: list[Segment]) -> list[list[Segment]]:
        return real(self, concerned)[::-1]

    monkeypatch.setattr(Compactor, "_groups", groups)


def the_growing_segment_compacted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segments, "sealed", lambda self: list(self._segments))


def torn_chunks_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(file: SimFile, position: int, offset: int) -> Iterator[Header]:
        while True:
            try:
                header = read_header(file.pread(64, position))
            except CorruptChunkError:
                return
            if header.base_offset != offset or position + header.size_bytes > file.size_bytes():
                return
            yield header
            position += header.size_bytes
            offset = header.end_offset

    monkeypatch.setattr(recovery, "scan", scan)


def unsynced_chunks_taken_over_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_end(disk: SimDisk, growing: Segment, known: Summary | None) -> None:
        sync = SimFile.datasync
        SimFile.datasync = lambda self: None
        try:
            real(disk, growing, known)
        finally:
            SimFile.datasync = sync

    real = recovery._find_end
    monkeypatch.setattr(recovery, "_find_end", find_end)


def a_checkpoint_of_another_segment_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recovery._find_end

    def find_end(disk: SimDisk, growing: Segment, known: Summary | None) -> None:
        moved = known and known._replace(base=growing.base)
        real(disk, growing, moved)

    monkeypatch.setattr(recovery, "_find_end", find_end)


def times_indexed_without_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SparseIndex.add

    def add(self: SparseIndex, header: Header, position: int) -> None:
        self._latest_ms = -(2**63)
        real(self, header, position)

    monkeypatch.setattr(SparseIndex, "add", add)


def the_oldest_file_not_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Segments.replace

    def replace(self: Segments, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        if not new:
            old = self._segments[1:2] if len(self._segments) > 2 else old
        real(self, old, new)

    monkeypatch.setattr(Segments, "replace", replace)


def tombstones_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Compactor.__init__

    def init(self: Compactor, segments: Segments, **kwargs: int) -> None:
        real(self, segments, **{**kwargs, "now_ms": 1 << 60})

    monkeypatch.setattr(Compactor, "__init__", init)


def superseded_records_kept_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    def visible(self: Compactor, chunk: Chunk) -> list:
        return chunk.records()[1:]

    monkeypatch.setattr(Compactor, "_visible", visible)


PLANTS = [
    appended_before_the_sync,
    new_names_not_synced,
    compacted_segments_not_synced,
    compacted_segments_named_before_they_are_written,
    replaced_segments_removed_first,
    newest_segments_compacted_first,
    the_growing_segment_compacted_too,
    torn_chunks_taken_over,
    unsynced_chunks_taken_over_without_a_sync,
    a_checkpoint_of_another_segment_believed,
    times_indexed_without_those_before,
    the_oldest_file_not_removed_first,
    tombstones_removed_at_once,
    superseded_records_kept_by_chunk,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            run(seed, COMPACTED if seed % 2 else ALL)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} was not noticed in {SEEDS} lives")
