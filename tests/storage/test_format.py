"""The bytes on disk: what version 1 is, and what is refused."""

from random import Random

import pytest

from queues.storage.errors import DirectoryInUseError, FormatVersionError, StorageError
from queues.storage.frames import (
    ENTRY,
    FILE_HEADER_BYTES,
    HARD,
    LOG_FILE,
    REG,
    SEGMENT_FILE,
    BadBytes,
    FileHeader,
    FramePlanner,
    ScannedFrame,
    decode_file_header,
    decode_vote,
    encode_file_header,
    encode_vote,
    scan_frames,
    seed_of,
)
from queues.storage.log_store import LogStore, StoredEntry
from queues.storage.options import StoreEvents, StoreOptions
from tests.storage.walk import OPTIONS, STORE_ID
from tests.support.simdisk import SimDisk, SimFile

FILE_HEADER = (
    "4c455645524554 4c 0100 00 00 07000000 0300000000000000 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
)
SEED = seed_of(STORE_ID, 3)
RECORDS = [
    (REG, 1, 0, 0, b"u" * 16),
    (HARD, 1, 5, 4, encode_vote(2)),
    (ENTRY, 1, 9, 5, b"payload"),
]


def file_with(disk: SimDisk, *frames: bytes) -> SimFile:
    file = disk.create("wal-0000000003", 0)
    file.pwritev([b"\0" * FILE_HEADER_BYTES, *frames], 0)
    return file


def store_on(disk: SimDisk, options: StoreOptions = OPTIONS) -> LogStore:
    events = StoreEvents(lambda _: None, lambda _: None, lambda _: None)
    return LogStore.open(disk, options, events, new_store_id=lambda: STORE_ID, threaded=False)


def test_a_file_header_is_these_bytes() -> None:
    header = encode_file_header(FileHeader(LOG_FILE, 7, 3, STORE_ID))
    assert header[:40] == bytes.fromhex(FILE_HEADER)
    assert header[40:44] == bytes.fromhex("84709881")
    assert header[44:] == bytes(FILE_HEADER_BYTES - 44)


def test_a_frame_is_these_bytes() -> None:
    planner = FramePlanner(10)
    planner.plan([(ENTRY, 6, 1, 1, b"")], 3, FILE_HEADER_BYTES, 0)
    frame = planner.plan(RECORDS, 3, 5000, 0)
    assert frame.encode(SEED, 10).hex() == (
        "4c565246"
        "8b000000"
        "0b00000000000000"
        "0a00000000000000"
        "0a00000000000000"
        "03000000"
        "01000000"
        "b9fea94c"
        "01000000010000000000000000000000000000000000000010000000"
        "02000000010000000500000000000000040000000000000010000000"
        "03000000010000000900000000000000050000000000000007000000"
        "06000000"
        "f4710db0"
        "75757575757575757575757575757575"
        "b3ed57bb"
        "02000000000000000000000000000000"
        "fa568672"
        "7061796c6f6164"
    )
    assert frame.offsets == [5000 + 44 + 3 * 28 + 4, 5000 + 152, 5000 + 172]


def test_what_was_encoded_is_scanned_back() -> None:
    planner = FramePlanner(1)
    first = planner.plan(RECORDS, 3, FILE_HEADER_BYTES, 0)
    second = planner.plan([], 3, FILE_HEADER_BYTES + first.size_bytes, 0)
    file = file_with(SimDisk(), first.encode(SEED, 0), second.encode(SEED, 1))
    found = list(scan_frames(file, SEED))
    assert [type(event) for event in found] == [ScannedFrame, ScannedFrame]
    one, two = found
    assert isinstance(one, ScannedFrame)
    assert isinstance(two, ScannedFrame)
    assert [(*head[:4], one.payload(head)) for head in one.heads()] == RECORDS
    assert [head.offset for head in one.heads()] == first.offsets
    assert one.bad_payloads(SEED) == []
    assert (two.synced, two.witness_from, list(two.witnesses)) == (1, 1, [1])


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    frame = FramePlanner(1).plan(RECORDS, 3, FILE_HEADER_BYTES, 0)
    data = frame.encode(SEED, 0)
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 1 << place % 8
        events = list(scan_frames(file_with(SimDisk(), bytes(broken)), SEED))
        frames = [event for event in events if isinstance(event, ScannedFrame)]
        assert not frames or frames[0].bad_payloads(SEED), f"byte {place}"


def test_a_frame_of_another_file_number_is_no_frame() -> None:
    frame = FramePlanner(1).plan(RECORDS, 2, FILE_HEADER_BYTES, 0)
    file = file_with(SimDisk(), frame.encode(seed_of(STORE_ID, 2), 0))
    assert [type(event) for event in scan_frames(file, SEED)] == [BadBytes]


def test_a_sound_frame_behind_garbage_is_found() -> None:
    frame = FramePlanner(8).plan(RECORDS, 3, FILE_HEADER_BYTES + 1000, 0)
    noise = Random(1).randbytes(996) + b"LVRF"
    file = file_with(SimDisk(), noise, frame.encode(SEED, 0))
    bad, good = scan_frames(file, SEED)
    assert isinstance(bad, BadBytes)
    assert isinstance(good, ScannedFrame)
    assert (bad.offset, good.sequence) == (FILE_HEADER_BYTES, 8)


@pytest.mark.parametrize("vote", [None, 0, 1, 2**64 + 5])
def test_votes_come_back(vote: int | None) -> None:
    assert decode_vote(encode_vote(vote)) == vote


def test_a_header_of_another_version_is_refused_by_name() -> None:
    disk = SimDisk()
    store = store_on(disk)
    batch = store.batch()
    batch.create_group(b"u" * 16)
    store.submit(batch)
    store.close()
    header = bytearray(disk.content("wal-0000000001")[:40])
    header[8] = 2
    import zlib

    file = disk.open("wal-0000000001")
    file.pwritev([bytes(header) + zlib.crc32(header).to_bytes(4, "little")], 0)
    with pytest.raises(FormatVersionError, match="wal-0000000001 has format version 2"):
        store_on(disk)


def test_bytes_that_are_no_header_are_none() -> None:
    assert decode_file_header(b"\0" * FILE_HEADER_BYTES, "x") is None
    assert decode_file_header(b"", "x") is None


def test_a_directory_of_two_stores_is_refused() -> None:
    disk = SimDisk()
    for number, store_id in ((1, b"a" * 16), (2, b"b" * 16)):
        file = disk.create(f"seg-{number:010d}", 0)
        file.pwritev([encode_file_header(FileHeader(SEGMENT_FILE, 1, number, store_id))], 0)
    with pytest.raises(StorageError, match="several stores"):
        store_on(disk)


def test_a_second_store_on_one_disk_is_refused() -> None:
    disk = SimDisk()
    store_on(disk)
    with pytest.raises(DirectoryInUseError):
        store_on(disk)


def test_an_entry_bigger_than_a_log_file_gets_a_file_of_its_size() -> None:
    disk = SimDisk()
    store = store_on(disk)
    big = Random(2).randbytes(5 * OPTIONS.wal_file_bytes)
    batch = store.batch()
    gid = batch.create_group(b"u" * 16)
    batch.append(gid, [StoredEntry(1, 1, b"small"), StoredEntry(2, 1, big)])
    batch.append(gid, [StoredEntry(3, 1, b"after")])
    store.submit(batch)
    store.close()
    again = store_on(disk)
    payloads = [entry.payload for entry in again.read(gid, 1, 3, bytes_max=1 << 30)]
    assert payloads == [b"small", big, b"after"]
