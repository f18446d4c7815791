"""A partition, one promise at a time."""

import errno

import pytest

from broker.protocol.chunk import (
    split_chunks,
)
from broker.protocol.stream_errors import CorruptChunkError, OffsetOutOfRangeError
from queues.stream.errors import DamagedSegmentsError, StreamDeletedError
from queues.stream.options import StreamOptions
from queues.stream.ranges import ByteRange
from queues.stream.verdict import Verdict
from tests.durability.fake_log import FakeDisk
from tests.stream.walk import EVERYTHING
from tests.stream.world import World


@pytest.fixture
def world():
    return World()


def test_records_are_read_and_confirmed_when_they_are_committed_and_not_before(world):
    receipt = world.publish(b"a", b"b")
    world.log.submit()
    assert world.read(0).chunks == []
    assert (receipt.verdict, world.holder.advances, world.partition.next_offset) == (None, 0, 0)
    world.log.commit()
    assert (receipt.verdict, receipt.first_offset) == (Verdict.NEW, 0)
    assert world.holder.advances == 1
    assert world.values() == [b"a", b"b"]


def test_the_batches_of_a_turn_share_a_chunk_and_each_is_told_its_own_offset(world):
    receipts = [world.publish(b"a", b"b"), world.publish(b"c"), world.publish(b"d")]
    world.settle()
    assert [receipt.first_offset for receipt in receipts] == [0, 2, 3]
    assert [len(chunk) for chunk in world.read(0).chunks] == [4]
    assert len(world.log_disk.entries) == 1


def test_a_turn_with_much_to_say_takes_several_entries(world):
    receipts = [world.publish(b"x" * 150) for _ in range(12)]
    world.settle()
    assert [receipt.first_offset for receipt in receipts] == list(range(12))
    assert world.log_disk.last > 2


def test_records_get_the_time_at_which_they_are_proposed(world):
    world.publish(b"a")
    world.now_ms = 7000
    world.settle()
    assert world.read(0).chunks[0].record(0).timestamp_ms == 7000


def test_a_move_empties_memory_and_log(world):
    for number in range(30):
        world.publish(b"%d" % number * 10)
        world.settle()
    world.move()
    assert not world.log_disk.entries
    assert world.budget.used == 0
    assert len(world.values()) == 30
    world.open()
    assert world.partition.next_offset == 30
    assert len(world.values()) == 30


def test_small_chunks_become_large_ones_on_their_way_to_a_segment(world):
    for number in range(6):
        world.publish(b"%d" % number)
        world.settle()
    assert len(world.read(0).chunks) == 6
    world.move()
    assert [len(chunk) for chunk in world.read(0).chunks] == [6]
    assert world.values() == [b"%d" % number for number in range(6)]


def test_one_move_at_a_time_and_each_of_all_that_is_there(world):
    for number in range(40):
        world.publish(b"%d" % number * 40)
        world.log.settle_down()
    assert len(world.off_loop.jobs) == 1
    world.off_loop.run(1)
    world.log.settle_down()
    assert len(world.off_loop.jobs) == 1
    world.settle()
    assert len(world.values()) == 40


def test_other_partitions_with_much_in_memory_make_it_move_what_it_has(world):
    world.publish(bytes(700))
    world.settle()
    assert len(world.partition._tail) == 1
    world.budget.limit = 500
    world.partition.tick(world.now_ms)
    world.settle()
    assert len(world.partition._tail) == 0


def test_a_full_tail_takes_nothing_into_the_log_until_it_is_moved(world):
    receipts = []
    for _ in range(20):
        receipts.append(world.publish(bytes(1000)))
        world.log.settle_down()  # and nobody moves anything
    assert receipts[-1].verdict is None
    assert world.partition.congested
    assert world.partition._tail.size_bytes < 12_000
    world.settle()
    assert [receipt.first_offset for receipt in receipts] == list(range(20))
    assert not world.partition.congested


def test_a_follower_takes_no_more_than_it_can_move(world, monkeypatch):
    monkeypatch.setattr("queues.stream.partition.FOLLOWER_BYTES_MAX", 5000)
    monkeypatch.setattr("queues.stream.partition.FOLLOWER_BYTES_FLOOR", 1000)
    for size in (1500, 5000):
        world.publish(bytes(size))
        world.log.settle_down()  # and nobody moves anything
        if size == 1500:
            world.partition.follow()
            assert not world.partition.is_full
            world.budget.used += 2 * world.budget.limit
            assert world.partition.is_full, "others hold too much"
            world.budget.used -= 2 * world.budget.limit
            world.partition.lead()
    assert not world.partition.is_full, "who leads goes by what it may propose"
    world.partition.follow()
    assert world.partition.is_full
    world.move()
    assert not world.partition.is_full


