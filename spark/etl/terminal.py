"""What a running pipeline shows: a table that is kept up to date, plain lines, or lines of JSON."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from spark.etl.events import Batch, Event, Listener

LINES_KEPT: Final = 6  # of what was said, below the table


@contextmanager
def terminal_of(name: str, *, as_json: bool) -> Iterator[Listener]:
    """A listener that shows what it hears."""
    if as_json:
        yield _json_line
    elif sys.stdout.isatty():
        view = LiveView(name)
        with view:
            yield view.listen
    else:
        yield _plain_line


def _json_line(event: Event) -> None:
    batch = None if event.batch is None else asdict(event.batch)
    click.echo(
        json.dumps(
            {"event": event.kind, "query": event.query, "text": event.text} | {"batch": batch}
        )
    )
    sys.stdout.flush()


def _plain_line(event: Event) -> None:
    click.echo(line_of(event))
    sys.stdout.flush()


def line_of(event: Event) -> str:
    now = datetime.now(UTC).strftime("%H:%M:%S")
    if event.batch is not None:
        return f"{now} {event.query} {_batch_text(event.batch)}"
    return f"{now} {event.query} {event.kind}{': ' if event.text else ''}{event.text}"


def _batch_text(batch: Batch) -> str:
    found = f"batch {batch.number}: {batch.records:,} records in {batch.took_ms:,} ms"
    if batch.took_ms:
        found += f" ({1000 * batch.records / batch.took_ms:,.0f}/s)"
    if batch.letters:
        found += f", {batch.letters:,} dead letters"
    if batch.behind:
        found += f", {batch.behind:,} behind"
    return found


class LiveView:
    """For a terminal: a row for each query, and the last things that were said."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        self._name = name
        self._rows: dict[str, tuple[str, Batch | None, int, int]] = {}
        self._said: list[str] = []
        self._lock = threading.Lock()
        self._live = Live(self._table(), console=console, refresh_per_second=4)

    def __enter__(self) -> "LiveView":
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def listen(self, event: Event) -> None:
        with self._lock:
            _, batch, records, letters = self._rows.get(event.query, ("", None, 0, 0))
            state = "running" if event.batch is not None else event.kind
            if event.batch is not None:
                batch = event.batch
                records, letters = records + batch.records, letters + batch.letters
            else:
                self._said = [*self._said, line_of(event)][-LINES_KEPT:]
            self._rows[event.query] = (state, batch, records, letters)
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table(title=f"pipeline {self._name}", caption="\n".join(self._said))
        for column in ("query", "state"):
            table.add_column(column)
        for column in ("batch", "records", "records/s", "behind", "dead letters", "state MB"):
            table.add_column(column, justify="right")
        for name, (state, batch, records, letters) in self._rows.items():
            rate = 1000 * batch.records / batch.took_ms if batch and batch.took_ms else 0
            table.add_row(
                name,
                state,
                str(batch.number) if batch else "",
                f"{records:,}",
                f"{rate:,.0f}",
                f"{batch.behind:,}" if batch else "",
                f"{letters:,}",
                f"{batch.state_bytes / 1e6:,.1f}" if batch else "",
            )
        return table
