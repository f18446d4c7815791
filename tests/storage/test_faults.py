"""Damage and want: flipped bits, lost sectors, a full disk, recycled bytes, reads that fail."""

from dataclasses import replace
from random import Random

import pytest

from queues.storage.check import check_directory
from queues.storage.errors import CorruptRecordError, StoreFailedError
from queues.storage.files import parse_name
from queues.storage.frames import FILE_HEADER_BYTES
from queues.storage.log_store import StoredEntry
from queues.storage.recovery import logger
from tests.storage.walk import OPTIONS, Walk
from tests.support.simdisk import SimDisk, input_output_error


def lived(seed: int, steps: int = 150) -> Walk:
    """A store with a past, closed cleanly."""
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()
    walk.store.close()
    return walk


def damage_is_named_and_the_rest_is_true(walk: Walk) -> set[int]:
    """Open it again: each group is as it was, or is called damaged and invents nothing."""
    walk.open()
    damaged = set(walk.store.state.damaged)
    found = {view.gid: view for view in walk.store.groups()}
    for gid, group in walk.groups.items():
        if gid in damaged:
            continue
        assert gid in found, f"group {gid} has vanished without a word"
        there = walk._found(found[gid])
        assert walk._differs(gid, there, group) == []
    return damaged


def test_a_flipped_bit_hurts_only_groups_that_are_then_called_damaged() -> None:
    hurt = spared = 0
    for seed in range(40):
        walk = lived(seed, 80)
        random = Random(seed)
        names = [name for name in walk.disk.list() if parse_name(name) is not None]
        name = random.choice(names)
        size = len(walk.disk.content(name).rstrip(b"\0"))
        walk.disk.flip(name, random.randrange(FILE_HEADER_BYTES, size), random.randrange(8))
        damaged = damage_is_named_and_the_rest_is_true(walk)
        hurt += bool(damaged)
        spared += len(damaged) < len(walk.groups)
    assert hurt > 5
    assert spared > 30


def test_a_lost_page_is_laid_to_the_groups_that_had_records_in_it() -> None:
    hurt = spared = 0
    for seed in range(30):
        walk = lived(seed, 80)
        name = min(name for name in walk.disk.list() if name.startswith("wal"))
        if len(walk.disk.content(name).rstrip(b"\0")) < 8192 + 1024:
            continue  # the last frame and the one that vouches for it: that looks like a torn write
        for offset in range(8192, 8192 + 512):
            walk.disk.flip(name, offset, seed % 8)
        damaged = damage_is_named_and_the_rest_is_true(walk)
        hurt += bool(damaged)
        spared += len(damaged) < len(walk.groups)
    assert hurt > 5
    assert spared > 5


def test_damage_is_told_again_at_every_start_and_its_bytes_are_put_aside() -> None:
    walk = Walk(3)
    gid, other = walk.create(), walk.create()
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(1, 1, b"precious")])
    walk.submit(batch)
    walk.store.close()
    name = "wal-0000000001"
    walk.disk.flip(name, walk.disk.content(name).index(b"precious"))
    for _ in range(3):
        walk.open()
        assert set(walk.store.state.damaged) == {gid}
        assert "bad payload" in str(walk.store.group(gid).damaged)
        assert walk.store.group(other).damaged is None
        for _ in range(30):
            batch = walk.store.batch()
            batch.set_hard(other, 1, None)
            batch.snapshot(other, 1, 1, b"x" * 2000)
            walk.store.submit(batch)
            walk.store.flush()
            while walk.reclaimer.step():
                walk.store.flush()
        walk.store.close()
    assert name not in walk.disk.list()
    assert b"qrecious" in walk.disk.content("corrupt-" + name)
    walk.open()
    batch = walk.store.batch()
    batch.delete_group(gid)
    walk.store.submit(batch)
    walk.store.close()
    walk.open()
    assert walk.store.state.damaged == {}


def test_a_torn_tail_is_cut_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    walk = Walk(1)
    gid = walk.create()
    walk.flush()
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(1, 1, b"never promised")])
    walk.submit(batch)
    walk.flush()
    walk.disk.flip("wal-0000000001", walk.disk.content("wal-0000000001").index(b"never"))
    walk.disk.kill()
    with caplog.at_level("WARNING", logger.name):
        walk.open()
    assert walk.store.entries(gid) == []
    assert walk.store.recovery.findings == []
    assert "torn write cut from wal-0000000001 at byte" in caplog.text


def test_a_read_of_rotten_bytes_names_the_place_and_damages_the_group() -> None:
    walk = Walk(1)
    gid = walk.create()
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(1, 1, b"sound"), StoredEntry(2, 1, b"rotten")])
    walk.submit(batch)
    walk.flush()
    walk.disk.flip("wal-0000000001", walk.disk.content("wal-0000000001").index(b"rotten"))
    assert walk.store.read(gid, 1, 1, bytes_max=100) == [(1, 1, b"sound")]
    with pytest.raises(CorruptRecordError, match=f"group {gid} in wal-0000000001 at byte"):
        walk.store.read(gid, 1, 2, bytes_max=100)
    assert walk.store.group(gid).damaged is not None


