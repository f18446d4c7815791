"""Three nodes of Leveret and, where installed, three of RabbitMQ: rates, failover, idle queues.

    python -m benchmarks.cluster [--only load,failover,idle,catchup] [--seconds 5] [--kills 10]

One cluster after the other, so that each has the machine to itself. All nodes, publisher and
consumer share it: what is compared is what a message costs all of them together.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pamqp import commands
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import Broker, ProcessTree, rabbitmq_installed
from benchmarks.clusters import NODES, LeveretCluster, leveret_cluster, rabbitmq_cluster
from benchmarks.failover import FailoverResult, measure_failover
from benchmarks.load import queue_names
from benchmarks.measure import LoadResult, measure_declared, topology
from benchmarks.report import PIPED_WIDTH
from benchmarks.scenarios import LoadScenario
from benchmarks.wire import BrokerError, Connection, encode_publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.clusters import Cluster

PARTS = ("load", "failover", "idle", "catchup")
SETTLE_S = 10.0
IDLE_S = 20.0
MB = 1_000_000

LOAD = LoadScenario(
    name="1K-confirm-ack-replicated",
    about="1 KB, confirms in windows of 1,000, prefetch 500, acks of 125, a quorum queue of three",
    body_bytes=1024,
    durable=True,
    queue_type="quorum",
    confirm_window=1000,
    prefetch=500,
    ack_every=125,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run found out about one cluster; None where a part was left out or failed."""

    cluster: str
    at_leader: LoadResult | None
    elsewhere: LoadResult | None
    failovers: list[FailoverResult]
    idle_cpu_percent: dict[str, float] | None
    catch_up_mb_per_s: float | None
    load_average: float
    """Of the machine when the run began: what else was going on."""


def main() -> int:
    options = _parse()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    found: list[Measured] = []
    failure = None
    try:
        found.extend(_measure_all(options))
    except (BrokerError, OSError) as error:
        failure = error
    if found:
        _print(found)
    if options.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        text = json.dumps(
            {"machine": machine, "clusters": [asdict(one) for one in found]}, indent=2
        )
        options.json.write_text(text + "\n", encoding="utf-8")
    if failure is not None:
        print(f"failed: {failure}", file=sys.stderr)
    return 0 if failure is None else 1


def _leave(number: int, _frame: object) -> None:
    """Leave through the context managers, which stop what was started here."""
    sys.exit(128 + number)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured window per load")
    parser.add_argument("--kills", type=int, default=10, help="leaders killed; the median counts")
    parser.add_argument("--queues", type=int, default=1000, help="idle quorum queues")
    parser.add_argument("--catch-up-mb", type=int, default=1000, help="published while one is away")
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure Leveret alone")
    parser.add_argument("--no-leveret", action="store_true", help="measure RabbitMQ alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers there")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only: no part is called {', '.join(sorted(unknown))}")
    if options.seconds <= 0 or options.kills < 1:
        parser.error("--seconds must be positive and --kills at least 1")
    return options


def _measure_all(options: argparse.Namespace) -> Iterator[Measured]:
    if not options.no_leveret:
        with leveret_cluster() as cluster:
            yield _measure(cluster, options)
    if options.no_rabbitmq:
        return
    if not rabbitmq_installed():
        print("rabbitmq-server is not installed: measuring Leveret alone", file=sys.stderr)
        return
    with rabbitmq_cluster() as rabbit:
        yield _measure(rabbit, options)


def _measure(cluster: Cluster, options: argparse.Namespace) -> Measured:
    parts = options.only
    load_average = os.getloadavg()[0]
    at_leader = elsewhere = idle = catch_up = None
    failovers: list[FailoverResult] = []
    if "load" in parts:
        _tell(cluster, "load at the leader's node")
        at_leader = _load(cluster, options.seconds, elsewhere=False)
        _tell(cluster, "load at another node")
        elsewhere = _load(cluster, options.seconds, elsewhere=True)
    if "catchup" in parts and isinstance(cluster, LeveretCluster):
        _tell(cluster, "catching up")
        catch_up = _catch_up(cluster, options.catch_up_mb)
    if "failover" in parts:
        failovers = list(_failovers(cluster, options.kills))
    if "idle" in parts:
        _tell(cluster, "idle queues")
        idle = _idle(cluster, options.queues)
    return Measured(
        cluster=cluster.name,
        at_leader=at_leader,
        elsewhere=elsewhere,
        failovers=failovers,
        idle_cpu_percent=idle,
        catch_up_mb_per_s=catch_up,
        load_average=load_average,
    )


def _tell(cluster: Cluster, what: str) -> None:
    print(f"{cluster.name}: {what} …", file=sys.stderr)


def _load(cluster: Cluster, seconds: float, *, elsewhere: bool) -> LoadResult:
    """The load with publisher and consumer on the node of the queue's leader, or `elsewhere`."""
    pids = [pid for node in NODES for pid in cluster.processes(node).pids()]
    with topology(cluster.url(NODES[0]), LOAD):
        leader = cluster.leader_of(queue_names(LOAD)[0])
        client_at = next(node for node in NODES if (node != leader) == elsewhere)
        broker = Broker(cluster.name, cluster.url(client_at), ProcessTree(*pids))
        return measure_declared(broker, LOAD, seconds)


