"""`leveret bindings`: which messages go where; lists over HTTP, changes over AMQP."""

from collections.abc import Callable
from typing import Any, Final

import click

from broker.admin_client import AdminClient, node_options
from broker.command_output import print_json
from clients.amqp_url import Target
from clients.commands.connecting import amqp_options, on_channel
from clients.commands.groups import ListByDefault
from clients.commands.listing import Columns, arguments_text, json_option, show
from clients.commands.values import parse_values
from clients.trio_channel import Channel

COLUMNS: Final[Columns] = {
    "exchange": lambda row: row["source"] or "(default)",
    "routing key": lambda row: row["routing_key"],
    "to": lambda row: f"{row['destination_type']} {row['destination']}",
    "arguments": arguments_text,
}
FIELDS: Final = (
    "vhost",
    "source",
    "destination",
    "destination_type",
    "routing_key",
    "arguments",
    "properties_key",
)


@click.group(cls=ListByDefault)
def bindings() -> None:
    """List, declare and delete bindings; without a word more, list them."""


@bindings.command("list")
@click.option("--vhost", help="A virtual host; all that you may see if left out.")
@click.option("--source", help="Only those from this exchange.")
@click.option("--destination", help="Only those to this queue or exchange.")
@click.option("--routing-key", help="Only those with this key.")
@click.option("--default", "with_default", is_flag=True, help="Those of the default exchange too.")
@click.option("--limit", type=click.IntRange(min=1), help="How many at most.")
@json_option
@node_options
def list_bindings(
    client: AdminClient,
    vhost: str | None,
    source: str | None,
    destination: str | None,
    routing_key: str | None,
    limit: int | None,
    *,
    with_default: bool,
    as_json: bool,
) -> None:
    """Show bindings, except that every queue is bound to the default exchange by its name."""
    wanted = {"source": source, "destination": destination, "routing_key": routing_key}
    asked = {name: value for name, value in wanted.items() if value is not None}
    found: list[dict[str, Any]] = client.get_page(
        *(["bindings"] if vhost is None else ["bindings", vhost]), columns=",".join(FIELDS)
    )
    rows = [
        row
        for row in found
        if (row["source"] or with_default or source == "")
        and all(row[name] == value for name, value in asked.items())
    ]
    rows.sort(key=lambda row: [row[name] for name in FIELDS if name != "arguments"])
    columns: Columns = {**({"vhost": lambda row: row["vhost"]} if vhost is None else {}), **COLUMNS}
    show(rows[:limit], columns, as_json=as_json, none="no binding is there")


def _binding_options(command: Callable[..., None]) -> Callable[..., None]:
    for decorate in (
        amqp_options,
        json_option,
        click.option("--argument", "arguments", multiple=True, help="NAME=VALUE, as x-match=any."),
        click.option("--routing-key", default="", help="The key or pattern."),
        click.option(
            "--to",
            type=click.Choice(["queue", "exchange"]),
            default="queue",
            show_default=True,
            help="What DESTINATION is.",
        ),
        click.argument("destination"),
        click.argument("source"),
    ):
        command = decorate(command)
    return command


@bindings.command()
@_binding_options
def declare(target: Target, **told: Any) -> None:
    """Bind DESTINATION to the exchange SOURCE."""

    def bind(channel: Channel, to: str) -> Callable[..., Any]:
        return channel.bind_queue if to == "queue" else channel.bind_exchange

    _change(target, bind, "bound", **told)


@bindings.command()
@_binding_options
def delete(target: Target, **told: Any) -> None:
    """Take away the binding of DESTINATION to SOURCE that has this key and these arguments."""

    def unbind(channel: Channel, to: str) -> Callable[..., Any]:
        return channel.unbind_queue if to == "queue" else channel.unbind_exchange

    _change(target, unbind, "no longer bound", **told)


def _change(
    target: Target,
    call_of: Callable[[Channel, str], Callable[..., Any]],
    done: str,
    *,
    source: str,
    destination: str,
    to: str,
    routing_key: str,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    values = parse_values(arguments, "--argument")

    async def change(channel: Channel) -> None:
        await call_of(channel, to)(destination, source, routing_key, arguments=values)

    on_channel(target, change)
    if as_json:
        row = {"source": source, "destination": destination, "destination_type": to}
        print_json({**row, "routing_key": routing_key, "arguments": values})
    else:
        click.echo(f"{to} {destination!r} is {done} to {source!r} by {routing_key!r}")