def test_the_check_tells_what_recovery_would_and_changes_nothing() -> None:
    walk = lived(6)
    before = {name: walk.disk.content(name) for name in walk.disk.list()}
    report = check_directory(walk.disk)
    assert report.sound
    assert report.torn is None
    assert {group.gid for group in report.groups} == set(walk.groups)
    assert {file.name for file in report.files} == set(before)
    assert {name: walk.disk.content(name) for name in walk.disk.list()} == before
    segment = next(file for file in report.files if file.kind == "segment" and file.live_bytes)
    walk.disk.flip(segment.name, FILE_HEADER_BYTES + 20)
    broken = check_directory(walk.disk)
    assert not broken.sound
    assert {finding.file for finding in broken.findings} == {segment.name}
    damaged = {group.gid for group in broken.groups if group.damaged}
    assert damaged == broken.findings[0].gids & set(walk.groups)


def test_no_submit_is_durable_after_a_failed_sync_even_if_the_next_would_work() -> None:
    walk = Walk(1)
    gid = walk.create()
    walk.flush()
    walk.disk.fault = input_output_error
    batch = walk.store.batch()
    batch.set_hard(gid, 1, 1)
    walk.submit(batch)
    walk.flush()
    assert len(walk.failures) == 1
    walk.disk.fault = None
    walk.flush()
    assert walk.durable == 1
    with pytest.raises(StoreFailedError):
        walk.store.submit(batch)


FULL = replace(OPTIONS, free_bytes_min=20 * 1024)


def test_a_full_disk_is_told_before_it_is_full_and_keeps_a_reserve() -> None:
    walk = Walk(1, FULL)
    walk.disk.capacity_bytes = walk.disk.used_bytes() + 40 * 1024
    gid = walk.create()
    durable_when_full = None
    for index in range(1, 80):
        batch = walk.store.batch()
        batch.append(gid, [StoredEntry(index, 1, b"x" * 1000)])
        walk.submit(batch)
        walk.flush()
        walk.store.check_space()
        if walk.store.full and durable_when_full is None:
            durable_when_full = walk.durable
            assert walk.disk.free_bytes() > OPTIONS.wal_file_bytes / 2
    assert walk.full == [True]
    assert durable_when_full is not None
    assert walk.durable >= durable_when_full + OPTIONS.wal_file_bytes // 1100
    assert walk.durable < walk.store.submitted  # nothing is said of what has no place
    assert walk.failures == []
    walk.disk.capacity_bytes += 200 * 1024
    walk.store.check_space()
    walk.flush()
    assert walk.full == [True, False]
    assert walk.durable == walk.store.submitted
    walk.crash()


def test_segments_wait_for_room_and_then_get_on() -> None:
    walk = Walk(4, FULL)
    for _ in range(300):
        walk.step()
        if walk.random.random() < 0.05:
            walk.disk.capacity_bytes = walk.disk.used_bytes() + walk.random.choice([0, 9000, 10**6])
            walk.store.check_space()
    walk.disk.capacity_bytes = 1 << 40
    walk.store.check_space()
    walk.flush()
    assert walk.failures == []
    assert walk.durable == walk.store.submitted
    walk.crash()


def recycled_over_a_discarded_frame() -> Walk:
    """A file whose discarded frames lie, sequence and all, where the new ones will end."""
    walk = Walk(1)
    gid = walk.create()
    walk.flush()
    walk.stop()
    for index, body in ((1, b"lost-one"), (2, b"lost-two")):
        batch = walk.store.batch()
        batch.append(gid, [StoredEntry(index, 1, body)])
        walk.store.submit(batch)
    walk.store.flush()
    name = max(name for name in walk.disk.list() if name.startswith("wal"))
    walk.disk.flip(name, walk.disk.content(name).index(b"lost-one"))
    walk.disk.kill()
    walk.open()
    assert walk.store.entries(gid) == []
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(1, 2, b"kept-one")])
    walk.store.submit(batch)
    walk.store.flush()
    walk.disk.kill()
    walk.open()
    return walk


def test_frames_left_in_a_recycled_file_do_not_come_back() -> None:
    walk = recycled_over_a_discarded_frame()
    (gid,) = walk.groups
    assert [entry.payload for entry in walk.store.read(gid, 1, 9, bytes_max=99)] == [b"kept-one"]


def test_without_the_seed_they_would() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in ("frames", "wal", "recovery", "reading", "segment", "reclaim"):
            monkeypatch.setattr(f"queues.storage.{module}.seed_of", lambda *_: 0)
        walk = recycled_over_a_discarded_frame()
    (gid,) = walk.groups
    assert [entry.index for entry in walk.store.entries(gid)] == [1, 2]


def test_a_disk_is_forgetful() -> None:
    disk = SimDisk()
    file = disk.create("a", 0)
    file.pwritev([b"kept"], 0)
    file.datasync()
    disk.sync_directory()
    file.pwritev([b"lost"], 0)
    disk.create("b", 10)
    kept = set()
    for seed in range(20):
        again = SimDisk()
        again._names, again._durable_names = dict(disk._names), dict(disk._durable_names)
        again._changes = list(disk._changes)
        inode = disk._names["a"]
        state = (bytes(inode.durable), bytes(inode.current), list(inode.writes))
        again.crash(Random(seed))
        kept.add((again.content("a"), "b" in again.list()))
        inode.durable[:], inode.current[:], inode.writes = bytearray(state[0]), state[1], state[2]
    assert {b"kept", b"lost"} <= {content for content, _ in kept}
    assert {present for _, present in kept} == {True, False}
