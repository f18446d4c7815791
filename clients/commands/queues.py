"""`leveret queues` and `leveret purge`: lists over HTTP, changes over AMQP as any client makes."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from broker.admin_client import AdminClient, node_options
from broker.command_output import print_json
from clients.amqp_topology import DeclaredQueue
from clients.amqp_url import Target
from clients.commands.confirming import ask, counted, yes_option
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
    "exclusive",
    "arguments",
    "policy",
    "state",
    "node",
    "consumers",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
)
COLUMNS: Final[Columns] = {
    "queue": lambda row: row["name"],
    "type": lambda row: row["type"],
    "features": features,
    "ready": lambda row: row.get("messages_ready", ""),
    "unacked": lambda row: row.get("messages_unacknowledged", ""),
    "consumers": lambda row: row.get("consumers", ""),
    "policy": lambda row: row.get("policy") or "",
    "state": lambda row: row.get("state", ""),
}
SORTS: Final = {
    "type": lambda row: row["type"],
    "messages": lambda row: row.get("messages", 0),
    "ready": lambda row: row.get("messages_ready", 0),
    "unacked": lambda row: row.get("messages_unacknowledged", 0),
    "consumers": lambda row: row.get("consumers", 0),
}


@click.group(cls=ListByDefault)
def queues() -> None:
    """List, describe, declare and delete queues; without a word more, list them."""


@queues.command("list")
@listing_options(*SORTS)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["classic", "quorum", "stream"]),
    help="Only queues of this type.",
)
@node_options
def list_queues(client: AdminClient, listing: Listing, kind: str | None, *, as_json: bool) -> None:
    """Show queues and how many messages wait in them."""
    rows = listing.fetch(client, "queues", FIELDS)
    if kind is not None:
        rows = [row for row in rows if row["type"] == kind]
    columns = {**vhost_column(listing), **COLUMNS}
    show(listing.choose(rows, SORTS), columns, as_json=as_json, none="no queue is there")


@queues.command()
@click.argument("name")
@click.option("--vhost", default="/", show_default=True, help="The virtual host.")
@json_option
@node_options
def describe(client: AdminClient, name: str, vhost: str, *, as_json: bool) -> None:
    """Show all that is known of queue NAME, with its bindings."""
    row = describe_with(client, ("bindings",), "queues", vhost, name)
    if as_json:
        print_json(row)
        return
    show_one(row, (*FIELDS, "operator_policy", "message_bytes", "leader", "members", "online"))
    to_it: Columns = {
        "exchange": lambda each: each["source"] or "(default)",
        "routing key": lambda each: each["routing_key"],
        "arguments": arguments_text,
    }
    show(row["bindings"], to_it, as_json=False, none="no binding leads to it")


@queues.command()
@click.argument("name")
@click.option(
    "--type", "kind", type=click.Choice(["classic", "quorum", "stream"]), help="Quorum, if durable."
)
@click.option("--transient", is_flag=True, help="It need not survive a restart of the broker.")
@click.option("--auto-delete", is_flag=True, help="It goes with its last consumer.")
@click.option("--argument", "arguments", multiple=True, help="NAME=VALUE, as x-max-length=1000.")
@json_option
@amqp_options
def declare(
    target: Target,
    name: str,
    kind: str | None,
    arguments: tuple[str, ...],
    *,
    transient: bool,
    auto_delete: bool,
    as_json: bool,
) -> None:
    """Make queue NAME, or check that it is there as described."""
    told = parse_values(arguments, "--argument")
    if kind is not None:
        told["x-queue-type"] = kind
    if not name:
        raise click.UsageError("a queue without a name would go with this command")

    async def make(channel: Channel) -> DeclaredQueue:
        return await channel.declare_queue(
            name, durable=not transient, auto_delete=auto_delete, arguments=told
        )

    found = on_channel(target, make)
    if as_json:
        counts = {"messages": found.message_count, "consumers": found.consumer_count}
        print_json({"name": found.name, **counts})
    else:
        messages = counted(found.message_count, "message")
        consumers = counted(found.consumer_count, "consumer")
        click.echo(f"queue {found.name!r} is there: {messages}, {consumers}")


@queues.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-unused", is_flag=True, help="Only if it has no consumers.")
@click.option("--if-empty", is_flag=True, help="Only if it has no messages.")
@yes_option
@json_option
@amqp_options
def delete(
    target: Target,
    names: tuple[str, ...],
    *,
    if_unused: bool,
    if_empty: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete queues NAMES with the messages that are in them."""
    found = _look(target, names)
    ask(f"delete {_described(found)}?", yes=yes)

    async def drop(channel: Channel, name: str) -> int:
        return await channel.delete_queue(name, if_unused=if_unused, if_empty=if_empty)

    _change(target, names, drop, "deleted", as_json=as_json)


@click.command()
@click.argument("names", nargs=-1, required=True)
@yes_option
@json_option
@amqp_options
def purge(target: Target, names: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    """Delete all messages of queues NAMES that nobody is working on."""
    found = _look(target, names)
    ask(f"purge {_described(found)}?", yes=yes)

    async def empty(channel: Channel, name: str) -> int:
        return await channel.purge_queue(name)

    _change(target, names, empty, "purged", as_json=as_json)


def _look(target: Target, names: tuple[str, ...]) -> list[DeclaredQueue]:
    """The queues as they are; CommandError if one of them is not there."""

    async def look(channel: Channel) -> list[DeclaredQueue]:
        return [await channel.declare_queue(name, passive=True) for name in names]

    return on_channel(target, look)


def _described(found: list[DeclaredQueue]) -> str:
    return ", ".join(f"{q.name!r} with {counted(q.message_count, 'message')}" for q in found)


def _change(
    target: Target,
    names: tuple[str, ...],
    change: Callable[[Channel, str], Awaitable[int]],
    verb: str,
    *,
    as_json: bool,
) -> None:
    """What was done is told also where not everything could be."""
    done: list[dict[str, Any]] = []

    async def change_all(channel: Channel) -> None:
        for name in names:
            count = await change(channel, name)
            done.append({"name": name, "messages": count})

    try:
        on_channel(target, change_all)
    finally:
        if as_json:
            print_json(done)
        for each in [] if as_json else done:
            click.echo(f"{verb} {each['name']!r} with {counted(each['messages'], 'message')}")
