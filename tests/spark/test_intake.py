"""Adaptive intake: batches take about as long as they should, within bounds, whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.stream_messages import Partition
from spark import intake
from spark.columns import full_schema
from spark.errors import OptionError
from spark.intake import Bounds, Intake
from spark.options import stream_options
from spark.pace import Pace
from spark.places import decode
from spark.stream_reader import StreamReader

BOUNDS = Bounds(target_ms=1000, least_rows=100, most_rows=1_000_000)


@pytest.mark.parametrize(
    ("limit", "rows", "took_ms", "expected"),
    [
        (10_000, 10_000, 1000, 10_000),
        (10_000, 10_000, 950, 10_000),  # near enough
        (10_000, 10_000, 800, 12_500),
        (10_000, 10_000, 100, 20_000),  # twice as many at most
        (10_000, 10_000, 0, 20_000),
        (10_000, 10_000, 2000, 5_000),
        (10_000, 10_000, 60_000, 2_500),  # a quarter at least
        (10_000, 50, 100, 10_000),  # few and quick says nothing
        (10_000, 50, 2000, 5_000),  # few and slow: the sink is slow
        (10_000, 0, 60_000, 10_000),  # nothing was to be done
        (150, 150, 60_000, 100),  # within bounds
        (900_000, 900_000, 10, 1_000_000),
    ],
)
def test_the_next_batch_follows_from_the_last(limit, rows, took_ms, expected) -> None:
    assert intake.after(Intake(limit), rows, took_ms, BOUNDS).limit == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [(BOUNDS, 10_000), (Bounds(1, 1, 500), 500), (Bounds(1, 50_000, 90_000), 50_000)],
)
def test_the_first_batch_is_not_the_whole_backlog(bounds, expected) -> None:
    assert intake.first(bounds).limit == expected


def run(state: Intake, batches: int, took_ms, bounds: Bounds = BOUNDS) -> Intake:
    """Full batches, each of which takes as long as the function of its rows says."""
    for _ in range(batches):
        state = intake.after(state, state.limit, took_ms(state.limit), bounds)
    return state


@given(
    fixed_ms=st.floats(0, 500),
    rows_per_ms=st.floats(0.5, 500),
    start=st.integers(100, 1_000_000),
)
def test_batches_come_to_take_the_target(fixed_ms, rows_per_ms, start) -> None:
    def took_ms(rows: int) -> float:
        return fixed_ms + rows / rows_per_ms

    limit = run(Intake(start), 60, took_ms).limit
    assert 850 <= took_ms(limit) <= 1150 or limit in (BOUNDS.least_rows, BOUNDS.most_rows)


@given(st.lists(st.tuples(st.integers(0, 2_000_000), st.floats(0, 1e9)), max_size=50))
def test_the_limit_stays_within_its_bounds_and_moves_by_bounded_steps(batches) -> None:
    state = intake.first(BOUNDS)
    for rows, took_ms in batches:
        before, state = state.limit, intake.after(state, rows, took_ms, BOUNDS)
        assert BOUNDS.least_rows <= state.limit <= BOUNDS.most_rows
        assert before // 4 <= state.limit <= before * 2


@given(stall_ms=st.floats(5_000, 600_000), batches=st.integers(1, 20))
def test_a_sink_that_stalls_slows_intake_and_it_recovers(stall_ms, batches) -> None:
    def healthy(rows: int) -> float:
        return rows / 100

    steady = run(intake.first(BOUNDS), 30, healthy)
    stalled = steady
    for place in range(batches):
        stalled = intake.after(stalled, stalled.limit, stall_ms * (1 + place % 3), BOUNDS)
        assert stalled.limit < steady.limit
    recovered = run(stalled, 30, healthy)
    assert 900 <= healthy(recovered.limit) <= 1100


@given(
    every_ms=st.integers(2_000, 60_000),
    jitter_ms=st.lists(st.floats(0, 20), min_size=40, max_size=40),
)
def test_the_wait_for_a_rare_trigger_is_not_taken_for_slowness(every_ms, jitter_ms) -> None:
    state = intake.first(BOUNDS)
    for jitter in jitter_ms:
        work_ms = state.limit / 1000
        state = intake.after(state, state.limit, max(every_ms, work_ms) + jitter, BOUNDS)
    assert state.limit == BOUNDS.most_rows


# The reader


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def pace_of(**options: str) -> tuple[Pace, Clock]:
    clock = Clock()
    return Pace(stream_options({"subscribe": "a", **options}).limits, clock), clock


def test_a_batch_is_timed_from_its_plan_to_the_next() -> None:
    pace, clock = pace_of(adaptiveTargetMs="1000", maxOffsetsPerTrigger="50000")
    there = {Partition("a", 0): 10_000}
    assert pace.limits.max_rows == 10_000
    pace.reached({})
    pace.planned(there, 10_000)
    clock.now_s += 0.5
    pace.reached(there)
    assert pace.limits.max_rows == 20_000
    clock.now_s += 1000  # nothing is there to be read
    pace.planned(there, 0)
    pace.reached(there)
    assert pace.limits.max_rows == 20_000


def test_a_batch_that_was_not_done_says_nothing() -> None:
    pace, clock = pace_of(adaptiveTargetMs="1000")
    pace.planned({Partition("a", 0): 10_000}, 10_000)
    clock.now_s += 60
    pace.reached({Partition("a", 0): 0})
    assert pace.limits.max_rows == 10_000


def test_without_a_target_limits_are_as_given() -> None:
    pace, clock = pace_of(maxOffsetsPerTrigger="77")
    pace.planned({Partition("a", 0): 77}, 77)
    clock.now_s += 60
    pace.reached({Partition("a", 0): 77})
    assert pace.limits.max_rows == 77


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({}, None),
        ({"adaptiveTargetMs": "500"}, Bounds(500, 1000, 10_000_000)),
        ({"adaptiveTargetMs": "500", "maxOffsetsPerTrigger": "70"}, Bounds(500, 70, 70)),
        ({"adaptiveTargetMs": "500", "adaptiveMinOffsets": "5"}, Bounds(500, 5, 10_000_000)),
    ],
)
def test_options_say_the_bounds(options, bounds) -> None:
    assert stream_options({"subscribe": "a", **options}).limits.adaptive == bounds


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adaptiveTargetMs": "0"}, "adaptiveTargetMs='0'"),
        ({"adaptiveMinOffsets": "5"}, "which is not given"),
        (
            {"adaptiveTargetMs": "5", "adaptiveMinOffsets": "9", "maxOffsetsPerTrigger": "8"},
            "more than maxOffsetsPerTrigger=8",
        ),
    ],
)
def test_options_that_make_no_sense_are_told(options, said) -> None:
    with pytest.raises(OptionError, match=said):
        stream_options({"subscribe": "a", **options})


def test_a_query_that_is_slow_reads_less_at_a_time_and_all_of_it(streams) -> None:
    name = streams.declare(partitions=2)
    for partition in range(2):
        streams.fill(name, [b"%d" % number for number in range(9000)], partition)
    given = {"subscribe": name, "startingOffsets": "earliest", "adaptiveTargetMs": "1000"}
    options = stream_options({"url": streams.url, **given})
    reader = StreamReader(full_schema(headers=False), options)
    reader._pace._now_s = clock = Clock()
    at = reader.initialOffset()
    sizes = []
    for took_s in (8, 6, 0.5, 0.5, 0.5, 0.5):
        start, at = at, reader.latestOffset(at, reader.getDefaultReadLimit())
        sizes.append(sum(decode(at).values()) - sum(decode(start).values()))
        clock.now_s += took_s
    assert sizes == [10_000, 2_500, 1_000, 2_000, 2_500, 0]
    assert decode(at) == {Partition(name, 0): 9000, Partition(name, 1): 9000}
