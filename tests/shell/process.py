"""Runs the command in a process of its own, as a user would."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith("LEVERET_")}
FREE_PORTS = ("--amqp-port", "0", "--http-port", "0")
READY = r"leveret ready amqp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+) node=(\S+) data=(\S+)\n"


def leveret(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        cwd=ROOT,
        env={**CLEAN_ENV, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextlib.contextmanager
def running(
    *arguments: str, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node and its ready line."""
    with subprocess.Popen(
        [sys.executable, "-m", "broker", *arguments],
        cwd=ROOT,
        env={**CLEAN_ENV, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()
            yield process, line
        finally:
            process.kill()
