"""Every program in docs/clients.md runs and prints what the page says."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.process import ROOT

URL = "amqp://guest:guest@localhost:5672/"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n((?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "clients.md").read_text()
PROGRAMS = PROGRAM.findall(PAGE)


def test_all_programs_are_found() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") >= 10
    assert all(URL in program for program, _ in PROGRAMS)


@pytest.mark.leveret_only
@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_prints_what_the_page_says(amqp_url: str, program: str, output: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", program.replace(URL, amqp_url)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    said = [line.removeprefix("    ") for line in output.splitlines()]
    assert sorted(run.stdout.splitlines()) == sorted(said)
