"""Segments, one promise at a time."""

import errno
import os
from itertools import pairwise

import pytest

from broker.protocol.chunk import encode_chunk, split_chunks
from broker.protocol.stream_errors import CorruptChunkError, OffsetOutOfRangeError
from queues.storage.disk import RealDisk
from queues.storage.errors import OutOfSpaceError
from queues.stream.compaction import Compactor, compaction_due
from queues.stream.errors import DamagedSegmentsError, StreamDeletedError
from queues.stream.options import StreamOptions
from queues.stream.recovery import open_segments
from tests.stream.walk import EVERYTHING
from tests.support.simdisk import SimDisk

OPTIONS = StreamOptions(segment_bytes=1000)


def chunk_at(base, count=5, key=b"k", time_ms=None, value=None):
    values = [value or b"%d" % offset for offset in range(base, base + count)]
    times = 1000 + base if time_ms is None else time_ms
    return encode_chunk([key] * count, values, [b""] * count, times, base_offset=base)


def filled(disk, options=OPTIONS, chunks=40, **kwargs):
    """Five records a chunk, about four chunks a segment."""
    segments = open_segments(disk, options, None)
    for number in range(chunks):
        segments.append([chunk_at(5 * number, **kwargs)])
    return segments


def offsets_of(chunks):
    return [record.offset for chunk in chunks for record in chunk]


@pytest.fixture
def disk():
    return SimDisk()


def test_a_start_reads_no_sealed_segment_and_of_the_growing_one_only_what_is_new(disk):
    segments = filled(disk)
    known = segments.end
    assert known.size_bytes
    assert len(segments.summaries()) > 5
    growing = f"{known.base:020d}-0.segment"
    segments.append([chunk_at(200)])
    disk.flip(growing, known.size_bytes - 1)  # behind us: not looked at before it is read
    disk.log.clear()
    again = open_segments(disk, OPTIONS, known)
    reads = {name for operation, name in disk.log if operation == "read"}
    assert {name for name in reads if name.endswith(".segment")} == {growing}
    assert again.end.end == 205
    with pytest.raises(CorruptChunkError):
        again.read(known.base, EVERYTHING, EVERYTHING)


