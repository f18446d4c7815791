"""`leveret cluster up`: processes that are started, told about and ended together."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.shell.process import CLEAN_ENV, ROOT, leveret
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXIT_FAILED = 1


class Up:
    """The command, running."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker", "cluster", "up", "--data-dir", directory, *arguments],
            cwd=ROOT,
            env=CLEAN_ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().rstrip("\n") for _ in range(count)]
        assert all(lines), self.process.communicate()
        return lines

    def nodes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def started() -> Iterator[list[Up]]:
    """What a test starts is ended, whatever becomes of the test."""
    ups: list[Up] = []
    yield ups
    for up in ups:
        if up.process.poll() is None:
            for node in up.nodes():
                node.kill()
            up.process.kill()
        up.process.communicate()


def test_nodes_tell_when_they_are_ready_and_end_with_the_command(
    tmp_path: Path, started: list[Up]
) -> None:
    directory = tmp_path / "cluster"
    up = Up(directory, "--nodes", "2")
    started.append(up)
    *ready, last = up.lines(3)
    assert sorted(re.findall(r"node=(\S+)", " ".join(ready))) == ["a", "b"]
    assert re.fullmatch(
        rf"leveret cluster ready nodes=2 amqp=127\.0\.0\.1:\d+,127\.0\.0\.1:\d+ data={directory}",
        last,
    )
    secret = directory / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    nodes = up.nodes()
    assert len(nodes) == 2
    assert all(secret.read_text().strip() not in " ".join(node.cmdline()) for node in nodes)
    assert up.end() == 0
    assert not any(node.is_running() for node in nodes)
    assert not directory.exists()


def test_kept_data_is_used_again_on_the_same_ports(tmp_path: Path, started: list[Up]) -> None:
    layouts: list[Any] = []
    for _ in range(2):
        up = Up(tmp_path / "cluster", "--nodes", "1", "--keep", "--json")
        started.append(up)
        node, ready = map(json.loads, up.lines(2))
        assert (node["event"], node["node"]) == ("node_ready", "a")
        assert ready["event"] == "ready"
        layouts.append([(one["amqp"], one["http"]) for one in ready["nodes"]])
        assert up.end(signal.SIGINT) == 0
    assert layouts[0] == layouts[1]
    refused = leveret("cluster", "up", "--nodes", "2", "--data-dir", str(tmp_path / "cluster"))
    assert refused.returncode == EXIT_FAILED
    assert "has 1 nodes, not 2" in refused.stderr


def test_a_node_that_cannot_start_ends_the_others_and_says_why(tmp_path: Path) -> None:
    # Not just any free port: those next to it may be outgoing connections of this machine.
    with socket.create_server(("127.0.0.1", *free_ports(1))) as taken:
        port = taken.getsockname()[1] - 3  # the first of the second node
        result = leveret(
            *("cluster", "up", "--nodes", "2", "--base-port", str(port)),
            *("--data-dir", str(tmp_path / "cluster")),
        )
    assert result.returncode == EXIT_FAILED
    (line,) = result.stderr.splitlines()
    assert "node b did not start" in line
    assert "cannot listen for AMQP" in line


def test_a_node_that_ends_is_told_and_not_started_again(tmp_path: Path, started: list[Up]) -> None:
    up = Up(tmp_path / "cluster", "--nodes", "2")
    started.append(up)
    up.lines(3)
    first = min(up.nodes(), key=lambda node: node.pid)
    os.kill(first.pid, signal.SIGKILL)
    (line,) = up.lines(1)
    assert re.match(r"leveret cluster: node a ended with code -9, see \S+a\.log", line)
    assert len([node for node in up.nodes() if node.status() != psutil.STATUS_ZOMBIE]) == 1
    assert up.end() == 0


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    result = leveret("cluster", "up", "--data-dir", str(tmp_path))
    assert result.returncode == EXIT_FAILED
    assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
