"""`leveret user access-key …`: what SQS clients of a user sign with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table

if TYPE_CHECKING:
    from broker.admin_client import AdminClient


@click.group("access-key")
def access_key() -> None:
    """Make, list and delete the keys with which a user signs requests to SQS."""


@access_key.command("add")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def add_key(client: AdminClient, name: str, *, as_json: bool) -> None:
    """Make a key for user NAME and show its secret, this once."""
    made = client.post("users", name, "access-keys", body={})
    if as_json:
        print_json(made)
        return
    click.echo(f"AWS_ACCESS_KEY_ID={made['access_key_id']}")
    click.echo(f"AWS_SECRET_ACCESS_KEY={made['secret_access_key']}")


@access_key.command("list")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_keys(client: AdminClient, name: str, *, as_json: bool) -> None:
    """Show the keys of user NAME, without their secrets."""
    found: list[dict[str, Any]] = client.get("users", name, "access-keys")
    if as_json:
        print_json(found)
        return
    table = Table("access key id", "made")
    for one in found:
        made = datetime.fromtimestamp(one["created_ms"] / 1000, UTC)
        table.add_row(plain(one["access_key_id"]), made.strftime("%Y-%m-%d %H:%M:%SZ"))
    print_table(table)


@access_key.command("delete")
@click.argument("name")
@click.argument("key_id")
@node_options
def delete_key(client: AdminClient, name: str, key_id: str) -> None:
    """Delete key KEY_ID of user NAME: what it signed is refused from now on."""
    client.delete("users", name, "access-keys", key_id)
    click.echo(f"access key {key_id!r} of user {name!r} is deleted")
