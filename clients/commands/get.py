"""`leveret get`: some messages of a queue, looked at where they are, or taken."""

from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from broker.admin_client import AdminClient
from broker.command_output import plain, print_json, print_table
from clients.amqp_url import Target
from clients.commands.connecting import both_options, on_channel
from clients.commands.message_json import message_json
from clients.trio_channel import Channel

if TYPE_CHECKING:
    from clients.amqp_message import Message

COUNT_MAX: Final = 10_000  # they are all in memory; `leveret consume` takes any number
PAGE: Final = 500  # of one request
BODY_BYTES: Final = 1024 * 1024  # of each that is only looked at; a node sends no more
BODY_CHARS: Final = 60  # shown of each in a table


@click.command()
@click.argument("queue")
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=1,
    show_default=True,
    help="How many at most.",
)
@click.option("--take", is_flag=True, help="Remove them from the queue.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@both_options
def get(
    client: AdminClient, target: Target, queue: str, count: int, *, take: bool, as_json: bool
) -> None:
    """Show the first messages of QUEUE, and leave them as they are.

    That goes over HTTP. With --take they are fetched over AMQP, and acked when they are printed.
    """
    if not take:
        _show(_peek(client, target.vhost, queue, count), queue, as_json=as_json)
        return

    async def take_some(channel: Channel) -> None:
        messages: list[Message] = []
        while len(messages) < count and (message := await channel.get(queue)) is not None:
            messages.append(message)
        _show([message_json(message) for message in messages], queue, as_json=as_json)
        for message in messages:
            message.ack()

    on_channel(target, take_some)


def _peek(client: AdminClient, vhost: str, queue: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        after = found[-1]["id"] if found else -1
        page = client.get_page(
            *("dlq", vhost, queue),
            count=min(PAGE, count - len(found)),
            after=after,
            body_bytes=BODY_BYTES,
        )
        if not page:
            break
        found += page
    return found


def _show(found: list[dict[str, Any]], queue: str, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo(f"nothing is ready in queue {queue!r}")
        return
    table = Table("exchange", "routing key", "redelivered", "bytes", "headers", "body")
    for row in found:
        headers = row["properties"].get("headers") or {}
        cells = [row["exchange"] or "(default)", row["routing_key"]]
        cells += ["yes" if row["redelivered"] else "", row["payload_bytes"]]
        cells += [", ".join(f"{name}={value}" for name, value in headers.items())]
        table.add_row(*map(plain, [*cells, row["payload"][:BODY_CHARS]]))
    print_table(table)