def test_a_full_disk_delays_the_move_and_nothing_else(world):
    def full(operation, name):
        if operation == "write":
            raise OSError(errno.ENOSPC, "full")

    world.publish(b"a" * 2000)
    world.log.settle_down()
    world.disk.fault = full
    world.settle()
    world.publish(b"b")
    world.settle()
    assert world.values() == [b"a" * 2000, b"b"]
    assert len(world.log_disk.entries) == 2
    world.disk.fault = None
    world.partition.tick(world.now_ms)
    world.settle()
    assert not world.log_disk.entries
    assert world.values() == [b"a" * 2000, b"b"]


def test_an_offset_that_is_gone_or_not_there_yet_is_out_of_range(world):
    world = World(StreamOptions(segment_bytes=500, max_bytes=1200))
    for _ in range(12):
        world.publish(bytes(400))
        world.move()
    world.partition.tick(world.now_ms)
    world.settle()
    first = world.partition.first_offset
    assert first > 0
    error = world.read(first - 1)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.first_offset, error.next_offset) == (first, 12)
    assert isinstance(world.read(13), OffsetOutOfRangeError)
    assert world.read(12) == ([], 12)
    assert len(world.read(first).chunks) > 0


def test_old_records_go_also_from_a_partition_that_nobody_writes_to(world):
    world = World(StreamOptions(max_age_ms=60_000))
    world.publish(b"a")
    world.settle()
    for _ in range(3):  # first it waits, then it is moved, then it goes
        assert world.partition.first_offset == 0
        world.partition.tick(world.now_ms)
        world.settle()
        world.now_ms += 60_001
    assert (world.partition.first_offset, world.partition.next_offset) == (1, 1)
    world.publish(b"b")
    world.settle()
    assert world.values() == [b"b"]
    world.open()
    assert world.values(1) == [b"b"]


def test_compaction_runs_in_slices_and_lets_moves_go_first():
    world = World(StreamOptions(segment_bytes=600, compact=True))
    for number in range(40):
        world.publish(b"%d" % number * 20, key=b"%d" % (number % 3))
        world.log.settle_down()
        world.off_loop.run()
    world.move()
    before = world.partition.size_bytes
    world.partition.tick(world.now_ms)
    slices = 0
    while world.off_loop.jobs:
        world.off_loop.run(1)
        world.log.settle_down()
        slices += 1
    assert slices > 1
    assert world.partition.size_bytes < before
    assert {value[-2:] for value in world.values()} >= {b"39", b"38", b"37"}
    assert world.partition.first_offset == 0


@pytest.mark.parametrize("together", [1001, 50, 1])
def test_segments_keep_their_size_however_much_is_published_at_once(together):
    world = World(StreamOptions(segment_bytes=65536, compact=True))
    values = [b"%4d" % number + bytes(316) for number in range(1001)]
    for first in range(0, 1001, together):
        world.publish(*values[first : first + together], key=b"k%d" % (first % 10))
    world.move()
    assert world.values() == values
    sizes = [summary.size_bytes for summary in world.partition.segments()]
    assert len(sizes) >= 5
    assert max(sizes) <= 65536 + 8192
    for _ in range(3):
        world.now_ms += 60_000
        world.partition.tick(world.now_ms)
        world.settle()
    assert len(world.values()) < len(values), "and what is in sealed ones is compacted"


def test_a_restart_does_not_keep_from_compacting():
    world = World(StreamOptions(segment_bytes=600, compact=True))
    for number in range(20):
        world.publish(b"%d" % number * 40, key=b"k")
        world.move()
    world.open()
    assert len(world.values()) == 20
    world.partition.tick(world.now_ms)
    world.settle()
    assert len(world.values()) < 20


def test_what_is_to_be_sent_is_parts_of_files_or_bytes_in_memory(world):
    world.publish(b"old")
    world.move()
    world.publish(b"new")
    world.settle()
    for offset, kind in ((0, ByteRange), (1, memoryview)):
        answers = []
        world.partition.reader.locate(offset, EVERYTHING, EVERYTHING, answers.append)
        world.off_loop.run()
        (located,) = answers
        assert all(isinstance(piece, kind) for piece in located.pieces)
        if kind is ByteRange:
            data = b"".join(p.file.pread(p.length, p.position) for p in located.pieces)
        else:
            data = b"".join(located.pieces)
        assert len(data) == located.size_bytes
        assert [r.offset for chunk in split_chunks(data) for r in chunk] == [offset]
        assert located.next_offset == offset + 1
        located.close()


