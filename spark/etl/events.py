"""What happens while a pipeline runs, for whoever shows it or writes it down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from spark.places import UID

Kind: TypeAlias = Literal[
    "started", "batch", "waiting", "paused", "resumed", "failed", "finished", "stopped"
]


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    query: str
    text: str = ""
    batch: "Batch | None" = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch that is done."""

    number: int
    records: int  # that were read
    letters: int  # of them, dead letters
    took_ms: int
    behind: int  # records that wait
    state_rows: int  # 0 unless Spark is told to count them, which takes time
    watermark: str
    at_ms: int
    state_bytes: int = 0  # that state takes in memory


Listener: TypeAlias = Callable[[Event], None]


def batch_of(progress: dict[str, Any], at_ms: int) -> Batch:
    """Of Spark's report. It counts a record for each time that a plan reads it: offsets do not."""
    observed = (progress.get("observedMetrics") or {}).get("etl") or {}
    return Batch(
        progress["batchId"],
        sum(_records(source) for source in progress["sources"]),
        observed.get("letters") or 0,
        progress["durationMs"].get("triggerExecution", 0),
        sum(_behind(source) for source in progress["sources"]),
        sum(each.get("numRowsTotal", 0) for each in progress.get("stateOperators", ())),
        (progress.get("eventTime") or {}).get("watermark", ""),
        at_ms,
        sum(each.get("memoryUsedBytes", 0) for each in progress.get("stateOperators", ())),
    )


def _records(source: dict[str, Any]) -> int:
    start, end = source.get("startOffset"), source.get("endOffset")
    if start is None:  # the first batch says not where it began, which need not be at 0
        return min(_between(start, end), source.get("numInputRows") or 0)
    return _between(start, end)


def _behind(source: dict[str, Any]) -> int:
    return _between(source.get("endOffset"), source.get("latestOffset"))


def _between(start: object, end: object) -> int:
    if not isinstance(end, dict):
        return 0
    first: dict[str, Any] = start if isinstance(start, dict) else {}
    return sum(
        max(0, offset - first.get(topic, {}).get(number, 0))
        for topic, partitions in end.items()
        for number, offset in partitions.items()
        if number != UID
    )
