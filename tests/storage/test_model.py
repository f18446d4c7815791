"""Anything in any order, with crashes: what was reported durable is there, nothing is invented."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from queues.storage.manifest import GROWTH_BYTES
from tests.storage.walk import OPTIONS, Walk, run, run_damaged
from tests.support.simdisk import Fault, input_output_error

SEEDS = st.integers(0, 2**16)


class StoreMachine(RuleBasedStateMachine):
    """Hypothesis chooses what happens; each step draws the chance that it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk(0)
        self.walk.create()

    @rule(seed=SEEDS)
    def write(self, seed: int) -> None:
        self.walk.random = Random(seed)
        self.walk.write()

    @rule()
    def create(self) -> None:
        self.walk.create()

    @rule()
    def flush(self) -> None:
        self.walk.flush()

    @rule(seed=SEEDS)
    def commit_and_release(self, seed: int) -> None:
        self.walk.random = Random(seed)
        self.walk.commit()
        self.walk.release()

    @rule(seed=SEEDS)
    def snapshot(self, seed: int) -> None:
        self.walk.random = Random(seed)
        self.walk.snapshot()

    @precondition(lambda self: len(self.walk.groups) > 1)
    @rule(seed=SEEDS)
    def delete(self, seed: int) -> None:
        self.walk.random = Random(seed)
        self.walk.delete()

    @rule(steps=st.integers(1, 30))
    def reclaim(self, steps: int) -> None:
        self.walk.reclaim(steps)

    @rule()
    def read(self) -> None:
        self.walk.check_reads()

    @rule(seed=SEEDS)
    def crash(self, seed: int) -> None:
        self.walk.random = Random(seed)
        self.walk.crash()
        self.walk.check_reads()

    @rule()
    def stop(self) -> None:
        self.walk.stop()

    @rule()
    def kill(self) -> None:
        self.walk.kill()


def test_the_store_is_its_model() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=60, stateful_step_count=60)
    )


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_long_lives_with_crashes_keep_every_promise(start: int) -> None:
    for seed in range(start, start + 100):
        run(seed)


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_whoever_lost_something_is_called_damaged_and_stays_so(start: int) -> None:
    hurt = lost = spared = 0
    for seed in range(start, start + 100):
        walk = run_damaged(seed)
        hurt += bool(walk.hurt)
        lost += walk.lost
        spared += bool(walk.groups)
    assert min(hurt, lost, spared) > 30


def test_reads_that_fail_now_and_then_cost_nothing_but_the_attempt() -> None:
    """A latent error of the disk, while the store is opened or at work."""
    failed = 0
    for seed in range(40):
        walk = Walk(seed)
        for _ in range(3):
            for _ in range(walk.random.randint(1, 100)):
                walk.step()
            walk.disk.fault = reads_fail_after(walk.random.randint(1, 12))
            walk.fails()
            failed += len(walk.failures)
            walk.disk.kill()
            walk.disk.fault = reads_fail_after(walk.random.randint(0, 12))
            try:
                walk.attempt()
            except OSError:
                failed += 1
            walk.disk.kill()
            walk.kill()
            walk.check_reads()
    assert failed > 40


def reads_fail_after(count: int) -> Fault:
    left = count

    def fault(operation: str, name: str) -> None:
        nonlocal left
        left -= operation == "read"
        if operation == "read" and left < 0:
            input_output_error(operation, name)

    return fault


@pytest.mark.parametrize("operation", ["write", "sync", "sync directory", "rename", "create"])
def test_a_failing_disk_stops_the_store_and_loses_nothing(operation: str) -> None:
    failed = 0
    for seed in range(12):
        walk = Walk(seed)
        for _ in range(walk.random.randint(1, 150)):
            walk.step()

        def fault(what: str, name: str) -> None:
            if what == operation:
                input_output_error(what, name)

        walk.disk.fault = fault
        walk.fails()
        assert len(walk.failures) <= 1
        failed += len(walk.failures)
        walk.disk.fault = None
        durable = walk.durable
        walk.flush()  # the disk works again, and it is too late
        assert walk.durable == durable or not walk.failures
        walk.crash()
    assert failed


def test_after_everything_is_released_four_log_files_are_left() -> None:
    for seed in range(5):
        walk = Walk(seed, replace(OPTIONS, wal_file_bytes=64 * 1024))
        for _ in range(600):
            walk.step()
        walk.flush()
        assert walk.store.wal.active.number > 4
        for gid, group in walk.groups.items():
            walk.store.committed(gid, group.last)
            walk.store.release(gid, [(1, group.last)])
            group.released |= set(group.log)
        while walk.reclaimer.step():
            walk.flush()
        live = walk.store.statistics().live_bytes  # registrations, hard states, snapshots
        most = 4 * walk.options.wal_file_bytes + walk.options.reserve_bytes + 2 * GROWTH_BYTES
        assert walk.disk.used_bytes() <= most + 2 * live
        walk.crash()


def test_one_old_entry_does_not_pin_what_came_after_it() -> None:
    walk = Walk(1)
    gid = walk.create()
    peak = 0
    for _ in range(300):
        walk.write()
        walk.flush()
        group = walk.groups[gid]
        group.commit = group.last
        walk.store.committed(gid, group.commit)
        walk.store.release(gid, [(2, group.last)])
        group.released |= set(group.log) - {1}
        while walk.reclaimer.step():
            walk.flush()
        peak = max(peak, walk.disk.used_bytes())
    assert group.last > 200
    assert peak <= 6 * walk.options.wal_file_bytes
    walk.crash()
    assert walk.store.entries(gid)[0].index == 1
