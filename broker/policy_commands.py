"""`leveret policy …`: policies of a running node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.command_output import plain, print_json, print_table
from broker.policies import APPLY_TO

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.admin_client import AdminClient


@click.group()
def policy() -> None:
    """Set, list and delete policies of a running node."""


def _which_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option("--operator", is_flag=True, help="An operator policy.")(command)
    return click.option("--vhost", default="/", show_default=True, help="The virtual host.")(
        command
    )


def _path(*, operator: bool) -> str:
    return "operator-policies" if operator else "policies"


def _kind(*, operator: bool) -> str:
    return "operator policy" if operator else "policy"


@policy.command("set")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@click.option("--priority", type=int, default=0, show_default=True, help="The highest counts.")
@click.option(
    "--apply-to",
    type=click.Choice(list(APPLY_TO)),
    default="all",
    show_default=True,
    help="What it is for.",
)
@_which_options
@node_options
def set_policy(
    client: AdminClient,
    name: str,
    pattern: str,
    definition: str,
    priority: int,
    apply_to: str,
    vhost: str,
    *,
    operator: bool,
) -> None:
    """Set policy NAME for names that match PATTERN to DEFINITION, a JSON object."""
    try:
        settings = json.loads(definition)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="DEFINITION") from None
    body = {
        "pattern": pattern,
        "definition": settings,
        "priority": priority,
        "apply-to": apply_to,
    }
    is_new = client.put(_path(operator=operator), vhost, name, body=body)
    done = "is set" if is_new else "is changed"
    click.echo(f"{_kind(operator=operator)} {name!r} {done} in vhost {vhost!r}")


@policy.command("list")
@click.option("--vhost", help="A virtual host; all that you may see if left out.")
@click.option("--operator", is_flag=True, help="Operator policies.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def list_policies(client: AdminClient, vhost: str | None, *, operator: bool, as_json: bool) -> None:
    """Show policies, those of a vhost in the order in which they are tried."""
    where = [_path(operator=operator)] if vhost is None else [_path(operator=operator), vhost]
    found: list[dict[str, Any]] = client.get(*where)
    found.sort(key=lambda one: (one["vhost"], -one["priority"], one["name"]))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no operator policies" if operator else "no policies")
        return
    table = Table("vhost", "name", "pattern", "apply to", "priority", "definition")
    for one in found:
        definition = json.dumps(one["definition"], ensure_ascii=False)
        texts = (one["vhost"], one["name"], one["pattern"], one["apply-to"])
        table.add_row(*map(plain, texts), str(one["priority"]), plain(definition))
    print_table(table)


@policy.command("delete")
@click.argument("name")
@_which_options
@node_options
def delete_policy(client: AdminClient, name: str, vhost: str, *, operator: bool) -> None:
    """Delete policy NAME."""
    client.delete(_path(operator=operator), vhost, name)
    click.echo(f"{_kind(operator=operator)} {name!r} is deleted from vhost {vhost!r}")
