"""Opening the segments of a partition: what is there, what a crash left behind, where it ends.

Sealed segments are not read, only the heads of their indexes. The growing one is checked from where
the log's last checkpoint saw it end: whatever stands behind that and is sound was committed, since
nothing else is ever written to a segment, and the log has it too; what is not sound is overwritten.
"""

from broker.protocol.stream_errors import CorruptChunkError
from queues.storage.disk import Disk
from queues.stream.errors import DamagedSegmentsError
from queues.stream.index import HEAD_BYTES, SparseIndex, Summary, decode_summary, empty_summary
from queues.stream.options import StreamOptions
from queues.stream.segment import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    UNFINISHED_SUFFIX,
    Segment,
    parse_name,
    remove_segment,
    scan,
    walk,
)
from queues.stream.segments import REPLACED, Segments


def open_segments(disk: Disk, options: StreamOptions, known: Summary | None) -> Segments:
    """The segments as they are on disk; `known` is what the last checkpoint said of their end.

    DamagedSegmentsError if anything is missing that should be there.
    """
    names = set(disk.list())
    if REPLACED in names:
        known = None
    if names:
        # What a killed process renamed must not be lost once the files it replaced are deleted.
        disk.sync_directory()
    found = sorted([parsed for name in names if (parsed := parse_name(name)) is not None])
    segments, unindexed = _choose(disk, found)
    growing = segments[-1] if segments else None
    if growing is None or growing.generation:
        base = growing.summary.end if growing is not None else 0
        growing = Segment(empty_summary(base), 0)
        growing.index = SparseIndex()
        segments.append(growing)
    else:
        _find_end(disk, growing, known)
    if known is not None and growing.summary.end < known.end:
        raise DamagedSegmentsError(
            f"the segments end at offset {growing.summary.end}, and had {known.end}"
        )
    _remove_others(disk, names, segments)
    opened = Segments(disk, options, segments)
    for segment in unindexed:
        opened.save_index(segment)
    return opened


def wipe(disk: Disk) -> None:
    """Nothing of what is there is of use: another replica's records will take its place."""
    for name in disk.list():
        if name.endswith((SEGMENT_SUFFIX, INDEX_SUFFIX, UNFINISHED_SUFFIX)):
            disk.unlink(name)
    disk.sync_directory()


def _choose(disk: Disk, found: list[tuple[int, int]]) -> tuple[list[Segment], list[Segment]]:
    """The segments that count: of several for the same offsets, what compaction wrote last.

    The second list is of those among them whose index is missing or bad.
    """
    chosen: list[Segment] = []
    unindexed: list[Segment] = []
    end: int | None = None
    for place, (base, generation) in enumerate(found):
        if end is not None and base < end:
            continue  # replaced by the one before
        newer = place + 1 < len(found) and found[place + 1][0] == base
        if newer:
            continue
        if end is not None and base > end:
            raise DamagedSegmentsError(f"the offsets from {end} to {base} are missing")
        last = place + 1 == len(found)
        segment = Segment(empty_summary(base), generation)
        if not last or generation:
            stored = _stored_summary(disk, segment)
            if stored is None:
                unindexed.append(segment)
                stored = _found_summary(disk, segment, None if last else found[place + 1][0])
            segment.summary = stored
            end = stored.end
        chosen.append(segment)
    return chosen, unindexed


def _stored_summary(disk: Disk, segment: Segment) -> Summary | None:
    """What a sealed segment holds, by its index."""
    try:
        index = disk.open(segment.index_name)
    except FileNotFoundError:
        return None
    stored = decode_summary(index.pread(HEAD_BYTES, 0))
    index.close()
    if stored is None or stored.base != segment.base:
        return None
    file = disk.open(segment.name)
    size = file.size_bytes()
    file.close()
    if size < stored.size_bytes:
        raise DamagedSegmentsError(f"{segment.name} is cut short")
    return stored


def _found_summary(disk: Disk, segment: Segment, next_base: int | None) -> Summary:
    """What a sealed segment holds, by its chunks."""
    summary = empty_summary(segment.base)
    # Behind the end of a segment that grew, what an earlier life wrote may still stand.
    limit = next_base if not segment.generation else None
    file = disk.open(segment.name)
    try:
        for _, header in walk(file, segment.name, 0, file.size_bytes()):
            if header.base_offset != summary.end:
                break
            summary = summary.with_chunk(header)
            if summary.end == limit:
                break
    except CorruptChunkError as error:
        raise DamagedSegmentsError(str(error)) from error
    finally:
        file.close()
    return summary


def _find_end(disk: Disk, growing: Segment, known: Summary | None) -> None:
    """Take over the sound chunks of the growing segment."""
    growing.file = disk.open(growing.name)
    if known is not None and known.base == growing.base:
        if growing.file.size_bytes() < known.size_bytes:
            raise DamagedSegmentsError(f"{growing.name} is cut short")
        growing.summary = known
    start = growing.summary
    for header in scan(growing.file, start.size_bytes, start.end):
        growing.summary = growing.summary.with_chunk(header)
    if growing.summary != start:
        growing.file.datasync()  # some of it may have been in the kernel's memory only


def _remove_others(disk: Disk, names: set[str], segments: list[Segment]) -> None:
    """Files that a crash left half written or half deleted."""
    kept = {name for segment in segments for name in (segment.name, segment.index_name)}
    others = sorted(names - kept)
    for name in others:
        if name.endswith(SEGMENT_SUFFIX):
            remove_segment(disk, name, name.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX)
        elif name.endswith((INDEX_SUFFIX, UNFINISHED_SUFFIX)) and name in disk.list():
            disk.unlink(name)
    if others:
        disk.sync_directory()
