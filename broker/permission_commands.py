"""`leveret permission …`: what users of a running node may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin_client import AdminClient


@click.group()
def permission() -> None:
    """Set, list and clear permissions of users of a running node."""


def _vhost_option(command: Callable[..., None]) -> Callable[..., None]:
    option = click.option("--vhost", default="/", show_default=True, help="The virtual host.")
    return option(command)


def _pattern_option(name: str, help_text: str) -> Callable[[Callable[..., None]], Any]:
    return click.option(f"--{name}", required=True, metavar="PATTERN", help=help_text)


@permission.command("set")
@click.argument("name", metavar="USER")
@_pattern_option("configure", "Queues and exchanges it may declare and delete.")
@_pattern_option("write", "What it may publish to, and bind to something.")
@_pattern_option("read", "What it may consume, and bind something to.")
@_vhost_option
@node_options
def set_permission(
    client: AdminClient, name: str, configure: str, write: str, read: str, vhost: str
) -> None:
    """Let USER into a virtual host, and do what these patterns on names allow."""
    body = {"configure": configure, "write": write, "read": read}
    client.put("permissions", vhost, name, body=body)
    click.echo(f"permissions of user {name!r} are set in vhost {vhost!r}")


@permission.command("clear")
@click.argument("name", metavar="USER")
@_vhost_option
@node_options
def clear_permission(client: AdminClient, name: str, vhost: str) -> None:
    """Let USER into a virtual host no more."""
    client.delete("permissions", vhost, name)
    click.echo(f"user {name!r} has no permissions in vhost {vhost!r}")


@permission.command("set-topic")
@click.argument("name", metavar="USER")
@click.argument("exchange")
@_pattern_option("write", "Keys it may publish with; {username} and {vhost} may stand in it.")
@_pattern_option("read", "Keys it may bind with.")
@_vhost_option
@node_options
def set_topics(
    client: AdminClient, name: str, exchange: str, write: str, read: str, vhost: str
) -> None:
    """Have USER publish to, and bind to, topic exchange EXCHANGE with matching keys only."""
    body = {"exchange": exchange, "write": write, "read": read}
    client.put("topic-permissions", vhost, name, body=body)
    where = f"exchange {exchange!r} in vhost {vhost!r}"
    click.echo(f"topic permissions of user {name!r} are set for {where}")


@permission.command("clear-topic")
@click.argument("name", metavar="USER")
@click.argument("exchange", required=False)
@_vhost_option
@node_options
def clear_topics(client: AdminClient, name: str, exchange: str | None, vhost: str) -> None:
    """Say nothing about USER's keys any more: for EXCHANGE, or for all of a virtual host."""
    where = ["topic-permissions", vhost, name]
    client.delete(*where, *([exchange] if exchange is not None else []))
    told = "every exchange" if exchange is None else f"exchange {exchange!r}"
    click.echo(f"user {name!r} may use any key with {told} in vhost {vhost!r}")


@permission.command("list")
@click.option("--vhost", help="Of this virtual host only.")
@click.option("--of", "name", metavar="USER", help="Of this user only.")
@click.option("--topics", is_flag=True, help="Permissions for keys.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_permissions(
    client: AdminClient, vhost: str | None, name: str | None, *, topics: bool, as_json: bool
) -> None:
    """Show who may do what."""
    found: list[dict[str, Any]] = client.get("topic-permissions" if topics else "permissions")
    found = [one for one in found if vhost in (None, one["vhost"]) and name in (None, one["user"])]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no topic permissions" if topics else "no permissions")
        return
    last = ("exchange", "write", "read") if topics else ("configure", "write", "read")
    table = Table("vhost", "user", *last)
    for one in found:
        table.add_row(*(plain(one[key]) for key in ("vhost", "user", *last)))
    print_table(table)
