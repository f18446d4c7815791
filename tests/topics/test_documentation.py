"""The program in docs/topics.md runs and prints what the page says; every route is named."""

import json
import os
import re
import subprocess
import sys

import pytest

from broker.topics import door
from tests.conftest import ON_A_CLUSTER
from tests.support.process import ROOT, BrokerProcess
from tests.topics.conftest import Web

HTTP = "http://127.0.0.1:15672"
PAGE = (ROOT / "docs" / "topics.md").read_text()
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n((?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)
ROUTE = re.compile(r"^(GET|POST|DELETE) +(/api/\S+)", re.MULTILINE)


def test_every_route_is_on_the_page() -> None:
    routes = [" ".join(found) for found in ROUTE.findall(door.__doc__ or "")]
    assert len(routes) == 10
    assert [route for route in routes if f"`{route}`" not in PAGE] == []


@pytest.mark.leveret_only
@pytest.mark.skipif(ON_A_CLUSTER in os.environ, reason="one poll may not find it all there")
def test_the_program_prints_what_the_page_says(broker: BrokerProcess) -> None:
    ((program, output),) = PROGRAM.findall(PAGE)
    run = subprocess.run(
        [sys.executable, "-c", program.replace(HTTP, broker.http_url(""))],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [line[4:] for line in output.splitlines()]


@pytest.mark.leveret_only
def test_the_problem_is_as_the_page_has_it(web: Web) -> None:
    shown = json.loads(re.findall(r'^    (\{"type".*)$', PAGE, re.MULTILINE)[0])
    assert web.call("GET", "admin/topics/none").json == shown
