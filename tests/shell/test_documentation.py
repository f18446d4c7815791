"""Programs in the documentation, run as their readers would run them, and what it lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from queues.options import POLICY_ARGUMENTS
from tests.shell.process import FREE_PORTS, READY, ROOT, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data_dir = tmp_path_factory.mktemp("data")
    with running("serve", *FREE_PORTS, "--data-dir", str(data_dir)) as (_process, line):
        ready = re.fullmatch(READY, line)
        assert ready, line
        yield f"amqp://guest:guest@127.0.0.1:{ready[1]}/"


def run_program(arguments: list[str], url: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "AMQP_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/messages.md"])
def test_a_program_in_the_documentation_prints_what_it_says(url: str, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", text, flags=re.DOTALL)
    assert found
    program = found[1].replace("amqp://guest:guest@127.0.0.1:5672/", url)
    assert url in program
    shown = re.sub(r"^    ", "", found[2], flags=re.MULTILINE)
    assert run_program(["-c", program], url) == shown


def test_the_documentation_names_every_argument_of_a_queue() -> None:
    page = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`x-[^|]*)\|", page, flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(x-[a-z-]+)`", row)}
    declare_only = {"x-queue-type", "x-single-active-consumer"}
    assert named == POLICY_ARGUMENTS | declare_only
