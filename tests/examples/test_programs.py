"""The example programs, run as their readers would run them: twice, and as the page says."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.examples.page import EXAMPLES, PAGE, ROOT, SESSIONS, environment, run
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.leveret_only

STOP_S = 60
NODE_MODULES = ROOT / "tests" / "clients" / "node" / "node_modules"
SIDE_BY_SIDE = ("pub_sub.py", "work_queue.py")  # whose lines come in any order
ON_SPARK = {name for name in SESSIONS if name.startswith("spark_")}  # see tests/spark
ALONE = sorted(set(SESSIONS) - ON_SPARK - {*SIDE_BY_SIDE, "celery_tasks.py", "node_jobs.js"})


def timeless(output: str) -> str:
    return re.sub(r"\d+\.\d{3} s", "some s", output)


def in_any_order(output: str) -> list[str]:
    """Its lines, whoever did what they say."""
    return sorted(re.sub(r"^(Ann|Bob):", "somebody:", line) for line in output.splitlines())


def test_the_page_names_and_shows_every_program() -> None:
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".js")}
    assert programs == set(SESSIONS)
    assert programs == set(re.findall(r"^\| \[(\S+)\]\(\1\) \|", PAGE, flags=re.MULTILINE))


@pytest.mark.parametrize("name", sorted(set(SESSIONS)))
def test_a_program_says_how_it_is_run(name: str) -> None:
    session = SESSIONS[name]
    assert f"{session.command} {session.program}" in (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALONE)
def test_a_program_prints_what_the_page_says(broker: BrokerProcess, name: str) -> None:
    said = timeless(SESSIONS[name].output)
    assert timeless(run(broker, name)) == said
    assert timeless(run(broker, name)) == said


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_tasks_side_by_side_print_what_the_page_says(broker: BrokerProcess, name: str) -> None:
    said = in_any_order(SESSIONS[name].output)
    assert in_any_order(run(broker, name)) == said
    assert in_any_order(run(broker, name)) == said


def test_celery_does_what_the_page_says(broker: BrokerProcess) -> None:
    (worker,) = re.findall(r"^    \$ celery (.*) &$", PAGE, flags=re.MULTILINE)
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", *worker.split()],
        cwd=ROOT,
        env=environment(broker),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert run(broker, "celery_tasks.py") == SESSIONS["celery_tasks.py"].output
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        finally:
            process.kill()


def test_node_does_what_the_page_says(broker: BrokerProcess) -> None:
    if shutil.which("node") is None or not (NODE_MODULES / "amqplib").is_dir():
        assert "CI" not in os.environ, "node and amqplib are missing"
        pytest.skip("node and amqplib are not installed: `make unit` does it")
    said = SESSIONS["node_jobs.js"].output
    assert run(broker, "node_jobs.js", NODE_PATH=str(NODE_MODULES)) == said
    assert run(broker, "node_jobs.js", NODE_PATH=str(NODE_MODULES)) == said
