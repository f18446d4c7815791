"""Windows, joins, deduplication and state against models that are too simple to be wrong.

All records come in one batch; a last one, a day later, lets the watermark pass everything else.
"""

from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.etl.faker_data import END, OPENING, Shop, moment_of, text_of
from tests.etl.scene import PipelineScene, ordered

ORDER = "id bigint, user string, cents bigint, at timestamp"
LATER = text_of(OPENING + END)
MUCH_LATER = text_of(OPENING + 2 * END)
LAST = {"id": -1, "user": "end", "cents": 0, "at": LATER}


def order_source(topic: str) -> dict[str, Any]:
    return {"topic": topic, "schema": ORDER, "event_time": "at", "watermark": "10 minutes"}


def run_orders(etl: PipelineScene, orders: list[Any], step: dict[str, Any]) -> list[Any]:
    """What comes of a step behind the source; without what the last record makes."""
    source, target = etl.declare(), etl.target()
    etl.fill(source, [*orders, LAST], key="user")
    pipeline = etl.pipeline(
        {"orders": order_source(source)},
        [{"kind": "stream", "input": step["name"], "topic": target}],
        [step],
    )
    etl.run(pipeline)
    return etl.rows(target)


def floor(moment: Any, size: timedelta) -> Any:
    return moment - (moment - OPENING.replace(hour=0)) % size


SIZES = [("10 minutes", None), ("10 minutes", "5 minutes")]


@pytest.mark.parametrize(("size", "slide"), SIZES)
def test_windows_add_up_what_is_in_them(etl: PipelineScene, size: str, slide: str | None) -> None:
    orders = Shop().orders(300)
    step = {
        "name": "sums",
        "kind": "window",
        "input": "orders",
        "size": size,
        "by": ["user"],
        "aggregates": {"cents": "sum(cents)", "orders": "count(*)"},
    }
    found = run_orders(etl, orders, step | ({"slide": slide} if slide else {}))
    expected: dict[Any, Counter[str]] = defaultdict(Counter)
    width, pace = timedelta(minutes=10), timedelta(minutes=5 if slide else 10)
    for order in orders:
        moment = moment_of(order["at"])
        start = floor(moment, pace)
        while start > moment - width:
            expected[start, order["user"]] += Counter(cents=order["cents"], orders=1)
            start -= pace
    assert ordered(found) == ordered(
        {
            "window_start": text_of(start),
            "window_end": text_of(start + width),
            "user": user,
            **counts,
        }
        for (start, user), counts in expected.items()
    )


def test_sessions_end_after_a_gap(etl: PipelineScene) -> None:
    orders = Shop().orders(200)
    step = {
        "name": "sessions",
        "kind": "window",
        "input": "orders",
        "gap": "5 minutes",
        "by": ["user"],
        "aggregates": {"orders": "count(*)"},
    }
    found = run_orders(etl, orders, step)
    by_user: dict[str, list[Any]] = defaultdict(list)
    for order in orders:
        by_user[order["user"]].append(moment_of(order["at"]))
    gap, expected = timedelta(minutes=5), []
    for user, moments in by_user.items():
        moments.sort()
        breaks = [i for i, (a, b) in enumerate(pairwise(moments), 1) if b - a > gap]
        for first, end in pairwise([0, *breaks, len(moments)]):
            expected.append(
                {
                    "window_start": text_of(moments[first]),
                    "window_end": text_of(moments[end - 1] + gap),
                    "user": user,
                    "orders": end - first,
                }
            )
    assert ordered(found) == ordered(expected)


def test_what_comes_again_is_left_out(etl: PipelineScene) -> None:
    orders = Shop().orders(100)
    step = {"name": "once", "kind": "deduplicate", "input": "orders", "keys": ["id"]}
    found = run_orders(etl, [*orders, *orders[::3], *orders[::7]], step)
    assert ordered(row for row in found if row["id"] >= 0) == ordered(orders)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_clicks_meet_their_impressions(etl: PipelineScene, how: str) -> None:
    shop = Shop()
    impressions = shop.impressions(150)
    clicks = shop.clicks(impressions)
    shown, clicked, target = etl.declare(), etl.declare(), etl.target()
    etl.fill(shown, [*impressions, {"ad": "end", "page": "", "shown": LATER}], key="ad")
    etl.fill(clicked, [*clicks, {"ad": "end", "clicked": MUCH_LATER}], key="ad")
    pipeline = etl.pipeline(
        {
            "impressions": {
                "topic": shown,
                "schema": "ad string, page string, shown timestamp",
                "event_time": "shown",
                "watermark": "10 minutes",
            },
            "clicks": {
                "topic": clicked,
                "schema": "ad string, clicked timestamp",
                "event_time": "clicked",
                "watermark": "20 minutes",
            },
        },
        [{"kind": "stream", "input": "seen", "topic": target, "key": "ad"}],
        [
            {
                "name": "seen",
                "kind": "join",
                "left": "impressions",
                "right": "clicks",
                "on": ["ad"],
                "within": "10 minutes",
                "how": how,
            }
        ],
    )
    etl.run(pipeline)
    by_ad: dict[str, list[str]] = defaultdict(list)
    for click in clicks:
        by_ad[click["ad"]].append(click["clicked"])
    expected = []
    for each in impressions:
        begin = moment_of(each["shown"])
        matches = [
            text
            for text in by_ad[each["ad"]]
            if begin <= moment_of(text) <= begin + timedelta(minutes=10)
        ]
        expected += [{**each, "clicked": text} for text in matches]
        if not matches and how == "left":
            expected.append({**each, "clicked": None})
    assert ordered(row for row in etl.rows(target) if row["ad"] != "end") == ordered(expected)


PROCESSOR = '''
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Running(StatefulProcessor):
    """Each order with what its user has spent so far."""

    def init(self, handle):
        self._spent = handle.getValueState("spent", "cents bigint")

    def handleInputRows(self, key, rows, timerValues):
        spent = self._spent.get()[0] if self._spent.exists() else 0
        for row in sorted(rows, key=lambda row: row.id):
            spent += row.cents
            yield Row(user=key[0], id=row.id, spent=spent)
        self._spent.update((spent,))

    def close(self):
        pass
'''


def test_state_of_ones_own_outlives_a_restart(etl: PipelineScene) -> None:
    (etl.directory / "running_totals.py").write_text(PROCESSOR)
    source, target = etl.declare(), etl.target()
    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": ORDER}},
        [{"kind": "stream", "input": "running", "topic": target}],
        [
            {
                "name": "running",
                "kind": "state",
                "input": "orders",
                "keys": ["user"],
                "processor": "running_totals:Running",
                "schema": "user string, id bigint, spent bigint",
            }
        ],
    )
    orders = Shop().orders(60)
    for part in (orders[:30], orders[30:]):
        etl.fill(source, part, key="user")
        etl.run(pipeline)
    spent: Counter[str] = Counter()
    expected = []
    for order in orders:
        spent[order["user"]] += order["cents"]
        expected.append({"user": order["user"], "id": order["id"], "spent": spent[order["user"]]})
    assert ordered(etl.rows(target)) == ordered(expected)
