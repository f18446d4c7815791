"""Node's amqplib: runs the programs in ``node/`` and shows what they said if they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def node() -> str:
    """The Node executable; a machine without it skips, but a CI machine must have it."""
    missing = None
    if (executable := shutil.which("node")) is None:
        missing = "node is not installed"
    elif not (PROGRAMS / "node_modules" / "amqplib").is_dir():
        missing = "amqplib is not installed: run `npm ci` in tests/clients/node"
    if missing and "CI" in os.environ:
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return executable


@pytest.mark.parametrize(
    "program", sorted(set(PROGRAMS.glob("*.js")) - {PROGRAMS / "scene.js"}), ids=lambda p: p.stem
)
def test_an_amqplib_program_finds_nothing_wrong(node: str, amqp_url: str, program: Path) -> None:
    finished = subprocess.run(
        [node, program.name, amqp_url],
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.startswith("ok "), "the program checked nothing"
