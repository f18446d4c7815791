"""The window of digests seen lately, against a plain dict that is filtered each time."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queues.dedup
from queues.dedup import DIGEST_BYTES, DedupWindow, digest_of_body, digest_of_id

NOW = 1_790_000_000_000
SEEN_MAX = 8  # few enough that random lives come up against it
STALE_MIN = 2
IDS = st.integers(0, 11)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), IDS),
        st.tuples(st.just("add"), IDS),
        st.tuples(st.just("add"), IDS),
        st.tuples(st.just("pass"), st.integers(1, 6)),
        st.tuples(st.just("evict"), st.integers(0, 6)),
        st.tuples(st.just("window"), st.integers(1, 30)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=80,
)


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(queues.dedup, "SEEN_MAX", SEEN_MAX)
    monkeypatch.setattr(queues.dedup, "_STALE_MIN", STALE_MIN)


def digest(number):
    return number.to_bytes(DIGEST_BYTES, "big")


class Plain:
    """Until when each is remembered, in the order of addition."""

    def __init__(self):
        self.until = {}

    def add(self, number, until):
        self.until[number] = max(until, self.until.pop(number, 0))
        if len(self.until) > SEEN_MAX:
            del self.until[next(iter(self.until))]

    def evict(self, now):
        self.until = {n: until for n, until in self.until.items() if until > now}


def agree(window, model, now):
    assert len(window) == len(model.until)
    for number in range(12):
        for at in (now - 1, now, now + 3):
            assert window.seen(digest(number), at) == (model.until.get(number, 0) > at)


@pytest.mark.usefixtures("_small")
@settings(max_examples=300)
@given(STEPS)
def test_what_was_added_is_seen_until_its_time_is_over_or_too_many_came(steps):
    window, model, now, length = DedupWindow(), Plain(), NOW, 10
    for step, argument in steps:
        if step == "add":
            window.add(digest(argument), now + length)
            model.add(argument, now + length)
        elif step == "pass":
            now += argument
        elif step == "evict":
            now += argument
            window.evict(now)
            model.evict(now)
        elif step == "window":
            length = argument
        else:
            window = DedupWindow.decode(window.encode())
        agree(window, model, now)
        held = sum(len(line.marks) for line in window._lines)
        assert held == len(window) + window._stale
        assert window._stale <= max(STALE_MIN, SEEN_MAX), "more in line than bounded"


@pytest.mark.parametrize(
    ("until", "now", "seen"), [(10, 9, True), (10, 10, False), (10, 11, False), (1, 0, True)]
)
def test_at_its_time_an_id_is_forgotten(until, now, seen):
    window = DedupWindow()
    window.add(digest(1), until)
    assert window.seen(digest(1), now) is seen
    assert not window.seen(digest(2), now)
    window.evict(now)
    assert len(window) == seen


def test_ids_of_a_shorter_window_go_before_older_ones_of_a_longer():
    window = DedupWindow()
    for number, until in enumerate([100, 101, 20, 21, 10, 102]):
        window.add(digest(number), until)
    window.evict(20)
    assert [n for n in range(6) if window.seen(digest(n), 0)] == [0, 1, 3, 5]
    assert len(window) == 4


def test_one_eviction_drops_what_is_over_whatever_window_it_came_with():
    window = DedupWindow()
    for number, until in enumerate([30, 20, 10]):
        window.add(digest(number), until)
    window.evict(30)
    assert len(window) == 0


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("restart", [False, True])
def test_an_id_added_again_is_the_youngest_also_after_a_restart(restart):
    window = DedupWindow()
    for number in [*range(SEEN_MAX), 0]:
        window.add(digest(number), 50)
    if restart:
        window = DedupWindow.decode(window.encode())
    window.add(digest(99), 50)
    assert [n for n in range(SEEN_MAX) if window.seen(digest(n), 0)] == [0, *range(2, SEEN_MAX)]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("untils", [range(50, 60), range(60, 50, -1), [50] * 10])
def test_beyond_the_limit_the_first_added_go_whenever_they_would_have_ended(untils):
    window = DedupWindow()
    for number, until in enumerate(untils):
        window.add(digest(number), until)
    assert [n for n in range(10) if window.seen(digest(n), 0)] == list(range(2, 10))
    assert len(window) == SEEN_MAX


def test_an_id_added_again_is_seen_until_the_later_time():
    window = DedupWindow()
    for until in (20, 30, 10):
        window.add(digest(1), until)
    window.evict(20)
    assert len(window) == 1
    assert window.seen(digest(1), 29)
    window.evict(30)
    assert len(window) == 0


def test_one_id_added_very_often_costs_no_more_than_a_few():
    window = DedupWindow()
    tracemalloc.start()
    try:
        for until in range(NOW, NOW + 20_000):
            window.add(digest(1), until)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(window) == 1
    assert size < 200_000


def test_the_encoding_is_a_count_and_each_digest_with_its_time():
    window = DedupWindow()
    window.add(b"a" * 16, 7)
    window.add(b"b" * 16, 5)
    data = window.encode()
    assert data == struct.pack(">I16sQ16sQ", 2, b"a" * 16, 7, b"b" * 16, 5)
    assert DedupWindow.decode(data).encode() == data
    assert len(DedupWindow.decode(DedupWindow().encode())) == 0


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1" + b"a" * 23, b"\0\0\0\0x"]
)
def test_a_damaged_encoding_is_refused(data):
    with pytest.raises(ValueError, match="bytes for"):
        DedupWindow.decode(data)


def test_a_digest_tells_ids_from_bodies_and_one_from_another():
    texts = [b"", b"a", b"b", b"a" * 100_000]
    digests = {digest_of_id(text) for text in texts} | {digest_of_body(text) for text in texts}
    assert len(digests) == 2 * len(texts)
    assert {len(each) for each in digests} == {DIGEST_BYTES}


def test_a_body_has_one_digest_in_whatever_buffer_it_lies():
    frame = b"head" + b"body" + b"\xce"
    assert digest_of_body(memoryview(frame)[4:8]) == digest_of_body(b"body")


def test_digests_stay_what_they_were_since_logs_hold_them():
    assert digest_of_id(b"order-1").hex() == "24a11477e8f0efe632743de9fe70fb30"
    assert digest_of_body(b"order-1").hex() == "35565b3c46121d39a4ab1ad0441f9835"
