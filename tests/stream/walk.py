"""Segments on a simulated disk beside a model too simple to be wrong: the list of all records.

Whatever happens, the segments hold what the model holds from their first offset on, but for records
that compaction may take away; and after a crash at least as much as was reported durable.
"""

from contextlib import suppress
from random import Random

from broker.protocol.chunk import Chunk, Record, encode_chunk, split_chunks
from broker.protocol.stream_errors import OffsetOutOfRangeError
from queues.stream.compaction import Compactor
from queues.stream.merging import resize
from queues.stream.options import StreamOptions
from queues.stream.recovery import open_segments
from tests.support.simdisk import SimDisk

EVERYTHING = 1 << 60
# So small that a few steps go through every transition.
SMALL = {
    "queues.stream.index.INDEX_SPACING_BYTES": 400,
    "queues.stream.segment.SCAN_BYTES": 700,
    "queues.stream.segment.WALK_BYTES": 300,
    "queues.stream.segments.OPEN_SEGMENTS_MAX": 2,
    "queues.stream.merging.SMALL_CHUNK_BYTES": 250,
    "queues.stream.merging.MERGED_CHUNK_BYTES": 900,
    "queues.stream.merging.SPAN_MAX": 40,
    "queues.stream.compaction.MERGED_CHUNK_BYTES": 900,
    "queues.stream.compaction.KEYS_MAX": 9,
    "queues.stream.compaction.DIRTY_SHARE_MIN": 0.3,
}
OPTIONS = StreamOptions(segment_bytes=2500, tombstone_ms=50)


class PowerFailedError(Exception):
    """Nothing of what was asked for after this happens."""


