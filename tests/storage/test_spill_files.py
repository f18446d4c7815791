"""Temporary files: pieces never overlap, and a file goes when nothing is left in it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.storage.disk import RealDisk
from queues.storage.spill_files import SpillFiles
from tests.support.simdisk import SimDisk


def put(files: SpillFiles, data: bytes) -> int:
    place = files.place(len(data))
    file, offset = files.locate(place)
    file.pwritev([data], offset)
    return place


def get(files: SpillFiles, place: int, length: int) -> bytes:
    file, offset = files.locate(place)
    return file.pread(length, offset)


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 9)), max_size=80))
def test_every_piece_keeps_its_bytes_until_it_is_given_back(steps: list[tuple[int, int]]) -> None:
    files = SpillFiles(SimDisk(), file_bytes=100)
    held: dict[int, bytes] = {}
    for number, (length, choice) in enumerate(steps):
        if choice < 6 or not held:
            data = bytes([number]) * length
            place = put(files, data)
            assert place not in held
            held[place] = data
        else:
            place = list(held)[length % len(held)]
            files.free(place, len(held.pop(place)))
        assert all(get(files, place, len(data)) == data for place, data in held.items())
        assert files.live_bytes == sum(map(len, held.values()))
        assert len(files) <= len(held)
    for place, data in held.items():
        files.free(place, len(data))
    assert len(files) == 0


def test_a_file_has_no_name_and_gives_its_space_back(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    (tmp_path / "spill-0000000007").write_bytes(b"left behind")
    files = SpillFiles(disk, file_bytes=1000)
    places = [put(files, b"x" * 400) for _ in range(5)]
    assert disk.list() == []
    assert len(files) == 3
    files.free(places[0], 400)
    assert len(files) == 3
    files.free(places[1], 400)
    assert len(files) == 2
    assert get(files, places[4], 400) == b"x" * 400
    files.close()
    assert len(files) == 0


def test_a_piece_larger_than_a_file_gets_one_of_its_own() -> None:
    files = SpillFiles(SimDisk(), file_bytes=100)
    first, large, last = put(files, b"a"), put(files, b"b" * 1000), put(files, b"c")
    assert len(files) == 3
    assert get(files, large, 1000) == b"b" * 1000
    assert (get(files, first, 1), get(files, last, 1)) == (b"a", b"c")


def test_want_of_room_takes_nothing_from_what_is_there() -> None:
    disk = SimDisk()
    files = SpillFiles(disk, file_bytes=100)
    place = put(files, b"kept")
    disk.capacity_bytes = 0
    with pytest.raises(OSError, match="no room"):
        put(files, b"x" * 50)
    assert get(files, place, 4) == b"kept"
