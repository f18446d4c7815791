"""What a pipeline's file says of the alarm for errors and of backpressure."""

from pathlib import Path

import pytest

from spark.etl.error_rate import ErrorRate
from spark.etl.errors import SpecError
from spark.etl.spec import LetterAlarm
from spark.etl.spec_reading import read_spec

PIPELINE = {
    "pipeline": {"name": "shop", "checkpoint": "checkpoint"},
    "sources": {"orders": {"topics": ["orders"], "format": "raw"}},
    "sinks": [{"kind": "console", "input": "orders"}],
}


def read(**tables):
    return read_spec({**PIPELINE, **tables}, "shop.toml", Path())


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, LetterAlarm(None, 60)),
        ({"alarm_rate": 0.05}, LetterAlarm(0.05, 60)),
        ({"alarm_rate": 0.5, "alarm_window_s": 5}, LetterAlarm(0.5, 5)),
    ],
)
def test_a_file_says_when_too_many_records_fail(table, expected) -> None:
    assert read(dead_letters=table).letter_alarm == expected


@pytest.mark.parametrize(
    "table",
    [
        {"alarm_rate": 5},
        {"alarm_rate": 0.0},
        {"alarm_rate": 1.0},
        {"alarm_rate": "5 %"},
        {"alarm_rate": float("nan")},
        {"alarm_window_s": 0},
        {"alarm_rates": 0.05},
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(table) -> None:
    with pytest.raises(SpecError, match=r"shop.toml: \[dead_letters\] alarm"):
        read(dead_letters=table)


def test_few_records_are_no_reason_for_an_alarm() -> None:
    rate = ErrorRate(0.1, 60)
    rate.add(0, 10, 10)
    assert not rate.is_too_high(1)
    rate.add(1, 10, 10)
    assert rate.is_too_high(1)
    assert rate.share(1) == 1.0


def test_a_window_forgets_what_is_older() -> None:
    rate = ErrorRate(0.1, 60)
    rate.add(0, 100, 100)
    rate.add(30, 100, 0)
    assert rate.share(60) == 0.5
    assert rate.share(61) == 0.0
    assert not rate.is_too_high(61)
