"""`leveret etl status`: how jobs do, as the store has it, and as they tell the broker."""

from collections.abc import Callable
from typing import Any, Final

import click

from clients.amqp_url import Target
from clients.commands.connecting import both_options
from clients.commands.listing import json_option, show
from spark.etl import letters_table
from spark.etl.operations_options import open_store, store_option, told
from spark.etl.store import JobTotal

UNKNOWN: Final = "unknown"
_COLUMNS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "job": lambda row: row["name"],
    "state": lambda row: row["state"],
    "batches": lambda row: row["batches"],
    "processed": lambda row: row["processed"],
    "errors": lambda row: row["errors"],
    "dead letters": lambda row: row["dead_letters"],
    "lag s": lambda row: row["lag_seconds"],
    "batch ms": lambda row: row["batch_ms"],
    "rows/s": lambda row: row["rows_per_second"],
}


@click.command()
@store_option
@json_option
@both_options
def status(client: Any, target: Target, store: str | None, *, as_json: bool) -> None:
    """Show how jobs do: what they processed, what failed, how far behind they are."""
    del target
    with told(), open_store(store) as opened:
        totals = opened.totals()
        with opened.reading() as connection:
            counts = letters_table.counts_by_job(connection)
    states = _states(client)
    rows = [_row(total, counts.get(total.job, 0), states) for total in totals]
    show(rows, _COLUMNS, as_json=as_json, none="no job has reported to this store yet")


def _states(client: Any) -> dict[str, str]:
    """As the broker knows them; without one, none."""
    try:
        return {row["name"]: row["state"] for row in client.get("etl", "jobs")}
    except click.ClickException as error:
        click.echo(f"states are unknown: {error.format_message()}", err=True)
        return {}


def _row(total: JobTotal, letters: int, states: dict[str, str]) -> dict[str, Any]:
    last = total.last
    seconds = 0.0 if last is None else last.batch_ms / 1000
    return {
        "name": total.job,
        "state": states.get(total.job, UNKNOWN),
        "batches": total.batches,
        "processed": total.processed,
        "errors": total.errors,
        "dead_letters": letters,
        "lag_seconds": 0.0 if last is None else last.lag_seconds,
        "batch_ms": 0 if last is None else last.batch_ms,
        "batch_id": None if last is None else last.batch_id,
        "rows_per_second": round(last.processed / seconds, 1) if last and seconds else 0.0,
        "updated_ms": None if last is None else last.recorded_ms,
    }
