"""`leveret user …`: users of a running node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table
from broker.security.registry import USER_LIMITS

if TYPE_CHECKING:
    from broker.admin_client import AdminClient

PASSWORD_CHARS_MAX = 4096


@click.group()
def user() -> None:
    """Add, change, list and delete users of a running node."""


def _read_password() -> str:
    """Asked for at a terminal, else the first line of what is piped in: never an argument."""
    if sys.stdin.isatty():
        asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        return asked
    line = sys.stdin.readline(PASSWORD_CHARS_MAX).rstrip("\r\n")
    if not line:
        raise click.UsageError("a password is read from standard input, and there is none")
    return line


@user.command("add")
@click.argument("name")
@click.option("--tag", "tags", multiple=True, help="Such as administrator; may be repeated.")
@click.option("--no-password", is_flag=True, help="It logs in by certificate only.")
@node_options
def add_user(client: AdminClient, name: str, tags: tuple[str, ...], *, no_password: bool) -> None:
    """Add user NAME, with a password that is asked for or piped in."""
    if any(one["name"] == name for one in client.get("users")):
        raise click.ClickException(f"there is a user {name!r} already")
    body: dict[str, Any] = {"tags": list(tags)}
    if not no_password:
        body["password"] = _read_password()
    client.put("users", name, body=body)
    click.echo(f"user {name!r} is added; it has no permissions yet (leveret permission set)")


@user.command("password")
@click.argument("name")
@click.option("--none", "no_password", is_flag=True, help="It logs in by certificate only.")
@node_options
def change_password(client: AdminClient, name: str, *, no_password: bool) -> None:
    """Give user NAME another password, which is asked for or piped in."""
    known = client.get("users", name)
    body: dict[str, Any] = {"tags": known["tags"]}
    if not no_password:
        body["password"] = _read_password()
    client.put("users", name, body=body)
    click.echo(f"the password of user {name!r} is {'removed' if no_password else 'changed'}")


@user.command("tag")
@click.argument("name")
@click.argument("tags", nargs=-1)
@node_options
def tag_user(client: AdminClient, name: str, tags: tuple[str, ...]) -> None:
    """Have user NAME have these TAGS and no others."""
    known = client.get("users", name)
    body = {
        "tags": list(tags),
        "password_hash": known["password_hash"],
        "hashing_algorithm": known["hashing_algorithm"],
    }
    client.put("users", name, body=body)
    click.echo(f"tags of user {name!r}: {', '.join(tags) or 'none'}")


@user.command("delete")
@click.argument("name")
@node_options
def delete_user(client: AdminClient, name: str) -> None:
    """Delete user NAME, and end the user's connections."""
    client.delete("users", name)
    click.echo(f"user {name!r} is deleted")


@user.command("limit")
@click.argument("name")
@click.argument("limit", type=click.Choice(USER_LIMITS))
@click.argument("number")
@node_options
def limit_user(client: AdminClient, name: str, limit: str, number: str) -> None:
    """Limit how many connections or channels user NAME may have; NUMBER may be `none`."""
    set_limit(client, "user", name, limit, number)


def set_limit(client: AdminClient, kind: str, name: str, limit: str, number: str) -> None:
    """Of a user or a vhost."""
    if number == "none":
        client.delete(f"{kind}-limits", name, limit)
    elif number.isascii() and number.isdigit():
        client.put(f"{kind}-limits", name, limit, body={"value": int(number)})
    else:
        text = f"{number!r} is neither a whole number nor none"
        raise click.BadParameter(text, param_hint="NUMBER")
    click.echo(f"{limit} of {kind} {name!r}: {number}")


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_users(client: AdminClient, *, as_json: bool) -> None:
    """Show users with their tags and limits."""
    found: list[dict[str, Any]] = client.get("users")
    shown = [{key: one[key] for key in ("name", "tags", "limits")} for one in found]
    if as_json:
        print_json(shown)
        return
    table = Table("name", "tags", "limits")
    for one in shown:
        table.add_row(plain(one["name"]), plain(", ".join(one["tags"])), limits_text(one["limits"]))
    print_table(table)


def limits_text(limits: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(limits.items()))
