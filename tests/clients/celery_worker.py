"""A Celery worker in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import celery_app as tasks

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery

DEADLINE_S = 60


class Worker:
    """A worker process, its node name and its log."""

    def __init__(
        self,
        url: str,
        prefix: str,
        node: str,
        queues: str,
        log: Path,
        *flags: str,
        kind: str = "plain",
    ) -> None:
        self.node = f"{node}-{uuid.uuid4().hex[:6]}@localhost"
        self.log = log
        program = [sys.executable, tasks.__file__, kind, url, prefix]
        names = ",".join(f"{prefix}.{queue}" for queue in queues.split(","))
        options = ["-P", "threads", "-n", self.node, "-Q", names, "-l", "INFO", *flags]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*program, *options], stdout=output, stderr=output, cwd=log.parent
            )

    def wait_until_it_answers(self, app: Celery) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not app.control.ping(destination=[self.node], timeout=0.5):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
