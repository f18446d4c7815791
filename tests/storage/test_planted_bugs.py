"""Mistakes that would lose or invent data: each must be caught by the walk that tests the store."""

from collections.abc import Callable, Iterator

import pytest

from queues.storage.files import StoredFile
from queues.storage.frames import ENTRY, SNAP, RecordHead
from queues.storage.reclaim import Reclaimer
from queues.storage.recovery import Scan
from queues.storage.replay import Replay
from tests.storage.walk import run
from tests.support.simdisk import SimDisk, SimFile

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = 150


def durable_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimFile, "datasync", lambda self: None)


def new_names_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimDisk, "sync_directory", lambda self: None)


def segments_named_before_they_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimFile.datasync

    def datasync(self: SimFile) -> None:
        if not self._name.endswith(".tmp"):
            real(self)

    monkeypatch.setattr(SimFile, "datasync", datasync)


def files_dropped_with_live_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reclaimer, "_is_free", lambda self, file: file.live_bytes < 2000)


def files_dropped_before_what_replaces_them_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Reclaimer._drop

    class Hasty(Reclaimer):
        def _drop(self, files: list[StoredFile]) -> Iterator[bool]:
            submitted, self._store.submitted = self._store.submitted, 0
            job = real(self, files)
            first = next(job, True)
            self._store.submitted = submitted
            yield first
            yield from job

    monkeypatch.setattr(Reclaimer, "_drop", Hasty._drop)


def log_files_dropped_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(self: Reclaimer) -> list[StoredFile]:
        files = self._sealed_logs() + self._store.state.files.segments()
        return [file for file in files if self._is_free(file)]

    monkeypatch.setattr(Reclaimer, "_dead_files", dead)


def uncommitted_entries_moved_to_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    def final(self: Reclaimer, head: RecordHead) -> bool:
        return head.kind in (ENTRY, SNAP)

    monkeypatch.setattr(Reclaimer, "_is_final", final)


def what_only_the_kernel_had_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scan, "_write_unsynced_again", lambda self: None)


def torn_writes_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Replay) -> None:
        self._settle()
        self.findings.clear()

    monkeypatch.setattr(Replay, "end", end)


def payloads_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queues.storage.frames.ScannedFrame.bad_payloads", lambda *_: [])


def sequences_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Scan.result

    def result(self: Scan) -> object:
        self.state.next_sequence = 1
        return real(self)

    monkeypatch.setattr(Scan, "result", result)


PLANTS = [
    durable_before_the_sync,
    new_names_not_synced,
    segments_named_before_they_are_synced,
    files_dropped_with_live_entries,
    files_dropped_before_what_replaces_them_is_durable,
    log_files_dropped_out_of_order,
    uncommitted_entries_moved_to_segments,
    what_only_the_kernel_had_not_written_again,
    torn_writes_not_cut,
    payloads_not_checked,
    sequences_used_twice,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            run(seed)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} was not noticed in {SEEDS} lives")
