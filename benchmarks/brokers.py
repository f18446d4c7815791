"""The brokers under load: private ones, started and stopped here, or running ones, given by URL."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from benchmarks.wire import BrokerError, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.1
_READY_LINE = re.compile(r"^leveret ready amqp=(\S+)", re.MULTILINE)
# Debian's command of this name switches users and directories before it calls this one.
_DEBIAN_RABBITMQ_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class ProcessTree:
    """CPU time and memory of processes and their descendants."""

    def __init__(self, *pids: int) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]

    def pids(self) -> list[int]:
        """The processes that it was made for."""
        return [root.pid for root in self._roots]

    def members(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for root in self._roots:
            found += [root, *root.children(recursive=True)]
        return found

    def cpu_s(self) -> float:
        """User and system seconds used so far, including ended children."""
        total = 0.0
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        for root in self._roots:
            own = root.cpu_times()
            total += own.children_user + own.children_system
        return float(total)

    def rss_bytes(self) -> int:
        total = 0
        for process in self.members():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that accepts AMQP."""

    name: str
    url: str
    processes: ProcessTree | None
    """None when the process that listens there cannot be found."""


def running(name: str, url: str) -> Broker:
    """A broker that someone else runs."""
    Connection(url).close()
    return Broker(name, url, _listening_on(urlsplit(url).port or 5672))


def _listening_on(port: int) -> ProcessTree | None:
    with suppress(psutil.AccessDenied):
        for entry in psutil.net_connections("tcp"):
            here = entry.status == psutil.CONN_LISTEN and entry.laddr and entry.laddr.port == port
            if here and entry.pid:
                return ProcessTree(entry.pid)
    return None


@contextmanager
def leveret(*, prefix: Sequence[str] = (), flags: Sequence[str] = ()) -> Iterator[Broker]:
    """This broker, from this interpreter, on free ports and with its own data directory.

    `prefix` is a command that runs it, `flags` are more of its own.
    """
    with (
        tempfile.TemporaryDirectory(prefix="leveret-bench-") as home,
        leveret_in(Path(home), prefix=prefix, flags=flags) as one,
    ):
        yield one


@contextmanager
def leveret_in(
    home: Path, *, prefix: Sequence[str] = (), flags: Sequence[str] = ()
) -> Iterator[Broker]:
    """The same with its data in a directory that is there before and after."""
    data = str(home / "data")
    command = [*prefix, sys.executable, "-m", "broker", "serve", "--data-dir", data]
    command += ["--amqp-port", "0", "--http-port", "0", *flags]
    with run_process(command, log=home / "output.log") as process:
        yield Broker("leveret", leveret_url(process), ProcessTree(process.pid))


def leveret_url(process: Started) -> str:
    for output in process.outputs_until_deadline():
        if ready := _READY_LINE.search(output):
            return f"amqp://guest:guest@{ready[1]}/"
    raise BrokerError("leveret did not print its ready line in time")


def rabbitmq_installed() -> bool:
    """Whether a private RabbitMQ can be started."""
    return rabbitmq_server() is not None and shutil.which("epmd") is not None


def rabbitmq_server() -> str | None:
    if _DEBIAN_RABBITMQ_SERVER.exists():
        return str(_DEBIAN_RABBITMQ_SERVER)
    return shutil.which("rabbitmq-server")


@contextmanager
def rabbitmq() -> Iterator[Broker]:
    """A private RabbitMQ node: loopback only, own epmd, nothing shared with another node."""
    server, epmd = rabbitmq_server(), shutil.which("epmd")
    assert server is not None
    assert epmd is not None
    with tempfile.TemporaryDirectory(prefix="rabbitmq-bench-") as home:
        amqp_port, distribution_port, epmd_port = free_ports(3)
        environment = rabbitmq_environment(
            Path(home), f"bench{os.getpid()}@localhost", amqp_port, distribution_port, epmd_port
        )
        url = f"amqp://guest:guest@127.0.0.1:{amqp_port}/"
        # Erlang would start epmd as a daemon that nobody owns; in the foreground it is our child.
        epmd_command = [epmd, "-address", "127.0.0.1", "-port", str(epmd_port)]
        with (
            run_process(epmd_command, log=Path(home, "epmd.log"), environment=environment),
            run_process([server], log=Path(home, "output.log"), environment=environment) as process,
        ):
            await_amqp(process, url)
            yield Broker("rabbitmq", url, ProcessTree(process.pid))


def rabbitmq_environment(
    home: Path, node_name: str, amqp_port: int, distribution_port: int, epmd_port: int
) -> dict[str, str]:
    """What a node or a command for it must know to have nothing in common with other nodes."""
    (home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{amqp_port}\n")
    (home / "plugins").write_text("[].\n")
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": node_name,
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(amqp_port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(home / "no-such-file"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
    }


def await_amqp(process: Started, url: str) -> None:
    for _ in process.outputs_until_deadline():
        with suppress(OSError, BrokerError):
            Connection(url).close()
            return
    raise BrokerError("RabbitMQ did not accept AMQP in time")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Started:
    """A broker process whose output goes to a file."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            # A session of its own: Ctrl-C must reach the benchmark only, which then stops this.
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def outputs_until_deadline(self) -> Iterator[str]:
        """What the process has printed so far, every so often until it should be ready."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            output = self._log.read_text(errors="replace")
            if self._popen.poll() is not None:
                raise BrokerError(f"exited with {self._popen.returncode}: {output[-2000:]}")
            yield output
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """End it and its descendants as a power cut would."""
        with suppress(psutil.NoSuchProcess):
            for process in ProcessTree(self.pid).members():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._popen.wait()

    def stop(self) -> None:
        """Ask it to end; kill what is left of it and its descendants."""
        members: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            members = ProcessTree(self.pid).members()
        self._popen.terminate()
        try:
            self._popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        for process in members:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def run_process(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Started]:
    started = Started(command, log, environment)
    try:
        yield started
    finally:
        started.stop()
