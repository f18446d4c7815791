"""Message groups: the ready list against plain lists, and which group a message belongs to."""

from collections.abc import Sized

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.content import join_header
from broker.protocol.tables import encode_table
from queues.groups import GroupReady, group_of
from queues.message import Message
from tests.queues.fakes import message, names

ANY_SIZE = 1 << 30
GROUPS = st.sampled_from([None, b"Sa", b"Sb", b"Sc", b"Sd"])
SIZES = st.integers(1, 9)
CHOICE = st.integers(0, 2**32)  # bit n of it: whether the n-th is meant


def grouped(sequence, group, *, size=10):
    made = message(sequence, size=size)
    made.sequence = sequence
    made.group = group
    return made


def chosen(messages, bits):
    return [m for at, m in enumerate(messages) if bits >> at & 1]


class GroupLife(RuleBasedStateMachine):
    """`waiting` and `out` are all there is to know; `owed` watches over the turns.

    owed[g]: groups that could have given a message ever since g last gave one, and have not. It
    must be empty when g gives one again.
    """

    def __init__(self):
        super().__init__()
        self.ready = GroupReady()
        self.waiting = []
        self.out = []  # held by somebody, or waiting for a retry
        self.asleep = []  # those of them that wait for a retry
        self.late = []  # numbered, but to be pushed later
        self.made = 0
        self.owed = {}

    def blocked(self):
        return {m.group for m in self.out} - {None}

    def first_of(self, group):
        return min((m for m in self.waiting if m.group == group), key=lambda m: m.sequence)

    def free(self):
        """The groups that can give a message."""
        return {m.group for m in self.waiting} - self.blocked()

    def went(self, popped):
        """The list gave this one."""
        group = popped.group
        assert group in self.free(), "its group is blocked"
        assert popped is self.first_of(group)
        assert not self.owed.get(group), "another group's turn was skipped"
        self.waiting.remove(popped)
        self.out.append(popped)
        for others in self.owed.values():
            others.discard(group)
        self.owed[group] = self.free() - {group}

    def drop_from_waiting(self, gone):
        self.waiting = [m for m in self.waiting if m not in gone]

    def drop_from_out(self, gone):
        self.out = [m for m in self.out if m not in gone]
        self.asleep = [m for m in self.asleep if m not in gone]

    @initialize(fresh=st.lists(st.tuples(GROUPS, SIZES), min_size=5, max_size=15))
    def start_with_some(self, fresh):
        self.push(fresh)

    @rule(fresh=st.lists(st.tuples(GROUPS, SIZES), max_size=6))
    def push(self, fresh):
        messages = [self.new(group, size) for group, size in fresh]
        self.ready.push(messages)
        self.waiting += messages

    def new(self, group, size):
        self.made += 1
        return grouped(self.made, group, size=size)

    @rule(group=GROUPS, size=SIZES)
    def publish_with_delay(self, group, size):
        self.late.append(self.new(group, size))

    @rule(bits=CHOICE)
    def push_what_is_due(self, bits):
        due = chosen(self.late, bits)
        self.late = [m for m in self.late if m not in due]
        self.ready.push(due)
        self.waiting += due

    @precondition(lambda self: self.free())
    @rule()
    def pop(self):
        expected = self.ready.head()
        popped = self.ready.pop()
        assert popped is expected
        self.went(popped)

    @rule(count=st.integers(0, 6), size_bytes=st.integers(0, 30))
    def take(self, count, size_bytes):
        could = self.ready.available
        taken = self.ready.take(count, size_bytes)
        sizes = [m.body_bytes for m in taken]
        for m in taken:
            self.went(m)
        assert len(taken) <= count
        assert not sizes or sum(sizes[:-1]) < max(size_bytes, 1)
        assert len(taken) == min(count, could) or sum(sizes) >= size_bytes

    @rule(at=st.integers(0, 30), count=st.integers(0, 4))
    def take_behind(self, at, count):
        if not self.out:
            return
        first = self.out[at % len(self.out)]
        waiting = sorted(
            (m for m in self.waiting if m.group == first.group), key=lambda m: m.sequence
        )
        expected = waiting[:count] if first.group and first not in self.asleep else []
        assert self.ready.take_behind(first, count) == expected
        self.drop_from_waiting(expected)
        self.out += expected

    @precondition(lambda self: self.waiting)
    @rule()
    def pop_oldest(self):
        popped = self.ready.pop_oldest()
        assert popped is min(self.waiting, key=lambda m: m.sequence)
        self.drop_from_waiting([popped])

    @rule(bits=CHOICE)
    def put_back(self, bits):
        back = chosen(self.out, bits)
        self.ready.put_back(back)
        self.drop_from_out(back)
        self.waiting += back

    @rule(bits=CHOICE)
    def release(self, bits):
        gone = chosen(self.out, bits)
        self.ready.release(gone)
        self.drop_from_out(gone)

    @rule(bits=CHOICE)
    def cancel(self, bits):
        """As release, of messages of which only the number is at hand."""
        gone = chosen(self.out, bits)
        self.ready.release_numbers([m.sequence for m in gone])
        self.drop_from_out(gone)

    @precondition(lambda self: self.out)
    @rule(bits=CHOICE)
    def fail_what_is_out(self, bits):
        """It stays out, waiting for its retry."""
        for m in chosen(self.out, bits):
            self.ready.block(m)
            self.asleep.append(m)

    @rule(group=GROUPS)
    def block_with_one_from_before_a_restart(self, group):
        failed = self.new(group, 5)
        self.ready.block(failed)
        self.out.append(failed)
        self.asleep.append(failed)

    @rule(sequences=st.frozensets(st.integers(0, 30)))
    def remove(self, sequences):
        expected = [m for m in self.in_order() if m.sequence in sequences]
        assert self.ready.remove(sequences) == expected
        self.drop_from_waiting(expected)

    @precondition(lambda self: len(self.waiting) > 5)
    @rule()
    def clear(self):
        self.ready.clear()
        self.waiting.clear()
        self.drop_from_out([m for m in self.asleep if m.group is not None])

    def in_order(self):
        return sorted(self.waiting, key=lambda m: m.sequence)

    @invariant()
    def everything_waiting_is_counted_and_in_order(self):
        assert list(self.ready) == self.in_order()
        assert len(self.ready) == len(self.waiting)
        assert self.ready.size_bytes == sum(m.body_bytes for m in self.waiting)
        assert self.ready.oldest() is next(iter(self.in_order()), None)
        assert self.ready.first_fresh() is None

    @invariant()
    def what_can_be_taken_is_known(self):
        free = self.free()
        ungrouped = sum(m.group is None for m in self.waiting)
        assert self.ready.available == len(free - {None}) + ungrouped
        head = self.ready.head()
        if free:
            assert head is self.first_of(head.group)
        else:
            assert head is None

    @invariant()
    def only_groups_that_are_free_all_the_time_are_owed_a_turn(self):
        free = self.free()
        for others in self.owed.values():
            others.intersection_update(free)

    def teardown(self):
        """Whatever happened, all of it can be had, each group in order; then nothing is left."""
        self.ready.release(self.out)
        self.out.clear()
        while self.waiting:
            self.pop()
            self.release(2**64 - 1)
        assert self.ready.available == len(self.ready) == self.ready.size_bytes == 0
        assert entries_of(self.ready) <= 100


