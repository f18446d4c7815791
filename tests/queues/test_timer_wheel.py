"""The timer wheel against a list of timers that is looked through each time."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.timer_wheel import KEY_MAX, TIME_MS_MAX, TimerWheel

NOW = 1_790_000_000_000
DAY = 24 * 3600 * 1000
MONTH = 30 * DAY
# Around every power of two, where widths change, and anything between.
SPANS = st.one_of(
    st.integers(0, 300),
    st.integers(0, MONTH),
    st.builds(lambda bits, off: max(0, 2**bits + off), st.integers(0, 60), st.integers(-2, 2)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.tuples(st.integers(0, 20), SPANS)),
        st.tuples(st.just("add past"), st.tuples(st.integers(0, 20), st.integers(0, NOW))),
        st.tuples(st.just("fill"), st.lists(st.tuples(st.integers(0, KEY_MAX), SPANS))),
        st.tuples(st.just("advance"), SPANS),
        st.tuples(st.just("back"), SPANS),
        st.tuples(st.just("next"), st.just(0)),
        st.tuples(st.just("rebuild"), st.just(0)),
    ),
    max_size=30,
)


class Listed:
    """What a wheel should be: every timer by itself."""

    def __init__(self, now):
        self.now = now
        self.timers = []

    def advance(self, now):
        self.now = max(self.now, now)
        due = [timer for timer in self.timers if timer[1] <= self.now]
        self.timers = [timer for timer in self.timers if timer[1] > self.now]
        return sorted(due, key=lambda timer: (timer[1], timer[0]))


def do(step, argument, wheel, model):
    """One step to both; the wheel to go on with."""
    if step == "add":
        timer = (argument[0], model.now + argument[1])
        wheel.add(*timer)
        model.timers.append(timer)
    elif step == "add past":
        timer = (argument[0], max(0, model.now - argument[1]))
        wheel.add(*timer)
        model.timers.append(timer)
    elif step == "fill":
        timers = [(key, model.now + span) for key, span in argument]
        wheel.fill(iter(timers))
        model.timers += timers
    elif step == "advance":
        now = model.now + argument
        assert wheel.advance(now) == model.advance(now)
    elif step == "back":
        now = max(0, model.now - argument)
        assert wheel.advance(now) == model.advance(now)
    elif step == "next" and model.timers:
        now = wheel.next_ms()
        assert wheel.advance(now) == model.advance(now)
    elif step == "rebuild":
        old, wheel = wheel, TimerWheel(model.now)
        wheel.fill(old)
    return wheel


def agree(wheel, model):
    assert len(wheel) == len(model.timers)
    assert sorted(wheel) == sorted(model.timers)
    if model.timers:
        assert wheel.next_ms() <= min(due for _, due in model.timers)
    else:
        assert wheel.next_ms() is None


@given(STEPS, st.sampled_from([0, 1, 255, NOW]))
def test_what_is_due_rings_in_order_and_nothing_else_does(steps, now):
    wheel, model = TimerWheel(now), Listed(now)
    for step, argument in steps:
        wheel = do(step, argument, wheel, model)
        agree(wheel, model)
    assert wheel.advance(TIME_MS_MAX) == model.advance(TIME_MS_MAX)
    agree(wheel, model)


@given(st.lists(SPANS, min_size=1, max_size=20), st.sampled_from([0, 255, NOW]))
def test_who_comes_when_told_rings_each_timer_at_its_very_millisecond(spans, now):
    wheel = TimerWheel(now)
    wheel.fill(enumerate(now + span for span in spans))
    rung = []
    while (then := wheel.next_ms()) is not None:
        due = wheel.advance(then)
        assert all(at == then for _, at in due)
        rung += due
    assert sorted(rung) == list(enumerate(now + span for span in spans))


@pytest.mark.parametrize(
    ("span", "calls_max"),
    [(0, 1), (1, 1), (127, 1), (128, 2), (60_000, 3), (DAY, 4), (MONTH, 5), (2**63, 10)],
)
def test_the_way_to_a_timer_takes_a_handful_of_calls(span, calls_max):
    wheel = TimerWheel(NOW)
    wheel.add(7, NOW + span)
    rung, calls = [], 0
    while not rung:
        rung = wheel.advance(wheel.next_ms())
        calls += 1
    assert rung == [(7, NOW + span)]
    assert calls <= calls_max


@pytest.mark.parametrize(
    ("dues", "now", "rung"),
    [
        ([], MONTH, []),
        ([5], 4, []),
        ([5], 5, [5]),
        ([5], MONTH, [5]),
        ([0], 0, [0]),
        ([3 * MONTH], 3 * MONTH - 1, []),
        ([3 * MONTH, MONTH, 2 * MONTH], 3 * MONTH, [MONTH, 2 * MONTH, 3 * MONTH]),
        ([TIME_MS_MAX], TIME_MS_MAX - 1, []),
        ([TIME_MS_MAX], TIME_MS_MAX, [TIME_MS_MAX]),
    ],
)
def test_a_timer_rings_at_its_time_and_not_before(dues, now, rung):
    wheel = TimerWheel(0)
    wheel.fill((1, due) for due in dues)
    assert [due for _, due in wheel.advance(now)] == rung
    assert len(wheel) == len(dues) - len(rung)


def test_timers_of_one_millisecond_ring_in_the_order_of_their_keys():
    wheel = TimerWheel(NOW)
    for key in (3, KEY_MAX, 0, 2):
        wheel.add(key, NOW + DAY)
    wheel.add(9, NOW + DAY - 1)
    assert [key for key, _ in wheel.advance(NOW + DAY)] == [9, 0, 2, 3, KEY_MAX]


def test_a_timer_of_the_past_rings_at_once_with_its_own_time():
    wheel = TimerWheel(NOW)
    wheel.add(1, NOW - DAY)
    wheel.add(2, NOW - MONTH)
    assert wheel.next_ms() <= NOW - MONTH
    assert wheel.advance(NOW) == [(2, NOW - MONTH), (1, NOW - DAY)]
    assert wheel.next_ms() is None


def test_an_earlier_now_does_not_turn_time_back():
    wheel = TimerWheel(NOW)
    wheel.advance(NOW + 1000)
    wheel.add(1, NOW + 500)
    assert wheel.advance(NOW) == [(1, NOW + 500)]


def test_a_wheel_that_slept_for_long_rings_what_is_added_on_time():
    wheel = TimerWheel(NOW)
    wheel.add(1, NOW + MONTH + 10)
    assert wheel.advance(NOW + MONTH) == []
    assert wheel.advance(NOW + MONTH + 10) == [(1, NOW + MONTH + 10)]


@pytest.mark.parametrize("timer", [(-1, 5), (KEY_MAX + 1, 5), (1, -1), (1, TIME_MS_MAX + 1)])
def test_what_does_not_fit_is_refused_and_leaves_no_trace(timer):
    wheel = TimerWheel(0)
    with pytest.raises(AssertionError):
        wheel.add(*timer)
    assert (len(wheel), wheel.next_ms(), wheel.advance(MONTH)) == (0, None, [])


def test_a_timer_costs_no_more_than_24_bytes():
    count = 200_000
    tracemalloc.start()
    try:
        wheel = TimerWheel(NOW)
        wheel.fill((key, NOW + key * (MONTH // count)) for key in range(count))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(wheel) == count
    assert 16 * count < size <= 24 * count


@pytest.mark.parametrize("delay", [70_000, 20 * 60 * 1000, 5 * 3600 * 1000, 11 * DAY])
def test_no_call_moves_more_than_a_small_share_of_timers_set_for_one_delay(delay):
    """That is what would stall the node: counted in timers, since clocks lie."""
    count = 2_000
    wheel = TimerWheel(NOW)
    moved_max = 0
    for key in range(count):
        now = NOW + key * delay // count
        moved_max = max(moved_max, moved_by(wheel, now))
        wheel.add(key, now + delay)
    while len(wheel):
        moved_max = max(moved_max, moved_by(wheel, wheel.next_ms()))
    assert moved_max <= count // 50


def moved_by(wheel, now):
    """How many timers change their slot, or leave it, at this advance."""
    before = {start: len(slot) // 2 for start, slot in wheel._slots.items()}
    wheel.advance(now)
    return sum(held for start, held in before.items() if start not in wheel._slots)
