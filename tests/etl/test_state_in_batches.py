"""State from batch to batch, over a restart, with records that are late: as a model of Spark's
watermark says, and to the row.

A batch drops what is late by the watermark that the batch before it went by, and lets go of state
by the one that all batches before it lead to. When a run has no more to read and the watermark has
moved, there is one more batch without records.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tests.etl.faker_data import END, OPENING, Row, Shop, moment_of, text_of
from tests.etl.scene import PipelineScene, ordered, running

BATCH = 50
DELAY = timedelta(minutes=2)
SIZE = timedelta(minutes=5)
GAP = timedelta(minutes=4)
WITHIN = timedelta(minutes=10)
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
LAST = text_of(OPENING + END)

PROCESSORS = '''
from datetime import timedelta

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Orders(StatefulProcessor):
    """How many a user has in the ten minutes from the first of them on."""

    def init(self, handle):
        self._handle = handle
        self._count = handle.getValueState("count", "orders int")

    def handleInputRows(self, key, rows, timerValues):
        rows = list(rows)
        count = self._count.get()[0] if self._count.exists() else 0
        if not count:
            self._handle.registerTimer(self.end(rows, timerValues))
        self._count.update((count + len(rows),))
        return iter(())

    def end(self, rows, timerValues):
        return int((min(row.at for row in rows) + timedelta(minutes=10)).timestamp() * 1000)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        count = self._count.get()[0]
        self._count.clear()
        yield Row(user=key[0], orders=count)

    def close(self):
        pass


class Soon(Orders):
    """The same by the clock on the wall: until the next batch."""

    def end(self, rows, timerValues):
        return timerValues.getCurrentProcessingTimeInMs() + 1
'''


class Batch(NamedTuple):
    rows: list[list[Row]]  # of each source
    late: datetime  # what is not after this is dropped
    now: datetime  # state that is not after this is let go


def batches(runs: Iterable[list[list[Row]]], *times: str) -> Iterator[Batch]:
    """Of runs over several sources, with the columns of their event times."""
    most = [NEVER + DELAY for _ in times]
    late = now = NEVER
    for sources in runs:
        for place in range(0, max(map(len, sources)), BATCH):
            some = [rows[place : place + BATCH] for rows in sources]
            late, now = now, min(most) - DELAY
            yield Batch(some, late, now)
            for number, time in enumerate(times):
                most[number] = max([most[number], *(moment_of(row[time]) for row in some[number])])
        if min(most) - DELAY > now:
            late, now = now, min(most) - DELAY
            yield Batch([[] for _ in times], late, now)


# Models: what comes out, and how many rows are late.

Found = tuple[list[Row], int]


def windows(found: Iterable[Batch]) -> Found:
    sums: dict[tuple[datetime, str], int] = defaultdict(int)
    out, dropped = [], 0
    for batch in found:
        for row in batch.rows[0]:
            moment = moment_of(row["at"])
            start = moment - (moment - OPENING) % SIZE
            if start + SIZE <= batch.late:
                dropped += 1
            else:
                sums[start, row["user"]] += row["cents"]
        for start, user in [key for key in sums if key[0] + SIZE <= batch.now]:
            window = {"window_start": text_of(start), "window_end": text_of(start + SIZE)}
            out.append({**window, "user": user, "cents": sums.pop((start, user))})
    return out, dropped


def sessions(found: Iterable[Batch]) -> Found:
    kept: dict[str, list[tuple[datetime, datetime, int]]] = defaultdict(list)
    out, dropped = [], 0
    for batch in found:
        for row in batch.rows[0]:
            moment = moment_of(row["at"])
            if moment + GAP <= batch.late:
                dropped += 1
            else:
                kept[row["user"]].append((moment, moment + GAP, 1))
        for user, some in kept.items():
            merged: list[tuple[datetime, datetime, int]] = []
            for start, end, count in sorted(some):
                if merged and start <= merged[-1][1]:
                    first, before, others = merged.pop()
                    merged.append((first, max(before, end), others + count))
                else:
                    merged.append((start, end, count))
            kept[user] = [each for each in merged if each[1] > batch.now]
            out += [
                {"window_start": text_of(a), "window_end": text_of(b), "user": user, "orders": n}
                for a, b, n in merged
                if b <= batch.now
            ]
    return out, dropped


def firsts(found: Iterable[Batch]) -> Found:
    known: dict[int, datetime] = {}
    out, dropped = [], 0
    for batch in found:
        for row in batch.rows[0]:
            if moment_of(row["at"]) <= batch.late:
                dropped += 1
            elif row["id"] not in known:
                known[row["id"]] = moment_of(row["at"]) + DELAY
                out.append(row)
        known = {number: end for number, end in known.items() if end > batch.now}
    return out, dropped


def counts(found: Iterable[Batch]) -> Found:
    kept: dict[str, tuple[int, datetime]] = {}
    out, dropped = [], 0
    for batch in found:
        by_user: dict[str, list[datetime]] = defaultdict(list)
        for row in batch.rows[0]:
            if moment_of(row["at"]) <= batch.late:
                dropped += 1
            else:
                by_user[row["user"]].append(moment_of(row["at"]))
        for user, moments in by_user.items():
            before, end = kept.get(user, (0, min(moments) + timedelta(minutes=10)))
            kept[user] = (before + len(moments), end)
        over = [user for user, (_, end) in kept.items() if end <= batch.now]
        out += [{"user": user, "orders": kept.pop(user)[0]} for user in over]
    return out, dropped


def joined(found: Iterable[Batch]) -> Found:
    sides: tuple[list[Row], list[Row]] = ([], [])
    dropped = 0
    for batch in found:
        for side, rows, time in zip(sides, batch.rows, ("shown", "clicked"), strict=True):
            timely = [row for row in rows if moment_of(row[time]) > batch.late]
            dropped += len(rows) - len(timely)
            side.extend(timely)
    out = []
    for left in sides[0]:
        begin = moment_of(left["shown"])
        matches = [
            right["clicked"]
            for right in sides[1]
            if right["ad"] == left["ad"] and begin <= moment_of(right["clicked"]) <= begin + WITHIN
        ]
        out += [{**left, "clicked": each} for each in matches or [None]]
    return out, dropped


# What is run


def displaced(rows: list[Row], every: int, places: int) -> list[Row]:
    """Every so many-th comes so many places later than its time."""
    late = rows[::every]
    timely = [row for row in rows if row not in late]
    for number, row in enumerate(late):
        timely.insert(min(number * every + places, len(timely)), row)
    return timely


def orders() -> list[Row]:
    """In order of time but for some that are late, some of them very; some are there again."""
    rows = sorted(Shop().orders(200), key=lambda row: row["at"])
    rows = displaced(displaced(rows, 9, 60), 13, 120)
    for place in range(0, 200, 8):
        rows.insert(place + 15, rows[place])
    for place in range(0, 80, 20):
        rows.insert(place + 130, rows[place])
    return rows


SCHEMAS = {
    "orders": "id bigint, user string, cents bigint, at timestamp",
    "shown": "ad string, page string, shown timestamp",
    "clicks": "ad string, clicked timestamp",
}
TIMES = {"orders": "at", "shown": "shown", "clicks": "clicked"}
ENDS: dict[str, Row] = {
    "orders": {"id": -1, "user": "end", "cents": 0, "at": LAST},
    "shown": {"ad": "end", "page": "", "shown": LAST},
    "clicks": {"ad": "end", "clicked": LAST},
}
STATE = {"kind": "state", "input": "orders", "keys": ["user"], "schema": "user string, orders int"}
CASES: dict[str, tuple[dict[str, Any], Callable[[Iterable[Batch]], Found]]] = {
    "window": (
        {"input": "orders", "size": "5 minutes", "by": ["user"]}
        | {"kind": "window", "aggregates": {"cents": "sum(cents)"}},
        windows,
    ),
    "session": (
        {"input": "orders", "gap": "4 minutes", "by": ["user"]}
        | {"kind": "window", "aggregates": {"orders": "count(*)"}},
        sessions,
    ),
    "deduplicate": ({"kind": "deduplicate", "input": "orders", "keys": ["id"]}, firsts),
    "state": (STATE | {"time": "event", "processor": "processors:Orders"}, counts),
    "join": (
        {"kind": "join", "left": "shown", "right": "clicks", "on": ["ad"]}
        | {"within": "10 minutes", "how": "left"},
        joined,
    ),
}


def some_clicks() -> dict[str, list[Row]]:
    shop = Shop()
    impressions = sorted(shop.impressions(100), key=lambda row: row["shown"])
    clicks = sorted(shop.clicks(impressions), key=lambda row: row["clicked"])
    return {"shown": displaced(impressions, 7, 70), "clicks": displaced(clicks, 9, 70)}


@pytest.mark.parametrize("case", CASES)
def test_state_goes_on_from_batch_to_batch_and_over_a_restart(
    etl: PipelineScene, case: str
) -> None:
    (etl.directory / "processors.py").write_text(PROCESSORS)
    step, model = CASES[case]
    given = some_clicks() if case == "join" else {"orders": orders()}
    topics = {name: etl.declare(partitions=1) for name in given}
    sources = {
        name: {"topic": topic, "schema": SCHEMAS[name], "event_time": TIMES[name]}
        | {"watermark": "2 minutes"}
        for name, topic in topics.items()
    }
    target = etl.target(partitions=1)
    pipeline = etl.pipeline(
        sources,
        [{"kind": "stream", "input": "it", "topic": target}],
        [{"name": "it", **step}],
        limits={"max_offsets_per_trigger": BATCH},
    )
    middle = {name: len(rows) // 2 for name, rows in given.items()}
    runs: list[dict[str, list[Row]]] = [
        {name: rows[: middle[name]] for name, rows in given.items()},
        {name: [*rows[middle[name] :], ENDS[name]] for name, rows in given.items()},
    ]
    for run in runs:
        for name, rows in run.items():
            etl.fill(topics[name], rows)
        etl.run(pipeline)
    found = [*batches([[*run.values()] for run in runs], *(TIMES[name] for name in given))]
    told = [event.batch.number for event in etl.events if event.batch is not None]
    assert told == [*range(len(found))]  # the model has Spark's batches
    expected, dropped = model(found)
    assert ordered(_without_ends(etl.rows(target))) == ordered(_without_ends(expected))
    assert dropped


def _without_ends(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "end" not in row.values()]


def test_timers_go_by_the_clock_on_the_wall_as_well(etl: PipelineScene) -> None:
    (etl.directory / "soon.py").write_text(PROCESSORS)
    source, target = etl.declare(partitions=1), etl.target(partitions=1)
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": SCHEMAS["orders"]}},
        [{"kind": "stream", "input": "soon", "topic": target}],
        [{"name": "soon", **STATE, "time": "processing", "processor": "soon:Soon"}],
        trigger="100ms",
    )
    some = Shop().orders(30)
    etl.fill(source, some)
    expected = Counter(order["user"] for order in some)
    with running(etl, pipeline) as wait:
        wait(lambda: len(etl.rows(target)) >= len(expected), "all timers")
    assert {row["user"]: row["orders"] for row in etl.rows(target)} == expected
