"""What a job tells of itself: a row in the ETL store for each micro-batch, and news to the broker.

    reporter = Reporter("orders", store, "http://127.0.0.1:15672", ("guest", "guest"),
                        stream_url="amqp://…", alarm_rate=0.05, alarm_window_s=60)
    reporter.progress(progress, errors=3)      # Spark's, of a finished micro-batch
    reporter.watch()                           # now and then: an alarm ends as time passes
    reporter.pause()                           # until resume(), or the next micro-batch
    reporter.stop("stopped")

A job goes on whatever becomes of its reports: what goes wrong with them is a line in the log.
"""

import logging
import threading
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
ALARM: Final = "alarm"  # it runs, and too many records fail
PAUSED: Final = "paused"  # until what is away is back


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
        self._state = RUNNING  # but for the alarm
        self._watching = threading.Lock()
        self._telling = threading.Lock()
        self._totals = self._saved_totals()
        self._letters = 0
        self._count_at = 0.0
        self._news: dict[str, Any] = {}
        self._herald: Herald | None = None
        if broker_http_url is not None:
            self._herald = Herald(broker_http_url, credentials, job, self._renewed)
        self._register()
        self._tell(None)

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
        with self._watching:
            self._rate.add(now_s, metric.processed, metric.errors)
        self._watch(now_s)
        self._state = RUNNING
        self._tell(metric)

    def watch(self) -> None:
        """The window of the alarm moves on, also while there is nothing to read. Any thread may."""
        if self._watch(self._now_s()):
            self._tell(None)

    def pause(self) -> None:
        """Something is away that the job needs."""
        self._state = PAUSED
        self._tell(None)

    def resume(self) -> None:
        self._state = RUNNING
        self._tell(None)

    def stop(self, state: str = "stopped") -> None:
        """The last news: stopped, or failed."""
        self._count_at = 0.0
        self._state = state
        self._tell(None)
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

    def _register(self) -> None:
        """So that it is among the jobs before its first micro-batch, which may never come."""
        try:
            self._store.register_job(self._job, int(self._now_s() * 1000))
        except SQLAlchemyError as error:
            _complain(error)

    def _save(self, metric: JobMetric) -> None:
        try:
            self._store.record_metric(metric)
        except SQLAlchemyError as error:
            _complain(error)

    def _watch(self, now_s: float) -> bool:
        """Whether there is an alarm now that there was not, or the other way round."""
        with self._watching:
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
        return was != self._alarm

    def _tell(self, metric: JobMetric | None) -> None:
        if self._herald is None:
            return
        with self._telling:
            self._tell_herald(self._herald, metric)

    def _tell_herald(self, herald: Herald, metric: JobMetric | None) -> None:
        self._news |= {"processed": self._totals[0], "errors": self._totals[1], **self._now()}
        if metric is not None:
            seconds = metric.batch_ms / 1000
            self._news |= {
                "batch_id": metric.batch_id,
                "lag_seconds": metric.lag_seconds,
                "batch_ms": metric.batch_ms,
                "rows_per_second": round(metric.processed / seconds, 1) if seconds else 0.0,
            }
        herald.tell(dict(self._news))

    def _renewed(self) -> dict[str, Any]:
        """While a micro-batch takes long, or none is needed; in the herald's thread."""
        lag_seconds = round(self._lag.seconds_now(), 3)
        self._watch(self._now_s())
        return {"lag_seconds": lag_seconds, **self._now()}

    def _now(self) -> dict[str, Any]:
        """What changes by itself as time passes."""
        now_s = self._now_s()
        with self._watching:
            share = self._rate.share(now_s)
        is_alarm = self._alarm and self._state == RUNNING
        return {
            "state": ALARM if is_alarm else self._state,
            "error_rate": round(share, 6),
            "dead_letters": self._count(now_s),
        }

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
