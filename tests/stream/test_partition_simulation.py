"""A partition through crashes of log and segments at any moment: what counted, counts for ever."""

import pytest

from queues.stream.keeper import Keeper
from queues.stream.options import StreamOptions
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.segments import Segments
from queues.stream.verdict import Verdict
from tests.durability.fake_log import FakeLog
from tests.stream.life import Life, run
from tests.stream.walk import PowerFailedError, fail_after

KEPT = StreamOptions(segment_bytes=3000)
RETAINED = StreamOptions(segment_bytes=2000, max_age_ms=300, max_bytes=9000)
COMPACTED = StreamOptions(segment_bytes=2000, compact=True, tombstone_ms=100)


@pytest.mark.parametrize(
    "options", [KEPT, RETAINED, COMPACTED], ids=["kept", "retained", "compacted"]
)
def test_long_lives_with_crashes_keep_every_promise(options):
    for seed in range(60):
        run(seed, options)


def script(life, moment=lambda: None):
    """Records in, through the log, to segments, with retention; a `moment` after each step."""
    for turn in range(14):
        actions = [life.publish, life.send, life.submit, lambda: life.log.commit(1), life.read]
        actions += [life.log.commit, life.work, life.submit, life.log.commit, life.work]
        actions += [life.tick, life.work] if turn % 4 == 3 else []
        for action in actions:
            action()
            moment()


def test_power_may_fail_at_every_operation_of_the_disk():
    options = StreamOptions(segment_bytes=1000, max_bytes=3500)
    whole = Life(5, options)
    whole.disk.log.clear()
    script(whole)
    operations = len(whole.disk.log)
    assert operations > 50
    assert whole.partition.first_offset > 0
    for count in range(operations):
        life = Life(5, options)
        fail_after(life.disk, count)
        with pytest.raises(PowerFailedError):
            script(life)
        go_on(life, count)


def test_power_may_fail_between_any_two_steps_of_log_and_segments():
    options = StreamOptions(segment_bytes=1000, max_bytes=3500)
    moments = 0

    def count_moment():
        nonlocal moments
        moments += 1

    script(Life(5, options), count_moment)
    for count in range(moments):
        left = count

        def fail():
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerFailedError

        life = Life(5, options)
        with pytest.raises(PowerFailedError):
            script(life, fail)
        go_on(life, count)


def go_on(life, seed):
    """After the crash the partition works, and after another one too."""
    life.random.seed(seed)
    life.crash()
    life.publish()
    life.settle_down()
    life.check()
    life.crash()


# Planted bugs


def checkpoint_before_the_move(monkeypatch):
    real = Keeper._move

    def move(self):
        end = self._segments.end
        told = end._replace(end=self._next_offset)
        self._written(
            self._applied,
            len(self._entries),
            self._entries_bytes,
            self._next_offset,
            self._producers.checkpoint(),
            told,
        )
        self._busy = False
        real(self)

    monkeypatch.setattr(Keeper, "_move", move)


def tail_dropped_before_it_is_written(monkeypatch):
    real = Keeper._move

    def move(self):
        real(self)
        self._tail.drop_before(self._next_offset)

    monkeypatch.setattr(Keeper, "_move", move)


def producers_of_a_later_time_in_the_checkpoint(monkeypatch):
    real = Keeper._written

    def written(self, index, entries, size, next_offset, producers, end):
        real(self, index, entries, size, next_offset, self._producers.checkpoint(), end)

    monkeypatch.setattr(Keeper, "_written", written)


def producers_forgotten(monkeypatch):
    monkeypatch.setattr(IdempotentProducers, "restore", lambda self, state: None)


def told_before_it_is_committed(monkeypatch):
    real = StreamPartition.next_entry

    def next_entry(self):
        entry = real(self)
        if entry is not None:
            for _, receipt in self._proposed[-1].receipts:
                receipt.appended(Verdict.NEW, self.next_offset)
            self._proposed[-1].receipts.clear()
        return entry

    monkeypatch.setattr(StreamPartition, "next_entry", next_entry)


def segments_not_synced(monkeypatch):
    real = Segments._write

    def write(self, chunks, headers):
        file = self._growing.file
        sync = file.datasync
        file.datasync = lambda: None
        try:
            real(self, chunks, headers)
        finally:
            file.datasync = sync

    monkeypatch.setattr(Segments, "_write", write)


def entries_released_before_the_checkpoint_is_durable(monkeypatch):
    real = FakeLog.checkpoint

    def checkpoint(self, index, state, then):
        real(self, index, state, lambda: None)
        then()

    monkeypatch.setattr(FakeLog, "checkpoint", checkpoint)


PLANTS = [
    checkpoint_before_the_move,
    tail_dropped_before_it_is_written,
    producers_of_a_later_time_in_the_checkpoint,
    producers_forgotten,
    told_before_it_is_committed,
    segments_not_synced,
    entries_released_before_the_checkpoint_is_durable,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(150):
        try:
            run(seed, KEPT)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} was not noticed")
