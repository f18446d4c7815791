"""What a job tells of itself: a row in the ETL store for each micro-batch, and news to the broker.

    reporter = Reporter("orders", store, "http://127.0.0.1:15672", ("guest", "guest"),
                        stream_url="amqp://…", alarm_rate=0.05, alarm_window_s=60)
    reporter.progress(progress, errors=3)      # Spark's, of a finished micro-batch
    reporter.stop("stopped")

A job goes on whatever becomes of its reports: what goes wrong with them is a line in the log.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from spark.etl import letters_table
from spark.etl.error_rate import ErrorRate
from spark.etl.herald import Herald
from spark.etl.lag import Lag, read
from spark.etl.letters_table import Selection
from spark.etl.store import JobMetric, Store

_LOG: Final = logging.getLogger("leveret.etl")
COUNT_EVERY_S: Final = 5.0  # dead letters, of which there may be many
RUNNING: Final = "running"
ALARM: Final = "alarm"


class Reporter:
    def __init__(
        self,
        job: str,
        store: Store,
        broker_http_url: str | None,
        credentials: tuple[str, str] = ("guest", "guest"),
        *,
        stream_url: str | None = None,
        alarm_rate: float | None = None,
        alarm_window_s: float = 60.0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Without a URL nobody is told, without `stream_url` the lag is 0. Raises ValueError."""
        self._job = job
        self._store = store
        self._now_s = now_s
        self._lag = Lag(stream_url, now_s)
        self._rate = ErrorRate(alarm_rate, alarm_window_s)
        self._alarm = False
        self._totals = self._saved_totals()
        self._letters = 0
        self._count_at = 0.0
        self._news: dict[str, Any] = {}
        self._herald: Herald | None = None
        if broker_http_url is not None:
            self._herald = Herald(broker_http_url, credentials, job, self._renewed)
        self._tell(RUNNING, None)

    @property
    def alarm(self) -> bool:
        """Whether too many records of the window are bad."""
        return self._alarm

    def progress(self, progress: Mapping[str, Any], errors: int = 0) -> None:
        """A micro-batch is done: `progress` is StreamingQueryProgress as a dict (its JSON).
        `errors` counts the records of it that became dead letters. Never raises."""
        now_s = self._now_s()
        metric = JobMetric(
            self._job,
            int(progress.get("batchId", -1)),
            read(progress),
            errors,
            round(self._lag.seconds(progress), 3),
            int((progress.get("durationMs") or {}).get("triggerExecution", 0)),
            int(now_s * 1000),
        )
        self._totals = (self._totals[0] + metric.processed, self._totals[1] + metric.errors)
        self._save(metric)
        self._rate.add(now_s, metric.processed, metric.errors)
        self._watch(now_s)
        self._tell(ALARM if self._alarm else RUNNING, metric)

    def stop(self, state: str = "stopped") -> None:
        """The last news: stopped, or failed."""
        self._count_at = 0.0
        self._tell(state, None)
        if self._herald is not None:
            self._herald.close()
        self._lag.close()

    def _saved_totals(self) -> tuple[int, int]:
        """Of former runs."""
        try:
            for total in self._store.totals():
                if total.job == self._job:
                    return total.processed, total.errors
        except SQLAlchemyError as error:
            _complain(error)
        return 0, 0

    def _save(self, metric: JobMetric) -> None:
        try:
            self._store.record_metric(metric)
        except SQLAlchemyError as error:
            _complain(error)

    def _watch(self, now_s: float) -> None:
        was, self._alarm = self._alarm, self._rate.is_too_high(now_s)
        share = self._rate.share(now_s)
        if self._alarm and not was:
            _LOG.warning(
                "job %s: %.1f %% of the records of the last %g s failed, more than %.1f %%",
                self._job,
                100 * share,
                self._rate.window_s,
                100 * (self._rate.limit or 0),
            )
        elif was and not self._alarm:
            _LOG.warning("job %s: the share of records that fail is low again", self._job)

    def _tell(self, state: str, metric: JobMetric | None) -> None:
        if self._herald is None:
            return
        now_s = self._now_s()
        self._news |= {
            "state": state,
            "processed": self._totals[0],
            "errors": self._totals[1],
            "error_rate": round(self._rate.share(now_s), 6),
            "dead_letters": self._count(now_s),
        }
        if metric is not None:
            seconds = metric.batch_ms / 1000
            self._news |= {
                "batch_id": metric.batch_id,
                "lag_seconds": metric.lag_seconds,
                "batch_ms": metric.batch_ms,
                "rows_per_second": round(metric.processed / seconds, 1) if seconds else 0.0,
            }
        self._herald.tell(dict(self._news))

    def _renewed(self) -> dict[str, Any]:
        """While a micro-batch takes long, or none is needed; in the herald's thread."""
        lag_seconds = round(self._lag.seconds_now(), 3)
        return {"lag_seconds": lag_seconds, "dead_letters": self._count(self._now_s())}

    def _count(self, now_s: float) -> int:
        if now_s - self._count_at >= COUNT_EVERY_S:
            self._count_at = now_s
            try:
                with self._store.reading() as connection:
                    self._letters = letters_table.count(connection, Selection(job=self._job))
            except SQLAlchemyError as error:
                _complain(error)
        return self._letters


def _complain(error: SQLAlchemyError) -> None:
    _LOG.warning("the ETL store is not there now: %s", " ".join(str(error).split()))
