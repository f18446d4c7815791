"""What a running pipeline keeps for its operators: metrics, and dead letters in the store."""

import threading
from typing import Any, Final

from clients.stream_address import Address
from spark.etl.errors import PipelineError
from spark.etl.events import Batch
from spark.etl.follower import DeadLetterFollower
from spark.etl.job_names import job_of
from spark.etl.reporting import Reporter
from spark.etl.spec import PipelineSpec
from spark.etl.spec_queries import query_shapes
from spark.etl.store import Store
from spark.etl.streams import letter_topics

FOLLOW_EVERY_S: Final = 1.0
WATCH_EVERY_S: Final = 1.0
JOIN_S: Final = 10.0


class Operations:
    """Opened before the queries start, closed behind them. Raises StoreError, PipelineError."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._ended: dict[str, str] = {}  # how, if it was not told to
        self._store = Store.open(spec.store)
        self._reporters = self._open_reporters()
        self._stop = threading.Event()
        self._follower = DeadLetterFollower(spec.broker, self._store, letter_topics(spec))
        self._threads = [
            threading.Thread(
                target=self._follower.run, args=(self._stop, FOLLOW_EVERY_S), daemon=True
            ),
            threading.Thread(target=self._watch, daemon=True),
        ]
        for each in self._threads:
            each.start()

    def progress(self, query: str, progress: dict[str, Any], batch: Batch) -> None:
        self._reporters[query].progress(progress, batch.letters)

    def paused(self, query: str) -> None:
        self._reporters[query].pause()

    def resumed(self, query: str) -> None:
        self._reporters[query].resume()

    def failed(self, query: str) -> None:
        self._ended[query] = "failed"

    def close(self) -> None:
        """All dead letters that are in their streams by now are in the store, and counted."""
        self._stop.set()
        for each in self._threads:
            each.join(JOIN_S)
        self._follower.close()
        for query, reporter in self._reporters.items():
            reporter.stop(self._ended.get(query, "stopped"))
        self._store.close()

    def _open_reporters(self) -> dict[str, Reporter]:
        try:
            return {each.name: self._reporter(each.name) for each in query_shapes(self._spec)}
        except ValueError as error:
            self._store.close()
            raise PipelineError(f"{self._spec.file}: [pipeline] http: {error}") from None

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_EVERY_S):
            for reporter in self._reporters.values():
                reporter.watch()

    def _reporter(self, query: str) -> Reporter:
        spec = self._spec
        address = Address.of_url(spec.broker)
        return Reporter(
            job_of(spec, query),
            self._store,
            spec.http,
            (address.user, address.password),
            stream_url=spec.broker,
            alarm_rate=spec.letter_alarm.rate,
            alarm_window_s=spec.letter_alarm.window_s,
        )
