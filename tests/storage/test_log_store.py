"""What the host asks of the store, one thing at a time."""

import pytest

from queues.storage.errors import DirectoryInUseError
from queues.storage.frames import DEL, REG
from queues.storage.log_store import StoredEntry
from tests.storage.walk import Walk
from tests.support.simdisk import input_output_error


def store_with(count: int) -> tuple[Walk, int]:
    """A group with entries 1 to `count`, durable."""
    walk = Walk(1)
    gid = walk.create()
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(i, 1, b"body %d" % i) for i in range(1, count + 1)])
    walk.submit(batch)
    walk.flush()
    return walk, gid


def live(walk: Walk, gid: int) -> list[int]:
    return [entry.index for entry in walk.store.entries(gid)]


def test_entries_are_released_in_any_order() -> None:
    walk, gid = store_with(10)
    walk.store.release(gid, [(8, 9), (2, 4)])
    walk.store.release(gid, [(3, 6), (100, 200)])
    assert live(walk, gid) == [1, 7, 10]


def test_what_is_not_retained_is_released_up_to_the_limit() -> None:
    walk, gid = store_with(12)
    walk.store.retain(gid, [(2, 3), (5, 5), (9, 20)], upto=7)
    assert live(walk, gid) == [2, 3, 5, 8, 9, 10, 11, 12]
    walk.store.retain(gid, [], upto=8)
    assert live(walk, gid) == [9, 10, 11, 12]


def test_entries_are_read_by_index_before_and_after_they_are_on_disk() -> None:
    walk, gid = store_with(5)
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(9, 2, b"pending")])
    walk.submit(batch)
    expected = [(2, 1, b"body 2"), (5, 1, b"body 5"), (9, 2, b"pending")]
    assert walk.store.read_indexes(gid, [2, 5, 7, 9], bytes_max=1000) == expected
    walk.flush()
    assert walk.store.read_indexes(gid, [2, 5, 7, 9], bytes_max=1000) == expected
    assert walk.store.read_indexes(gid, [2, 5, 7, 9], bytes_max=1) == expected[:1]


def test_a_truncated_entry_is_replaced_and_the_old_one_never_comes_back() -> None:
    walk, gid = store_with(5)
    batch = walk.store.batch()
    batch.truncate_from(gid, 3)
    batch.append(gid, [StoredEntry(3, 2, b"new 3")])
    walk.submit(batch)
    walk.flush()
    walk.crash()
    payloads = [entry.payload for entry in walk.store.read(gid, 1, 9, bytes_max=1000)]
    assert payloads == [b"body 1", b"body 2", b"new 3"]


def test_committed_entries_cannot_be_truncated() -> None:
    walk, gid = store_with(5)
    walk.store.committed(gid, 4)
    batch = walk.store.batch()
    batch.truncate_from(gid, 4)
    with pytest.raises(AssertionError, match="under commit 4"):
        walk.store.submit(batch)


def test_the_end_of_a_log_is_its_last_entry_or_its_snapshot() -> None:
    walk, gid = store_with(5)
    view = walk.store.group(gid)
    assert (view.last_index, view.last_term) == (5, 1)
    batch = walk.store.batch()
    batch.snapshot(gid, 8, 3, b"state")
    walk.submit(batch)
    view = walk.store.group(gid)
    assert (view.last_index, view.last_term, view.commit) == (8, 3, 8)


def test_a_group_made_again_has_a_new_gid_and_nothing_of_the_old_one() -> None:
    walk, gid = store_with(3)
    uuid = walk.store.group(gid).uuid
    batch = walk.store.batch()
    batch.delete_group(gid)
    again = batch.create_group(uuid)
    walk.submit(batch)
    walk.flush()
    walk.crash()
    assert walk.store.gid_of(uuid) == again != gid
    assert live(walk, again) == []


def test_an_empty_batch_is_the_last_submit() -> None:
    walk, _ = store_with(1)
    assert walk.store.submit(walk.store.batch()) == walk.store.submitted == walk.durable


def test_statistics_count_what_is_there() -> None:
    walk, gid = store_with(4)
    walk.store.release(gid, [(1, 3)])
    batch = walk.store.batch()
    batch.set_hard(gid, 1, None)
    walk.submit(batch)
    now = walk.store.statistics()
    assert (now.groups, now.log_files, now.segments, now.spares) == (1, 1, 0, 1)
    assert (now.submitted, now.durable) == (3, 2)
    assert now.live_bytes == (32 + 16) + (32 + 16) + (32 + len(b"body 4"))
    assert now.pending_bytes > 48


def test_the_directory_is_free_again_when_opening_failed() -> None:
    walk, _ = store_with(1)
    with pytest.raises(DirectoryInUseError):
        walk.open()
    walk.disk.kill()
    walk.disk.fault = input_output_error
    with pytest.raises(OSError, match="failed"):
        walk.open()
    walk.disk.fault = None
    walk.open()


def test_a_group_takes_the_place_of_another_in_one_frame_however_little_room_there_is() -> None:
    frames = []
    for size in range(7000, 8200):
        walk, gid = store_with(1)
        other = walk.create()
        batch = walk.store.batch()
        batch.append(gid, [StoredEntry(2, 1, b"x" * size)])
        walk.submit(batch)
        batch = walk.store.batch()
        batch.set_hard(other, 1, None)
        batch.replace_group(gid, other, walk.groups[gid].uuid)
        frames.append(
            [[r[0] for r in frame.records] for frame in walk.store.wal.plan(batch.records)]
        )
    assert {len(found) for found in frames} == {1, 2}
    assert all(found[-1][-2:] == [REG, DEL] for found in frames)


def test_a_group_that_took_anothers_place_has_its_name_after_a_restart() -> None:
    walk, old = store_with(5)
    uuid = walk.groups[old].uuid
    new = walk.create()
    batch = walk.store.batch()
    batch.set_config(new, 3, b"members")
    batch.replace_group(old, new, uuid)
    walk.submit(batch)
    walk.flush()
    for _ in range(2):
        assert walk.store.gid_of(uuid) == new
        assert [view.gid for view in walk.store.groups()] == [new]
        assert walk.store.group(new).config == (3, b"members")
        walk.crash()