def entries_of(ready):
    """How many entries all parts of the list have together, whatever they are."""
    parts = [getattr(ready, name) for name in ready.__slots__]
    return sum(len(part) for part in parts if isinstance(part, Sized))


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=150, stateful_step_count=40)


def filled(*groups):
    """A list with messages 0, 1, … of these groups."""
    ready = GroupReady()
    ready.push([grouped(n, group) for n, group in enumerate(groups)])
    return ready


A, B, C = b"Sa", b"Sb", b"Sc"


@pytest.mark.parametrize(
    ("groups", "at_once"),
    [
        ([A, A, A], [0]),
        ([A, A, B, B, C], [0, 2, 4]),
        ([B, A, A, B], [0, 1]),
        ([None, None, None], [0, 1, 2]),
        ([None, None, None, A, A, B], [0, 3, 5, 1, 2]),  # ungrouped ones: one turn in three
    ],
)
def test_one_of_each_group_can_be_out_at_once(groups, at_once):
    ready = filled(*groups)
    assert ready.available == len(at_once)
    assert names(ready.take(10, ANY_SIZE)) == at_once
    assert (ready.available, ready.head()) == (0, None)
    assert len(ready) == len(groups) - len(at_once)


def test_groups_take_turns_however_many_messages_each_has():
    ready = filled(A, A, A, A, B, B, None, None)
    order = []
    while len(ready):
        popped = ready.pop()
        ready.release([popped])
        order.append(popped)
    assert names(order) == [0, 4, 6, 1, 5, 7, 2, 3]


