"""RabbitMQ's cluster in place of ours: what clients and checkers say of it tells about them."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import psutil

from benchmarks.clusters import NODES, RabbitCluster
from benchmarks.clusters import rabbitmq_cluster as running_cluster
from benchmarks.wire import BrokerError, Connection
from tests.cluster.nodes import Cluster

if TYPE_CHECKING:
    from pathlib import Path


class RabbitNode:
    """One node, with the words of `tests.cluster.nodes.Node`."""

    def __init__(self, name: str, cluster: RabbitCluster) -> None:
        self.name = name
        self._cluster = cluster
        self.alive = True
        self.paused = False
        self.url = cluster.url(name)

    def kill(self) -> None:
        if self.alive:
            self._cluster.kill(self.name)
        self.alive = self.paused = False

    def stop(self) -> int:
        self._cluster.stop(self.name)
        self.alive = False
        return 0

    def launch(self) -> None:
        self._cluster.start(self.name)
        self.alive = True

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self._signal(signal.SIGCONT)
        self.paused = False

    def _signal(self, number: int) -> None:
        for process in self._cluster.processes(self.name).members():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


class RabbitNodes(Cluster):
    """Faults of nodes only: nothing stands between them."""

    def __init__(self, _directory: Path) -> None:
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        self._cluster = self._stack.enter_context(running_cluster())
        self.nodes = {name: RabbitNode(name, self._cluster) for name in NODES}

    def leader_of(self, queue: str) -> str | None:
        del queue
        return None

    def heal(self) -> None:
        for node in self.nodes.values():
            node.resume()
            if not node.alive:
                node.launch()

    def await_healthy(self, within_s: float = 60.0) -> float:
        began = time.monotonic()
        for node in self.nodes.values():
            while True:
                with contextlib.suppress(OSError, BrokerError):
                    Connection(node.url).close()
                    break
                assert time.monotonic() - began < within_s, f"{node.name} does not serve"
                time.sleep(0.1)
        return time.monotonic() - began

    def tracebacks(self) -> list[str]:
        return []

    def close(self) -> None:
        self._stack.close()
