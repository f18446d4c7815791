"""Clusters of three under load: private ones on loopback, started and stopped here."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.brokers import (
    ProcessTree,
    Started,
    await_amqp,
    free_ports,
    rabbitmq_environment,
    rabbitmq_server,
    run_process,
)
from benchmarks.wire import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = ("a", "b", "c")
FORM_TIMEOUT_S = 120.0
_POLL_S = 0.1
_COMMAND_TIMEOUT_S = 120.0


class Cluster(Protocol):
    """Three nodes that act as one."""

    name: str

    def url(self, node: str) -> str:
        """Where that node serves AMQP, running or not."""

    def processes(self, node: str) -> ProcessTree:
        """What runs of that node."""

    def leader_of(self, queue: str) -> str:
        """The node that leads a queue of the default vhost."""

    def start(self, node: str) -> None:
        """Start a node again on its data, and wait until it serves."""

    def stop(self, node: str) -> None:
        """End a node in good order."""

    def kill(self, node: str) -> None:
        """End a node as a power cut would."""


@dataclass
class _Nodes:
    """The processes of a cluster."""

    home: Path
    running: dict[str, Started] = field(default_factory=dict)
    starts: int = 0

    def processes(self, node: str) -> ProcessTree:
        return ProcessTree(self.running[node].pid)

    def launch(
        self, node: str, command: list[str], environment: dict[str, str] | None = None
    ) -> Started:
        self.starts += 1
        log = self.home / f"{node}-{self.starts}.log"
        self.running[node] = Started(command, log, environment)
        return self.running[node]

    def stop(self, node: str) -> None:
        self.running.pop(node).stop()

    def kill(self, node: str) -> None:
        self.running.pop(node).kill()

    def stop_all(self) -> None:
        for node in list(self.running):
            self.stop(node)


class LeveretCluster:
    """This broker, three times, from this interpreter."""

    name = "leveret"

    def __init__(self, home: Path) -> None:
        self._nodes = _Nodes(home)
        self._home = home
        ports = free_ports(3 * len(NODES))
        self._amqp = dict(zip(NODES, ports[0::3], strict=True))
        self._http = dict(zip(NODES, ports[1::3], strict=True))
        peers = zip(NODES, ports[2::3], strict=True)
        self._members = ",".join(f"{node}=127.0.0.1:{port}" for node, port in peers)
        self._secret = home / "secret"
        self._secret.touch(mode=0o600)
        self._secret.write_text(secrets.token_hex(32))
        self.processes = self._nodes.processes
        self.stop = self._nodes.stop
        self.kill = self._nodes.kill
        self.stop_all = self._nodes.stop_all

    def form(self) -> None:
        started = [self._launch(node) for node in NODES]
        for node, process in zip(NODES, started, strict=True):
            await_amqp(process, self.url(node))
        deadline = time.monotonic() + FORM_TIMEOUT_S
        while not self._complete():
            if time.monotonic() > deadline:
                raise BrokerError("the nodes did not find each other in time")
            time.sleep(_POLL_S)

    def url(self, node: str) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._amqp[node]}/"

    def start(self, node: str) -> None:
        await_amqp(self._launch(node), self.url(node))

    def leader_of(self, queue: str) -> str:
        deadline = time.monotonic() + FORM_TIMEOUT_S
        while time.monotonic() < deadline:
            for row in self.ask("queues"):
                if row["name"] == queue and row["leader"]:
                    return str(row["leader"])
            time.sleep(_POLL_S)
        raise BrokerError(f"queue {queue} has no leader")

    def row(self, node: str, *, says: str) -> dict[str, Any]:
        """What another node says about a node."""
        return next(one for one in self._get(says)["nodes"] if one["name"] == node)

    def ask(self, *path: str) -> Any:
        """GET of the admin API of any node that answers."""
        for node in list(self._nodes.running):
            with suppress(OSError):
                return self._get(node, *path)
        raise BrokerError("no node answers")

    def _get(self, node: str, *path: str) -> Any:
        url = "/".join([f"http://127.0.0.1:{self._http[node]}/api/cluster", *path])
        login = base64.b64encode(b"guest:guest").decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, timeout=20.0) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise BrokerError(f"node {node}: {error.read().decode(errors='replace')}") from None

    def _complete(self) -> bool:
        """Every node sees every other."""
        with suppress(OSError):
            return all(
                sum(one["state"] == "up" for one in self._get(node)["nodes"]) == len(NODES)
                for node in NODES
            )
        return False

    def _launch(self, node: str) -> Started:
        command = [sys.executable, "-m", "broker", "serve", "--node-name", node]
        command += ["--cluster", self._members, "--cluster-secret-file", str(self._secret)]
        command += ["--amqp-port", str(self._amqp[node]), "--http-port", str(self._http[node])]
        command += ["--data-dir", str(self._home / node), "--log-level", "warning"]
        return self._nodes.launch(node, command)


class RabbitCluster:
    """RabbitMQ nodes: loopback only, own epmd and cookie, nothing shared with other nodes."""

    name = "rabbitmq"

    def __init__(self, home: Path, epmd_port: int) -> None:
        self._nodes = _Nodes(home)
        ports = free_ports(2 * len(NODES))
        self._amqp = dict(zip(NODES, ports[0::2], strict=True))
        cookie = secrets.token_hex(16)
        self._environments: dict[str, dict[str, str]] = {}
        for node, distribution_port in zip(NODES, ports[1::2], strict=True):
            directory = home / node
            directory.mkdir()
            (directory / ".erlang.cookie").write_text(cookie)
            (directory / ".erlang.cookie").chmod(0o400)
            self._environments[node] = rabbitmq_environment(
                directory, self._full_name(node), self._amqp[node], distribution_port, epmd_port
            )
        self.processes = self._nodes.processes
        self.stop = self._nodes.stop
        self.kill = self._nodes.kill
        self.stop_all = self._nodes.stop_all

    @staticmethod
    def _full_name(node: str) -> str:
        return f"bench{os.getpid()}{node}@localhost"

    def form(self) -> None:
        for node in NODES:
            self.start(node)
        for node in NODES[1:]:
            self._control(node, "stop_app")
            self._control(node, "join_cluster", self._full_name(NODES[0]))
            self._control(node, "start_app")

    def url(self, node: str) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._amqp[node]}/"

    def start(self, node: str) -> None:
        server = rabbitmq_server()
        assert server is not None
        process = self._nodes.launch(node, [server], self._environments[node])
        await_amqp(process, self.url(node))

    def leader_of(self, queue: str) -> str:
        any_node = next(iter(self._nodes.running))
        arguments = ("list_queues", "name", "leader", "--formatter", "json", "--quiet")
        rows = json.loads(self._control(any_node, *arguments))
        leader = {row["name"]: row["leader"] for row in rows}[queue]
        return next(node for node in NODES if self._full_name(node) == leader)

    def _control(self, node: str, *arguments: str) -> str:
        server = rabbitmq_server()
        assert server is not None
        beside = Path(server).with_name("rabbitmqctl")
        command = str(beside) if beside.exists() else "rabbitmqctl"
        environment = {
            **self._environments[node],
            "RABBITMQ_CTL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        done = subprocess.run(
            [command, "-n", self._full_name(node), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def leveret_cluster() -> Iterator[LeveretCluster]:
    with tempfile.TemporaryDirectory(prefix="leveret-bench-") as home:
        cluster = LeveretCluster(Path(home))
        try:
            cluster.form()
            yield cluster
        finally:
            cluster.stop_all()


@contextmanager
def rabbitmq_cluster() -> Iterator[RabbitCluster]:
    epmd = shutil.which("epmd")
    assert epmd is not None
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-", ignore_cleanup_errors=True) as home:
        (port,) = free_ports(1)
        command = [epmd, "-address", "127.0.0.1", "-port", str(port)]
        with run_process(command, log=Path(home, "epmd.log")):
            cluster = RabbitCluster(Path(home), port)
            try:
                cluster.form()
                yield cluster
            finally:
                cluster.stop_all()
