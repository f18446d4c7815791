"""Staged rows: invisible, held once promised, appended once; and where a cut through commits is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queues.stream.staging as staging_module
from queues.stream.participant import Decision, Marker, TransactionKey, Vote, WriterRows
from queues.stream.staging import Appended, StageAnswer, StagedChunk, Staging
from queues.stream.visibility import COMMITS_MAX, Visibility

KEY = TransactionKey("query", 0, 1)


def staged(staging, ref, writer="w", number=0, rows=2, at_ms=0, key=KEY):
    return staging.stage(key, writer, number, StagedChunk(ref, rows, 10), at_ms)


def marker(number, transaction, decision=Decision.COMMIT, writers=("w",), key=KEY):
    return Marker(number, transaction, key, decision, writers)


def prepare(staging, transaction=1, writers=(("w", 2),), key=KEY):
    return staging.prepare(transaction, key, [WriterRows(*each) for each in writers], 0)


def test_a_chunk_that_comes_twice_is_staged_once():
    staging = Staging()
    assert staged(staging, 1) is StageAnswer.STAGED
    assert staged(staging, 2) is StageAnswer.DUPLICATE
    assert staged(staging, 3, number=2) is StageAnswer.OUT_OF_ORDER
    assert staged(staging, 4, number=1) is StageAnswer.STAGED
    assert list(staging.refs()) == [1, 4]


def test_rows_are_appended_when_they_are_committed_in_the_order_that_was_asked_for():
    staging = Staging()
    staged(staging, 1, "b")
    staged(staging, 2, "a")
    staged(staging, 3, "a", number=1, rows=1)
    assert prepare(staging, writers=[("a", 3), ("b", 2)]) is Vote.YES
    marked = staging.mark([marker(1, 1)], 100)
    assert marked.appended == [Appended(2, 100, 2), Appended(3, 102, 1), Appended(1, 103, 2)]
    assert not marked.dropped
    assert not list(staging.refs())
    assert staging.size_bytes == 0


def test_a_marker_that_comes_twice_appends_once():
    staging = Staging()
    staged(staging, 1)
    prepare(staging)
    staging.mark([marker(1, 1)], 100)
    assert staging.mark([marker(1, 1)], 102) == ([], [])
    assert staging.strays == 0


def test_writers_that_were_not_asked_for_are_dropped_by_the_commit():
    staging = Staging()
    staged(staging, 1)
    staged(staging, 2, "failed attempt")
    prepare(staging)
    marked = staging.mark([marker(1, 1)], 0)
    assert [each.ref for each in marked.appended] == [1]
    assert marked.dropped == [2]


def test_an_abort_drops_its_writers_prepared_or_not_and_no_others():
    staging = Staging()
    for ref, writer in enumerate("abc"):
        staged(staging, ref, writer)
    prepare(staging, 1, [("a", 2)])
    marked = staging.mark([marker(1, 1, Decision.ABORT, ("a", "b"))], 0)
    assert not marked.appended
    assert sorted(marked.dropped) == [0, 1]
    assert list(staging.refs()) == [2]


@pytest.mark.parametrize(
    "asked", [[("nobody", 1)], [("w", 1)], [("w", 3)], [("w", 2), ("nobody", 1)]]
)
def test_the_vote_is_no_unless_exactly_those_rows_are_here(asked):
    staging = Staging()
    staged(staging, 1)
    assert prepare(staging, writers=asked) is Vote.MISSING
    assert not staging.held
    assert prepare(staging, 2) is Vote.YES
    assert prepare(staging, 2) is Vote.YES
    assert prepare(staging, 3) is Vote.MISSING


def test_rows_of_another_epoch_do_not_count():
    staging = Staging()
    staged(staging, 1)
    assert prepare(staging, key=KEY._replace(epoch=1)) is Vote.MISSING


def test_what_was_promised_neither_expires_nor_is_discarded():
    staging = Staging()
    staged(staging, 1)
    prepare(staging)
    assert staging.expire(10**9) == []
    assert staging.discard(KEY, ["w"]) == []
    assert [each.ref for each in staging.mark([marker(1, 1)], 0).appended] == [1]


def test_stale_rows_expire_unless_something_is_added_to_their_transaction():
    staging = Staging()
    staged(staging, 1, "a", at_ms=10)
    staged(staging, 2, "b", at_ms=20)
    other = KEY._replace(sequence=2)
    staged(staging, 3, at_ms=10, key=other)
    staged(staging, 4, at_ms=10, key=KEY._replace(sequence=3))
    assert staging.needs_renewal(other, 11)
    staging.renew(other, 20)
    assert not staging.needs_renewal(other, 11)
    assert not staging.needs_renewal(KEY._replace(sequence=9), 11)
    assert staging.expire(20) == [4]
    assert sorted(staging.expire(21)) == [1, 2, 3]
    assert staging.size_bytes == 0


def test_discarded_rows_are_gone():
    staging = Staging()
    staged(staging, 1, "a")
    staged(staging, 2, "b")
    assert staging.discard(KEY, ["a", "nobody"]) == [1]
    assert prepare(staging, writers=[("a", 2)]) is Vote.MISSING


def test_another_attempt_at_the_transaction_supersedes_the_one_before():
    staging = Staging()
    staged(staging, 1, "first/a")
    staged(staging, 2, "first/b")
    staged(staging, 3, "first/c", key=KEY._replace(sequence=2))
    assert staging.superseded(KEY, "first/c") == []
    assert staging.superseded(KEY, "second/a") == ["first/a", "first/b"]
    assert staging.size_of(KEY, ["first/a", "first/b"]) == 20


def test_writers_of_no_attempt_supersede_nobody():
    staging = Staging()
    staged(staging, 1, "a")
    assert staging.superseded(KEY, "b") == []
    assert staging.superseded(KEY._replace(sequence=9), "b") == []


def test_a_prepare_that_came_after_its_marker_is_forgotten():
    staging = Staging()
    staging.mark([marker(1, 1, Decision.ABORT)], 0)
    staged(staging, 7)
    prepare(staging, 1)
    assert staging.forget(1) == [7]
    assert staging.forget(1) == []
    assert not staging.held


def test_a_commit_of_what_is_not_held_is_counted():
    staging = Staging()
    assert staging.mark([marker(1, 1)], 0) == ([], [])
    assert staging.strays == 1


def test_there_are_limits(monkeypatch):
    monkeypatch.setattr(staging_module, "CHUNKS_MAX", 1)
    staging = Staging()
    staged(staging, 1)
    assert staged(staging, 2, number=1) is StageAnswer.FULL
    monkeypatch.setattr(staging_module, "CHUNKS_MAX", 9)
    monkeypatch.setattr(staging_module, "STAGED_BYTES_MAX", 20)
    assert staged(staging, 2, number=1) is StageAnswer.STAGED
    assert staged(staging, 3, number=2) is StageAnswer.FULL
    staging.discard(KEY, ["w"])
    assert staged(staging, 3) is StageAnswer.STAGED


def test_a_checkpoint_is_the_whole_state():
    staging = Staging()
    staged(staging, 1, "a", at_ms=3)
    staged(staging, 2, "b")
    staged(staging, 3, key=KEY._replace(sequence=2))
    prepare(staging, 4, [("a", 2)])
    prepare(staging, 5, [("w", 2)], key=KEY._replace(sequence=2))
    staging.mark([marker(6, 5, key=KEY._replace(sequence=2))], 50)
    copy = Staging.decode(staging.encode())
    assert copy.encode() == staging.encode()
    assert (copy.decided, copy.size_bytes) == (6, 20)
    assert copy.visibility.end(2, 60) == 50
    assert copy.mark([marker(7, 4)], 60) == staging.mark([marker(7, 4)], 60)


def test_a_reader_waits_for_no_transaction_that_is_everywhere():
    visibility = Visibility()
    visibility.committed(1, 10)
    visibility.committed(4, 20)
    assert [visibility.end(settled, 30) for settled in (0, 1, 3, 4)] == [10, 20, 20, 30]


def test_of_many_commits_only_the_last_are_remembered():
    visibility = Visibility()
    for number in range(1, COMMITS_MAX + 4):
        visibility.committed(number, 10 * number)
    assert visibility.forgotten == 3
    assert [visibility.end(settled, 9999) for settled in (2, 3, 4)] == [None, 40, 50]
    copy = Visibility.of_rows(*visibility.rows())
    assert copy.rows() == visibility.rows()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=20),
    st.integers(0, 40),
)
def test_a_cut_holds_all_commits_up_to_it_and_none_above(commits, asked):
    visibility = Visibility()
    log = []  # the number of the decision of each record
    number = 0
    for step, rows in commits:
        number += step
        visibility.committed(number, len(log))
        log += [number] * rows
    end = visibility.end(asked, len(log))
    assert log[:end] == [each for each in log if each <= asked]
