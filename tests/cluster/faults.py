"""What is done to nodes and the network between them."""

from __future__ import annotations

import time
from signal import SIGTERM
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.cluster.nodes import Cluster, Node

# How long a fault lasts. A node is given up after a second of silence: both sides of that.
SHORTEST_S, LONGEST_S = 0.3, 6.0
# Less than publishers are remembered for: an hour, by the leader's clock.
CLOCKS_OFF_S = (-1800, -30, 30, 1800)
CORRUPTION_SHOWS_S = 20.0


class Faults:
    """Chooses victims and times; each fault is a method that begins it and says what it did.

    `Cluster.heal` ends them all.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, queues: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._chance = chance
        self._queues = queues
        self.by_name: dict[str, Callable[[], str]] = {
            "kill": self.kill,
            "stop": self.stop,
            "restart": self.restart,
            "cut": self.cut,
            "oneway": self.oneway,
            "delay": self.delay,
            "reset": self.reset,
            "full": self.full,
            "corrupt": self.corrupt,
            "fds": self.fds,
            "clock": self.clock,
        }

    def last(self) -> None:
        """Let it last."""
        time.sleep(self._chance.uniform(SHORTEST_S, LONGEST_S))

    def _victim(self) -> Node:
        """The leader of a queue as often as not."""
        nodes = self._cluster.nodes
        running = sorted(name for name, node in nodes.items() if node.alive and not node.paused)
        name = None
        if self._chance.random() < 0.5:
            name = self._cluster.leader_of(self._chance.choice(self._queues))
        if name not in running:
            name = self._chance.choice(running)
        return nodes[name]

    def _pair(self) -> tuple[str, str]:
        one = self._victim().name
        return one, self._chance.choice([name for name in self._cluster.nodes if name != one])

    def kill(self) -> str:
        node = self._victim()
        node.kill()
        return f"kill -9 of {node.name}"

    def stop(self) -> str:
        node = self._victim()
        node.pause()
        return f"SIGSTOP of {node.name}"

    def restart(self) -> str:
        node = self._victim()
        served = node.is_ready
        code = node.stop()
        # One that has hardly begun to start does not listen to signals yet.
        assert code == 0 or (code == -SIGTERM and not served), (
            f"{node.name} ended with {code}\n{node.log_text()[-3000:]}"
        )
        return f"restart of {node.name}"

    def cut(self) -> str:
        if self._chance.random() < 0.5:
            node = self._victim().name
            self._cluster.network.isolate(node)
            return f"{node} cut off"
        one, other = self._pair()
        self._cluster.network.cut(one, other)
        return f"cut between {one} and {other}"

    def oneway(self) -> str:
        one, other = self._pair()
        self._cluster.network.cut_one_way(one, other)
        return f"cut from {one} to {other}"

    def delay(self) -> str:
        one, other = self._pair()
        delay_s = self._chance.uniform(0.01, 0.3)
        self._cluster.network.delay(one, other, delay_s)
        return f"{delay_s * 1000:.0f} ms between {one} and {other}"

    def reset(self) -> str:
        one, other = self._pair()
        self._cluster.network.break_connections(one, other)
        return f"connections reset between {one} and {other}"

    def full(self) -> str:
        node = self._victim()
        node.fill_disk()
        return f"disk of {node.name} full"

    def fds(self) -> str:
        node = self._victim()
        node.limit_fds()
        return f"{node.name} may open no more files"

    def clock(self) -> str:
        """A process reads the clock when it starts, and counts on from there."""
        node = self._victim()
        node.kill()
        node.clock_off_s = self._chance.choice(CLOCKS_OFF_S)
        node.launch()
        return f"{node.name} restarted with its clock {node.clock_off_s:+} s off"

    def corrupt(self) -> str:
        """Damage under a node that is down. It mends itself, or says that it cannot and ends.

        Of nothing that is on two nodes of three: that is more than any majority makes good.
        """
        self._cluster.heal()
        self._cluster.await_healthy()
        node = self._victim()
        node.kill()
        what = node.corrupt(self._chance)
        node.launch()
        deadline = time.monotonic() + CORRUPTION_SHOWS_S
        while node.alive and not node.is_ready and time.monotonic() < deadline:
            time.sleep(0.05)
        if node.alive:
            return f"bytes flipped in {node.name}: {what}; it started"
        self._cluster.heal_others(node.name)
        self._cluster.replace(node.name)
        return f"bytes flipped in {node.name}: {what}; it was replaced"
