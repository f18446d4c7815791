"""The reserve: what is left for acks and hard state when somebody has taken all of the disk."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from queues.storage.check import check_directory
from queues.storage.disk import RealDisk, RealFile
from queues.storage.errors import OutOfSpaceError
from queues.storage.frames import FILE_HEADER_BYTES
from queues.storage.log_store import LogStore, StoredEntry
from queues.storage.options import StoreEvents
from tests.storage.walk import OPTIONS, STORE_ID, Walk

KIB = 1024
RESERVE_BYTES = OPTIONS.reserve_bytes
ROOMY = replace(OPTIONS, wal_file_bytes=64 * KIB, reserve_bytes=16 * KIB)


def settle(walk: Walk, gid: int) -> bool:
    """Write what an ack takes; whether it is durable."""
    batch = walk.store.batch()
    batch.set_hard(gid, walk.groups[gid].hard[0] + 1, 1)
    walk.submit(batch)
    walk.flush()
    return walk.durable == walk.store.submitted


def full_disk(options=OPTIONS) -> tuple[Walk, int]:
    """A store in the middle of its first file, on a disk without a byte to spare."""
    walk = Walk(1, options)
    gid = walk.create()
    walk.flush()
    walk.store.check_space()
    walk.disk.capacity_bytes = walk.disk.used_bytes()
    return walk, gid


def sizes(walk: Walk, prefix: str) -> list[int]:
    return [len(walk.disk.content(n)) for n in sorted(walk.disk.list()) if n.startswith(prefix)]


def test_a_store_keeps_a_spare_and_a_reserve() -> None:
    walk, _ = full_disk()
    assert sorted(sizes(walk, "spare")) == [RESERVE_BYTES, OPTIONS.wal_file_bytes]


def test_the_reserve_is_written_when_there_is_no_other_place() -> None:
    walk, gid = full_disk()
    while settle(walk, gid):
        pass
    assert walk.failures == []
    assert walk.full == [True]
    assert sizes(walk, "spare") == []
    assert sizes(walk, "wal") == [OPTIONS.wal_file_bytes] * 2 + [RESERVE_BYTES]
    used = walk.disk.content("wal-0000000003").rstrip(b"\0")
    assert len(used) > RESERVE_BYTES - 200
    walk.crash()


def test_with_room_again_all_goes_on_in_the_same_file_and_the_reserve_is_made_anew() -> None:
    walk, gid = full_disk()
    while settle(walk, gid):
        pass
    walk.disk.capacity_bytes += 100 * KIB
    walk.store.check_space()
    walk.flush()
    assert walk.full == [True, False]
    assert walk.durable == walk.store.submitted
    assert sorted(sizes(walk, "spare")) == [RESERVE_BYTES, OPTIONS.wal_file_bytes]
    assert sizes(walk, "wal") == [OPTIONS.wal_file_bytes] * 3
    for _ in range(500):
        assert settle(walk, gid)
        walk.store.check_space()
        walk.reclaim()
    walk.crash()


def test_a_little_room_is_used_a_little_at_a_time() -> None:
    walk, gid = full_disk()
    while settle(walk, gid):
        pass
    walk.disk.capacity_bytes += 100  # not enough for a file, but for one ack
    walk.flush()
    assert walk.durable == walk.store.submitted
    assert sizes(walk, "wal")[-1] in range(RESERVE_BYTES, RESERVE_BYTES + 100)
    walk.crash()


def test_of_many_frames_as_many_are_written_as_fit() -> None:
    walk, gid = full_disk(ROOMY)
    for index in range(1, 101):
        batch = walk.store.batch()
        batch.append(gid, [StoredEntry(index, 1, b"x" * 2000)])
        walk.submit(batch)
    walk.flush()  # in one go: two files are full, the third one is the reserve
    assert walk.failures == []
    fitting = (16 * KIB - FILE_HEADER_BYTES) // 2080
    assert walk.durable == 1 + 2 * ((64 * KIB - FILE_HEADER_BYTES) // 2080) + fitting
    walk.crash()


def test_a_file_cut_short_is_not_kept_as_a_spare() -> None:
    walk, gid = full_disk()
    while settle(walk, gid):
        pass
    walk.store.close()
    walk.disk.capacity_bytes += 60 * KIB
    walk.open()
    for _ in range(300):
        walk.store.check_space()
        batch = walk.store.batch()
        batch.set_hard(gid, 10_000, 1)
        walk.store.submit(batch)
        walk.flush()
        walk.reclaim()
    assert set(sizes(walk, "spare")) <= {RESERVE_BYTES, OPTIONS.wal_file_bytes}
    assert walk.store.spares.count(OPTIONS.wal_file_bytes) <= OPTIONS.spare_files + 1
    assert check_of(walk).sound


def check_of(walk: Walk):
    walk.store.close()
    return check_directory(walk.disk)


def test_a_store_that_starts_on_a_full_disk_writes_to_the_reserve() -> None:
    walk, gid = full_disk()
    while settle(walk, gid):
        pass
    acked = walk.groups[gid].hard[0] - 1
    walk.disk.capacity_bytes += RESERVE_BYTES
    walk.store.check_space()  # room for a reserve, and for nothing else
    walk.kill()
    assert walk.groups[gid].hard[0] == acked
    assert walk.store.full
    assert settle(walk, gid)


def test_the_loss_of_the_last_spare_is_told_at_once_unless_the_disk_is_known_to_be_full() -> None:
    told = []
    walk = Walk(1)
    walk.store.close()
    events = StoreEvents(
        walk._durable, walk.failures.append, walk.full.append, lambda: told.append(1)
    )
    store = LogStore.open(walk.disk, OPTIONS, events, new_store_id=lambda: STORE_ID, threaded=False)
    walk.store = store
    gid = walk.create()
    walk.flush()
    assert told == [1]  # the first file was the spare
    store.check_space()
    assert settle(walk, gid)
    assert told == [1]
    walk.disk.capacity_bytes = walk.disk.used_bytes()
    while not walk.full:
        settle(walk, gid)
        store.check_space()
    told.clear()
    for _ in range(10):
        settle(walk, gid)
    assert told == []


@pytest.mark.parametrize("seed", range(30))
def test_whatever_room_there_is_nothing_durable_is_lost_and_the_store_goes_on(seed: int) -> None:
    walk = Walk(seed, replace(OPTIONS, free_bytes_min=8 * KIB))
    for _ in range(3):
        for _ in range(100):
            walk.step()
            if walk.random.random() < 0.1:
                room = walk.random.choice([0, 0, 100, 3000, 9000, 10**6])
                walk.disk.capacity_bytes = walk.disk.used_bytes() + room
            if walk.random.random() < 0.1:
                walk.store.check_space()
        assert walk.failures == []
        walk.random.choice([walk.crash, walk.kill])()
    walk.disk.capacity_bytes = 1 << 40
    walk.store.check_space()
    walk.flush()
    assert walk.durable == walk.store.submitted
    assert not walk.store.full


def test_a_real_file_is_extended_or_left_as_it_is(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).create("file", 5000)
    file.extend(9000)
    assert file.size_bytes() == 9000
    assert (tmp_path / "file").stat().st_blocks * 512 >= 9000
    with pytest.raises(OutOfSpaceError):
        file.extend(1 << 60)
    assert file.size_bytes() == 9000
    file.close()


def test_an_error_that_is_not_want_of_room_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number says which
        RealFile(fd).extend(9000)
    assert caught.value.errno in {errno.EBADF, errno.EINVAL}
    os.close(fd)
