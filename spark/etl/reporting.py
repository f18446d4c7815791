"""What a job tells of itself: a row in the ETL store for each micro-batch, and news to the broker.

reporter = Reporter("orders", store, "http://127.0.0.1:15672", ("guest", "guest"),
                    stream_url="amqp://…", alarm_rate=0.05, alarm_window_s=60)
reporter.progress(progress, errors=3)      # Spark's, of a finished micro-batch
reporter.stop("stopped")
"""

from collections.abc import Mapping
from typing import Any

from spark.etl.store import Store


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
    ) -> None:
        raise NotImplementedError

    @property
    def alarm(self) -> bool:
        """Whether too many records of the window are bad."""
        raise NotImplementedError

    def progress(self, progress: Mapping[str, Any], errors: int = 0) -> None:
        """A micro-batch is done: `progress` is StreamingQueryProgress as a dict (its JSON).
        `errors` counts the records of it that became dead letters. Never raises."""
        raise NotImplementedError

    def stop(self, state: str = "stopped") -> None:
        """The last news: stopped, or failed."""
        raise NotImplementedError
