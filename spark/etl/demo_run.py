"""Runs the demo: events are made in one process, the pipeline in this one, until all is through."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clients.streams import StreamClient, connect
from spark.etl import demo_streams
from spark.etl.dead_letters import dlq_of
from spark.etl.demo_pipeline import demo_values
from spark.etl.events import Event, Listener
from spark.etl.pipeline import Pipeline
from spark.etl.report import Chart, Points, html, rates
from spark.lifelines import tied

PREFIX: Final = "etl-demo."
DRAIN_S: Final = 300.0
TOP: Final = 10


@dataclass
class Totals:
    """What the maker of events says of itself."""

    made: int = 0
    bad: int = 0


@dataclass
class Recorder:
    """Keeps what the report shows, and knows when everything was read."""

    started: float = field(default_factory=time.monotonic)
    read: dict[str, int] = field(default_factory=dict)
    letters: int = 0
    batches: int = 0
    paused: int = 0
    totals: dict[str, Points] = field(default_factory=dict)
    charts: dict[str, Chart] = field(default_factory=dict)

    def listen(self, event: Event) -> None:
        if event.kind == "paused":
            self.paused += 1
        if event.batch is None:
            return
        batch, name = event.batch, event.query
        second = time.monotonic() - self.started
        self.batches += 1
        self.letters += batch.letters
        self.read[name] = self.read.get(name, 0) + batch.records
        self.totals.setdefault(name, []).append((second, float(self.read[name])))
        self._chart("Time of a batch", "ms").add(name, second, batch.took_ms)
        self._chart("Records that wait", "records").add(name, second, batch.behind)
        self._chart("Memory of state", "MB").add(name, second, batch.state_bytes / 1e6)
        self._chart("Dead letters", "in all").add("dead letters", second, self.letters)

    def _chart(self, title: str, unit: str) -> Chart:
        return self.charts.setdefault(title, Chart(title, unit))

    def all_charts(self) -> list[Chart]:
        through = {name: rates(points) for name, points in self.totals.items()}
        return [Chart("Records in a second", "records/s", through), *self.charts.values()]


@dataclass(frozen=True)
class Outcome:
    made: int
    bad: int
    letters: int
    seconds: float
    recorder: Recorder
    revenue: list[dict[str, Any]]
    clicks: list[dict[str, Any]]


class Demo:
    def __init__(self, url: str, directory: Path, rate: int, seconds: float) -> None:
        self._url = url
        self._directory = directory
        self._rate = rate
        self._seconds = seconds

    def run(self, show: Listener, stop: threading.Event, **head: Any) -> Outcome:
        """Until all events are through, or `stop` is set. Raises PipelineError."""
        demo_streams.declare(self._url, PREFIX)
        demo_streams.delete(self._url, f"{PREFIX}revenue", f"{PREFIX}clicks-by-page")
        values = demo_values(self._url, self._directory, PREFIX, **head)
        pipeline = Pipeline.from_dict(values, self._directory)
        session = pipeline.session()
        recorder, totals = Recorder(), Totals()

        def listen(event: Event) -> None:
            recorder.listen(event)
            show(event)

        with self._events(totals) as is_over:
            watcher = threading.Thread(target=self._end, args=(recorder, is_over, stop))
            watcher.start()
            try:
                pipeline.run(session, stop=stop, listener=listen)
            finally:
                stop.set()
                watcher.join()
        return self._outcome(recorder, totals)

    @contextmanager
    def _events(self, totals: Totals) -> Iterator[threading.Event]:
        """The process that makes them, followed by a thread; the event says that it is done."""
        command = tied("spark.etl.demo_source", self._url, PREFIX)
        command += [str(self._rate), str(self._seconds)]
        process = subprocess.Popen(  # noqa: S603 - our own
            command,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C at the terminal is for this process
        )
        is_over = threading.Event()

        def follow() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                totals.made, totals.bad = told["made"], told["bad"]
            is_over.set()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield is_over
        finally:
            process.terminate()
            process.wait()
            thread.join()

    def _end(self, recorder: Recorder, is_over: threading.Event, stop: threading.Event) -> None:
        """Stop when the last event is through, or after a time in which it should have been."""
        while not is_over.wait(0.2):
            if stop.is_set():
                return
        deadline = time.monotonic() + DRAIN_S
        with connect(self._url) as client:
            written = sum(_count(client, PREFIX + name) for name in demo_streams.SOURCES)
        while time.monotonic() < deadline and not stop.wait(0.2):
            if sum(recorder.read.values()) >= written:  # each source is read by one query
                break
        stop.set()

    def _outcome(self, recorder: Recorder, totals: Totals) -> Outcome:
        with connect(self._url) as client:
            return Outcome(
                totals.made,
                totals.bad,
                _count(client, dlq_of(f"{PREFIX}orders")),
                time.monotonic() - recorder.started,
                recorder,
                _rows(client, f"{PREFIX}revenue"),
                _rows(client, f"{PREFIX}clicks-by-page"),
            )


def _count(client: StreamClient, stream: str) -> int:
    return sum(each.next_offset for each in client.metadata(stream)[stream])


def _rows(client: StreamClient, stream: str) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in client.reader(stream, 0, 0)]


def sums(rows: list[dict[str, Any]], by: str, *names: str) -> list[tuple[Any, ...]]:
    """The largest groups, by the first of these columns."""
    found: dict[str, list[float]] = {}
    for row in rows:
        values = found.setdefault(str(row[by]), [0.0] * len(names))
        for place, name in enumerate(names):
            values[place] += row[name] or 0
    largest = sorted(found.items(), key=lambda item: -item[1][0])[:TOP]
    return [(group, *(f"{value:,.0f}" for value in values)) for group, values in largest]


def report(outcome: Outcome, rate: int) -> str:
    recorder = outcome.recorder
    facts = {
        "events made": f"{outcome.made:,} ({rate:,} in a second asked for)",
        "records read": f"{sum(recorder.read.values()):,}",
        "micro-batches": f"{recorder.batches:,}",
        "bad orders made": f"{outcome.bad:,}",
        "dead letters": f"{outcome.letters:,}",
        "pauses": recorder.paused,
        "seconds": f"{outcome.seconds:.0f}",
    }
    tables = {
        "Revenue by country": [
            ("country", "orders", "euros"),
            *sums(outcome.revenue, "country", "orders", "euros"),
        ],
        "Clicks by page": [("page", "clicks"), *sums(outcome.clicks, "page", "clicks")],
    }
    return html("leveret etl demo", facts, recorder.all_charts(), tables)
