"""`leveret dlq …`: dead letters of a running node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin_client import AdminClient

BODY_CHARS: Final = 60  # shown of each in a table


@click.group()
def dlq() -> None:
    """List, look at, replay and drop dead letters of a running node."""


def _queue_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option("--vhost", default="/", show_default=True, help="The virtual host.")(
        command
    )
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.argument("queue")(command)


@dlq.command("list")
@click.option("--vhost", help="A virtual host; all that you may see if left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_queues(client: AdminClient, vhost: str | None, *, as_json: bool) -> None:
    """Show the queues that dead letters go to."""
    found: list[dict[str, Any]] = client.get(*(["dlq"] if vhost is None else ["dlq", vhost]))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queue has dead letters sent to another one")
        return
    table = Table("vhost", "queue", "ready", "unacked", "dead letters of")
    for row in found:
        counts = (str(row["messages_ready"]), str(row["messages_unacknowledged"]))
        sources = ", ".join(row["sources"])
        table.add_row(plain(row["vhost"]), plain(row["name"]), *counts, plain(sources))
    print_table(table)


@dlq.command()
@_queue_options
@click.option("--count", default=20, show_default=True, help="How many at most.")
@click.option("--after", default=-1, help="Only those behind the message of this id.")
@node_options
def peek(
    client: AdminClient, queue: str, vhost: str, count: int, after: int, *, as_json: bool
) -> None:
    """Show messages of QUEUE without consuming them."""
    found = client.get_page("dlq", vhost, queue, count=count, after=after)
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo(f"nothing is ready in queue {queue!r}")
        return
    table = Table("id", "died in", "reason", "times", "exchange", "routing key", "replays", "body")
    for row in found:
        death = row["death"] or {}
        told = [death.get(key, "") for key in ("queue", "reason", "count")]
        address = [death.get(key, row[key]) for key in ("exchange", "routing_key")]
        body = row["payload"][:BODY_CHARS]
        cells = [row["id"], *told, *address, death.get("replays", ""), body]
        table.add_row(*map(plain, cells))
    print_table(table)


@dlq.command()
@_queue_options
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All messages that are there now.")
@node_options
def replay(
    client: AdminClient,
    queue: str,
    ids: tuple[int, ...],
    vhost: str,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Send messages of QUEUE (their IDS, or --all) back to the queues they died in."""
    answer = client.post("dlq", vhost, queue, "replay", body=_which(ids, everything=everything))
    if as_json:
        print_json(answer)
        return
    click.echo(f"replayed {answer['replayed']}, left {answer['left']} in queue {queue!r}")


@dlq.command()
@_queue_options
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All messages that are there now.")
@node_options
def drop(
    client: AdminClient,
    queue: str,
    ids: tuple[int, ...],
    vhost: str,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Delete messages of QUEUE (their IDS, or --all) for good."""
    answer = client.post("dlq", vhost, queue, "drop", body=_which(ids, everything=everything))
    if as_json:
        print_json(answer)
        return
    click.echo(f"dropped {answer['dropped']} from queue {queue!r}")


def _which(ids: tuple[int, ...], *, everything: bool) -> dict[str, object]:
    if bool(ids) == everything:
        raise click.UsageError("either the IDS of messages or --all is needed")
    return {"all": True} if everything else {"ids": list(ids)}
