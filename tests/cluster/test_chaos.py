"""Under faults nothing that was confirmed is lost, and nothing comes that should not."""

import time
from pathlib import Path

import pytest

from tests.cluster.chaos import DISK_FAULTS, NETWORK_FAULTS, NODE_FAULTS, run_chaos
from tests.cluster.conftest import StartCluster
from tests.cluster.nodes import Cluster
from tests.cluster.workload import Workload

SECONDS = 6.0
# Of which the run is a part: forming, healing, draining and judging come on top.
TIMEOUT_S = 400


# Each fault by itself, and for longer: python -m tests.cluster.matrix
@pytest.mark.leveret_only
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("seed", "faults"),
    [(1, (*NODE_FAULTS, *NETWORK_FAULTS)), (2, DISK_FAULTS)],
    ids=["nodes-and-network", "disks"],
)
def test_nothing_confirmed_is_lost(
    start_cluster: StartCluster, seed: int, faults: tuple[str, ...]
) -> None:
    cluster = start_cluster(small_disks="full" in faults)
    verdict = run_chaos(cluster, seed=seed, seconds=SECONDS, faults=faults, tell=print)
    print(verdict)
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.confirmed


@pytest.mark.leveret_only
@pytest.mark.timeout(TIMEOUT_S)
def test_the_loss_of_a_lone_nodes_disk_does_not_go_unnoticed(tmp_path: Path) -> None:
    """Whoever judges clusters must find this."""
    with Cluster(tmp_path, "a", clustered=False) as cluster:
        cluster.start()
        node = cluster.nodes["a"]
        workload = Workload([node.url], seed=1)
        workload.start()
        while not all(publisher.confirmed_at for publisher in workload.publishers):
            time.sleep(0.05)
        node.kill()
        node.wipe()
        node.launch()
        node.await_ready()
        while not workload.failures():  # the queues are gone: 404
            time.sleep(0.05)
        workload.declare()
        problems = "\n".join(workload.finish().problems)
    assert "NOT_FOUND" in problems
    assert "no order explains" in problems or "confirmed lost" in problems