def test_a_time_is_found_in_segments_in_memory_or_at_the_end(world):
    for time_ms in (5000, 6000, 200_000, 201_000):
        world.now_ms = time_ms
        world.publish(b"%d" % time_ms)
        world.settle()
        if time_ms == 6000:
            world.move()
    for time_ms, offset in ((0, 0), (5001, 1), (6000, 1), (6001, 2), (200_001, 3), (300_000, 4)):
        answers = []
        world.partition.reader.seek_time(time_ms, answers.append)
        world.off_loop.run()
        assert answers == [offset], time_ms


def test_what_other_partitions_hold_keeps_one_back_that_has_enough_for_a_move(world, monkeypatch):
    monkeypatch.setattr("queues.stream.partition.MOVE_BYTES_FLOOR", 100)
    monkeypatch.setattr("queues.stream.keeper.MOVE_BYTES_FLOOR", 100)
    world.publish(b"a" * 200)
    world.settle()
    assert not world.partition.congested
    world.budget.used += 2 * world.budget.limit + 1
    assert world.partition.congested
    held = world.publish(b"b")
    world.log.settle_down()
    assert held.verdict is None
    assert world.off_loop.jobs, "its own move is due now, and lets it go on"
    world.settle()
    assert held.verdict is Verdict.NEW
    assert not world.partition.congested, "the others are still there, but it has little"
    small = world.publish(b"c")
    world.settle()
    assert small.verdict is Verdict.NEW


def test_a_search_by_time_finds_what_moves_meanwhile(world):
    world.publish(b"x" * 2000)
    world.log.settle_down()
    answers = []
    world.partition.reader.seek_time(5000, answers.append)
    world.off_loop.jobs.rotate(-1)  # the search first, and its answer after the move
    work, then = world.off_loop.jobs.popleft()
    result = work()
    world.settle()
    then(result)
    world.off_loop.run()
    assert answers == [0]


def test_a_deleted_partition_leaves_no_file_and_gives_its_receipts_back(world):
    world.publish(b"a")
    world.move()
    waiting = world.publish(b"b")
    world.log.submit()
    arriving = world.publish(b"c")
    assert world.partition.close() == [arriving, waiting]
    assert world.log.deleted
    assert world.disk.list(), "files stay until the stream's end is durable"
    world.partition.remove()
    late = []
    world.partition.reader.read(0, 1, late.append)
    world.off_loop.run()
    assert world.disk.list() == []
    assert world.budget.used == 0
    world.log.commit()
    assert waiting.verdict is None
    assert isinstance(late[0], StreamDeletedError)


def test_a_partition_deleted_during_a_move_ends_the_move_first(world):
    world.publish(b"a" * 2000)
    world.log.settle_down()
    assert world.off_loop.jobs
    world.partition.close()
    world.partition.remove()
    world.off_loop.run()
    assert world.disk.list() == []
    assert not world.log.writes


def test_segments_behind_their_checkpoint_or_before_their_log_are_damage(world):
    world.publish(b"a")
    world.move()
    kept = world.log_disk.copy()
    world.disk.unlink(world.disk.list()[0])
    with pytest.raises(DamagedSegmentsError):
        world.open()
    kept.checkpoint = None
    other = World()
    other.publish(b"a")
    other.move()
    other.log_disk = FakeDisk()
    with pytest.raises(DamagedSegmentsError):
        other.open()


def test_what_there_is_can_be_told(world):
    world.publish(b"a", b"b")
    world.move()
    world.publish(b"c")
    world.settle()
    (segment,) = world.partition.segments()
    assert (segment.base, segment.end, segment.records) == (0, 2, 2)
    assert world.partition.size_bytes > segment.size_bytes > 0
    assert (world.partition.first_offset, world.partition.next_offset) == (0, 3)
    assert world.partition.trouble is None


def test_a_corrupt_segment_stops_compaction_and_its_readers_and_nothing_else():
    world = World(StreamOptions(segment_bytes=300, compact=True))
    for number in range(6):
        world.publish(b"%d" % number * 300, key=b"k")
        world.move()
    world.disk.flip(f"{0:020d}-0.segment", 200)
    world.partition.tick(world.now_ms)
    world.settle()
    assert "00000-0.segment" in world.partition.trouble
    assert isinstance(world.read(0), CorruptChunkError)
    world.publish(b"new")
    world.settle()
    assert world.values(1)[-1] == b"new"
