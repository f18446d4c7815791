"""`leveret vhost …`: virtual hosts of a running node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table
from broker.security.registry import VHOST_LIMITS
from broker.user_commands import limits_text, set_limit

if TYPE_CHECKING:
    from broker.admin_client import AdminClient


@click.group()
def vhost() -> None:
    """Add, list and delete virtual hosts of a running node."""


@vhost.command("add")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@click.option("--tag", "tags", multiple=True, help="May be repeated.")
@node_options
def add_vhost(client: AdminClient, name: str, description: str, tags: tuple[str, ...]) -> None:
    """Add virtual host NAME; who adds it may use it."""
    body = {"description": description, "tags": list(tags)}
    is_new = client.put("vhosts", name, body=body)
    click.echo(f"vhost {name!r} is {'added' if is_new else 'changed'}")


@vhost.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def delete_vhost(client: AdminClient, name: str, *, yes: bool) -> None:
    """Delete virtual host NAME, with its queues and all that is in them."""
    if not yes:
        click.confirm(f"Delete vhost {name!r} and all its queues and messages?", abort=True)
    client.delete("vhosts", name)
    click.echo(f"vhost {name!r} is deleted")


@vhost.command("limit")
@click.argument("name")
@click.argument("limit", type=click.Choice(VHOST_LIMITS))
@click.argument("number")
@node_options
def limit_vhost(client: AdminClient, name: str, limit: str, number: str) -> None:
    """Limit how many connections or queues virtual host NAME may have; NUMBER may be `none`."""
    set_limit(client, "vhost", name, limit, number)


@vhost.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_vhosts(client: AdminClient, *, as_json: bool) -> None:
    """Show virtual hosts with what they are for and their limits."""
    limits = {one["vhost"]: one["value"] for one in client.get("vhost-limits")}
    shown: list[dict[str, Any]] = [
        {**{key: one[key] for key in ("name", "description", "tags")}, "limits": {}}
        for one in client.get("vhosts")
    ]
    for one in shown:
        one["limits"] = limits.get(one["name"], {})
    if as_json:
        print_json(shown)
        return
    table = Table("name", "description", "tags", "limits")
    for one in shown:
        texts = (one["name"], one["description"], ", ".join(one["tags"]))
        table.add_row(*map(plain, texts), limits_text(one["limits"]))
    print_table(table)
