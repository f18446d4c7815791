"""`leveret exchanges`: lists over HTTP, changes over AMQP as any client makes them."""

from typing import Final

import click

from broker.admin_client import AdminClient, node_options
from broker.command_output import print_json
from clients.amqp_url import Target
from clients.commands.confirming import ask, yes_option
from clients.commands.connecting import amqp_options, on_channel
from clients.commands.groups import ListByDefault
from clients.commands.listing import (
    Columns,
    Listing,
    arguments_text,
    describe_with,
    features,
    json_option,
    listing_options,
    show,
    show_one,
    vhost_column,
)
from clients.commands.values import parse_values
from clients.trio_channel import Channel

FIELDS: Final = (
    "vhost",
    "name",
    "type",
    "durable",
    "auto_delete",
    "internal",
    "arguments",
    "policy",
)
COLUMNS: Final[Columns] = {
    "exchange": lambda row: row["name"] or "(default)",
    "type": lambda row: row["type"],
    "features": features,
    "policy": lambda row: row.get("policy") or "",
    "arguments": arguments_text,
}
SORTS: Final = {"type": lambda row: row["type"]}
DEFAULT_IN_PATHS: Final = "amq.default"  # how the management API names the one without a name


@click.group(cls=ListByDefault)
def exchanges() -> None:
    """List, describe, declare and delete exchanges; without a word more, list them."""


@exchanges.command("list")
@listing_options(*SORTS)
@click.option("--type", "kind", help="Only this type.")
@node_options
def list_exchanges(
    client: AdminClient, listing: Listing, kind: str | None, *, as_json: bool
) -> None:
    """Show exchanges."""
    rows = listing.fetch(client, "exchanges", FIELDS)
    if kind is not None:
        rows = [row for row in rows if row["type"] == kind]
    columns = {**vhost_column(listing), **COLUMNS}
    show(listing.choose(rows, SORTS), columns, as_json=as_json, none="no exchange is there")


@exchanges.command()
@click.argument("name")
@click.option("--vhost", default="/", show_default=True, help="The virtual host.")
@json_option
@node_options
def describe(client: AdminClient, name: str, vhost: str, *, as_json: bool) -> None:
    """Show all that is known of exchange NAME, with the bindings from it."""
    path = ("exchanges", vhost, name or DEFAULT_IN_PATHS)
    row = describe_with(client, ("bindings", "source"), *path)
    if as_json:
        print_json(row)
        return
    show_one(row, FIELDS)
    from_it: Columns = {
        "to": lambda each: f"{each['destination_type']} {each['destination']}",
        "routing key": lambda each: each["routing_key"],
        "arguments": arguments_text,
    }
    show(row["bindings"], from_it, as_json=False, none="no binding leads from it")


@exchanges.command()
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="As topic or fanout.")
@click.option("--transient", is_flag=True, help="It need not survive a restart of the broker.")
@click.option("--auto-delete", is_flag=True, help="It goes with its last binding.")
@click.option("--internal", is_flag=True, help="Only other exchanges publish to it.")
@click.option("--argument", "arguments", multiple=True, help="NAME=VALUE.")
@json_option
@amqp_options
def declare(
    target: Target,
    name: str,
    kind: str,
    arguments: tuple[str, ...],
    *,
    transient: bool,
    auto_delete: bool,
    internal: bool,
    as_json: bool,
) -> None:
    """Make exchange NAME, or check that it is there as described."""
    told = parse_values(arguments, "--argument")

    async def make(channel: Channel) -> None:
        await channel.declare_exchange(
            name,
            kind,
            durable=not transient,
            auto_delete=auto_delete,
            internal=internal,
            arguments=told,
        )

    on_channel(target, make)
    if as_json:
        print_json({"name": name, "type": kind})
    else:
        click.echo(f"exchange {name!r} is there")


@exchanges.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-unused", is_flag=True, help="Only if it has no bindings.")
@yes_option
@json_option
@amqp_options
def delete(
    target: Target, names: tuple[str, ...], *, if_unused: bool, yes: bool, as_json: bool
) -> None:
    """Delete exchanges NAMES with the bindings from and to them."""

    async def look(channel: Channel) -> None:
        for name in names:
            await channel.declare_exchange(name, passive=True)

    on_channel(target, look)
    ask(f"delete {', '.join(map(repr, names))} with all bindings?", yes=yes)
    done: list[dict[str, str]] = []

    async def drop(channel: Channel) -> None:
        for name in names:
            await channel.delete_exchange(name, if_unused=if_unused)
            done.append({"name": name})

    try:
        on_channel(target, drop)
    finally:
        if as_json:
            print_json(done)
        for each in [] if as_json else done:
            click.echo(f"deleted {each['name']!r}")