def test_a_failed_message_hides_its_group_until_it_is_back_and_goes_first_again():
    ready = filled(A, A)
    failed = ready.pop()
    ready.block(failed)
    ready.push([grouped(2, A)])  # a new message resets nothing
    assert ready.available == 0
    ready.put_back([failed])
    assert ready.pop() is failed
    ready.release([failed])
    assert names([ready.pop()]) == [1]


def test_a_message_found_failed_after_a_restart_hides_its_group():
    ready = filled(A, A, B)
    failed = grouped(7, A)
    ready.block(failed)
    assert names(ready.take(10, ANY_SIZE)) == [2]
    ready.release([failed])
    assert names(ready.take(10, ANY_SIZE)) == [0]


def test_a_message_that_blocks_twice_is_released_once():
    ready = filled(A, A)
    out = ready.pop()
    ready.block(out)
    ready.block(out)
    ready.release([out])
    assert ready.available == 1


def test_releasing_what_blocks_nothing_frees_nobody():
    ready = filled(A, A, A)
    dropped = ready.pop_oldest()
    ready.pop()
    ready.release([dropped, grouped(9, A), grouped(10, None), grouped(11, B)])
    assert ready.available == 0


def test_a_delayed_message_that_is_due_goes_to_its_place_in_its_group():
    ready = GroupReady()
    ready.push([grouped(5, A), grouped(6, None)])
    ready.push([grouped(3, None), grouped(2, A)])
    assert names(ready) == [2, 3, 5, 6]
    assert names(ready.take(10, ANY_SIZE)) == [2, 3, 6]


def test_hidden_messages_can_be_dropped_and_removed():
    ready = filled(A, A, A, B, A)
    out = ready.pop()
    assert names([ready.pop_oldest()]) == [1]
    assert names(ready.remove([4, 3])) == [3, 4]
    assert (names(ready), ready.available) == ([2], 0)
    ready.release([out])
    assert names([ready.pop()]) == [2]


def test_a_purge_does_not_free_a_group():
    ready = filled(A, A, B)
    out = ready.pop()
    ready.clear()
    ready.push([grouped(5, A), grouped(6, B)])
    assert names(ready.take(10, ANY_SIZE)) == [6]
    ready.release([out])
    assert names(ready.take(10, ANY_SIZE)) == [5]


def test_a_batch_ends_with_the_message_that_reaches_its_size():
    ready = filled(A, B, C, None, None)
    assert names(ready.take(10, 11)) == [0, 1]
    assert names(ready.take(10, 0)) == [2]
    assert names(ready.take(1, 100)) == [3]


@pytest.mark.parametrize("leave", ["pop", "pop oldest", "remove", "clear"])
def test_groups_that_came_and_went_are_forgotten(leave):
    ready = GroupReady()
    for n in range(2000):
        fresh = grouped(n, b"S%d" % n)
        ready.push([fresh])
        if leave == "pop":
            ready.release([ready.pop()])
        elif leave == "pop oldest":
            ready.pop_oldest()
        elif leave == "remove":
            ready.remove([n])
        else:
            ready.clear()
    assert entries_of(ready) <= 100


def with_headers(raw):
    header, header_bytes, flags = join_header(1, 0, {FLAG_HEADERS: raw})
    return Message(b"\x00\x01q", header, header_bytes, flags, 0, 1)


@pytest.mark.parametrize(
    ("headers", "group"),
    [
        ({}, None),
        ({"x-group": "a"}, None),
        ({"x-group-id": "a"}, b"S\x00\x00\x00\x01a"),
        ({"other": [1, {"x-group-id": "b"}], "x-group-id": "é"}, b"S\x00\x00\x00\x02\xc3\xa9"),
        ({"x-group-id": 7}, b"I\x00\x00\x00\x07"),
        ({"x-group-id": 0}, b"I\x00\x00\x00\x00"),
        ({"x-group-id": False}, b"t\x00"),
        ({"x-group-id": ""}, None),
        ({"x-group-id": bytearray()}, None),
        ({"x-group-id": None}, None),
    ],
)
def test_the_group_is_the_header_as_it_was_sent(headers, group):
    assert group_of(with_headers(encode_table(headers))) == group


def test_a_message_without_headers_has_no_group():
    assert group_of(message(1)) is None


@pytest.mark.parametrize("raw", [b"\x00\x00\x00\x09\x03abS", b"\x00\x00\x00\x02\x01a?"])
def test_malformed_headers_are_no_group(raw):
    assert group_of(with_headers(raw)) is None
