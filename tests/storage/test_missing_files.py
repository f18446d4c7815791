"""Files that vanish, frames that a torn write left, logs that are lost: nothing of it is silent."""

from dataclasses import replace

import pytest

from queues.storage.check import check_directory
from queues.storage.files import parse_name
from queues.storage.frames import (
    FILE_HEADER_BYTES,
    LOG_FILE,
    SEGMENT_FILE,
    FileHeader,
    ScannedFrame,
    decode_file_header,
    encode_file_header,
    scan_frames,
    seed_of,
)
from queues.storage.log_store import StoredEntry
from queues.storage.manifest import (
    GIDS_MAX,
    MANIFEST_NAMES,
    ListedFile,
    Listing,
    decode_manifest,
    encode_manifest,
)
from tests.storage.walk import OPTIONS, STORE_ID, Walk


def put(walk: Walk, gid: int, *entries: tuple[int, bytes]) -> None:
    batch = walk.store.batch()
    batch.append(gid, [StoredEntry(index, 1, payload) for index, payload in entries])
    walk.submit(batch)


def files_of(walk: Walk, kind: int) -> list[str]:
    names = [name for name in walk.disk.list() if (parse_name(name) or (None,))[0] == kind]
    return sorted(names)


def vanish(walk: Walk, name: str) -> None:
    walk.disk.unlink(name)
    walk.disk.sync_directory()


def with_several_files() -> tuple[Walk, int, int]:
    """A store with a group whose entries are in segments and log files, and one without any."""
    walk = Walk(1)
    gid, other, busy = walk.create(), walk.create(), walk.create()
    for index in range(1, 90):
        put(walk, gid, (index, b"x" * 300))
        put(walk, busy, (index, b"x" * 900))
        walk.flush()
        walk.groups[gid].commit = index
        walk.store.committed(gid, index)
        walk.store.release(busy, [(1, index)])
        walk.groups[busy].released.add(index)
        if index < 60:
            while walk.reclaimer.step():
                walk.flush()
    walk.end()
    assert len(files_of(walk, SEGMENT_FILE)) > 2
    assert len(files_of(walk, LOG_FILE)) > 2
    return walk, gid, other


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_segment_that_vanishes_damages_the_groups_that_were_in_it(place: int) -> None:
    walk, gid, other = with_several_files()
    name = files_of(walk, SEGMENT_FILE)[place]
    vanish(walk, name)
    assert [(f.file, f.gids) for f in check_directory(walk.disk).findings] == [(name, {gid})]
    walk.reopen_damaged()
    assert set(walk.store.state.damaged) == {gid}
    assert name in str(walk.store.group(gid).damaged)
    assert walk.store.group(other).damaged is None
    walk.end()
    walk.reopen_damaged()
    walk.end()
    walk.reopen_damaged()
    assert walk.store.recovery.findings == []  # the log says it now
    assert set(walk.store.state.damaged) == {gid}


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_log_file_that_vanishes_damages_all_that_may_have_been_in_it(place: int) -> None:
    walk, gid, other = with_several_files()
    name = files_of(walk, LOG_FILE)[place]
    vanish(walk, name)
    walk.reopen_damaged()
    assert name in {finding.file for finding in walk.store.recovery.findings}
    assert {gid, other} & set(walk.store.state.groups) <= set(walk.store.state.damaged)
    assert walk.store.lost is not None
    walk.flush()
    new = walk.create()
    walk.flush()
    for _ in range(3):
        walk.end()
        walk.reopen_damaged()
        assert new in walk.groups  # it was made later, and cannot have lost anything


@pytest.mark.parametrize("name", MANIFEST_NAMES)
@pytest.mark.parametrize("gone", [True, False])
def test_one_copy_of_the_manifest_is_enough(name: str, *, gone: bool) -> None:
    walk, _, _ = with_several_files()
    if gone:
        vanish(walk, name)
    else:
        walk.disk.flip(name, 20)
    walk.reopen_damaged()
    assert walk.store.recovery.findings == []
    walk.end()
    vanish(walk, files_of(walk, SEGMENT_FILE)[0])
    walk.reopen_damaged()
    assert walk.store.state.damaged


