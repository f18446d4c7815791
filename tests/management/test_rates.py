"""Samples and rates: what is kept, how it is found again, what is made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.http.messages import HttpError, Request
from broker.management.history import Levels, Series
from broker.management.rates import Age, View, age_of

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=40)


@given(STEPS, st.integers(1, 50))
def test_a_series_is_a_table_of_all_ticks(steps, most) -> None:
    """The model: a dict with the value at every tick, of which the series keeps the changes."""
    series, table, tick, total = Series(1), {}, 0, 0
    changes = []
    for gap, growth in steps:
        for between in range(tick, tick + gap):
            table[between] = total if changes else None
        tick += gap
        total += growth
        series.add(tick, [total], most=most)
        if not changes or changes[-1][1] != total:
            changes.append((tick, total))
    table[tick] = total if changes else None
    oldest = changes[-most:][0][0] if changes else 0
    ticks = [t for t in sorted(table, reverse=True) if t >= oldest]
    assert len(series) == min(len(changes), most)
    assert [None if row is None else row[0] for row in series.at(ticks)] == [
        table[t] for t in ticks
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=400))
def test_levels_keep_coarse_samples_for_longer(growth) -> None:
    levels, total, totals = Levels(1), 0, {}
    for tick, more in enumerate(growth, 1):
        total += more
        totals[tick] = total
        levels.add(tick, [total])
    last = len(growth) - len(growth) % 12
    coarse = levels.for_age(12 * 61)
    ticks = [t for t in range(last, 0, -12) if t > last - 12 * 61]
    assert [row[0] for row in coarse.at(ticks)] == [totals[t] for t in ticks]


def series_of(*rows: tuple[int, int]) -> Series:
    series = Series(1)
    for tick, value in rows:
        series.add(tick, [value], most=100)
    return series


@pytest.mark.parametrize(
    ("rows", "rate"),
    [
        ([(9, 100), (10, 150)], 10.0),  # 50 in five seconds
        ([(10, 150)], 30.0),  # a counter begins with nothing
        ([(8, 100), (9, 150)], 0.0),  # nothing since
        ([], 0.0),
    ],
)
def test_the_rate_is_that_of_the_last_interval(rows, rate) -> None:
    assert View(series_of(*rows), ["publish"], 10).rate("publish") == rate


def test_a_length_that_is_seen_for_the_first_time_has_no_rate() -> None:
    assert View(series_of((10, 150)), ["messages_ready"], 10).rate("messages_ready") == 0.0


def test_samples_go_back_from_the_last_tick() -> None:
    view = View(series_of((8, 1), (10, 11)), ["publish"], 10, Age(3, 1))
    details = view.details("publish")
    assert [one["sample"] for one in details["samples"]] == [11, 1, 1, 0]
    assert [one["timestamp"] for one in details["samples"]] == [50000, 45000, 40000, 35000]
    assert details["avg"] == 13 / 4
    assert details["avg_rate"] == 11 / 15
    assert details["rate"] == 2.0


def ask(**query: str) -> Request:
    return Request(method="GET", path="/", query={key: [text] for key, text in query.items()})


def test_ages_are_seconds() -> None:
    assert age_of(ask(lengths_age="60", lengths_incr="5"), "lengths") == Age(12, 1)
    assert age_of(ask(lengths_age="3600", lengths_incr="60"), "lengths") == Age(720, 12)
    assert age_of(ask(lengths_age="60"), "lengths") is None
    with pytest.raises(HttpError):
        age_of(ask(lengths_age="6000000", lengths_incr="5"), "lengths")


def test_rates_of_several_counters_add_up() -> None:
    series = Series(2)
    series.add(9, [10, 20], most=9)
    series.add(10, [15, 30], most=9)
    assert View(series, ["deliver", "get"], 10).details("deliver", "get") == {"rate": 3.0}
