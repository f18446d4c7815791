"""What a running pipeline keeps for its operators: metrics, and dead letters in the store."""

import threading
from typing import Any, Final

from clients.stream_address import Address
from spark.etl.events import Batch
from spark.etl.follower import DeadLetterFollower
from spark.etl.job_names import job_of
from spark.etl.reporting import Reporter
from spark.etl.spec import PipelineSpec
from spark.etl.store import Store
from spark.etl.streams import letter_topics

FOLLOW_EVERY_S: Final = 1.0
JOIN_S: Final = 10.0


class Operations:
    """Opened before the queries start, closed behind them. Raises StoreError."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._store = Store.open(spec.store)
        self._reporters: dict[str, Reporter] = {}
        self._stop = threading.Event()
        self._follower = DeadLetterFollower(spec.broker, self._store, letter_topics(spec))
        self._thread = threading.Thread(
            target=self._follower.run, args=(self._stop, FOLLOW_EVERY_S), daemon=True
        )
        self._thread.start()

    def progress(self, query: str, progress: dict[str, Any], batch: Batch) -> None:
        self._reporter(query).progress(progress, batch.letters)

    def failed(self, query: str) -> None:
        self._reporter(query).stop("failed")
        self._reporters.pop(query)

    def close(self) -> None:
        """All dead letters that are in their streams by now are in the store, and counted."""
        self._stop.set()
        self._thread.join(JOIN_S)
        self._follower.close()
        for reporter in self._reporters.values():
            reporter.stop("stopped")
        self._store.close()

    def _reporter(self, query: str) -> Reporter:
        if query not in self._reporters:
            spec = self._spec
            address = Address.of_url(spec.broker)
            self._reporters[query] = Reporter(
                job_of(spec, query),
                self._store,
                spec.http,
                (address.user, address.password),
                stream_url=spec.broker,
                alarm_rate=spec.letter_alarm.rate,
                alarm_window_s=spec.letter_alarm.window_s,
            )
        return self._reporters[query]
