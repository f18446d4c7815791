"""The command as a user runs it: in a process of its own, judged by output and exit code."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from broker.config import SETTINGS
from broker.version import VERSION
from tests.shell.process import FREE_PORTS, READY, leveret, running

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def assert_failed(result: subprocess.CompletedProcess[str], code: int, *expected: str) -> None:
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("leveret: ")
    for text in expected:
        assert text in line


def test_the_version_is_printed() -> None:
    result = leveret("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"leveret {VERSION}\n", "")


def test_help_names_every_flag() -> None:
    result = leveret("serve", "--help")
    assert result.returncode == 0
    flags = set(re.findall(r"(--[a-z-]+)", result.stdout))
    assert {setting.flag for setting in SETTINGS} | {"--config"} <= flags


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("serve", "--amqp-prot", "1"), "No such option"),
        (("serve", "--amqp-port"), "requires an argument"),
        (("serve", "extra"), "unexpected extra argument"),
        (("serve", "--amqp-port", "abc"), "flag --amqp-port: 'abc' is not allowed; it must be a"),
        (("--amqp-port", "abc"), "flag --amqp-port: 'abc' is not allowed"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert_failed(leveret(*arguments), 2, expected)


def test_a_wrong_variable_is_one_line_and_exit_code_1() -> None:
    result = leveret("serve", env={"LEVERET_LOG_LEVEL": "loud"})
    assert_failed(result, 1, "variable LEVERET_LOG_LEVEL: 'loud' is not allowed")


def test_a_wrong_file_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("amqp_port = 1\nnonsense = 2\n")
    for result in (
        leveret("serve", "--config", str(path)),
        leveret(env={"LEVERET_CONFIG": str(path)}),
    ):
        assert_failed(result, 1, f"{path}, key nonsense: there is no such setting")
    missing = str(tmp_path / "missing.toml")
    assert_failed(leveret("serve", "--config", missing), 1, missing, "No such file or directory")


@pytest.mark.parametrize("flag", ["--amqp-port", "--http-port"])
def test_a_port_in_use_is_one_line_and_exit_code_1(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = leveret("serve", *FREE_PORTS, "--data-dir", str(tmp_path), flag, port)
    assert_failed(result, 1, f"127.0.0.1:{port}", "Address already in use")


def test_a_data_directory_that_cannot_be_made_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = leveret("serve", *FREE_PORTS, "--data-dir", str(blocked / "data"))
    assert_failed(result, 1, str(blocked / "data"), "Not a directory")


@pytest.mark.parametrize("command", [("serve",), ()], ids=["serve", "bare"])
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_when_it_is_ready_and_stops_cleanly_when_asked(
    tmp_path: Path, command: tuple[str, ...], stop: signal.Signals
) -> None:
    env = {
        "LEVERET_AMQP_PORT": "0",
        "LEVERET_HTTP_PORT": "0",
        "LEVERET_DATA_DIR": str(tmp_path),
        "LEVERET_NODE_NAME": "leveret@test",
    }
    with running(*command, env=env) as (process, line):
        ready = re.fullmatch(READY, line)
        assert ready, line
        assert ready[3] == "leveret@test"
        assert ready[4] == str(tmp_path)
        process.send_signal(stop)
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest) == (0, ""), errors
        assert "Traceback" not in errors


def test_a_running_node_answers_for_its_health(tmp_path: Path) -> None:
    with running("serve", *FREE_PORTS, "--data-dir", str(tmp_path)) as (_process, line):
        ready = re.fullmatch(READY, line)
        assert ready, line
        with urllib.request.urlopen(f"http://127.0.0.1:{ready[2]}/health", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok", "node": ready[3], "version": VERSION}