def test_a_store_without_any_manifest_says_that_it_cannot_vouch_for_its_files() -> None:
    walk, _, _ = with_several_files()
    for name in MANIFEST_NAMES:
        vanish(walk, name)
    walk.reopen_damaged()
    assert walk.store.lost is not None
    assert walk.store.state.damaged == {}


def test_a_directory_of_an_earlier_version_is_taken_as_it_is() -> None:
    walk, gid, _ = with_several_files()
    for name in MANIFEST_NAMES:
        vanish(walk, name)
    for name in files_of(walk, LOG_FILE) + [n for n in walk.disk.list() if n.startswith("spare")]:
        data = walk.disk.content(name)[:FILE_HEADER_BYTES]
        header = decode_file_header(data, name)
        if header is not None:
            old = encode_file_header(header._replace(first_sequence=0))
            walk.disk.open(name).pwritev([old], 0)
            walk.disk.open(name).datasync()
    walk.reopen_damaged()
    assert walk.store.recovery.findings == []
    assert (walk.store.lost, walk.store.state.damaged) == (None, {})
    walk.end()
    vanish(walk, files_of(walk, SEGMENT_FILE)[0])
    walk.reopen_damaged()
    assert set(walk.store.state.damaged) == {gid}


def test_what_the_manifest_and_the_headers_say_comes_back() -> None:
    files = [
        ListedFile(LOG_FILE, 7, 99),
        ListedFile(SEGMENT_FILE, 8, 0, tuple(range(GIDS_MAX))),
        ListedFile(SEGMENT_FILE, 9, 0, None),
        ListedFile(SEGMENT_FILE, 10, 0, ()),
    ]
    listing = Listing(3, STORE_ID, files)
    data = encode_manifest(listing)
    assert decode_manifest(data + bytes(100), "m") == listing
    for place in range(len(data)):
        bad = bytearray(data)
        bad[place] ^= 1
        assert decode_manifest(bytes(bad), "m") is None, place
    assert decode_manifest(data[:-1], "m") is None
    header = FileHeader(LOG_FILE, 5, 7, STORE_ID, 99)
    encoded = encode_file_header(header)
    assert decode_file_header(encoded, "w") == header
    assert decode_file_header(encoded[:50] + b"?" + encoded[51:], "w") == header._replace(
        first_sequence=0
    )


# Frames that a torn write left.


def first_frames(walk: Walk, name: str) -> list[ScannedFrame]:
    seed = seed_of(STORE_ID, int(name.removeprefix("wal-")))
    events = scan_frames(walk.disk.open(name), seed)
    return [event for event in events if isinstance(event, ScannedFrame)]


def test_frames_behind_a_torn_one_stay_void_when_the_next_file_is_hurt() -> None:
    """One write of three frames: of the first one a crash leaves nothing, the others arrive."""
    walk = Walk(1, replace(OPTIONS, wal_file_bytes=64 * 1024))
    g, h, x = walk.create(), walk.create(), walk.create()
    put(walk, g, (1, b"kept"))
    put(walk, h, (1, b"kept"))
    walk.flush()
    put(walk, x, (1, b"." * 9000))  # the others are no witnesses of what follows
    walk.flush()
    put(walk, x, (2, b"torn"))
    put(walk, g, (2, b"never promised"))
    put(walk, g, (3, b"never promised"))
    walk.flush()
    old = files_of(walk, LOG_FILE)[-1]
    torn = first_frames(walk, old)[-3]
    walk.disk.open(old).pwritev([bytes(torn.size_bytes)], torn.offset)
    walk.disk.open(old).datasync()
    walk.disk.kill()
    walk.open()
    assert [entry.index for entry in walk.store.entries(g)] == [1]
    batch = walk.store.batch()
    batch.append(h, [StoredEntry(2, 1, b"confirmed")])
    walk.store.submit(batch)
    walk.store.flush()
    walk.store.close()
    new = files_of(walk, LOG_FILE)[-1]
    assert new > old
    place = walk.disk.content(new).index(b"confirmed")
    for frame in first_frames(walk, new):
        if frame.offset < place:
            walk.disk.flip(new, frame.offset + 10)
    walk.open()
    damaged = walk.store.state.damaged
    assert h in damaged
    assert g not in damaged
    assert [entry.payload for entry in walk.store.read(g, 1, 9, bytes_max=999)] == [b"kept"]
    assert {finding.file for finding in walk.store.recovery.findings} == {new}


