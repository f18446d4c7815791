"""The node's timers, on a clock that jumps: pytest-trio takes it from a test's own arguments."""

from functools import partial

import pytest
import trio

from broker.timers import Timers


@pytest.fixture
async def timers(nursery):
    timers = Timers()
    timers.bursts = 0

    def after():
        timers.bursts += 1

    nursery.start_soon(timers.run, after)
    return timers


@pytest.fixture
def rung():
    return []


def ring(timers, rung, name, after_ms):
    due = timers.now_ms() + after_ms
    timers.call_at(due, lambda: rung.append((name, timers.now_ms() - due)))


async def test_callbacks_come_at_their_time_whatever_order_they_were_asked_for(
    autojump_clock, timers, rung
):
    for name, after_ms in (("c", 300), ("a", 100), ("d", 80_000_000), ("b", 200)):
        ring(timers, rung, name, after_ms)
    await trio.sleep(0.05)
    assert rung == []
    await trio.sleep(86_000)
    assert [name for name, _ in rung] == ["a", "b", "c", "d"]
    assert all(0 <= late <= 2 for _, late in rung)


@pytest.mark.provokes_internal_errors
async def test_a_callback_that_fails_keeps_no_other_waiting(autojump_clock, timers, rung):
    ring(timers, rung, "before", 100)
    timers.call_at(timers.now_ms() + 100, partial(int, "no number"))
    ring(timers, rung, "with it", 100)
    ring(timers, rung, "after", 200)
    await trio.sleep(1)
    assert [name for name, _ in rung] == ["before", "with it", "after"]
    assert timers.bursts == 2
    assert timers.errors.counts["timer"] == timers.errors.total == 1


async def test_an_earlier_deadline_cuts_a_longer_wait_short(autojump_clock, timers, rung):
    ring(timers, rung, "late", 60_000)
    await trio.sleep(1)
    ring(timers, rung, "early", 1_000)
    await trio.sleep(1.1)
    assert [name for name, _ in rung] == ["early"]


async def test_callbacks_of_the_same_millisecond_come_in_the_order_they_were_asked_for(
    autojump_clock, timers, rung
):
    for name in range(5):
        ring(timers, rung, name, 10)
    await trio.sleep(0.1)
    assert [name for name, _ in rung] == [0, 1, 2, 3, 4]


async def test_one_burst_of_callbacks_is_followed_by_one_call(autojump_clock, timers, rung):
    for name in range(3):
        ring(timers, rung, name, 10)
    ring(timers, rung, "later", 500)
    await trio.sleep(0.1)
    assert timers.bursts == 1
    await trio.sleep(1)
    assert timers.bursts == 2


async def test_a_deadline_in_the_past_rings_at_once(autojump_clock, timers, rung):
    await trio.sleep(1)
    ring(timers, rung, "past", -500)
    await trio.sleep(0.01)
    assert [name for name, _ in rung] == ["past"]


async def test_a_callback_may_ask_for_another(autojump_clock, timers, rung):
    def again():
        rung.append(timers.now_ms())
        if len(rung) < 4:
            timers.call_at(timers.now_ms() + 100, again)

    start = timers.now_ms()
    timers.call_at(start, again)
    await trio.sleep(1)
    assert [round((when - start) / 100) for when in rung] == [0, 1, 2, 3]


async def test_time_is_wall_clock_time_that_follows_trios_clock(autojump_clock, timers):
    start = timers.now_ms()
    await trio.sleep(3600)
    assert 3_600_000 <= timers.now_ms() - start <= 3_600_001
    assert start > 1_600_000_000_000


async def test_a_cancelled_timer_lets_go_of_its_callback_and_never_rings(autojump_clock):
    timers = Timers()
    rung = []
    cancelled = [
        timers.call_at(timers.now_ms() + 50, lambda: rung.append("no")) for _ in range(5000)
    ]
    timers.call_at(timers.now_ms() + 60, lambda: rung.append("yes"))
    for timer in cancelled:
        timer.cancel()
        timer.cancel()
    assert all(timer.callback is None for timer in cancelled)
    assert len(timers._heap) < 1500, "cancelled ones do not pile up"
    with trio.move_on_after(1):
        await timers.run(lambda: None)
    assert rung == ["yes"]
