"""Ready messages on disk while memory is short: the same messages in the same order."""

from collections import deque
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queues.spill
from queues.message import Message
from queues.ready import FifoReady, PriorityReady
from queues.spill import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, HOT_BYTES, SpillingReady, paged_out
from tests.channel.fakes import stored_message


class FakeSpill:
    """A disk that does things when it is told to, in order."""

    def __init__(self):
        self.wanted = False
        self.stored = {}  # by place
        self.turns = deque()
        self.writes = deque()
        self.reads = deque()
        self._next = 0

    def when_free(self, turn):
        self.turns.append(turn)

    def write(self, data, then):
        self.writes.append((data, then))

    def read(self, place, length, then):
        assert len(self.stored[place]) == length
        self.reads.append((place, then))

    def free(self, place, length):
        assert len(self.stored.pop(place)) == length
        assert all(place != reading for reading, _ in self.reads), "freed while it is read"

    def do_write(self, *, room=True):
        data, then = self.writes.popleft()
        if room:
            self._next += 1
            self.stored[self._next] = data
        then(self._next if room else None)

    def do_read(self):
        place, then = self.reads.popleft()
        then(self.stored[place])

    def do_all(self):
        while self.turns or self.writes or self.reads:
            if self.turns:
                self.turns.popleft()()
            elif self.writes:
                self.do_write()
            else:
                self.do_read()


def numbered(sequence, *, size=10, expires_at=None, priority=0):
    message = stored_message((b"%d" % sequence).ljust(size, b"."), key=f"key-{sequence}")
    message.sequence = sequence
    message.expires_at = expires_at
    message.priority = priority
    return message


def spilling(*messages, wanted=True):
    spill = FakeSpill()
    spill.wanted = wanted
    came_back = []
    ready = SpillingReady(FifoReady(), spill, came_back.extend)
    if messages:
        ready.push(list(messages))
    return ready, spill, came_back


def sequences(messages):
    return [message.sequence for message in messages]


BIG = 20_000


def big(first, count):
    return [numbered(sequence, size=BIG) for sequence in range(first, first + count)]


def test_while_there_is_memory_nothing_is_written():
    ready, spill, _ = spilling(*big(0, 50), wanted=False)
    ready.page_out()
    assert not spill.turns
    assert ready.available == len(ready) == 50


def test_a_short_queue_stays_in_memory():
    few = (HOT_BYTES + CHUNK_BYTES_MIN) // BIG - 1
    ready, spill, _ = spilling(*big(0, few))
    assert not spill.turns
    assert ready.available == few


def test_the_first_stay_in_memory_and_the_rest_comes_back_in_order():
    ready, spill, came_back = spilling(*big(0, 100))
    spill.do_all()
    assert 0 < ready.available < 10
    assert ready.on_disk > 80
    assert len(ready) == 100
    assert ready.size_bytes == 100 * BIG
    taken = []
    while len(ready):
        taken += ready.take(1000, 1 << 30)
        spill.do_all()
    assert sequences(taken) == list(range(100))
    assert set(sequences(came_back)) >= set(range(10, 80))
    assert spill.stored == {}


def test_messages_come_back_as_they_were():
    whole = [
        numbered(7, size=BIG * 10),
        numbered(9, size=1, expires_at=123_456_789_012),
        numbered(12, size=1, priority=5),
    ]
    ready, spill, came_back = spilling(*big(0, 7), *whole, *big(13, 50))
    spill.do_all()
    while len(ready):
        ready.take(3, 1 << 30)
        spill.do_all()
    by_sequence = {message.sequence: message for message in came_back}
    for message in whole:
        twin = by_sequence[message.sequence]
        assert twin is not message
        for name in Message.__slots__:
            if hasattr(message, name):
                assert getattr(twin, name) == getattr(message, name), name


def test_chunks_are_neither_small_nor_large():
    ready, spill, _ = spilling(*[numbered(n, size=100) for n in range(20_000)])
    spill.do_all()
    costs = [chunk.size_bytes + 400 * chunk.count for chunk in ready._chunks]
    assert len(costs) > 10
    assert all(CHUNK_BYTES_MIN <= cost < CHUNK_BYTES_MAX + 500 for cost in costs)


def test_what_lies_on_disk_costs_a_few_bytes_a_message():
    ready, spill, _ = spilling(*[numbered(n) for n in range(20_000)])
    spill.do_all()
    assert ready.on_disk > 19_000
    assert len(ready._chunks) * 200 < 2 * ready.on_disk


