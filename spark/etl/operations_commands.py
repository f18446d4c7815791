"""`leveret etl dlq …`, `leveret etl status`, `leveret etl forget`: for those who operate jobs."""

import base64
import functools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import click

from broker.protocol.stream_errors import StreamError
from clients.commands.connecting import CommandError
from clients.commands.listing import json_option, show
from spark.etl import letters_table
from spark.etl.letters_table import DeadLetter, Selection
from spark.etl.operations_options import Place, open_store, place_options, store_option, told
from spark.etl.replaying import Replayer
from spark.etl.status_command import status

__all__ = ["dlq", "forget", "status"]

SHOWN_BYTES: Final = 60  # of a record, in a table
SHOWN_CHARS: Final = 60  # of an error
LIST_MAX: Final = 10_000


@click.group()
def dlq() -> None:
    """List, show and replay records that jobs could not take."""


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Options that choose letters; the command is called with a `selection`."""

    @click.option("--job", help="Of this job only.")
    @click.option("--topic", help="Of this topic only.")
    @click.option("--error-type", help="With this type of error only.")
    @functools.wraps(command)
    def with_selection(
        *, job: str | None, topic: str | None, error_type: str | None, **arguments: Any
    ) -> None:
        selection = Selection(job=job, topic=topic, error_type=error_type)
        command(selection=selection, **arguments)

    return with_selection


@dlq.command("list")
@_selecting
@click.option(
    "--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True, help="At most."
)
@json_option
@place_options
def list_letters(place: Place, selection: Selection, limit: int, *, as_json: bool) -> None:
    """Show dead letters, the newest first."""
    _follow_if_possible(place)
    selection = place.of_pipeline(selection)
    with place.store.reading() as connection:
        found = letters_table.newest(connection, selection, limit=limit)
        total = letters_table.count(connection, selection)
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "id": lambda row: row["id"],
        "job": lambda row: row["job"],
        "record": lambda row: f"{row['topic']}/{row['partition']}:{row['offset']}",
        "failed": lambda row: row["failed_at"],
        "error": lambda row: f"{row['error_type']}: {row['error_message']}"[:SHOWN_CHARS],
        "replays": lambda row: row["replay_count"],
        "value": _short,
    }
    show([_json(each) for each in found], columns, as_json=as_json, none="there is no dead letter")
    if total > len(found) and not as_json:
        click.echo(f"{total - len(found)} more; --limit shows more of them")


@dlq.command("show")
@click.argument("number", metavar="ID", type=int)
@json_option
@place_options
def show_letter(place: Place, number: int, *, as_json: bool) -> None:
    """Show one dead letter, all of it."""
    _follow_if_possible(place)
    with place.store.reading() as connection:
        chosen = place.of_pipeline(Selection(ids=(number,)))
        found = letters_table.find(connection, chosen, limit=1)
    if not found:
        raise CommandError(f"there is no dead letter {number}; `leveret etl dlq list` shows them")
    row = _json(found[0])
    if as_json:
        click.echo(json.dumps(row, indent=2))
        return
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "": lambda line: line["name"],
        "of the record": lambda line: line["text"],
    }
    lines = [{"name": name.replace("_", " "), "text": _line(value)} for name, value in row.items()]
    show(lines, columns, as_json=False, none="")


@dlq.command()
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All that were not replayed yet.")
@click.option("--again", is_flag=True, help="Also those that were.")
@_selecting
@json_option
@place_options
def replay(
    place: Place,
    selection: Selection,
    ids: tuple[int, ...],
    *,
    everything: bool,
    again: bool,
    as_json: bool,
) -> None:
    """Send dead letters (their IDS, --all, or those of a job, topic or type of error) back to the
    topics they were read from."""
    filtered = selection != Selection()
    if bool(ids) == (everything or filtered):
        raise click.UsageError("either IDS are needed, or --all, --job, --topic, --error-type")
    if not ids:
        place.follow()
        selection = replace(selection, replayed=None if again else False)
    chosen = place.of_pipeline(replace(selection, ids=ids))
    with place.store.reading() as connection:
        found = letters_table.ids(connection, chosen)
    replayer = Replayer(place.url, place.store)
    try:
        result = replayer.replay(found)
    finally:
        replayer.close()
    missing = sorted(set(ids) - set(found) - set(result.settled))
    result.left |= dict.fromkeys(missing, "there is no such letter")
    left = [{"id": number, "reason": reason} for number, reason in result.left.items()]
    if as_json:
        answer = {"replayed": result.replayed, "settled": result.settled, "left": left}
        click.echo(json.dumps(answer, indent=2))
        return
    if result.settled:
        click.echo(f"{len(result.settled)} were sent by a replay that was cut short: counted now")
    click.echo(f"replayed {len(result.replayed)}, left {len(left)}")
    for each in left:
        click.echo(f"left {each['id']}: {each['reason']}")


@click.command()
@click.argument("job")
@store_option
def forget(job: str, store: str | None) -> None:
    """Forget how far JOB got, as ETLCheckpoint names it, so that it can begin anew."""
    with told(), open_store(store) as opened:
        if not opened.forget_checkpoint(job):
            raise CommandError(f"the store has no checkpoint of {job!r}")
    click.echo(f"the checkpoint of {job!r} is forgotten")


def _follow_if_possible(place: Place) -> None:
    """What is in the store can be shown without a broker."""
    try:
        place.follow()
    except StreamError as error:
        click.echo(f"dead letters as the store has them, for the broker: {error}", err=True)


def _json(letter: DeadLetter) -> dict[str, Any]:
    value, encoding = _text(letter.raw_message)
    key, key_encoding = _text(letter.key)
    return {
        "id": letter.id,
        "job": letter.job,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "error_type": letter.error_type,
        "error_message": letter.error_message,
        "failed_at": _time(letter.failed_ms),
        "message_timestamp": _time(letter.message_ms),
        "replay_count": letter.replay_count,
        "replayed_at": _time(letter.replayed_ms),
        "headers": json.loads(letters_table.headers_json(letter.headers)),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": encoding,
    }


def _text(value: bytes | None) -> tuple[str | None, str]:
    """As the management API has payloads."""
    if value is None:
        return None, "string"
    try:
        return value.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), "base64"


def _short(row: dict[str, Any]) -> str:
    shown = "" if row["value"] is None else row["value"][:SHOWN_BYTES]
    return f"base64 {shown}" if row["value_encoding"] == "base64" else str(shown)


def _line(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else "" if value is None else str(value)


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}Z"
