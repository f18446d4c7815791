"""`leveret scheduled …`: messages of a running node that wait for their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table, time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin_client import AdminClient

BODY_CHARS: Final = 60  # shown of each in a table


@click.group()
def scheduled() -> None:
    """List, move and cancel delayed messages of a running node."""


def _vhost_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--vhost", default="/", show_default=True, help="The virtual host.")(
        command
    )


@scheduled.command("list")
@click.argument("queue", required=False)
@_vhost_option
@click.option("--count", default=20, show_default=True, help="How many messages at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_messages(
    client: AdminClient, queue: str | None, vhost: str, count: int, *, as_json: bool
) -> None:
    """Show which queues hold delayed messages; or the next to be due in QUEUE."""
    if queue is None:
        found = client.get("scheduled", vhost)
    else:
        found = client.get_page("scheduled", vhost, queue, count=count)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no message is scheduled")
    else:
        print_table(_queues(found) if queue is None else _messages(found))


def _queues(found: list[dict[str, Any]]) -> Table:
    table = Table("vhost", "queue", "delayed")
    for row in found:
        table.add_row(plain(row["vhost"]), plain(row["name"]), str(row["messages_delayed"]))
    return table


def _messages(found: list[dict[str, Any]]) -> Table:
    table = Table("id", "due", "routing key", "tries", "body")
    for row in found:
        cells = [row["id"], time_of(row["due_ms"]), row.get("routing_key", "")]
        cells += [row.get("delivery_count", ""), row.get("payload", "")[:BODY_CHARS]]
        table.add_row(*map(plain, cells))
    return table


@scheduled.command()
@click.argument("queue")
@click.argument("message_id", type=click.IntRange(min=0))
@click.argument("delay_ms", type=click.IntRange(min=0))
@_vhost_option
@node_options
def move(client: AdminClient, queue: str, message_id: int, delay_ms: int, vhost: str) -> None:
    """Have message MESSAGE_ID of QUEUE delivered DELAY_MS milliseconds from now."""
    client.put("scheduled", vhost, queue, str(message_id), body={"delay_ms": delay_ms})
    click.echo(f"message {message_id} of queue {queue!r} is due in {delay_ms} ms")


@scheduled.command()
@click.argument("queue")
@click.argument("message_id", type=click.IntRange(min=0))
@_vhost_option
@node_options
def cancel(client: AdminClient, queue: str, message_id: int, vhost: str) -> None:
    """Delete message MESSAGE_ID of QUEUE before it is due."""
    client.delete("scheduled", vhost, queue, str(message_id))
    click.echo(f"message {message_id} of queue {queue!r} is cancelled")