def fail_after(disk: SimDisk, operations: int) -> None:
    """The disk does so many more operations and then the power fails."""
    left = operations

    def fault(operation: str, name: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerFailedError(operation, name)

    disk.fault = fault


class Walk:
    def __init__(self, seed: int, options: StreamOptions = OPTIONS) -> None:
        self.random = Random(seed)
        self.options = options
        self.disk = SimDisk()
        self.records: list[Record] = []  # all that was ever appended, at the place of its offset
        self.durable = 0  # offset up to which appends returned
        self.now_ms = 1000
        self.compacted = False
        self.known = None  # what a checkpoint would know of the end
        self.compactor: Compactor | None = None
        self.open()

    def open(self) -> None:
        self.segments = open_segments(self.disk, self.options, self.known)

    # What a partition does

    def make(self, count: int) -> bytes:
        base = len(self.records)
        random = self.random
        self.now_ms += random.choice([0, 0, 1, 5])
        for offset in range(base, base + count):
            key = random.choice([None, b"", b"a", b"b", b"c" * 30, b"%d" % random.randrange(12)])
            value = random.choice([None, b"", b"%d " % offset + random.randbytes(60)])
            time_ms = self.now_ms + random.choice([0, 0, 0, -30, 3])
            self.records.append(Record(offset, time_ms, key, value, b"p%d" % offset))
        _, times, keys, values, properties = zip(*self.records[base:], strict=True)
        return encode_chunk(keys, values, properties, times, base_offset=base)

    def append(self) -> None:
        chunks = [
            self.make(self.random.choice([1, 1, 2, 7])) for _ in range(self.random.randint(1, 4))
        ]
        if self.random.random() < 0.5:
            end = self.segments.append_chunks(
                resize([Chunk(chunk) for chunk in chunks], self.segments.options.segment_bytes)
            )
        else:
            end = self.segments.append(chunks)
        self.durable = end.end
        assert self.durable == len(self.records)

    def checkpoint(self) -> None:
        self.known = self.segments.end

    def retain(self) -> None:
        before = self.segments.first_offset
        went = self.segments.retain(self.now_ms)
        assert went == (self.segments.first_offset > before)

    def compact(self) -> None:
        self.compacted = True
        if self.compactor is None:
            self.compactor = Compactor(self.segments, now_ms=self.now_ms, stable_end=EVERYTHING)
        for _ in range(self.random.randint(1, 12)):
            if not self.compactor.step():
                self.compactor = None
                break

    def step(self) -> None:
        actions = [self.append] * 6 + [self.checkpoint] * 2 + [self.check_a_read] * 3
        actions += [self.check_a_time, self.retain, self.segments.roll]
        if self.options.compact:
            actions += [self.compact] * 3
        self.random.choice(actions)()

    # What befalls it

    def until_power_fails(self) -> None:
        fail_after(self.disk, self.random.randint(0, 40))
        try:
            for _ in range(40):
                self.step()
        except PowerFailedError:
            pass

    def end(self) -> None:
        """The process is no more: what it still has in hand cannot touch the disk."""
        fail_after(self.disk, 0)
        if self.compactor is not None:
            with suppress(PowerFailedError):
                self.compactor.close()
            self.compactor = None

    def crash(self) -> None:
        self.end()
        self.disk.crash(self.random)
        self.reopen()

    def kill(self) -> None:
        self.end()
        self.disk.kill()
        self.reopen()

    def reopen(self) -> None:
        self.open()
        end = self.segments.end.end
        assert self.durable <= end <= len(self.records), "lost or invented records"
        del self.records[end:]
        self.durable = end
        self.check_everything()

    # What must hold

    def check_everything(self) -> None:
        segments = self.segments
        summaries = segments.summaries()
        assert [s.base for s in summaries[1:]] == [s.end for s in summaries[:-1]]
        assert segments.size_bytes == sum(s.size_bytes for s in summaries)
        chunks = segments.read(segments.first_offset, EVERYTHING, EVERYTHING)
        self.check_tiling(chunks, segments.first_offset)
        found = [record for chunk in chunks for record in chunk]
        self.check_found(found, segments.first_offset, len(self.records))
        assert sum(s.records for s in summaries) == len(found)
        self.check_last_of_keys(found)

    def check_last_of_keys(self, found: list[Record]) -> None:
        """A reader from the start ends with the same value of each key as one who saw it all."""
        first = self.segments.first_offset
        truth = {record.key: record for record in self.records[first:] if record.key is not None}
        seen = {record.key: record for record in found if record.key is not None}
        for key, record in truth.items():
            if record.value is not None or key in seen:
                assert seen[key] == record, "an older value of a key came back"

    def check_tiling(self, chunks: list[Chunk], offset: int) -> None:
        for chunk in chunks:
            assert chunk.header.base_offset == offset
            offset = chunk.header.end_offset
            chunk.check()
        assert offset == len(self.records)

    def check_found(self, found: list[Record], first: int, end: int) -> None:
        """These are the records between two offsets, but for what compaction may take."""
        there = {record.offset: record for record in found}
        assert list(there) == sorted(there)
        assert all(self.records[offset] == record for offset, record in there.items())
        for record in self.records[first:end]:
            if record.offset not in there:
                assert self.may_be_gone(record), record

    def may_be_gone(self, record: Record) -> bool:
        if not self.compacted or record.key is None:
            return False
        if record.value is None and record.timestamp_ms < self.now_ms - self.options.tombstone_ms:
            return True
        return any(later.key == record.key for later in self.records[record.offset + 1 :])

    def check_a_read(self) -> None:
        """Read a piece, as bytes or as ranges, from anywhere."""
        segments, random = self.segments, self.random
        offset = random.randint(0, len(self.records) + 1)
        end = random.choice([EVERYTHING, random.randint(0, len(self.records) + 1)])
        size = random.choice([1, 300, 2000, EVERYTHING])
        try:
            with segments.locate(offset, end, size) as found:
                data = b"".join([r.file.pread(r.length, r.position) for r in found.ranges])
                chunks = split_chunks(data)
                assert [c.encode() for c in found.read()] == [c.encode() for c in chunks]
        except OffsetOutOfRangeError as error:
            answer = (error.offset, error.first_offset, error.next_offset)
        else:
            answer = None
        if offset < min(end, segments.first_offset):
            assert answer == (offset, segments.first_offset, len(self.records))
            return
        assert answer is None
        if offset >= min(end, len(self.records)):
            assert not chunks
            assert found.next_offset == offset
            return
        assert chunks[0].header.base_offset <= offset < chunks[0].header.end_offset
        assert chunks[-1].header.base_offset < end
        assert len(chunks) == 1 or len(data) <= size
        assert found.next_offset == chunks[-1].header.end_offset
        records = [record for chunk in chunks for record in chunk if record.offset >= offset]
        self.check_found(records, offset, found.next_offset)
        if size == EVERYTHING:
            assert found.next_offset >= min(end, len(self.records))

    def check_a_time(self) -> None:
        time_ms = self.random.randint(990, self.now_ms + 4)
        found = self.segments.seek_time(time_ms)
        chunks = self.segments.read(self.segments.first_offset, EVERYTHING, EVERYTHING)
        late = [r.offset for chunk in chunks for r in chunk if r.timestamp_ms >= time_ms]
        assert found == (late[0] if late else None)


def run(seed: int, options: StreamOptions, steps: int = 60, rounds: int = 4) -> Walk:
    """A whole life with crashes; raises if a promise is broken."""
    walk = Walk(seed, options)
    for _ in range(rounds):
        for _ in range(walk.random.randint(1, steps)):
            walk.step()
        walk.check_everything()
        if walk.random.random() < 0.8:
            walk.until_power_fails()
        walk.random.choice([walk.crash, walk.crash, walk.kill])()
        if walk.random.random() < 0.3:
            walk.crash()
    return walk
