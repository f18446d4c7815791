"""The example programs, run as their readers would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize(
    ("program", "output"),
    [
        (
            "publish_consume.py",
            """published 3, all confirmed
received Hello, Ada
received Hello, Grace
received Hello, Barbara
""",
        ),
        ("rpc.py", "3 squared is 9\n4 squared is 16\n12 squared is 144\n"),
    ],
)
def test_an_example_prints_what_it_should(url: str, program: str, output: str) -> None:
    assert run_program([f"examples/{program}"], url) == output


def test_the_quick_start_in_the_readme_prints_what_the_readme_says(url: str) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", page, flags=re.DOTALL)
    assert found
    program = found[1].replace("amqp://guest:guest@127.0.0.1:5672/", url)
    assert url in program
    shown = re.sub(r"^    ", "", found[2], flags=re.MULTILINE)
    assert run_program(["-c", program], url) == shown
