"""`leveret stream …`: the streams of a running node, what is in them, and who reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table, time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin_client import AdminClient

WAIT_MS: Final = 10_000  # of one request of `tail`
PAGE: Final = 1000  # records of one request of `tail`


@click.group()
def stream() -> None:
    """Look into the streams of a running node, and at the groups that read them."""


def _vhost_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--vhost", default="/", show_default=True, help="The virtual host.")(
        command
    )


def _json_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _show(found: Any, table: Table, *, as_json: bool, none: str) -> None:
    if as_json:
        print_json(found)
    elif not table.row_count:
        click.echo(none)
    else:
        print_table(table)


@stream.command("list")
@_vhost_option
@_json_option
@node_options
def list_streams(client: AdminClient, vhost: str, *, as_json: bool) -> None:
    """Show the streams of a vhost."""
    found = client.get("streams", vhost)
    table = Table("stream", "partitions", "records", "bytes", "readers", "state")
    for row in found:
        numbers = [row[key] for key in ("partitions", "messages", "size_bytes", "readers")]
        table.add_row(*map(plain, [row["name"], *numbers, row["damaged"] or "running"]))
    _show(found, table, as_json=as_json, none="there is no stream")


@stream.command()
@click.argument("name")
@_vhost_option
@_json_option
@node_options
def describe(client: AdminClient, name: str, vhost: str, *, as_json: bool) -> None:
    """Show the partitions of stream NAME: offsets, size, segments."""
    found = client.get("streams", vhost, name)
    table = Table("partition", "first", "next", "stable", "bytes", "segments", "oldest", "trouble")
    for row in found["partitions"]:
        segments = row["segments"]
        oldest = time_of(segments[0]["first_ms"]) if segments and segments[0]["records"] else ""
        cells = [row["partition"], row["first_offset"], row["next_offset"], row["stable_offset"]]
        cells += [row["size_bytes"], len(segments), oldest, row["trouble"] or ""]
        table.add_row(*map(plain, cells))
    if not as_json:
        for key, value in sorted(found["arguments"].items()):
            click.echo(plain(f"{key}: {value}").plain)
    _show(found, table, as_json=as_json, none="")


@stream.command()
@click.argument("name")
@_vhost_option
@click.option("--partition", type=int, multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--from",
    "start",
    default="next",
    show_default=True,
    help="Where to begin: first, last, next, a time in ms, or @OFFSET.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many records.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@node_options
def tail(
    client: AdminClient,
    name: str,
    vhost: str,
    partition: tuple[int, ...],
    start: str,
    count: int | None,
    *,
    as_json: bool,
) -> None:
    """Print records of stream NAME as they come, until Ctrl-C or --count."""
    positions = _start(client, vhost, name, partition, start)
    left = count
    try:
        while left is None or left > 0:
            found = client.get_page(
                *("streams", vhost, name, "records"),
                **{"from": ",".join(f"{number}:{at}" for number, at in positions.items())},
                count=PAGE if left is None else min(left, PAGE),
                wait_ms=WAIT_MS,
            )
            for record in found["records"]:
                click.echo(json.dumps(record) if as_json else _line(record))
            positions = {int(number): at for number, at in found["next"].items()}
            left = None if left is None else left - len(found["records"])
    except KeyboardInterrupt:
        return


def _start(
    client: AdminClient, vhost: str, name: str, partitions: tuple[int, ...], start: str
) -> dict[int, int]:
    by_offset = start.startswith("@")
    if by_offset and not start[1:].isdigit():
        raise click.BadParameter(f"{start!r} is not @ and a number", param_hint="--from")
    found = client.get_page("streams", vhost, name, "offsets", at="next" if by_offset else start)
    offsets = {row["partition"]: int(start[1:]) if by_offset else row["offset"] for row in found}
    for number in partitions:
        if number not in offsets:
            raise click.BadParameter(f"there is no partition {number}", param_hint="--partition")
    return {number: offsets[number] for number in partitions or offsets}


def _line(record: dict[str, Any]) -> str:
    key, value = record["key"], record["value"]
    place = f"{record['partition']}:{record['offset']}"
    parts = [place, time_of(record["timestamp_ms"])]
    parts += [f"key={key}"] if key is not None else []
    parts.append("(deleted)" if value is None else value)
    return plain(" ".join(parts)).plain


@stream.command()
@click.argument("name")
@_vhost_option
@click.option(
    "--at", default="next", show_default=True, help="first, last, next, or a time in milliseconds."
)
@_json_option
@node_options
def offsets(client: AdminClient, name: str, vhost: str, at: str, *, as_json: bool) -> None:
    """Show where the partitions of stream NAME begin, end, or stood at a time."""
    found = client.get_page("streams", vhost, name, "offsets", at=at)
    table = Table("partition", "offset")
    for row in found:
        table.add_row(str(row["partition"]), str(row["offset"]))
    _show(found, table, as_json=as_json, none="")


@stream.command()
@click.argument("group", required=False)
@_vhost_option
@_json_option
@node_options
def groups(client: AdminClient, group: str | None, vhost: str, *, as_json: bool) -> None:
    """Show the consumer groups of a vhost; or members, offsets and lag of GROUP."""
    if group is None:
        found = client.get("stream-groups", vhost)
        table = Table("group", "generation", "members")
        for row in found:
            table.add_row(*map(plain, [row["group"], row["generation"], row["members"]]))
        _show(found, table, as_json=as_json, none="there is no group")
        return
    found = client.get("stream-groups", vhost, group)
    owners = {tuple(part): row["member"] for row in found["members"] for part in row["assigned"]}
    table = Table("stream", "partition", "committed", "next", "lag", "member")
    for row in found["offsets"]:
        cells = [row[key] for key in ("stream", "number", "offset", "next_offset", "lag")]
        table.add_row(*map(plain, [*cells, owners.pop((row["stream"], row["number"]), "")]))
    for (name, number), member in sorted(owners.items()):
        table.add_row(*map(plain, [name, number, "", "", "", member]))
    _show(found, table, as_json=as_json, none="it has no members and no offsets")


@stream.command()
@click.argument("group")
@click.argument("name")
@_vhost_option
@click.option("--to", help="first, last, next, or a time in milliseconds.")
@click.option("--offset", type=click.IntRange(min=0), help="Or this offset.")
@click.option("--partition", type=int, multiple=True, help="Only this one; may be repeated.")
@node_options
def reset(
    client: AdminClient,
    group: str,
    name: str,
    vhost: str,
    to: str | None,
    offset: int | None,
    partition: tuple[int, ...],
) -> None:
    """Have GROUP, which must have no members, go on elsewhere in stream NAME."""
    if (to is None) == (offset is None):
        raise click.UsageError("either --to or --offset is needed")
    wanted = {"to": to, "offset": offset, "partitions": list(partition) or None}
    body = {"stream": name, **{key: each for key, each in wanted.items() if each is not None}}
    found = client.post("stream-groups", vhost, group, "offsets", body=body)
    for row in found:
        click.echo(f"{name}:{row['partition']} goes on at {row['offset']}")


@stream.group()
def staged() -> None:
    """Rows that wait for their transaction, such as those of a Spark job that was killed."""


@staged.command("list")
@click.argument("name")
@_vhost_option
@_json_option
@node_options
def list_staged(client: AdminClient, name: str, vhost: str, *, as_json: bool) -> None:
    """Show who has rows staged in stream NAME."""
    found = client.get("streams", vhost, name, "staged")
    _show(found, _staged_table(found), as_json=as_json, none="nothing is staged")


def _staged_table(rows: list[dict[str, Any]]) -> Table:
    table = Table("partition", "user", "producer", "sequence", "rows", "bytes", "idle", "state")
    for row in rows:
        prepared = row["transaction"] is not None
        who = ["", "", ""] if prepared else [row["user"], row["producer"], row["sequence"]]
        idle = f"{row['idle_ms'] // 1000} s"
        state = f"prepared ({row['transaction']})" if prepared else "staged"
        cells = [row["partition"], *who, row["rows"], row["size_bytes"], idle, state]
        table.add_row(*map(plain, cells))
    return table


@staged.command("drop")
@click.argument("name")
@_vhost_option
@click.option("--producer", help="Only what this producer has staged.")
@click.option("--owner", help="Only what producers of this user have staged.")
@click.option("--partition", type=click.IntRange(min=0), help="Only in this partition.")
@click.option("--all", "everything", is_flag=True, help="All that is staged in the stream.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json_option
@node_options
def drop_staged(
    client: AdminClient,
    name: str,
    vhost: str,
    producer: str | None,
    owner: str | None,
    partition: int | None,
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop rows that are staged in stream NAME; a transaction that wants them is aborted.

    What is prepared is about to be decided, and stays.
    """
    given = {"producer": producer, "user": owner, "partition": partition}
    query = {key: str(value) for key, value in given.items() if value is not None}
    if bool(query) == everything:
        raise click.UsageError("either --all, or --producer, --owner or --partition is needed")
    if not yes:
        click.confirm(f"Drop staged rows of stream {name!r}?", abort=True)
    found = client.at_root("DELETE", "api", "streams", vhost, name, "staged", **query)
    if as_json:
        print_json(found)
    else:
        rows, size = (sum(row[key] for row in found) for key in ("rows", "size_bytes"))
        click.echo(f"dropped {rows} rows, {size} bytes")