def test_every_queue_writes_one_chunk_in_its_turn():
    _, spill, _ = spilling(*big(0, 200))
    assert (len(spill.turns), len(spill.writes)) == (1, 0)
    spill.turns.popleft()()
    assert (len(spill.turns), len(spill.writes)) == (1, 1)


def test_a_chunk_that_is_wanted_before_it_is_written_is_taken_from_memory():
    ready, spill, came_back = spilling(*big(0, 100))
    spill.turns.popleft()()
    taken = []
    while len(ready):
        taken += ready.take(1000, 1 << 30)
    assert sequences(taken) == list(range(100))
    spill.do_all()
    assert came_back == []
    assert spill.stored == {}


def test_without_room_on_disk_messages_stay_in_memory():
    ready, spill, _ = spilling(*big(0, 100))
    spill.turns.popleft()()
    spill.do_write(room=False)
    spill.wanted = False
    spill.do_all()
    taken = []
    while ready.available:
        taken += ready.take(1000, 1 << 30)
        spill.do_all()
    assert sequences(taken) == list(range(100))


def test_what_found_no_room_is_written_when_there_is_some():
    ready, spill, _ = spilling(*big(0, 100))
    while spill.turns or spill.writes:
        if spill.turns:
            spill.turns.popleft()()
        else:
            spill.do_write(room=False)
            spill.wanted = False
    assert ready.on_disk == 0
    spill.wanted = True
    ready.page_out()
    spill.do_all()
    assert ready.on_disk > 80
    taken = []
    while len(ready):
        taken += ready.take(1000, 1 << 30)
        spill.do_all()
    assert sequences(taken) == list(range(100))
    assert spill.stored == {}


@pytest.mark.parametrize("busy", ["nothing", "a write", "a read"])
def test_a_cleared_queue_leaves_nothing_on_disk(busy):
    ready, spill, came_back = spilling(*big(0, 100))
    if busy == "a write":
        for _ in range(3):
            spill.turns.popleft()()
        spill.do_write()
    else:
        spill.do_all()
    if busy == "a read":
        ready.take(1000, 1 << 30)
        assert spill.reads
    ready.clear()
    assert len(ready) == ready.size_bytes == ready.available == 0
    ready.push([numbered(500)])
    spill.do_all()
    assert spill.stored == {}
    assert came_back == []
    assert sequences(ready.take(9, 1 << 30)) == [500]


def test_a_queue_cleared_and_filled_again_while_the_disk_reads_gets_what_is_next():
    ready, spill, _ = spilling(*big(0, 100))
    spill.do_all()
    ready.take(1000, 1 << 30)
    (late,) = spill.reads
    spill.reads.clear()
    ready.clear()
    ready.push(big(200, 100))
    spill.do_all()
    taken = ready.take(1000, 1 << 30)
    assert ready.is_loading
    spill.reads.append(late)
    while len(ready):
        spill.do_all()
        assert ready.available
        taken += ready.take(1000, 1 << 30)
    assert sequences(taken) == list(range(200, 300))
    assert spill.stored == {}


def test_with_memory_to_spare_the_next_chunk_is_read_before_the_last_message_is_taken():
    ready, spill, _ = spilling(*big(0, 100))
    spill.do_all()
    ready.pop()
    assert not spill.reads
    spill.wanted = False
    ready.pop()
    assert spill.reads


def test_messages_that_were_put_back_go_before_those_on_disk():
    ready, spill, _ = spilling(*big(0, 100))
    taken = ready.take(3, 1 << 30)
    spill.do_all()
    ready.put_back(taken)
    assert sequences([ready.pop(), ready.pop(), ready.pop(), ready.pop()]) == [0, 1, 2, 3]


def test_in_another_order_nothing_is_taken_before_all_is_back():
    messages = [numbered(n, size=BIG, priority=n % 3) for n in range(100)]
    ready, spill, _ = spilling(*messages)
    seen = []
    ready._loaded = lambda _: seen.append(ready.available)
    spill.do_all()
    marked = set()

    def mark(messages):
        marked.update(sequences(messages))

    ready.reorder(PriorityReady(3), mark, in_order=False)
    assert ready.available == 0
    assert ready.head() is None
    assert ready.is_loading
    ready.push([numbered(100, priority=2)])
    spill.do_all()
    assert not ready.is_loading
    assert marked >= set(range(10, 101))
    assert seen[-1] == 101, "who waits is told when all of it can be taken"
    expected = [n for p in (2, 1, 0) for n in range(101) if (2 if n == 100 else n % 3) == p]
    assert sequences(ready.take(1000, 1 << 30)) == expected
    ready.push(messages)
    ready.page_out()
    assert not spill.turns, "only what leaves in order can wait on disk"