def test_a_file_with_nothing_readable_in_it_vouches_for_the_one_before() -> None:
    """The last frames of a file are bad, and of the next one only the header was written."""
    walk = Walk(1)
    gid = walk.create()
    put(walk, gid, (1, b"kept"))
    walk.flush()
    put(walk, gid, (2, b"confirmed"))
    walk.flush()
    walk.disk.kill()
    walk.open()  # says in a new file that these were synced
    walk.store.flush()
    walk.disk.kill()
    old, new = files_of(walk, LOG_FILE)
    [vouching] = first_frames(walk, new)
    walk.disk.flip(new, vouching.offset + 10)
    walk.disk.flip(old, walk.disk.content(old).index(b"confirmed"))
    walk.open()
    assert gid in walk.store.state.damaged


# Logs of which not even the name is left.


def with_a_lost_log() -> tuple[Walk, int]:
    """The only frame with anything of a group is gone."""
    walk = Walk(1)
    gid = walk.create()
    walk.flush()
    batch = walk.store.batch()
    lost = batch.create_group(b"q" * 16)
    batch.set_hard(lost, 1, None)
    batch.append(lost, [StoredEntry(1, 1, b"confirmed")])
    walk.submit(batch)
    walk.flush()
    put(walk, gid, (1, b"more"))
    walk.end()
    name = files_of(walk, LOG_FILE)[0]
    walk.disk.flip(name, first_frames(walk, name)[1].offset + 10)
    walk.reopen_damaged()
    assert walk.store.lost is not None
    return walk, lost


def make_the_evidence_go(walk: Walk) -> None:
    """Traffic, until the file that proves it is put aside."""
    name = files_of(walk, LOG_FILE)[0]
    busy = walk.create()
    for index in range(1, 60):
        put(walk, busy, (index, b"x" * 700))
        walk.flush()
        walk.store.committed(busy, index)
        walk.store.release(busy, [(1, index)])
        walk.groups[busy].released.add(index)
        while walk.reclaimer.step():
            walk.flush()
    assert name not in walk.disk.list()
    walk.end()


def test_that_logs_are_lost_is_known_until_it_is_accepted() -> None:
    walk, lost = with_a_lost_log()
    make_the_evidence_go(walk)
    for _ in range(2):
        walk.reopen_damaged()
        assert walk.store.recovery.findings == []
        assert walk.store.lost is not None
        assert walk.store.gid_of(b"q" * 16) is None
        assert lost not in walk.store.state.groups
        walk.end()
    assert not check_directory(walk.disk).sound
    walk.open()
    walk.store.accept_loss()
    walk.store.close()
    walk.open()
    assert walk.store.lost is None


def test_what_was_accepted_is_no_news_but_another_loss_is() -> None:
    walk, _ = with_a_lost_log()
    walk.store.accept_loss()
    walk.store.close()
    walk.open()
    assert walk.store.recovery.findings  # the evidence is still there
    assert walk.store.lost is None
    batch = walk.store.batch()
    other = batch.create_group(b"r" * 16)
    batch.append(other, [StoredEntry(1, 1, b"confirmed")])
    walk.store.submit(batch)
    walk.store.flush()
    walk.store.close()
    name = files_of(walk, LOG_FILE)[-1]
    walk.disk.flip(name, first_frames(walk, name)[0].offset + 10)
    walk.open()
    assert walk.store.lost is not None
