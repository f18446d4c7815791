"""State that would be kept for ever is refused; an event time may have another name on the way."""

from datetime import timedelta
from typing import Any

import pytest

from spark.etl import SpecError
from spark.etl.explain import explain_lines
from tests.etl.faker_data import END, OPENING, Shop, moment_of, text_of
from tests.etl.scene import PipelineScene, ordered

MINUTE = {"watermark": "1 minute"}
SOURCES: dict[str, Any] = {
    "shown": {"topic": "shown", "schema": "ad string, at timestamp", "event_time": "at", **MINUTE},
    "clicks": {"topic": "clicks", "schema": "ad string, at timestamp", "event_time": "at"} | MINUTE,
}


def select(name: str, source: str, columns: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "kind": "select", "input": source, "columns": columns}


def join(**more: Any) -> dict[str, Any]:
    found = {"name": "both", "kind": "join", "left": "a", "right": "b", "on": ["ad"]}
    return found | {"columns": {"ad": "a.ad"}} | more


RENAMED = [
    select("a", "shown", {"ad": "ad", "seen": "at"}),
    select("b", "clicks", {"ad": "ad", "clicked": "`at`"}),
]
GONE = [
    select("a", "shown", {"ad": "ad", "seen": "at + INTERVAL 1 SECOND"}),
    select("b", "clicks", {"ad": "ad", "clicked": "at"}),
]
BOUNDED = "b.clicked BETWEEN a.seen AND a.seen + INTERVAL 10 MINUTES"
LOST = "the event time of source shown, at, is gone behind a"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([*GONE, join(condition=BOUNDED)], LOST),
        ([*GONE, join(within="10 minutes")], LOST),
        ([*RENAMED, join(condition="b.clicked > a.seen")], "rows of a would be kept for ever"),
        ([*RENAMED, join(condition="b.clicked < a.seen")], "rows of b would be kept for ever"),
        ([*RENAMED, join(condition="length(a.ad) > 1")], "rows of a would be kept for ever"),
    ],
)
def test_a_join_that_keeps_everything_is_refused(
    etl: PipelineScene, steps: list[dict[str, Any]], said: str
) -> None:
    pipeline = etl.pipeline(SOURCES, [{"kind": "console", "input": "both"}], steps)
    with pytest.raises(SpecError) as error:
        pipeline.validate(etl.spark)
    assert str(error.value).startswith("pipeline: [[steps]] 'both' ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "step",
    [
        {"kind": "deduplicate", "keys": ["ad"]},
        {"kind": "window", "size": "1s", "time": "seen", "aggregates": {"n": "count(*)"}},
        {"kind": "state", "keys": ["ad"], "processor": "x:Y", "schema": "n int", "time": "event"},
    ],
)
def test_so_is_every_step_whose_event_time_is_gone(
    etl: PipelineScene, step: dict[str, Any]
) -> None:
    steps = [GONE[0], {"name": "it", "input": "a", **step}]
    sinks = [{"kind": "console", "input": "it"}]
    pipeline = etl.pipeline({"shown": SOURCES["shown"]}, sinks, steps)
    with pytest.raises(SpecError, match=LOST):
        pipeline.validate(etl.spark)


@pytest.mark.parametrize("bound", [{"condition": BOUNDED}, {"within": "10 minutes"}])
def test_a_renamed_event_time_keeps_its_watermark(
    etl: PipelineScene, bound: dict[str, str]
) -> None:
    """Which the plan shows, and that the state of a join is gone in the end."""
    shop = Shop()
    impressions = [{"ad": each["ad"], "at": each["shown"]} for each in shop.impressions(40)]
    clicks = [
        {"ad": each["ad"], "at": text_of(moment_of(each["at"]) + timedelta(minutes=place))}
        for place, each in enumerate(impressions)
    ]
    shown, clicked, target = etl.declare(), etl.declare(), etl.target()
    sources = {
        "shown": SOURCES["shown"] | {"topic": shown},
        "clicks": SOURCES["clicks"] | {"topic": clicked},
    }
    sinks = [{"kind": "stream", "input": "both", "topic": target}]
    counted = {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true"}
    pipeline = etl.pipeline(sources, sinks, [*RENAMED, join(**bound)], spark=counted)
    lines = explain_lines(pipeline, etl.spark, plan=True)
    assert sum("EventTimeWatermark" in line for line in lines) >= 2
    assert any(
        "keeps: rows of both sides, until the watermark (60 seconds" in each for each in lines
    )
    etl.fill(shown, impressions, key="ad")
    etl.fill(clicked, clicks, key="ad")
    etl.run(pipeline)
    for stream in (shown, clicked):
        etl.fill(stream, [{"ad": f"end of {stream}", "at": text_of(OPENING + END)}], key="ad")
    etl.run(pipeline)
    expected = [{"ad": each["ad"]} for each in impressions[:11]]
    assert ordered(etl.rows(target)) == ordered(expected)
    batches = [event.batch for event in etl.events if event.batch is not None]
    assert batches[0].state_rows > 2
    assert batches[-1].state_rows == 2
