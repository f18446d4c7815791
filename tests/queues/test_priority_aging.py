"""Priority with aging against a list sorted by what each message's priority has grown to."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.ready import PriorityReady
from tests.queues.fakes import message, names

# time that passes first, size of the body, priority
ARRIVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9), st.integers(0, 5)), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), ARRIVALS),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("pop oldest"), st.just(0)),
        st.tuples(st.just("take"), st.tuples(st.integers(1, 5), st.integers(0, 25))),
        st.tuples(st.just("put back"), st.integers(0, 2**16)),
        st.tuples(st.just("remove"), st.frozensets(st.integers(0, 20))),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=30,
)


def aged(sequence, *, priority, at_ms, size=10):
    made = message(sequence, size=size, priority=priority)
    made.sequence = sequence
    made.enqueued_ms = at_ms
    return made


class AgingLife:
    """A ready list, a plain list with the same messages, and a clock."""

    def __init__(self, max_priority, aging_ms):
        self.ready = PriorityReady(max_priority, aging_ms)
        self.max_priority = max_priority
        self.aging_ms = aging_ms
        self.now = 1000
        self.made = 0
        self.content = []
        self.out = []

    def level(self, m):
        return min(m.priority, self.max_priority)

    def in_order(self):
        """By the priority they have now, then by the one they came with, then by arrival."""
        return sorted(
            self.content,
            key=lambda m: (
                -self.level(m) - Fraction(self.now - m.enqueued_ms, self.aging_ms),
                -self.level(m),
                m.sequence,
            ),
        )

    def oldest(self):
        return min(self.content, key=lambda m: (self.level(m), m.sequence))

    def step(self, name, argument):
        if name == "wait":
            self.now += argument
        elif name == "push":
            self.push(argument)
        elif name == "put back":
            back = [m for at, m in enumerate(self.out) if argument >> at & 1]
            self.out = [m for m in self.out if m not in back]
            self.ready.put_back(back)
            self.content += back
        elif name == "remove":
            expected = [m for m in self.in_order() if m.sequence in argument]
            assert names(self.ready.remove(argument)) == names(expected)
            self.content = [m for m in self.content if m not in expected]
        elif name == "clear":
            self.ready.clear()
            self.content.clear()
        elif name == "take":
            self.take(*argument)
        elif self.content:
            popping = name == "pop"
            expected = self.in_order()[0] if popping else self.oldest()
            self.went(expected, self.ready.pop() if popping else self.ready.pop_oldest())

    def push(self, arrivals):
        fresh = []
        for passed, size, priority in arrivals:
            self.now += passed
            fresh.append(aged(self.made, priority=priority, at_ms=self.now, size=size))
            self.made += 1
        self.ready.push(fresh)
        self.content += fresh

    def take(self, count, size_bytes):
        total = 0
        expected = []
        for m in self.in_order()[:count]:
            expected.append(m)
            total += m.body_bytes
            if total >= size_bytes:
                break
        taken = self.ready.take(count, size_bytes)
        assert names(taken) == names(expected)
        for m in taken:
            self.went(m, m)

    def went(self, expected, popped):
        assert popped is expected
        self.content.remove(popped)
        self.out.append(popped)

    def check(self):
        expected = self.in_order()
        assert names(self.ready) == names(expected)
        assert len(self.ready) == self.ready.available == len(expected)
        assert self.ready.size_bytes == sum(m.body_bytes for m in expected)
        assert self.ready.head() is (expected[0] if expected else None)
        assert self.ready.oldest() is (self.oldest() if expected else None)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 4), st.integers(1, 20))
def test_the_highest_priority_grown_so_far_goes_first_at_any_time(steps, max_priority, aging_ms):
    life = AgingLife(max_priority, aging_ms)
    for name, argument in steps:
        life.step(name, argument)
        life.check()


@pytest.mark.parametrize(
    ("low_at_ms", "high_at_ms", "first"),
    [
        (0, 0, "high"),
        (0, 299, "high"),
        (0, 300, "high"),  # caught up, but not overtaken
        (0, 301, "low"),
        (300, 0, "high"),
    ],
)
def test_three_priorities_are_made_up_for_by_three_times_the_aging_time(
    low_at_ms, high_at_ms, first
):
    ready = PriorityReady(9, 100)
    low = aged(int(low_at_ms > high_at_ms), priority=2, at_ms=low_at_ms)
    high = aged(int(low_at_ms <= high_at_ms), priority=5, at_ms=high_at_ms)
    ready.push(sorted([low, high], key=lambda m: m.sequence))
    assert ready.pop() is {"low": low, "high": high}[first]


def flood(ready, rounds):
    """One message of priority 0, then one of priority 4 each 10 ms, taken as they come."""
    low = aged(0, priority=0, at_ms=0)
    ready.push([low, aged(1, priority=4, at_ms=0)])
    for number in range(rounds):
        if ready.pop() is low:
            return number
        ready.push([aged(number + 2, priority=4, at_ms=10 * (number + 1))])
    return None


def test_a_low_priority_starves_without_aging_and_does_not_with_it():
    assert flood(PriorityReady(4), 100) is None
    assert flood(PriorityReady(4, 100), 100) == 41  # the first high one later than 4 * 100 ms


def test_a_message_that_returns_has_kept_its_age():
    ready = PriorityReady(4, 100)
    low = aged(0, priority=0, at_ms=0)
    ready.push([low])
    assert ready.pop() is low
    ready.push([aged(1, priority=1, at_ms=101)])
    ready.put_back([low])
    assert ready.pop() is low


def test_priorities_above_the_highest_age_as_the_highest():
    ready = PriorityReady(2, 100)
    ready.push([aged(0, priority=0, at_ms=0), aged(1, priority=200, at_ms=201)])
    assert names(ready) == [0, 1]


@pytest.mark.parametrize("aging_ms", [None, 100])
def test_the_one_to_drop_is_the_first_of_the_lowest_priority_whatever_its_age(aging_ms):
    ready = PriorityReady(255, aging_ms)
    ready.push([aged(n, priority=p, at_ms=1000 * n) for n, p in enumerate([255, 3, 3, 200])])
    assert names([ready.pop_oldest() for _ in range(4)]) == [1, 2, 3, 0]


def test_without_aging_a_message_need_not_say_when_it_came():
    ready = PriorityReady(2)
    ready.push([message(n, priority=n) for n in range(3)])
    assert names(ready) == [2, 1, 0]
    assert not hasattr(ready.pop(), "enqueued_ms")
