"""ETL jobs for Prometheus: those that reported to this node and are heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from broker.etl_jobs.jobs import ENDED, PAUSED, SILENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric

    from broker.etl_jobs.jobs import Jobs, News

_COUNTERS: Final = {
    "records": ("processed", "Records that the job has read"),
    "errors": ("errors", "Records of them that became dead letters"),
}
_GAUGES: Final = {
    "dead_letters": ("dead_letters", "Dead letters of the job in its store"),
    "lag_seconds": ("lag_seconds", "Age of the oldest record that the job has not read"),
    "records_per_second": ("rows_per_second", "Records a second of the last micro-batch"),
    "error_ratio": ("error_rate", "Share of bad records over the window of the alarm"),
}


def series(jobs: Jobs, now_ms: int) -> Iterator[Metric]:
    rows = [row for row in jobs.rows(now_ms) if row["state"] != SILENT]
    for name, (field, text) in _COUNTERS.items():
        counter = CounterMetricFamily(f"leveret_etl_{name}", text, labels=("job",))
        for row in rows:
            counter.add_metric((row["name"],), row[field])
        yield counter
    for name, (field, text) in _GAUGES.items():
        yield _gauge(name, text, [(row, row[field]) for row in rows])
    batches = [(row, row["batch_ms"] / 1000) for row in rows]
    yield _gauge("batch_seconds", "How long the last micro-batch took", batches)
    running = [(row, row["state"] not in ENDED | {PAUSED}) for row in rows]
    yield _gauge("running", "is 1 if the job runs", running)
    paused = [(row, row["state"] == PAUSED) for row in rows]
    yield _gauge("paused", "is 1 if the job waits for something that is away", paused)
    alarms = [(row, row["state"] == "alarm") for row in rows]
    yield _gauge("alarm", "is 1 if too many records of the job fail", alarms)


def _gauge(name: str, text: str, values: Sequence[tuple[News, float]]) -> Metric:
    gauge = GaugeMetricFamily(f"leveret_etl_{name}", text, labels=("job",))
    for row, value in values:
        gauge.add_metric((row["name"],), value)
    return gauge
