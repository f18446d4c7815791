"""The ready lists against a list that is sorted anew after each step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.groups import GroupReady
from queues.paged import MESSAGE_OVERHEAD_BYTES, HotBudget, PagedReady
from queues.ready import FifoReady, PriorityReady
from tests.queues.fakes import message, names

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)))),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("pop oldest"), st.just(0)),
        st.tuples(st.just("take"), st.tuples(st.integers(1, 5), st.integers(0, 25))),
        st.tuples(st.just("put back"), st.integers(0, 2**16)),
        st.tuples(st.just("remove"), st.frozensets(st.integers(0, 20))),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=30,
)


class SortedList:
    """What both lists should be: the order of delivery by sorting, sizes by adding up."""

    def __init__(self, max_priority):
        self.max_priority = max_priority
        self.content = []

    def level(self, m):
        return min(m.priority, self.max_priority)

    def add(self, messages):
        self.content = sorted(self.content + messages, key=lambda m: (-self.level(m), m.sequence))

    def oldest(self):
        lowest = min(self.level(m) for m in self.content)
        return next(m for m in self.content if self.level(m) == lowest)

    def remove(self, sequences):
        removed = [m for m in self.content if m.sequence in sequences]
        self.content = [m for m in self.content if m not in removed]
        return removed

    def take(self, count, size):
        """As many as asked for, but none once the bodies taken reach `size`."""
        taken = []
        while self.content and len(taken) < count:
            taken.append(self.content.pop(0))
            if sum(m.body_bytes for m in taken) >= size:
                break
        return taken


def live(ready, max_priority, steps):
    """Do the steps to `ready` and to the model, and compare after each."""
    model = SortedList(max_priority)
    made, out = 0, []
    for step, argument in steps:
        if step == "push":
            fresh = []
            for size, priority in argument:
                fresh.append(message(made, size=size, priority=priority))
                fresh[-1].sequence = made
                made += 1
            ready.push(fresh)
            model.add(fresh)
        elif step == "put back":
            chosen = [m for at, m in enumerate(out) if argument >> at & 1]
            out = [m for m in out if m not in chosen]
            ready.put_back(chosen)
            model.add(chosen)
        elif step == "remove":
            assert names(ready.remove(argument)) == names(model.remove(argument))
        elif step == "clear":
            ready.clear()
            model.content.clear()
        elif step == "take":
            taken = ready.take(*argument)
            assert names(taken) == names(model.take(*argument))
            out += taken
        elif model.content:
            if step == "pop":
                expected = model.content.pop(0)
                popped = ready.pop()
            else:
                expected = model.oldest()
                model.content.remove(expected)
                popped = ready.pop_oldest()
            assert popped is expected
            out.append(popped)
        compare(ready, model)


def compare(ready, model):
    assert names(ready) == names(model.content)
    assert len(ready) == ready.available == len(model.content)
    assert ready.size_bytes == sum(m.body_bytes for m in model.content)
    assert ready.head() is (model.content[0] if model.content else None)
    assert ready.oldest() is (model.oldest() if model.content else None)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(STEPS)
def test_the_plain_list_is_in_order_whatever_comes_back(steps):
    live(FifoReady(), 0, steps)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(STEPS, st.integers(1, 4))
def test_the_priority_list_is_in_order_whatever_comes_back(steps, max_priority):
    live(PriorityReady(max_priority), max_priority, steps)


@pytest.mark.parametrize("ready", [FifoReady(), PriorityReady(2)], ids=["fifo", "priority"])
def test_a_batch_ends_with_the_message_that_reaches_its_size(ready):
    ready.push([message(n, size=40) for n in range(5)])
    assert names(ready.take(10, 100)) == [0, 1, 2]
    assert names(ready.take(1, 100)) == [3]
    assert names(ready.take(10, 0)) == [4]


def test_a_huge_count_takes_all_there_is():
    ready = FifoReady()
    ready.push([message(n) for n in range(3)])
    assert names(ready.take(2**62, 1 << 20)) == [0, 1, 2]
    assert not len(ready)


def numbered(count):
    made = [message(n) for n in range(count)]
    for sequence, m in enumerate(made):
        m.sequence = sequence
        m.group = b"Sg"
    return made


@pytest.mark.parametrize("ready", [FifoReady(), PriorityReady(2), GroupReady()])
def test_what_is_not_there_is_not_removed(ready):
    ready.push(numbered(3))
    assert names(ready.remove([7, 1, 9, 1])) == [1]
    assert ready.remove([1]) == []
    assert (names(ready), ready.size_bytes) == ([0, 2], 20)


@pytest.mark.parametrize("ready", [FifoReady(), PriorityReady(2), GroupReady()])
def test_returned_messages_leave_in_order_after_one_of_them_was_removed(ready):
    messages = numbered(7)
    ready.put_back([messages[n] for n in (0, 4, 1, 5, 6, 2, 3)])
    assert names(ready.remove([0])) == [0]
    assert names([ready.pop_oldest() for _ in range(6)]) == [1, 2, 3, 4, 5, 6]


def test_removed_messages_make_room_in_memory_for_those_on_disk():
    requests = []
    budget = HotBudget(2 * (10 + MESSAGE_OVERHEAD_BYTES))
    ready = PagedReady(FifoReady(), budget, lambda: requests.append(len(ready)), low=1)
    ready.push(numbered(2))
    ready.recovered(5)
    assert (requests, budget.used) == ([], budget.limit)
    assert names(ready.remove({0, 1, 4})) == [0, 1]
    assert (requests, budget.used) == ([5], 0)


def test_a_paged_list_offers_no_message_that_its_group_hides():
    ready = PagedReady(GroupReady(), HotBudget(), lambda: None)
    ready.push(numbered(2))
    assert names([ready.pop()]) == [0]
    assert (len(ready), ready.available) == (1, 0)
