"""`leveret cluster …`: looks after the nodes of a cluster, and starts one for trying."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from broker.admin_client import node_options
from broker.cluster_settings import parse_member
from broker.command_output import plain, print_json, print_table
from broker.local_cluster import NODES_MAX, run_local_cluster
from broker.settings import WrongValueError

if TYPE_CHECKING:
    from broker.admin_client import AdminClient


@click.group()
def cluster() -> None:
    """Look after a running cluster, or start one on this machine."""


@cluster.command()
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    default=3,
    show_default=True,
    help="How many nodes; they are called a, b, c and so on.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("leveret-cluster"),
    show_default=True,
    help="Where each node has a directory of its own, and the secret is.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535 - 3 * NODES_MAX),
    help="First of the ports to use, three for each node; free ones if left out.",
)
@click.option("--keep", is_flag=True, help="Keep the data when the cluster ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an object to a line.")
def up(nodes: int, data_dir: Path, base_port: int | None, *, keep: bool, as_json: bool) -> None:
    """Run a cluster on this machine, for trying and for tests, until SIGINT or SIGTERM.

    Data that is there is used again, and then kept too.
    """
    run_local_cluster(nodes, data_dir, base_port, keep=keep, as_json=as_json)


@cluster.command()
@click.option("--queues", is_flag=True, help="Show every replicated queue instead of the nodes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@node_options
def status(client: AdminClient, *, queues: bool, as_json: bool) -> None:
    """Show the nodes, as the one that is asked sees them."""
    found: Any = client.get("cluster", "queues") if queues else client.get("cluster")
    if as_json:
        print_json(found)
    elif queues:
        _print_queues(found)
    else:
        _print_nodes(found)


def _print_nodes(found: dict[str, Any]) -> None:
    table = Table("node", "number", "address", "AMQP", "state", "leads", "replicas", "behind")
    for one in found["nodes"]:
        state = f"{one['state']}, draining" if one["draining"] else one["state"]
        texts = (one["name"], one["number"], one["address"], one["amqp"] or "-", state)
        counts = (one["leaders"], one["replicas"], one["behind_entries"])
        table.add_row(*map(plain, texts), *map(str, counts))
    print_table(table)
    leader = found["leader"]
    click.echo(f"definitions: led by {leader}" if leader else "definitions: without a leader")
    lost = found["queues_without_leader"]
    click.echo(f"queues: {found['queues']}" + (f", {lost} without a leader" if lost else ""))


def _print_queues(found: list[dict[str, Any]]) -> None:
    if not found:
        click.echo("no replicated queues")
        return
    table = Table("vhost", "queue", "type", "leader", "members", "up")
    for one in found:
        members, up_now = ", ".join(one["members"]), ", ".join(one["up"])
        texts = (one["vhost"], one["name"], one["type"], one["leader"] or "none", members, up_now)
        table.add_row(*map(plain, texts))
    print_table(table)


@cluster.command()
@click.argument("member", metavar="NAME=HOST:PORT")
@node_options
def add(client: AdminClient, member: str) -> None:
    """Let a fresh node join that was started with this cluster's nodes and secret."""
    try:
        new = parse_member(member)
    except WrongValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME=HOST:PORT") from None
    client.put("cluster", "nodes", new.name, body={"address": str(new.address)})
    click.echo(f"node {new.name!r} at {new.address} is a member")


@cluster.command()
@click.argument("name")
@node_options
def remove(client: AdminClient, name: str) -> None:
    """Take node NAME out of the cluster, running or not. It cannot come back with its data."""
    client.delete("cluster", "nodes", name)
    click.echo(f"node {name!r} is no member any more")


@cluster.command()
@click.argument("queue")
@click.argument("node")
@click.option("--vhost", default="/", show_default=True, help="The virtual host.")
@node_options
def transfer(client: AdminClient, queue: str, node: str, vhost: str) -> None:
    """Have NODE lead QUEUE."""
    client.post("cluster", "transfer", body={"vhost": vhost, "queue": queue, "node": node})
    click.echo(f"queue {queue!r} in vhost {vhost!r} is led by {node!r}")


@cluster.command()
@node_options
def rebalance(client: AdminClient) -> None:
    """Spread the leaders of queues evenly over the nodes."""
    moved = client.post("cluster", "rebalance", body={})["moved"]
    click.echo(f"{moved} leader(s) moved")


@cluster.command()
@click.argument("node")
@node_options
def drain(client: AdminClient, node: str) -> None:
    """Prepare NODE for a restart: others lead what it led, and nothing new is placed on it."""
    moved = client.put_for("cluster", "nodes", node, "drain", body={})["moved"]
    click.echo(f"node {node!r} is drained: {moved} leader(s) moved")


@cluster.command()
@click.argument("node")
@node_options
def undrain(client: AdminClient, node: str) -> None:
    """Let NODE lead again."""
    client.delete("cluster", "nodes", node, "drain")
    click.echo(f"node {node!r} may lead again")
