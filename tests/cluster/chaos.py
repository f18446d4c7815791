"""A cluster under load and faults for a while, and the judgement.

    python -m tests.cluster.chaos --seed 1 --seconds 60 --faults kill,stop,cut,oneway,restart

The seed fixes which faults come in which order and how long they last; what the nodes make of it
depends on the machine. `--target single` and `--target rabbitmq` try the clients and checkers on
brokers that exist anyway.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.clients import Client
from tests.cluster.faults import Faults
from tests.cluster.features import Features
from tests.cluster.nodes import Cluster
from tests.cluster.workload import QUEUES, Verdict, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NETWORK_FAULTS = ("cut", "oneway", "delay", "reset")
NODE_FAULTS = ("kill", "stop", "restart")
DISK_FAULTS = ("full", "corrupt")
# No file descriptors left; a clock that is half an hour off after a restart.
PROCESS_FAULTS = ("fds", "clock")
# Under these a node may serve clients and not know what the others have decided.
BLINDING_FAULTS = {*NETWORK_FAULTS, "stop"}
ALL_FAULTS = (*NODE_FAULTS, *NETWORK_FAULTS, *DISK_FAULTS, *PROCESS_FAULTS)
# Two at once may leave no majority: then nothing moves until they end, and nothing may be lost.
TWO_AT_ONCE = 0.25
# Not every fault finds a cluster that has got over the last one.
WITHOUT_REST = 0.3
WARM_UP_S = 2.0


def run_chaos(
    cluster: Cluster,
    *,
    seed: int,
    seconds: float,
    faults: Sequence[str],
    tell: Callable[[str], None],
    streams: bool = True,
    features: bool = False,
) -> Verdict:
    """Faults for so many seconds on a cluster that has been started."""
    chance = random.Random(seed)
    doing = Faults(cluster, chance, QUEUES)
    urls = [node.url for node in cluster.nodes.values()]
    workload = Workload(urls, seed, streams=streams, features=Features(urls) if features else None)
    workload.start()
    time.sleep(WARM_UP_S)
    began = time.monotonic()
    count, recoveries_s = 0, []
    while time.monotonic() - began < seconds and not workload.failures():
        for _ in range(2 if chance.random() < TWO_AT_ONCE else 1):
            name = chance.choice(list(faults))
            if sum(node.alive and not node.paused for node in cluster.nodes.values()) > 0:
                tell(f"{time.monotonic() - began:6.1f} s  {doing.by_name[name]()}")
                count += 1
        doing.last()
        cluster.heal()
        if chance.random() >= WITHOUT_REST:
            recoveries_s.append(cluster.await_healthy())
            tell(f"{time.monotonic() - began:6.1f} s  healthy after {recoveries_s[-1]:.1f} s")
    cluster.heal()
    cluster.await_healthy()
    verdict = workload.finish(probes=not set(faults) & BLINDING_FAULTS)
    verdict.problems += cluster.tracebacks()
    verdict.faults, verdict.recoveries_s = count, recoveries_s
    return verdict


def main() -> int:
    options = _parse()
    faults = options.faults.split(",")
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="leveret-chaos-") as home:
        directory = options.keep or Path(home)
        with make_target(options.target, directory) as cluster:
            if "full" in faults:
                cluster.use_small_disks()
            cluster.start()
            verdict = run_chaos(
                cluster,
                seed=options.seed,
                seconds=options.seconds,
                faults=faults,
                tell=lambda line: print(line, flush=True),
                streams=options.target != "rabbitmq",
            )
    print(
        f"confirmed {verdict.confirmed:,}, unknown {verdict.unknown:,}, delivered "
        f"{verdict.delivered:,} ({verdict.redelivered:,} again), {verdict.operations:,} changes, "
        f"{verdict.reconnects:,} reconnects, longest pause {verdict.longest_pause_s:.1f} s"
    )
    for problem in verdict.problems:
        print(f"PROBLEM {problem}")
    print("sound" if not verdict.problems else f"{len(verdict.problems)} problem(s)")
    return 1 if verdict.problems else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", default=",".join((*NODE_FAULTS, *NETWORK_FAULTS)))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep data and logs there")
    parser.add_argument("--target", choices=["cluster", "single", "rabbitmq"], default="cluster")
    options = parser.parse_args()
    if unknown := set(options.faults.split(",")) - set(ALL_FAULTS):
        parser.error(f"--faults: {', '.join(sorted(unknown))} (known: {', '.join(ALL_FAULTS)})")
    return options


def make_target(name: str, directory: Path) -> Cluster:
    if name == "cluster":
        return Cluster(directory)
    if name == "single":
        return Cluster(directory, "a", clustered=False)
    from tests.cluster.rabbitmq import RabbitNodes

    Client.excused = set(range(200, 600))  # its codes are its own affair
    return RabbitNodes(directory)


if __name__ == "__main__":
    sys.exit(main())
