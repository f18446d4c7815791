"""Mistakes that would lose or invent data: each must be caught by the walk that tests the store."""

from collections.abc import Callable, Collection, Iterable, Iterator

import pytest

from queues.storage.errors import StorageError
from queues.storage.files import StoredFile
from queues.storage.frames import ENTRY, LOG_FILE, SNAP, RecordHead
from queues.storage.log_store import LogStore
from queues.storage.manifest import ListedFile, Manifest
from queues.storage.reclaim import Reclaimer
from queues.storage.recovery import Recovery, Scan
from queues.storage.replay import Replay, _Arrival
from queues.storage.state import State
from tests.storage.walk import BrokenPromiseError, run, run_damaged
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


def one_entry_too_many_moved_to_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    def final(self: Reclaimer, head: RecordHead) -> bool:
        group = self._store.state.groups.get(head.gid)
        return head.kind == SNAP or (
            head.kind == ENTRY and group is not None and head.index <= group.commit + 1
        )

    monkeypatch.setattr(Reclaimer, "_is_final", final)


# Those that only damage brings to light.


def file_boundaries_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "begin_file", lambda *_: None)

    def drop_stale(self: Replay, arrival: _Arrival) -> None:
        if arrival.frame.sequence == self._next:
            self._waiting = [each for each in self._waiting if each.file == arrival.file]

    monkeypatch.setattr(Replay, "_drop_stale", drop_stale)


def manifest_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Manifest, "_write", lambda *_, **__: None)


def segments_not_in_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Manifest.change

    def change(self: Manifest, added: Iterable[ListedFile], dropped: Collection[int]) -> None:
        real(self, [file for file in added if file.kind == LOG_FILE], dropped)

    monkeypatch.setattr(Manifest, "change", change)


def damage_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStore, "note_damage", lambda _: None)


def lost_logs_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "loss_noted", lambda *_: None)


def nobody_vouches_for_what_a_crash_left(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Scan.result

    def result(self: Scan) -> Recovery:
        recovery = real(self)
        recovery.unvouched = False
        return recovery

    monkeypatch.setattr(Scan, "result", result)


# With seeds that show it: pinned, for they are rare.
PLANTS_FOR_DAMAGE = {
    file_boundaries_not_heeded: [112, 958],
    manifest_not_written: range(50),
    segments_not_in_the_manifest: range(50),
    damage_not_durable: range(50),
    lost_logs_not_durable: range(50),
    nobody_vouches_for_what_a_crash_left: [153, 291, 321],
}

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
    one_entry_too_many_moved_to_segments,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert is_caught(run, range(SEEDS)), f"not noticed in {SEEDS} lives"


@pytest.mark.parametrize("plant", PLANTS_FOR_DAMAGE, ids=lambda plant: plant.__name__)
def test_a_bug_that_hides_damage_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert is_caught(run_damaged, PLANTS_FOR_DAMAGE[plant])


def is_caught(life: Callable[[int], object], seeds: Iterable[int]) -> bool:
    """By a promise that is seen to be broken. A store that trips over itself proves nothing."""
    for seed in seeds:
        try:
            life(seed)
        except BrokenPromiseError:
            return True
        except (AssertionError, LookupError, ValueError, StorageError):
            continue
    return False
