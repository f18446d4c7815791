"""Clusters for tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Starts clusters that end with the test."""
    started: list[Cluster] = []

    def start(names: str = "abc", *, small_disks: bool = False, flags: tuple[str, ...] = ()):
        cluster = Cluster(tmp_path / f"cluster-{len(started)}", names, flags=flags)
        started.append(cluster)
        if small_disks:
            try:
                cluster.use_small_disks()
            except PermissionError as error:
                pytest.skip(str(error))
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.close()
        cluster.wipe()


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    """Three nodes that see each other."""
    return start_cluster()


@pytest.fixture(scope="module")
def quiet_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for tests that do nothing to them."""
    with Cluster(tmp_path_factory.mktemp("quiet")) as cluster:
        cluster.start()
        yield cluster
    cluster.wipe()
