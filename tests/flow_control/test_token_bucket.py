"""The token bucket against exact fractions, millisecond by millisecond."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_control.token_bucket import TokenBucket

NOW = 1_790_000_000_000
RATES = st.one_of(
    st.integers(1, 100_000),
    st.sampled_from([0.1, 0.3, 0.7, 1 / 3, 2.5, 999.9, 1e-3, 1e9]),
    st.floats(0.01, 10_000),
)
BURSTS = st.one_of(st.integers(1, 1000), st.sampled_from([1.0, 1.5, 33.3]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 200)),
        st.tuples(st.just("charge"), st.integers(0, 200)),
        st.tuples(st.just("rate"), st.tuples(RATES, BURSTS)),
        st.tuples(st.just("wait"), st.integers(0, 50)),
        st.tuples(st.just("back"), st.integers(0, 50)),
        st.tuples(st.just("until ready"), st.just(0)),
    ),
    max_size=30,
)
READY_MS_MAX = 300  # the model counts milliseconds one by one


class Counted:
    """Fractions of tokens, added for each millisecond that passes."""

    def __init__(self, rate, burst):
        self.held = Fraction(str(burst))
        self.set_rate(rate, burst)

    def set_rate(self, rate, burst):
        self.per_ms = Fraction(str(rate)) / 1000
        self.burst = Fraction(str(burst))
        self.held = min(self.held, self.burst)

    def pass_ms(self, count):
        for _ in range(count):
            self.held = min(self.burst, self.held + self.per_ms)

    def take(self, wanted):
        taken = 0
        while taken < wanted and self.held >= 1:
            self.held -= 1
            taken += 1
        return taken

    def wait_ms(self):
        """How long until a token is there; None if that is too long to count."""
        held, waited = self.held, 0
        while held < 1 and waited <= READY_MS_MAX:
            held += self.per_ms
            waited += 1
        return waited if waited <= READY_MS_MAX else None


@given(STEPS, RATES, BURSTS)
def test_tokens_come_and_go_as_counted_one_by_one(steps, rate, burst):
    now = NOW
    bucket, model = TokenBucket(rate, burst, now), Counted(rate, burst)
    for step, argument in steps:
        if step == "take":
            assert bucket.take(argument, now) == model.take(argument)
        elif step == "charge":
            bucket.charge(argument, now)
            model.held -= argument
        elif step == "rate":
            bucket.set_rate(*argument, now)
            model.set_rate(*argument)
        elif step == "wait":
            now += argument
            model.pass_ms(argument)
        elif step == "back":
            bucket.take(0, now)
            assert bucket.take(1, now - argument) == model.take(1)
        elif (wait_ms := model.wait_ms()) is not None:
            assert bucket.ready_ms(now) == now + wait_ms
            now += wait_ms
            model.pass_ms(wait_ms)
        else:
            assert bucket.ready_ms(now) > now + READY_MS_MAX


@pytest.mark.parametrize(
    ("rate", "burst", "asked", "given_"),
    [
        (10, 5, [(0, 3), (0, 3), (0, 1)], [3, 2, 0]),
        (10, 5, [(0, 5), (99, 1), (100, 1), (199, 1), (200, 1)], [5, 0, 1, 0, 1]),
        (10, 5, [(0, 5), (10_000, 9)], [5, 5]),
        (0.3, 4, [(0, 4), (9_999, 4), (10_000, 4)], [4, 2, 1]),
        (1000, 1, [(0, 2), (1, 2), (2, 2), (4, 2)], [1, 1, 1, 1]),
        (10, 1.5, [(0, 9), (50, 9), (1_000, 9)], [1, 1, 1]),
        (10, 5, [(0, 0)], [0]),
    ],
)
def test_as_many_go_as_there_are(rate, burst, asked, given_):
    bucket = TokenBucket(rate, burst, NOW)
    assert [bucket.take(wanted, NOW + at) for at, wanted in asked] == given_


@pytest.mark.parametrize("rate", [0.1, 0.3, 1 / 3, 7, 33.3, 999.9])
def test_in_a_day_of_many_small_steps_rounding_wins_or_loses_no_millisecond(rate):
    burst, day_ms, step_ms = 10, 24 * 3600 * 1000, 997
    bucket = TokenBucket(rate, burst, NOW)
    bucket.take(burst, NOW)
    taken = 0
    for at in [*range(0, day_ms, step_ms), day_ms]:
        bucket.charge(1000, NOW + at)  # so that it is never full, and none is lost
        taken += 1000
    rest = taken - Fraction(str(rate)) * day_ms / 1000
    wait_ms = ceil((rest + 1) * 1000 / Fraction(str(rate)))
    assert bucket.ready_ms(NOW + day_ms) == NOW + day_ms + wait_ms


@pytest.mark.parametrize(
    ("rate", "debt", "ready"), [(10, 0, 100), (10, 3, 400), (3, 0, 334), (0.5, 1, 4_000)]
)
def test_a_debt_is_paid_before_the_next_token_comes(rate, debt, ready):
    bucket = TokenBucket(rate, 5, NOW)
    bucket.charge(5 + debt, NOW)
    assert bucket.ready_ms(NOW) == NOW + ready
    assert bucket.take(1, NOW + ready - 1) == 0
    assert bucket.take(1, NOW + ready) == 1


def test_with_a_token_there_it_is_ready_now_even_by_a_clock_that_went_back():
    bucket = TokenBucket(10, 5, NOW)
    assert bucket.ready_ms(NOW) == NOW
    assert bucket.ready_ms(NOW - 5) == NOW - 5


def test_a_clock_that_goes_back_and_forth_brings_no_token_twice():
    bucket = TokenBucket(1000, 100, NOW)
    bucket.take(100, NOW)
    assert bucket.take(100, NOW + 10) == 10
    assert bucket.take(100, NOW) == 0
    assert bucket.take(100, NOW + 10) == 0
    assert bucket.take(100, NOW + 11) == 1


def test_a_new_rate_counts_from_now_and_keeps_what_is_there():
    bucket = TokenBucket(10, 10, NOW)
    bucket.take(10, NOW)
    bucket.set_rate(100, 4, NOW + 250)  # two and a half so far
    assert bucket.take(9, NOW + 250) == 2
    assert bucket.take(9, NOW + 255) == 1
    bucket.set_rate(1, 2, NOW + 1_000)  # four, of which two fit
    assert bucket.take(9, NOW + 1_000) == 2


def test_a_clock_that_went_back_makes_no_token_come_sooner():
    bucket = TokenBucket(10, 5, NOW)
    bucket.take(5, NOW)
    assert bucket.ready_ms(NOW - 50) == NOW + 100


def test_no_share_of_a_token_is_lost_however_often_the_rate_changes():
    bucket = TokenBucket(0.007, 1, NOW)
    bucket.take(1, NOW)
    for at in range(1000):
        bucket.set_rate(10, 1, NOW + at)
        bucket.set_rate(0.007, 1, NOW + at)
    assert bucket.ready_ms(NOW + 1000) == NOW + ceil(1000 / Fraction("0.007"))


def test_a_new_rate_forgives_no_debt():
    bucket = TokenBucket(10, 10, NOW)
    bucket.charge(30, NOW)
    bucket.set_rate(100, 50, NOW)
    assert bucket.ready_ms(NOW) == NOW + 210


@pytest.mark.parametrize(("rate", "burst"), [(0, 5), (-1, 5), (10, 0), (10, 0.5)])
def test_a_bucket_that_could_never_give_is_refused(rate, burst):
    with pytest.raises(AssertionError):
        TokenBucket(rate, burst, NOW)
