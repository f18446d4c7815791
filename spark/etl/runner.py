"""Runs the queries of a pipeline: starts them, follows them, resumes those that fail, stops them.

A query that fails because something is away (broker, database) is paused and started again, after
a pause that doubles up to a minute, for as long as it takes; its checkpoint says where it goes on.
What would fail again in the same way ends the pipeline. Of what is neither, some attempts are made.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from broker.protocol.stream_errors import StreamError
from clients.amqp_errors import AMQPClientError
from spark.etl import failures, sinks
from spark.etl.errors import PipelineError, SpecError
from spark.etl.events import Event, Listener, batch_of
from spark.etl.failures import Failure, classify
from spark.etl.operations import Operations
from spark.etl.plan import Query
from spark.etl.spec import PipelineSpec
from spark.etl.streams import prepare

POLL_S: Final = 0.2
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STOP_WITHIN_S: Final = 120.0  # for the batch that is under way


@dataclass
class Running:
    """One query, over all its attempts."""

    query: Query
    handle: StreamingQuery | None = None
    closing: ExitStack = field(default_factory=ExitStack)  # what this attempt holds
    attempts: int = 0  # without a batch in between
    resume_at: float = 0.0
    finished: bool = False
    seen: tuple[str, int, str] | None = None  # the last report of Spark's that was read

    @property
    def name(self) -> str:
        return self.query.name


class Runner:
    def __init__(
        self,
        spec: PipelineSpec,
        queries: list[Query],
        operations: Operations,
        listener: Listener,
        *,
        once: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._running = [Running(query) for query in queries]
        self._operations = operations
        self._listener = listener
        self._once = once
        self._clock = clock
        self._prepared = False
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Until all are finished or `stop` is set. Raises PipelineError; nothing runs then."""
        self._stop = stop
        try:
            while not stop.is_set() and not all(each.finished for each in self._running):
                for each in self._running:
                    self._look_after(each)
                stop.wait(POLL_S)
            if stop.is_set():
                self._finish_batches()
        finally:
            for each in self._running:
                self._end(each)

    # One query

    def _look_after(self, each: Running) -> None:
        if each.finished:
            return
        if each.handle is None:
            if self._clock() >= each.resume_at:
                self._start(each)
            return
        active = each.handle.isActive
        self._tell_batches(each)
        if active:
            return
        error = each.handle.exception()
        each.handle = None
        each.closing.close()
        if error is None:
            each.finished = True
            self._listener(Event("finished", each.name))
        else:
            self._failed(each, str(error))

    def _start(self, each: Running) -> None:
        resumed = each.attempts > 0
        try:
            if not self._prepared:
                prepare(self._spec)
                self._prepared = True
            attempt = sinks.Attempt(self._once, each.closing, self._stop, self._waiting(each))
            each.handle = sinks.start(self._spec, each.query, attempt)
        except (StreamError, AMQPClientError, PySparkException) as error:
            self._failed(each, f"{type(error).__name__}: {error}")
        except (SpecError, PipelineError) as error:
            self._fatal(each, str(error))
        else:
            if resumed:
                self._operations.resumed(each.name)
            self._listener(Event("resumed" if resumed else "started", each.name))

    def _waiting(self, each: Running) -> Callable[[str], None]:
        return lambda text: self._listener(Event("waiting", each.name, text))

    def _failed(self, each: Running, error: str) -> None:
        kind, told = classify(error), failures.reason(error)
        each.attempts += 1
        spent = kind is Failure.UNKNOWN and each.attempts > self._spec.limits.restarts
        if kind is Failure.FATAL or spent:
            self._fatal(each, told)
        pause_s = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** (each.attempts - 1))
        each.resume_at = self._clock() + pause_s
        self._operations.paused(each.name)
        self._listener(Event("paused", each.name, f"{told}; goes on in {pause_s:.0f} s"))

    def _fatal(self, each: Running, told: str) -> None:
        self._listener(Event("failed", each.name, told))
        self._operations.failed(each.name)
        raise PipelineError(f"{each.name}: {told}")

    def _tell_batches(self, each: Running) -> None:
        for progress in self._new_batches(each):
            each.attempts = 0
            batch = batch_of(progress, time.time_ns() // 1_000_000)
            self._operations.progress(each.name, progress, batch)
            self._listener(Event("batch", each.name, batch=batch))

    def _new_batches(self, each: Running) -> list[dict[str, Any]]:
        """Spark's reports on batches that were not told yet, the oldest first.

        It keeps many, and PySpark makes dozens of calls to read one. So the JVM is asked whether
        there is news, and they are read from the last one backwards.
        """
        assert each.handle is not None
        query: Any = each.handle._jsq  # noqa: SLF001
        last = query.lastProgress()
        if last is None or _mark(last) == each.seen:
            return []
        reports = query.recentProgress()
        before, each.seen = each.seen, _mark(reports[len(reports) - 1])
        found: list[dict[str, Any]] = []
        for index in range(len(reports) - 1, -1, -1):
            report = reports[index]
            if _mark(report) == before:
                break
            progress = json.loads(report.json())
            if "addBatch" in progress["durationMs"]:  # else there was nothing to do
                found.append(progress)
        return found[::-1]

    # All of them

    def _finish_batches(self) -> None:
        """What is under way is done; what begins meanwhile is left to the next start."""
        waiting = {each.name: self._last_batch(each) for each in self._running}
        deadline = self._clock() + STOP_WITHIN_S
        while self._clock() < deadline and any(
            self._is_at_work(each, waiting[each.name]) for each in self._running
        ):
            time.sleep(POLL_S / 4)

    def _last_batch(self, each: Running) -> int:
        last = each.handle.lastProgress if each.handle is not None else None
        return -1 if last is None else last.batchId

    def _is_at_work(self, each: Running, before: int) -> bool:
        if each.handle is None or not each.handle.isActive:
            return False
        return bool(each.handle.status["isTriggerActive"]) and self._last_batch(each) == before

    def _end(self, each: Running) -> None:
        if each.handle is None:
            return
        each.handle.stop()
        self._tell_batches(each)
        each.handle = None
        each.closing.close()
        self._listener(Event("stopped", each.name))


def _mark(report: Any) -> tuple[str, int, str]:
    """Of a report in the JVM: tells it from all others."""
    return str(report.runId()), report.batchId(), report.timestamp()
