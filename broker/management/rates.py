"""Rates and samples of counters, in the form in which RabbitMQ's management API has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import bad_request
from broker.management.history import TICK_MS, Levels, Series
from queues.tally import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.http.messages import Request
    from queues.tally import Tally

SAMPLES_MAX: Final = 1000  # in one answer for one counter
TICK_S: Final = TICK_MS // 1000
GIVEN: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
OF_QUEUES: Final = (*GIVEN, "get_empty", "publish", "redeliver", "ack")
OF_CHANNELS: Final = (*OF_QUEUES, "confirm", "return_unroutable", "drop_unroutable")
COUNTED: Final = frozenset(FIELDS) | {"publish_in", "publish_out", "recv_oct", "send_oct"}
ZERO: Final[dict[str, Any]] = {"rate": 0.0}


@dataclass(frozen=True, slots=True)
class Age:
    """How far back samples are wanted, and how far apart: both in ticks."""

    age: int
    step: int


def age_of(request: Request, kind: str) -> Age | None:
    """`kind` is lengths, msg_rates, data_rates or node_stats; None if no samples are wanted."""
    texts = [request.query.get(f"{kind}_{part}", [""])[-1] for part in ("age", "incr")]
    if not all(texts):
        return None
    if not all(text.isascii() and text.isdigit() and 0 < len(text) < 9 for text in texts):
        raise bad_request(f"{kind}_age and {kind}_incr must be numbers of seconds")
    age, step = (max(1, int(text) // TICK_S) for text in texts)
    if age // step > SAMPLES_MAX:
        raise bad_request(f"{kind}_age is more than {SAMPLES_MAX} times {kind}_incr")
    return Age(age, step)


@dataclass(frozen=True, slots=True)
class Ages:
    """The same for each kind of sample."""

    lengths: Age | None = None
    messages: Age | None = None
    data: Age | None = None
    node: Age | None = None


def ages_of(request: Request) -> Ages:
    kinds = ("lengths", "msg_rates", "data_rates", "node_stats")
    return Ages(*(age_of(request, kind) for kind in kinds))


class View:
    """What can be said of a series at a tick."""

    def __init__(
        self,
        series: Series | Levels | None,
        fields: Sequence[str],
        tick: int,
        age: Age | None = None,
    ) -> None:
        self._fields = {name: place for place, name in enumerate(fields)}
        self._tick = tick
        self._age = age
        recent = series.for_age(1) if isinstance(series, Levels) else series
        self._ends = [None, None] if recent is None else recent.at((tick, tick - 1))
        self._samples: list[tuple[int, Sequence[int] | None]] = []
        if age is not None:
            kept = series.for_age(age.age) if isinstance(series, Levels) else series
            last = tick - tick % age.step
            ticks = range(last, last - age.age - 1, -age.step)
            rows = [None] * len(ticks) if kept is None else kept.at(ticks)
            self._samples = list(zip(ticks, rows, strict=True))

    def rate(self, *names: str) -> float:
        """Per second, between the last two samples."""
        now, before = self._ends
        if now is None:
            return 0.0
        if before is None:  # counters begin with nothing; anything else was what it is
            return sum(now[self._fields[name]] for name in names if name in COUNTED) / TICK_S
        places = [self._fields[name] for name in names]
        return sum(now[place] - before[place] for place in places) / TICK_S

    def details(self, *names: str) -> dict[str, Any]:
        """Of a counter, or of some taken together."""
        details: dict[str, Any] = {"rate": self.rate(*names)}
        if self._age is None:
            return details
        places = [self._fields[name] for name in names]
        samples = [
            {
                "sample": 0 if row is None else sum(row[place] for place in places),
                "timestamp": tick * TICK_MS,
            }
            for tick, row in self._samples
        ]
        values = [sample["sample"] for sample in samples]
        seconds = max(1, (len(values) - 1) * self._age.step * TICK_S)
        details["samples"] = samples
        details["avg"] = sum(values) / len(values)
        details["avg_rate"] = (values[0] - values[-1]) / seconds
        return details


def message_stats(tally: Tally, view: View, fields: Sequence[str]) -> dict[str, Any]:
    """Counters of messages and their rates, with `deliver_get`: all that went out."""
    stats: dict[str, Any] = {}
    for name in fields:
        count = getattr(tally, name)
        stats[name] = count
        stats[f"{name}_details"] = view.details(name)
    stats["deliver_get"] = sum(getattr(tally, name) for name in GIVEN)
    stats["deliver_get_details"] = view.details(*GIVEN)
    return stats
