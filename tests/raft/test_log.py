"""The log in memory against a plain list of (term, payload)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.raft.log import RaftLog
from queues.raft.messages import Entry

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "append", "append", "term", "truncate", "release", "compact")),
        st.integers(0, 20),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(STEPS)
def test_the_log_is_what_a_list_would_be(steps):
    log, model, term, low = RaftLog(), [(0, b"")], 1, 0  # model[i] is index i
    for step, number in steps:
        if step == "append":
            payload = b"x" * number
            assert log.append(term, payload) == len(model)
            model.append((term, payload))
        elif step == "term":
            term += 1
        elif step == "truncate":
            index = len(model) - number
            if index > max(log.offset, low):
                if index < len(model):
                    log.truncate(index)
                    del model[index:]
                term += 1
        else:
            index = min(log.offset + number, len(model) - 1)
            low = max(low, index)
            log.release(index) if step == "release" else log.compact(index)
        check(log, model)


def check(log, model):
    assert log.last == len(model) - 1
    assert log.last_term == model[-1][0]
    for index in range(log.offset, log.last + 1):
        assert log.term_at(index) == model[index][0]
        assert log.matches(index, model[index][0])
        assert not log.matches(index, model[index][0] + 1)
    held = log.held(log.held_from, log.last)
    assert [(entry.index, entry.term, entry.payload) for entry in held] == [
        (index, *model[index]) for index in range(log.held_from, log.last + 1)
    ]
    assert log.held_bytes == sum(len(entry.payload) for entry in held)


def recovered(*terms):
    return RaftLog(0, 0, [(place + 1, term) for place, term in enumerate(terms)], len(terms))


@pytest.mark.parametrize(
    ("index", "term", "hint"),
    [
        (6, 4, (6, 4)),
        (9, 9, (6, 4)),
        (6, 3, (3, 1)),
        (5, 1, (3, 1)),
        (2, 1, (2, 1)),
        (6, 0, (0, 0)),
    ],
)
def test_the_hint_is_the_last_place_that_may_match(index, term, hint):
    assert recovered(1, 1, 1, 4, 4, 4).hint(index, term) == hint


@pytest.mark.parametrize(
    ("terms", "conflict"),
    [((1, 1), None), ((1, 2), None), ((2, 2), 2), ((1, 3), 3), ((1, 2, 2), 4), ((), None)],
)
def test_a_conflict_is_the_first_place_that_differs_or_is_new(terms, conflict):
    entries = [Entry(2 + place, term, b"") for place, term in enumerate(terms)]
    log = recovered(1, 1, 1) if terms == (1, 1) else recovered(1, 1, 2)
    assert log.conflict(entries) == conflict


def test_a_recovered_log_knows_its_terms_and_holds_no_payloads():
    log = RaftLog(10, 3, [(11, 3), (14, 5)], 20)
    assert [log.term_at(index) for index in (10, 13, 14, 20)] == [3, 3, 5, 5]
    assert log.held(11, 20) is None
    assert log.held_bytes == 0


def test_places_outside_the_log_match_nothing():
    log = RaftLog(10, 3, [(11, 4)], 12)
    assert not log.matches(9, 3)
    assert not log.matches(13, 4)
    assert log.hint(5, 3) == (5, 0)


def test_a_hint_below_every_known_term_lies_in_the_compacted_part():
    """Else a leader with a compacted log asks the same question for ever."""
    assert RaftLog(10, 3, [(11, 4)], 12).hint(12, 2) == (9, 0)
