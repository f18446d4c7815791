"""Nodes that tests fork are as processes that somebody started, and end with whoever asked."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.forked import ROOT, Forked
from tests.support.process import clean_environment
from tests.support.waiting import eventually

# Says which node it has, and leaves it behind.
LEAVER = """
import pathlib, sys, time
from tests.support.process import BrokerProcess
print(BrokerProcess(pathlib.Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def forked(tmp_path: Path, *arguments: str, **env: str) -> tuple[Forked, str, str]:
    with (tmp_path / "errors").open("wb") as errors:
        process = Forked(arguments, clean_environment(env), errors)
    process.wait(60)
    return process, process.stdout.read(), (tmp_path / "errors").read_text()


def test_output_and_exit_code_are_its_own(tmp_path: Path) -> None:
    process, output, errors = forked(tmp_path, "--version")
    assert (process.poll(), errors) == (0, "")
    assert output.startswith("leveret ")
    process, output, errors = forked(tmp_path, "serve", "--amqp-port", "abc")
    assert (process.poll(), output) == (2, "")
    assert len(errors.splitlines()) == 1


def test_the_environment_is_what_it_was_given(tmp_path: Path) -> None:
    process, _, errors = forked(tmp_path, "serve", LEVERET_AMQP_PORT="nowhere")
    assert process.poll() == 1
    assert "nowhere" in errors
    assert "LEVERET_AMQP_PORT" not in os.environ


def test_a_signal_is_told_as_subprocess_would(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        arguments = ["serve", "--amqp-port", "0", "--http-port", "0", "--data-dir", str(tmp_path)]
        process = Forked(arguments, clean_environment({}), errors)
    assert process.poll() is None
    process.kill()
    assert process.wait(60) == process.poll() == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)  # to nobody: the number may be another's by now


def test_a_node_ends_with_whoever_asked_for_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEAVER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as leaver:
        assert leaver.stdout is not None
        node = psutil.Process(int(leaver.stdout.readline()))
        leaver.kill()
    eventually(lambda: not node.is_running(), "the node to be gone")
