"""The program in docs/schemas.md prints what the page says; every route and limit is on it."""

import json
import re
import subprocess
import sys

import pytest

from broker.http.router import Router
from broker.registry import avro_text, candidates, state
from broker.registry.door import SchemaRegistry
from tests.support.process import ROOT

HTTP = "http://127.0.0.1:15672"
PAGE = (ROOT / "docs" / "schemas.md").read_text()
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n((?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL)


class Routes(Router):
    def __init__(self):
        super().__init__()
        self.all = []

    def add(self, method, pattern, handler, *, listed=True):
        self.all.append((method, pattern))
        super().add(method, pattern, handler, listed=listed)


def test_every_route_is_on_the_page():
    routes = Routes()
    SchemaRegistry(None).add_routes(routes)
    assert len(routes.all) == 33
    beside = {"PUT", "DELETE"}  # in the line of GET, for levels and modes
    missing = [
        (method, pattern)
        for method, pattern in routes.all
        if f"`{method} {pattern}`" not in PAGE
        and not (method in beside and pattern.split("/")[1] in ("config", "mode"))
    ]
    assert missing == []


def test_limits_are_as_the_page_has_them():
    for number in (
        *(avro_text.DEPTH_MAX, avro_text.FIELDS_MAX, avro_text.BRANCHES_MAX),
        *(avro_text.SYMBOLS_MAX, candidates.REFERENCES_MAX),
        *(state.VERSIONS_MAX, state.SUBJECTS_MAX),
    ):
        assert f"{number:,}" in PAGE, number
    assert state.STORED_BYTES_MAX == 64 * 2**20
    assert avro_text.TEXT_BYTES_MAX == 2**20


@pytest.mark.leveret_only
def test_the_program_prints_what_the_page_says(broker):
    ((program, output),) = PROGRAM.findall(PAGE)
    run = subprocess.run(
        [sys.executable, "-c", program.replace(HTTP, broker.http_url(""))],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [line[4:] for line in output.splitlines()]


@pytest.mark.leveret_only
def test_the_error_is_as_the_page_has_it(web):
    shown = json.loads(re.findall(r'^    (\{"error_code".*)$', PAGE, re.MULTILINE)[0])
    assert web.call("GET", "subjects", "none", "versions").json == shown
