"""Each record of an idempotent producer is appended once, in order, and never from an old epoch."""

from hypothesis import given, settings
from hypothesis import strategies as st

import queues.stream.producers as producers_module
from queues.stream.producers import (
    BATCHES_MAX,
    EPOCH_MAX,
    PRODUCERS_MAX,
    Answer,
    ProducerId,
    ProducerIds,
    ProducerTable,
)


def test_numbers_are_given_once_and_a_name_keeps_its_own():
    ids = ProducerIds()
    given = [ids.allocate("", 0), ids.allocate("a", 0), ids.allocate("b", 0), ids.allocate("a", 1)]
    assert given == [ProducerId(1, 0), ProducerId(2, 0), ProducerId(3, 0), ProducerId(2, 1)]


def test_ids_survive_a_checkpoint():
    ids = ProducerIds()
    ids.allocate("a", 5)
    ids = ProducerIds.decode(ids.encode())
    assert ids.allocate("a", 6) == ProducerId(1, 1)
    assert ids.allocate("", 6) == ProducerId(2, 0)


def test_a_forgotten_name_gets_a_number_that_nobody_had():
    ids = ProducerIds()
    ids.allocate("old", 5)
    ids.allocate("new", 9)
    ids.allocate("old but used again", 1)
    ids.allocate("old", 10)
    ids.expire(10)
    assert ids.allocate("old", 11) == ProducerId(1, 2)
    assert ids.allocate("new", 11).pid == 4


def test_a_name_out_of_epochs_gets_a_new_number():
    ids = ProducerIds()
    ids.allocate("a", 0)
    ids._named["a"] = (ProducerId(1, EPOCH_MAX), 0)
    assert ids.allocate("a", 0) == ProducerId(2, 0)


def test_there_is_a_limit_to_names(monkeypatch):
    monkeypatch.setattr(producers_module, "NAMES_MAX", 2)
    ids = ProducerIds()
    assert [ids.allocate(name, 0) is None for name in "abca"] == [False, False, True, False]


def applied(table, pid, epoch, first, count, offset=0, at_ms=0):
    return table.apply(pid, epoch, first, count, offset=offset, at_ms=at_ms)


def test_a_newer_epoch_fences_those_before_it():
    table = ProducerTable()
    applied(table, 1, 0, 0, 3)
    applied(table, 1, 2, 0, 3)
    assert applied(table, 1, 0, 3, 1).answer is Answer.FENCED
    assert applied(table, 1, 1, 0, 1).answer is Answer.FENCED
    assert applied(table, 1, 2, 3, 1).answer is Answer.ACCEPTED


def test_a_new_epoch_starts_at_nought():
    table = ProducerTable()
    applied(table, 1, 0, 0, 3)
    verdict = applied(table, 1, 1, 3, 1)
    assert (verdict.answer, verdict.expected) == (Answer.OUT_OF_ORDER, 0)
    assert applied(table, 1, 0, 3, 1).answer is Answer.ACCEPTED


def test_a_duplicate_is_told_where_it_went_as_long_as_that_is_known():
    table = ProducerTable()
    for number in range(BATCHES_MAX + 1):
        applied(table, 1, 0, 10 * number, 10, offset=100 * number)
    assert table.check(1, 0, 10, 10).offset == 100
    assert table.check(1, 0, 13, 2).offset == 103
    forgotten = table.check(1, 0, 0, 10)
    assert (forgotten.answer, forgotten.offset) == (Answer.DUPLICATE, None)


def test_a_batch_that_is_half_known_says_where_the_new_half_begins():
    table = ProducerTable()
    applied(table, 1, 0, 0, 10)
    verdict = applied(table, 1, 0, 5, 10)
    assert (verdict.answer, verdict.expected) == (Answer.OUT_OF_ORDER, 10)


def test_idle_producers_are_forgotten_by_the_time_in_the_log():
    table = ProducerTable()
    applied(table, 1, 0, 0, 1, at_ms=10)
    applied(table, 2, 0, 0, 1, at_ms=11)
    applied(table, 1, 0, 1, 1, at_ms=20)
    table.expire(20)
    assert len(table) == 1
    assert table.check(1, 0, 1, 1).answer is Answer.DUPLICATE
    assert table.check(2, 0, 1, 1).answer is Answer.OUT_OF_ORDER


def test_a_full_table_refuses_newcomers_and_forgets_nobody():
    table = ProducerTable()
    for pid in range(PRODUCERS_MAX):
        applied(table, pid, 0, 0, 1)
    assert applied(table, PRODUCERS_MAX, 0, 0, 1).answer is Answer.FULL
    assert applied(table, 0, 0, 0, 1).answer is Answer.DUPLICATE
    assert applied(table, 0, 0, 1, 1).answer is Answer.ACCEPTED


BATCHES = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 12), st.integers(1, 4)),
    max_size=60,
)


@settings(max_examples=200)
@given(BATCHES)
def test_the_log_has_every_accepted_record_once_and_in_order(batches):
    table = ProducerTable()
    log = []  # (pid, epoch, sequence)
    for pid, epoch, first, count in batches:
        rows = [(pid, epoch, first + n) for n in range(count)]
        newest = max((e for p, e, _ in log if p == pid), default=-1)
        following = sum(1 for p, e, _ in log if (p, e) == (pid, epoch))
        expected = table.check(pid, epoch, first, count)
        verdict = applied(table, pid, epoch, first, count, offset=len(log))
        assert verdict == expected
        if epoch < newest:
            assert verdict.answer is Answer.FENCED
        elif first == following:
            assert verdict.answer is Answer.ACCEPTED
            log += rows
        elif first + count <= following:
            assert verdict.answer is Answer.DUPLICATE
            assert verdict.offset is None or log[verdict.offset] == rows[0]
        else:
            assert verdict.answer is Answer.OUT_OF_ORDER
            assert verdict.expected == following
        table = ProducerTable.decode(table.encode())
