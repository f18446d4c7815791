"""CPU time of each turn of the loop: simulated time does not see a node that computes for long.

A turn is what one task does between two of its checkpoints; everything else in the node waits
meanwhile. The time is that of the thread, so that a busy machine does not matter. What a real node
does elsewhere, what tests do themselves, and the collection of garbage do not count.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tests.cluster_simulation.ledger import check

TURN_S = 0.050
# Tasks of tests within which the node's own code runs.
AT_WORK = ("Session._run", "MemoryNetwork.connect.<locals>.serve")


class Turns(trio.abc.Instrument):
    def __init__(self, limit_s: float = TURN_S) -> None:
        self.worst_s = 0.0
        self._limit_s = limit_s
        self._worst_of = ""
        self._began = self._aside_s = self._collecting = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._aside_s = 0.0
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        spent_s = time.thread_time() - self._began - self._aside_s
        if spent_s > self.worst_s and _counts(task.name):
            self.worst_s, self._worst_of = spent_s, task.name

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A real node would do this in a thread of its own, or not at all."""
        began, before = time.thread_time(), self._aside_s
        try:
            yield
        finally:
            self._aside_s = before + time.thread_time() - began

    @contextmanager
    def watched(self) -> Iterator[None]:
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._aside_s += time.thread_time() - self._collecting

    def check(self) -> None:
        spent = f"{self.worst_s * 1000:.0f} ms of CPU time"
        check(self.worst_s <= self._limit_s, "a turn of", self._worst_of, "takes", spent)


def _counts(name: str) -> bool:
    return not name.startswith("tests.") or name.endswith(AT_WORK)