def test_a_corrupt_chunk_is_told_and_not_delivered(disk):
    segments = filled(disk)
    name = f"{segments.first_offset:020d}-0.segment"
    disk.flip(name, 100)
    with pytest.raises(CorruptChunkError, match=name):
        segments.read(0, EVERYTHING, EVERYTHING)
    assert offsets_of(segments.read(5, EVERYTHING, 1)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("harm", ["missing", "bad head", "bad entries", "cut"])
def test_an_index_that_is_missing_or_bad_is_made_anew(disk, harm):
    known = filled(disk).end
    name = f"{0:020d}-0.index"
    whole = disk.content(name)
    if harm == "missing":
        disk.unlink(name)
    elif harm == "cut":
        disk._names[name].current[:] = whole[:90]
    else:
        disk.flip(name, 20 if harm == "bad head" else 80)
    segments = open_segments(disk, OPTIONS, known)
    assert offsets_of(segments.read(0, EVERYTHING, EVERYTHING)) == list(range(200))
    assert segments.seek_time(1007) == 10
    if harm in ("missing", "bad head"):
        assert disk.content(name) == whole


def test_every_bit_of_an_index_is_covered(disk):
    known = filled(disk, chunks=9).end
    name = f"{0:020d}-0.index"
    for position in range(8 * len(disk.content(name))):
        disk.flip(name, position // 8, position % 8)
        segments = open_segments(disk, OPTIONS, known)
        assert offsets_of(segments.read(7, 15, EVERYTHING)) == list(range(5, 15))
        assert segments.seek_time(1007) == 10
        if disk.content(name)[position // 8] >> position % 8 & 1:
            disk.flip(name, position // 8, position % 8)
        segments.save_index(segments.sealed()[0])


@pytest.mark.parametrize("harm", ["cut", "missing", "growing cut", "growing missing"])
def test_a_partition_with_missing_records_is_not_opened(disk, harm):
    segments = filled(disk)
    known = segments.end
    names = [f"{summary.base:020d}-0.segment" for summary in segments.summaries()]
    name = names[-1] if harm.startswith("growing") else names[2]
    if harm.endswith("cut"):
        del disk._names[name].current[known.size_bytes // 2 :]
    else:
        disk.unlink(name)
    with pytest.raises(DamagedSegmentsError):
        open_segments(disk, OPTIONS, known)


def test_a_reader_goes_on_with_a_segment_that_retention_deleted(disk):
    segments = filled(disk, StreamOptions(segment_bytes=1000, max_bytes=3000))
    first = segments.summaries()[0]
    with segments.locate(first.base, first.end, EVERYTHING) as found:
        assert segments.retain(0)
        assert segments.first_offset > first.base
        assert offsets_of(found.read()) == list(range(first.base, first.end))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        segments.locate(first.base, EVERYTHING, 1)
    assert caught.value.first_offset == segments.first_offset
    assert caught.value.next_offset == 200


def test_a_reader_goes_on_with_a_segment_that_compaction_replaced(disk):
    segments = filled(disk, StreamOptions(segment_bytes=1000, compact=True))
    with segments.locate(0, EVERYTHING, 500) as found:
        compact(segments)
        assert offsets_of(found.read())[0] == 0
    # Where the reader had come to is still a valid offset; what follows it is the next record.
    end = segments.end.base
    left = offsets_of(segments.read(found.next_offset, EVERYTHING, EVERYTHING))
    assert left[0] == end - 1
    assert segments.first_offset == 0


def compact(segments, now_ms=0):
    compactor = Compactor(segments, now_ms=now_ms, stable_end=EVERYTHING)
    while compactor.step():
        pass


def test_compaction_leaves_the_last_record_of_each_key_and_all_without_a_key(disk):
    segments = open_segments(disk, StreamOptions(segment_bytes=1000, compact=True), None)
    offset = 0
    for number in range(30):
        keys = [b"%d" % (number % 4), None, b"long key" * 9]
        values = [b"v%d" % number] * 3
        chunk = encode_chunk(keys, values, [b""] * 3, number, base_offset=offset)
        segments.append([chunk])
        offset += 3
    segments.roll()
    assert compaction_due(segments.summaries())
    compact(segments)
    assert not compaction_due(segments.summaries())
    kept = [r for chunk in segments.read(0, EVERYTHING, EVERYTHING) for r in chunk]
    assert [r.offset for r in kept if r.key is None] == list(range(1, 90, 3))
    assert {r.key: r.value for r in kept if r.key is not None} == {
        b"0": b"v28",
        b"1": b"v29",
        b"2": b"v26",
        b"3": b"v27",
        b"long key" * 9: b"v29",
    }
    assert len([r for r in kept if r.key is not None]) == 5
    before = len(segments.summaries())
    segments.append([encode_chunk([None], [b"new"], [b""], 99, base_offset=90)])
    segments.roll()
    compact(segments)
    assert len(segments.summaries()) < before, "small segments become one"
    left = [r for chunk in segments.read(0, EVERYTHING, EVERYTHING) for r in chunk]
    assert left[:-1] == kept


def test_a_tombstone_stays_for_its_time_and_then_goes_with_its_key(disk):
    segments = open_segments(
        disk, StreamOptions(segment_bytes=300, compact=True, tombstone_ms=100), None
    )
    segments.append([encode_chunk([b"a", b"b"], [b"1", b"2"], [b"", b""], 1000)])
    segments.roll()
    segments.append([encode_chunk([b"a"], [None], [b""], 1010, base_offset=2)])
    segments.roll()
    compact(segments, now_ms=1100)
    assert offsets_of(segments.read(0, EVERYTHING, EVERYTHING)) == [1, 2]
    segments.append([encode_chunk([b"c"], [b"3"], [b""], 1200, base_offset=3)])
    segments.roll()
    compact(segments, now_ms=1111)
    assert offsets_of(segments.read(0, EVERYTHING, EVERYTHING)) == [1, 3]


def test_compaction_drops_what_was_aborted_and_stops_at_what_is_undecided(disk):
    segments = filled(disk, StreamOptions(segment_bytes=600, compact=True), chunks=16, key=None)
    limit = segments.summaries()[2].end
    compactor = Compactor(segments, now_ms=0, stable_end=limit, hidden=[(5, 10)])
    while compactor.step():
        pass
    left = offsets_of(segments.read(0, EVERYTHING, EVERYTHING))
    assert left == [*range(5), *range(10, 80)]
    assert max(summary.cleaned_to for summary in segments.summaries()) == limit


def test_age_retention_seals_the_growing_segment_when_its_newest_record_is_too_old(disk):
    segments = filled(disk, StreamOptions(segment_bytes=1000, max_age_ms=50), chunks=3)
    assert not segments.retention_due(1060)
    assert not segments.retain(1060)
    assert segments.retention_due(1061)
    assert segments.retain(1061)
    assert (segments.first_offset, segments.end.end, segments.size_bytes) == (15, 15, 0)
    segments.append([chunk_at(15)])
    again = open_segments(disk, OPTIONS, None)
    assert offsets_of(again.read(15, EVERYTHING, EVERYTHING)) == [15, 16, 17, 18, 19]


def test_size_retention_keeps_the_growing_segment_whatever_its_size(disk):
    segments = filled(disk, StreamOptions(segment_bytes=1000, max_bytes=1))
    assert segments.retain(0)
    assert len(segments.summaries()) == 1
    assert segments.first_offset == segments.end.base


def test_a_full_disk_refuses_an_append_that_can_be_made_later(disk):
    segments = filled(disk, chunks=7)

    def full(operation, name):
        if operation in ("write", "create"):
            raise OSError(errno.ENOSPC, "full")

    for base in range(35, 80, 5):
        disk.fault = full
        with pytest.raises(OutOfSpaceError):
            segments.append([chunk_at(base)])
        assert segments.end.end == base
        disk.fault = None
        segments.append([chunk_at(base)])
    known = segments.end
    assert offsets_of(segments.read(0, EVERYTHING, EVERYTHING)) == list(range(80))
    again = open_segments(disk, OPTIONS, known)
    assert offsets_of(again.read(0, EVERYTHING, EVERYTHING)) == list(range(80))


def test_few_files_are_open_however_many_are_read(disk):
    segments = filled(disk)
    for offset in range(0, 200, 7):
        segments.read(offset, EVERYTHING, 1)
    assert len([s for s in segments.sealed() if s.file is not None]) <= 2
    assert len([s for s in segments.sealed() if s.index is not None]) <= 2


def test_a_seek_reads_little_however_long_the_segment(disk, monkeypatch):
    monkeypatch.setattr("queues.stream.index.INDEX_SPACING_BYTES", 2000)
    segments = filled(disk, StreamOptions(segment_bytes=1 << 30), chunks=2000)
    segments.read(0, EVERYTHING, 1)
    for offset in (5, 4003, 9998):
        disk.log.clear()
        assert offset in offsets_of(segments.read(offset, EVERYTHING, 1))
        assert segments.seek_time(1000 + offset // 5 * 5) == offset // 5 * 5
        assert len(disk.log) < 60


def test_ranges_of_a_real_disk_can_be_sent_from_their_file(tmp_path):
    segments = filled(RealDisk(tmp_path))
    with segments.locate(12, 100, EVERYTHING) as found:
        data = b"".join([os.pread(r.file.fileno(), r.length, r.position) for r in found.ranges])
    assert offsets_of(split_chunks(data)) == list(range(10, 100))
    segments.close()
    again = open_segments(RealDisk(tmp_path), OPTIONS, None)
    assert offsets_of(again.read(0, EVERYTHING, EVERYTHING)) == list(range(200))
    again.remove()
    assert not tmp_path.exists()
    with pytest.raises(StreamDeletedError):
        again.read(0, EVERYTHING, 1)


def change_everything(segments):
    """Growth, compaction and retention, all at once."""
    base = segments.end.end
    for number in range(6):
        segments.append([chunk_at(base + 5 * number, key=b"%d" % number)])
    compact(segments)
    segments.retain(0)


@pytest.mark.parametrize("max_bytes", [3000, None], ids=["deleted", "replaced"])
def test_what_changes_in_the_middle_of_a_read_does_not_disturb_it(max_bytes):
    """Another thread may do all its work between any two reads of the disk."""
    options = StreamOptions(segment_bytes=1000, max_bytes=max_bytes, compact=True)
    reads = 1
    before = 0
    while before < reads:
        disk = SimDisk()
        known = filled(disk, options, chunks=30).end
        segments = open_segments(disk, options, known)  # nothing is open, no index is loaded
        disk.log.clear()
        left = before

        def fault(operation, name, disk=disk, segments=segments):
            nonlocal left
            left -= operation == "read"
            if left < 0:
                disk.fault = None
                change_everything(segments)

        disk.fault = fault
        try:
            with segments.locate(20, EVERYTHING, 2500) as found:
                chunks = found.read()
        except OffsetOutOfRangeError as error:
            answer = error.first_offset
        else:
            answer = None
        if answer is not None:
            assert max_bytes
            assert answer == segments.first_offset
        else:
            assert chunks[0].header.base_offset <= 20 < chunks[0].header.end_offset
            for one, next_one in pairwise(chunks):
                assert one.header.end_offset == next_one.header.base_offset
            assert found.next_offset == chunks[-1].header.end_offset
        if not before:
            reads = len([operation for operation, _ in disk.log if operation == "read"])
        disk.fault = None
        assert segments.seek_time(1100) is not None
        before += 1
    assert reads > 5


@pytest.mark.parametrize("before", range(3))
def test_what_changes_in_the_middle_of_a_search_by_time_does_not_disturb_it(disk, before):
    options = StreamOptions(segment_bytes=1000, max_bytes=3000)
    known = filled(disk, options, chunks=30).end
    segments = open_segments(disk, options, known)
    left = before

    def fault(operation, name):
        nonlocal left
        left -= operation == "read"
        if left < 0:
            disk.fault = None
            change_everything(segments)

    disk.fault = fault
    assert segments.seek_time(1050) == 50
    assert disk.fault is None


def test_a_growing_segment_is_indexed_while_it_grows(disk):
    known = filled(disk, StreamOptions(segment_bytes=1 << 20), chunks=30).end
    segments = open_segments(disk, StreamOptions(segment_bytes=1 << 20), known)
    grown = 0

    def fault(operation, name):
        nonlocal grown
        if operation == "read" and grown < 20:
            grown += 1
            fault_of, disk.fault = disk.fault, None
            segments.append([chunk_at(segments.end.end)])
            disk.fault = fault_of

    disk.fault = fault
    assert offsets_of(segments.read(7, EVERYTHING, 1)) == [5, 6, 7, 8, 9]
    disk.fault = None
    assert grown == 20
    for time_ms in range(1000, 1000 + segments.end.end):
        assert segments.seek_time(time_ms) == -(-(time_ms - 1000) // 5) * 5 or time_ms > 1245