def _failovers(cluster: Cluster, kills: int) -> Iterator[FailoverResult]:
    for kill in range(kills):
        home = NODES[kill % len(NODES)]
        queue = f"bench-failover-{kill:03}"
        _declare(cluster.url(home), [queue])
        leader = cluster.leader_of(queue)
        result = measure_failover(cluster, queue, [node for node in NODES if node != leader])
        _tell(cluster, f"kill {kill + 1} of {kills}: {result.pause_s:.2f} s")
        yield result
        cluster.start(leader)
        connection = Connection(cluster.url(leader))
        connection.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
        connection.close()


def _declare(url: str, queues: list[str]) -> None:
    connection = Connection(url)
    for queue in queues:
        declare = commands.Queue.Declare(
            queue=queue, durable=True, arguments={"x-queue-type": "quorum"}
        )
        connection.call(declare, commands.Queue.DeclareOk)
    connection.close()


def _idle(cluster: Cluster, queues: int) -> dict[str, float]:
    """CPU of each node, in percent of a core, with that many queues that nobody uses."""
    names = [f"bench-idle-{number:05}" for number in range(queues)]
    for index, node in enumerate(NODES):
        _declare(cluster.url(node), names[index :: len(NODES)])
    time.sleep(SETTLE_S)
    before = {node: cluster.processes(node).cpu_s() for node in NODES}
    began = time.monotonic()
    time.sleep(IDLE_S)
    elapsed_s = time.monotonic() - began
    return {
        node: 100 * (cluster.processes(node).cpu_s() - before[node]) / elapsed_s for node in NODES
    }


def _catch_up(cluster: LeveretCluster, megabytes: int) -> float:
    """MB/s at which a node gets what was published while it was away."""
    queue = "bench-catch-up"
    _declare(cluster.url("a"), [queue])
    cluster.stop("c")
    _fill(cluster.url("a"), queue, megabytes * MB)
    leader = cluster.leader_of(queue)  # it alone knows how far others are behind
    away = cluster.row("c", says=leader)["behind_entries"]
    cluster.start("c")
    while (row := cluster.row("c", says=leader))["state"] != "up":
        time.sleep(0.02)
    began, at_first = time.monotonic(), row["behind_entries"]
    while cluster.row("c", says=leader)["behind_entries"]:
        time.sleep(0.02)
    elapsed_s = time.monotonic() - began
    connection = Connection(cluster.url("a"))
    connection.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    connection.close()
    return float(megabytes * at_first / max(1, away) / elapsed_s)


def _fill(url: str, queue: str, total_bytes: int) -> None:
    """Publish bodies of 16 KB, at most 64 of them unconfirmed."""
    body_bytes, batch = 16_000, 64
    message = encode_publish(
        exchange="",
        routing_key=queue,
        body_bytes=body_bytes,
        properties=commands.Basic.Properties(delivery_mode=2),
    )
    connection = Connection(url)
    connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for _ in range(-(-total_bytes // (body_bytes * batch))):
        connection.sock.sendall(message * batch)
        connection.await_confirms(batch)
    connection.close()


def _print(found: list[Measured]) -> None:
    table = Table("", *(one.cluster for one in found), title="three nodes")
    rows: list[tuple[str, list[str]]] = [
        ("at the leader: msg/s", [_rate(one.at_leader) for one in found]),
        ("at another node: msg/s", [_rate(one.elsewhere) for one in found]),
        ("at the leader: CPU µs/msg, all nodes", [_cost(one.at_leader) for one in found]),
        ("at another node: CPU µs/msg", [_cost(one.elsewhere) for one in found]),
        ("failover: median (all) s", [_pauses(one.failovers) for one in found]),
        ("failover: longest gap, median s", [_gaps(one.failovers) for one in found]),
        ("idle queues: CPU % of each node", [_percents(one.idle_cpu_percent) for one in found]),
        ("catching up: MB/s", [_number(one.catch_up_mb_per_s) for one in found]),
        ("load average before", [f"{one.load_average:.1f}" for one in found]),
    ]
    for heading, values in rows:
        table.add_row(heading, *values)
    console = Console()
    Console(width=None if console.is_terminal else PIPED_WIDTH).print(table)


def _rate(result: LoadResult | None) -> str:
    return "-" if result is None else f"{result.received_per_s:,.0f}"


def _cost(result: LoadResult | None) -> str:
    return "-" if result is None else _number(result.broker_us_per_message)


def _pauses(results: list[FailoverResult]) -> str:
    if not results:
        return "-"
    pauses = sorted(one.pause_s for one in results)
    return f"{median(pauses):.2f} ({', '.join(f'{pause:.1f}' for pause in pauses)})"


def _gaps(results: list[FailoverResult]) -> str:
    return f"{median(one.longest_gap_s for one in results):.2f}" if results else "-"


def _percents(values: dict[str, float] | None) -> str:
    return "-" if values is None else ", ".join(f"{value:.1f}" for value in values.values())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
