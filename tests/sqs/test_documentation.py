"""Every program in docs/sqs.md runs and prints what the page says; every operation is named."""

import re
import subprocess
import sys

import pytest

from broker.sqs.door import OPERATIONS
from tests.support.process import ROOT, BrokerProcess

AMQP = "amqp://guest:guest@127.0.0.1:5672/"
HTTP = "http://127.0.0.1:15672"
PAGE = (ROOT / "docs" / "sqs.md").read_text()
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n((?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
PROGRAMS = PROGRAM.findall(PAGE)


def test_all_programs_are_found() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") == 2


def test_every_operation_is_on_the_page() -> None:
    assert [name for name in OPERATIONS if name not in PAGE] == []


@pytest.mark.leveret_only
@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_prints_what_the_page_says(
    broker: BrokerProcess, program: str, output: str
) -> None:
    there = program.replace(AMQP, broker.amqp_url()).replace(HTTP, broker.http_url(""))
    run = subprocess.run(
        [sys.executable, "-c", there], capture_output=True, text=True, check=False, timeout=90
    )
    assert run.returncode == 0, run.stderr
    said = [
        line.removeprefix("    ").replace(HTTP, broker.http_url("")) for line in output.splitlines()
    ]
    assert run.stdout.splitlines() == said