def test_a_ready_list_is_wrapped_only_where_that_gains_something():
    spill = FakeSpill()
    spill.wanted = True
    short, long, by_priority = FifoReady(), FifoReady(), PriorityReady(3)
    long.push(big(0, 100))
    by_priority.push(big(0, 100))
    assert paged_out(short, spill, lambda _: None) is short
    assert paged_out(by_priority, spill, lambda _: None) is by_priority
    wrapped = paged_out(long, spill, lambda _: None)
    assert isinstance(wrapped, SpillingReady)
    assert paged_out(wrapped, spill, lambda _: None) is wrapped
    assert len(wrapped) == 100


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 30)),
        st.tuples(st.just("take"), st.integers(1, 40)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("put back"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 3)),
        st.tuples(st.just("wanted"), st.integers(0, 1)),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("clear"), st.integers(0, 9)),
    ),
    max_size=80,
)


class Pair:
    """A spilling list beside a plain one, which is too simple to be wrong."""

    def __init__(self):
        self.ready, self.spill, _ = spilling()
        self.model = FifoReady()
        self.taken = []
        self.next = 0

    def take(self, count):
        taken = self.ready.take(count, 1 << 30)
        assert len(taken) == min(count, len(taken))
        assert sequences(taken) == sequences(self.model.take(len(taken), 1 << 30))
        self.taken += taken

    def step(self, action, number):
        spill = self.spill
        if action == "push":
            sizes = [(self.next + n) * 7 % 50 for n in range(number)]
            fresh = [numbered(self.next + n, size=size + 5) for n, size in enumerate(sizes)]
            self.next += number
            self.ready.push(list(fresh))
            self.model.push(fresh)
            self.ready.page_out()
        elif action == "take" and self.ready.available:
            self.take(number)
        elif action == "pop" and self.ready.available:
            assert self.ready.head().sequence == self.model.head().sequence
            message = self.ready.pop()
            assert message.sequence == self.model.pop().sequence
            self.taken.append(message)
        elif action == "put back":
            back, self.taken = self.taken[-number:], self.taken[:-number]
            if number:
                self.ready.put_back(list(back))
                self.model.put_back(back)
        elif action == "remove":
            wanted = sequences(self.ready)[number : number + 2]
            assert sequences(self.ready.remove(wanted)) == wanted
            assert sequences(self.model.remove(wanted)) == wanted
        elif action == "wanted":
            spill.wanted = bool(number)
        elif action == "turn" and spill.turns:
            spill.turns.popleft()()
        elif action == "write" and spill.writes:
            spill.do_write(room=number > 0)
        elif action == "read" and spill.reads:
            spill.do_read()
        elif action == "clear" and not number:
            self.ready.clear()
            self.model.clear()

    def check(self):
        ready, spill = self.ready, self.spill
        assert len(ready) == len(self.model)
        assert ready.size_bytes == self.model.size_bytes
        assert ready.available <= len(ready)
        assert ready.is_loading == (len(ready) > 0 and not ready.available)
        assert not ready.is_loading or spill.reads, "nobody fetches what is next"
        assert sequences(ready) == sequences(self.model)[: ready.available]
        assert ready.on_disk <= len(ready)

    def finish(self):
        self.spill.do_all()
        while len(self.ready):
            assert self.ready.available, "messages that never come back"
            self.take(7)
            self.spill.do_all()
        assert self.spill.stored == {}, "room on disk that is never given back"


@settings(max_examples=300)
@given(STEPS)
def test_a_spilling_list_is_a_plain_one_but_for_the_waiting(steps):
    small = {"HOT_BYTES": 1500, "CHUNK_BYTES_MIN": 1500, "CHUNK_BYTES_MAX": 3000, "LOW_MESSAGES": 4}
    with patch.multiple(queues.spill, **small):
        pair = Pair()
        for action, number in steps:
            pair.step(action, number)
            pair.check()
        pair.finish()
