"""The same store on real files, with its thread: killed, and read while it writes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from queues.storage.check import check_directory
from queues.storage.disk import RealDisk
from queues.storage.errors import DirectoryInUseError, OutOfSpaceError
from queues.storage.log_store import LogStore, StoredEntry
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer
from tests.storage import writing_child

OPTIONS = StoreOptions(wal_file_bytes=256 * 1024, free_bytes_min=0, reserve_bytes=8192)
WAIT_S = 20
KILLS = 4
ROOT = Path(__file__).parents[2]


class Host:
    """Waits for submits to become durable."""

    def __init__(self, directory: Path) -> None:
        self.durable: list[int] = []
        self.failures: list[BaseException] = []
        self._told = Event()
        events = StoreEvents(self._durable, self.failures.append, lambda full: None)
        self.store = LogStore.open(
            RealDisk(directory), OPTIONS, events, new_store_id=lambda: os.urandom(16)
        )

    def _durable(self, number: int) -> None:
        self.durable.append(number)
        self._told.set()

    def wait_for(self, number: int) -> None:
        while self.store.durable < number:
            assert self._told.wait(WAIT_S)
            self._told.clear()


def test_what_was_durable_is_there_after_a_restart(tmp_path: Path) -> None:
    host = Host(tmp_path / "new" / "data")
    batch = host.store.batch()
    gid = batch.create_group(b"u" * 16)
    batch.set_hard(gid, 3, 8)
    batch.append(gid, [StoredEntry(i, 3, b"%d" % i * 500) for i in range(1, 2001)])
    batch.snapshot(gid, 7, 2, b"state")
    host.wait_for(host.store.submit(batch))
    host.store.close()
    again = Host(tmp_path / "new" / "data")
    view = again.store.group(gid)
    assert (view.uuid, view.term, view.vote, view.last_index) == (b"u" * 16, 3, 8, 2000)
    assert again.store.read_snapshot(gid) == b"state"
    entries = again.store.read(gid, 1, 2000, bytes_max=1 << 30)
    assert [e.payload for e in entries] == [b"%d" % i * 500 for i in range(1, 2001)]
    assert len(again.store.read(gid, 1, 2000, bytes_max=10_000)) < 20
    again.store.close()
    assert check_directory(RealDisk(tmp_path / "new" / "data")).sound


def test_a_second_store_on_one_directory_is_refused_by_name(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with pytest.raises(DirectoryInUseError, match=f"{tmp_path} is in use by process {os.getpid()}"):
        Host(tmp_path)
    with pytest.raises(DirectoryInUseError):
        check_directory(RealDisk(tmp_path))
    host.store.close()
    Host(tmp_path).store.close()


def test_submits_are_reported_in_order_and_only_once(tmp_path: Path) -> None:
    host = Host(tmp_path)
    batch = host.store.batch()
    gid = batch.create_group(b"u" * 16)
    host.store.submit(batch)
    for index in range(1, 501):
        batch = host.store.batch()
        batch.append(gid, [StoredEntry(index, 1, b"x" * 100)])
        last = host.store.submit(batch)
    host.wait_for(last)
    assert host.durable == sorted(set(host.durable))
    assert host.durable[-1] == last == 501
    host.store.close()


def test_reading_goes_on_beside_writing_and_reclaiming(tmp_path: Path) -> None:
    host = Host(tmp_path)
    store = host.store
    batch = store.batch()
    gid = batch.create_group(b"u" * 16)
    batch.append(gid, [StoredEntry(i, 1, b"old %d" % i * 100) for i in range(1, 51)])
    store.submit(batch)
    store.committed(gid, 50)
    stop, wrong = Event(), []

    def read() -> None:
        while not stop.is_set():
            entries = store.read(gid, 1, 50, bytes_max=1 << 20)
            if [e.payload for e in entries] != [b"old %d" % i * 100 for i in range(1, 51)]:
                wrong.append(entries)

    def reclaim() -> None:
        reclaimer = Reclaimer(store)
        while not stop.is_set():
            reclaimer.step()

    threads = [Thread(target=read), Thread(target=reclaim)]
    for thread in threads:
        thread.start()
    for index in range(51, 2051):
        batch = store.batch()
        batch.append(gid, [StoredEntry(index, 1, b"x" * 2000)])
        last = store.submit(batch)
        store.committed(gid, index)
        store.release(gid, [(51, index - 5)])
        if index % 50 == 0:
            host.wait_for(last)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.statistics().segments >= 1
    assert host.failures == []
    store.close()


def test_no_room_for_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    with pytest.raises(OutOfSpaceError):
        disk.create("huge", 1 << 60)
    assert disk.list() == []
    assert disk.free_bytes() > 0


def test_a_killed_writer_leaves_all_that_it_reported(tmp_path: Path) -> None:
    for kill in range(KILLS):
        promised = _write_until_killed(tmp_path, lines=3000 + 1500 * kill)
        host = Host(tmp_path)
        assert host.store.recovery.findings == []
        for view in list(host.store.groups()):
            seen = [index for gid, index in promised if gid == view.gid]
            entries = host.store.read(view.gid, 0, 1 << 60, bytes_max=1 << 40)
            assert all(e.payload == writing_child.payload(view.gid, e.index) for e in entries)
            there = {entry.index for entry in entries}
            slack = writing_child.KEEP - 3 * (writing_child.AHEAD + 1)
            needed = [1, *[index for index in seen if index > max(seen) - slack]]
            assert [index for index in needed if index not in there] == []
        host.store.close()


def _write_until_killed(directory: Path, lines: int) -> list[tuple[int, int]]:
    """Let a child write until it has reported so many entries; what it reported up to its end."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.writing_child", str(directory)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    reported = [child.stdout.readline() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    reported += child.stdout.readlines()
    child.wait(WAIT_S)
    child.stdout.close()
    whole = [line for line in reported if line.endswith(b"\n")]
    assert len(whole) >= lines
    return [(int(gid), int(index)) for gid, index in map(bytes.split, whole)]
