"""A cluster of real processes on this machine: started together, told about, ended together."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import string
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from broker.config import SETTINGS, Config
from broker.startup import StartupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

NODES_MAX: Final = 9  # more than a machine has use for; names are single letters
READY_TIMEOUT_S: Final = 60.0
# Longer than a node gives its clients.
STOP_TIMEOUT_S: Final = 30.0
LAYOUT_FILE: Final = "cluster.json"
SECRET_FILE: Final = "secret"  # noqa: S105 - the name of one
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """Where a node is; the same each time the cluster is started on its data."""

    name: str
    amqp_port: int
    http_port: int
    peer_port: int


def run_local_cluster(
    nodes: int, directory: Path, base_port: int | None, *, keep: bool, as_json: bool
) -> None:
    """Run the nodes until SIGINT or SIGTERM; StartupError if one does not come up."""
    is_new = not (directory / LAYOUT_FILE).exists()
    layout = _make_layout(nodes, directory, base_port) if is_new else _read_layout(nodes, directory)
    try:
        trio.run(partial(_LocalCluster(layout, directory, as_json=as_json).run))
    finally:
        if is_new and not keep:
            _remove(layout, directory)


def _make_layout(nodes: int, directory: Path, base_port: int | None) -> list[LocalNode]:
    if base_port is None:
        ports = _free_ports(3 * nodes)
    else:
        ports = list(range(base_port, base_port + 3 * nodes))
    names = string.ascii_lowercase[:nodes]
    layout = [LocalNode(name, *ports[3 * n : 3 * n + 3]) for n, name in enumerate(names)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise StartupError(f"{directory} is not empty, and no cluster was started there")
        _write_secret(directory / SECRET_FILE)
        text = json.dumps({"nodes": [asdict(node) for node in layout]}, indent=2)
        (directory / LAYOUT_FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StartupError(f"cannot use directory {directory}: {error.strerror}") from error
    return layout


def _read_layout(nodes: int, directory: Path) -> list[LocalNode]:
    path = directory / LAYOUT_FILE
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["nodes"]
        layout = [LocalNode(**row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartupError(f"{path} does not tell what the cluster looks like: {error}") from None
    if len(layout) != nodes:
        raise StartupError(f"the cluster in {directory} has {len(layout)} nodes, not {nodes}")
    return layout


def _write_secret(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; somebody may, by the time a node does."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _remove(layout: list[LocalNode], directory: Path) -> None:
    """Remove what was made here, and nothing else that somebody may have put there."""
    for node in layout:
        shutil.rmtree(directory / node.name, ignore_errors=True)
        (directory / f"{node.name}.log").unlink(missing_ok=True)
    for name in (LAYOUT_FILE, SECRET_FILE):
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


class _LocalCluster:
    """The running nodes."""

    def __init__(self, layout: list[LocalNode], directory: Path, *, as_json: bool) -> None:
        self._layout = layout
        self._directory = directory
        self._as_json = as_json
        self._processes: dict[str, trio.Process] = {}
        self._ready: dict[str, dict[str, str]] = {}
        self._all_ready = trio.Event()
        self._one_ended = trio.Event()
        self._stopping = False

    async def run(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                serving = trio.CancelScope()
                nursery.start_soon(self._end_on_signal, signals, serving)
                try:
                    with serving:
                        for node in self._layout:
                            await self._start(node, nursery)
                        await self._become_ready()
                        while self._processes:
                            await self._one_ended.wait()
                        raise StartupError("every node has ended")
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop()
                nursery.cancel_scope.cancel()

    async def _end_on_signal(self, signals: AsyncIterator[int], serving: trio.CancelScope) -> None:
        async for _ in signals:
            if self._stopping:  # asked twice: at once
                for process in self._processes.values():
                    process.kill()
            self._stopping = True
            serving.cancel()

    async def _start(self, node: LocalNode, nursery: trio.Nursery) -> None:
        with (self._directory / f"{node.name}.log").open("ab") as log:
            process = await trio.lowlevel.open_process(
                self._command(node),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(os.environ),
                # Ctrl-C in a terminal reaches whole groups: the nodes are told by this process.
                start_new_session=True,
            )
        self._processes[node.name] = process
        nursery.start_soon(self._watch, node, process)

    def _command(self, node: LocalNode) -> list[str]:
        members = ",".join(f"{one.name}={HOST}:{one.peer_port}" for one in self._layout)
        flags = {
            "node-name": node.name,
            "cluster": members,
            "cluster-secret-file": self._directory / SECRET_FILE,
            "host": HOST,
            "amqp-port": node.amqp_port,
            "http-port": node.http_port,
            "data-dir": self._directory / node.name,
        }
        if "LEVERET_MEMORY_LIMIT" not in os.environ:
            # They share the machine that one of them would have for itself.
            flags["memory-limit"] = round(float(Config().memory_limit) / len(self._layout), 3)
        command = [sys.executable, "-m", "broker", "serve"]
        for name, value in flags.items():
            command += [f"--{name}", str(value)]
        return command

    async def _watch(self, node: LocalNode, process: trio.Process) -> None:
        """Pass on what a node prints, and tell when it ends."""
        assert process.stdout is not None
        unread = b""
        async for data in process.stdout:
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                self._heard(node, process, line.decode(errors="replace"))
        code = await process.wait()
        del self._processes[node.name]
        if not self._stopping:
            log = self._directory / f"{node.name}.log"
            self._tell(
                f"leveret cluster: node {node.name} ended with code {code}, see {log}",
                event="node_ended",
                node=node.name,
                code=code,
            )
        self._one_ended.set()
        self._one_ended = trio.Event()

    def _heard(self, node: LocalNode, process: trio.Process, line: str) -> None:
        if not line.startswith("leveret ready "):
            return
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        self._ready[node.name] = fields
        self._tell(line, event="node_ready", pid=process.pid, **fields)
        if len(self._ready) == len(self._layout):
            self._all_ready.set()

    async def _become_ready(self) -> None:
        """Wait for all nodes; one that ends, or does not come up, is the end of the others too."""
        async with trio.open_nursery() as nursery:

            async def fail_if_one_ends() -> None:
                while not (missing := {node.name for node in self._layout} - set(self._processes)):
                    await self._one_ended.wait()
                raise StartupError(self._not_up(missing, "did not start"))

            nursery.start_soon(fail_if_one_ends)
            with trio.move_on_after(READY_TIMEOUT_S) as patience:
                await self._all_ready.wait()
            nursery.cancel_scope.cancel()
        if patience.cancelled_caught:
            missing = {node.name for node in self._layout} - set(self._ready)
            raise StartupError(
                self._not_up(missing, f"did not get ready in {READY_TIMEOUT_S:.0f} s")
            )
        addresses = ",".join(self._ready[node.name]["amqp"] for node in self._layout)
        self._tell(
            f"leveret cluster ready nodes={len(self._layout)} amqp={addresses} "
            f"data={self._directory}",
            event="ready",
            nodes=[self._ready[node.name] for node in self._layout],
        )

    def _not_up(self, names: set[str], what: str) -> str:
        name = min(names, default="")
        log = self._directory / f"{name}.log"
        try:
            last = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
        except OSError:
            last = ""
        return f"node {name} {what}: {last or 'it said nothing'}"

    def _tell(self, line: str, **fields: Any) -> None:
        click.echo(json.dumps(fields) if self._as_json else line)
        sys.stdout.flush()

    async def _stop(self) -> None:
        self._stopping = True
        running = list(self._processes.values())
        for process in running:
            process.terminate()
        with trio.move_on_after(STOP_TIMEOUT_S):
            for process in running:
                await process.wait()
            return
        for process in running:
            process.kill()


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what each node is told by itself."""
    told = {
        setting.variable
        for setting in SETTINGS
        if setting.name.startswith(("cluster", "advertised"))
        or setting.name in {"node_name", "host", "amqp_port", "http_port", "data_dir"}
    }
    return {name: value for name, value in env.items() if name not in told}
