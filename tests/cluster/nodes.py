"""A cluster of real processes that tests may do anything to."""

from __future__ import annotations

import contextlib
import http.client
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from tests.cluster.proxy import HOST, Network
from tests.support.admin import Api
from tests.support.forked import Forked
from tests.support.ports import free_ports
from tests.support.process import READY_LINE, STOP_DEADLINE_S, TRACEBACK, clean_environment
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import random

READY_DEADLINE_S = 60.0
HEALTHY_DEADLINE_S = 120.0
ASK_S = 10.0
SPARE_FDS = 2
# Entries that a log under load may have on their way to another node at any time.
UNDER_WAY = 64
SECRET = "a secret for tests, of no use to anybody"
# Room for the load of minutes; small enough to be filled in a moment.
SMALL_DISK_BYTES = 512 * 1024 * 1024


class Node:
    """One process after another on one data directory."""

    def __init__(self, name: str, directory: Path, flags: list[str], ports: dict[str, int]) -> None:
        self.name = name
        self.directory = directory
        self.data_dir = directory / "data"
        self.data_dir.mkdir(parents=True)
        self.ports = ports
        self.flags = flags
        self.log_path = directory / "node.log"
        self.paused = False
        self.lives = 0
        self.clock_off_s = 0
        self._process: Forked | None = None
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.ports['amqp']}/"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def is_ready(self) -> bool:
        return self.alive and self._ready.is_set()

    def launch(self) -> None:
        """Start it and do not wait."""
        assert not self.alive
        self.lives += 1
        self._ready = threading.Event()
        command = ["serve", "--data-dir", str(self.data_dir)]
        command += ["--amqp-port", str(self.ports["amqp"]), "--http-port", str(self.ports["http"])]
        with self.log_path.open("ab") as log:
            self._process = Forked(
                [*command, *self.flags], clean_environment({}), log, clock_off_s=self.clock_off_s
            )
        reading = (self._process.stdout, self._ready)
        threading.Thread(target=_watch_output, args=reading, daemon=True).start()

    def await_ready(self) -> None:
        if not self._ready.wait(READY_DEADLINE_S) or not self.alive:
            raise AssertionError(f"node {self.name} did not get ready\n{self.log_text()[-5000:]}")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.paused = False

    def stop(self) -> int:
        assert self._process is not None
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_DEADLINE_S)

    def pause(self) -> None:
        assert self._process is not None
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.paused and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def limit_fds(self) -> None:
        """It may open a few more files or sockets, and then none."""
        if self._process is not None and self.alive:
            used = len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))
            _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE)
            limits = (used + SPARE_FDS, hard)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, limits)

    def free_fds(self) -> None:
        if self._process is not None and self.alive:
            _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (hard, hard))

    # -- its disk

    def wipe(self) -> None:
        """An empty disk, of a node that does not run."""
        assert not self.alive
        for path in self.data_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def corrupt(self, chance: random.Random) -> str:
        """Flip a few bytes in the middle of one of its files; what was done."""
        assert not self.alive
        files = [path for path in self.data_dir.rglob("*") if path.is_file()]
        used_for = [path for path in files if not path.match("spare-*") and path.name != "reserve"]
        written = sorted(path for path in used_for if path.stat().st_blocks * 512 > 4096)
        if not written or chance.random() < 0.2:
            written = [self.data_dir / "identity"]
        path = chance.choice(written)
        data = bytearray(path.read_bytes())
        # Files are made longer than what is in them: hit something that was written.
        used = len(data.rstrip(b"\0"))
        at = chance.randrange(used // 4, max(used // 4 + 1, used - 16))
        for index in range(at, min(at + 8, len(data))):
            data[index] ^= 0xFF
        path.write_bytes(data)
        return f"{path.relative_to(self.data_dir)} at {at}"

    def damage(self, needle: bytes) -> None:
        """Flip a bit in everything of this kind that is on its disk."""
        assert not self.alive
        hits = 0
        for path in self.data_dir.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            if needle in data:
                path.write_bytes(data.replace(needle, bytes([needle[0] ^ 1]) + needle[1:]))
                hits += 1
        assert hits, f"{needle!r} is nowhere"

    def mount_small_disk(self) -> bool:
        """Give the data directory a file system of its own; whether that is possible."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs"]
        done = subprocess.run([*mount, str(self.data_dir)], capture_output=True, check=False)
        return done.returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.data_dir)], capture_output=True, check=False)

    def fill_disk(self) -> None:
        """Leave not a byte of the small disk."""
        with (self.data_dir / "filling").open("wb", buffering=0) as filling:
            for size in (1024 * 1024, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filling.write(bytes(size))

    def empty_disk(self) -> None:
        (self.data_dir / "filling").unlink(missing_ok=True)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def status(self) -> dict[str, Any] | None:
        """The cluster as this node sees it; None if it does not say."""
        return self.ask()

    def ask(self, *path: str) -> Any:
        """GET of something of the cluster; None if it does not say."""
        api = Api(HOST, self.ports["http"], timeout_s=ASK_S)
        try:
            answer = api.call("GET", "cluster", *path)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            api.close()
        return answer.json if answer.status == 200 else None


def _watch_output(output: IO[str], ready: threading.Event) -> None:
    for line in output:
        if READY_LINE.search(line):
            ready.set()
    ready.set()  # it has ended: nobody has to wait any longer


class Cluster:
    """Nodes that reach each other through a network that can be cut."""

    def __init__(
        self,
        directory: Path,
        names: str = "abc",
        *,
        flags: tuple[str, ...] = (),
        clustered: bool = True,
    ) -> None:
        """Not `clustered`: one node that is told nothing of others, to try the tests on."""
        self._clustered = clustered
        ports = free_ports(3 * len(names))
        peer_ports = self.peer_ports = dict(zip(names, ports[2::3], strict=True))
        self.network = Network({name: (HOST, port) for name, port in peer_ports.items()})
        self.nodes: dict[str, Node] = {}
        self._small_disks = False
        directory.mkdir(parents=True, exist_ok=True)
        secret = directory / "secret"
        secret.touch(mode=0o600)
        secret.write_text(SECRET)
        for name, *own_ports in zip(names, ports[0::3], ports[1::3], strict=True):
            # Its own list: the others are where the network is, it is where the network dials.
            members = [
                f"{other}={self.network.address(name, other)}" for other in names if other != name
            ]
            listed = ",".join([f"{name}={HOST}:{peer_ports[name]}", *members])
            own = ["--node-name", name]
            if clustered:
                own += ["--cluster", listed, "--cluster-secret-file", str(secret)]
            self.nodes[name] = Node(
                name,
                directory / name,
                [*own, *flags],
                dict(zip(("amqp", "http"), own_ports, strict=True)),
            )

    def use_small_disks(self) -> None:
        """Before the first start: disks that can be filled."""
        self._small_disks = True
        if not all(node.mount_small_disk() for node in self.nodes.values()):
            raise PermissionError("no permission to mount a file system")

    def start(self) -> None:
        """Start all nodes and wait until they are one cluster."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.await_ready()
        self.await_healthy()

    def ailment(self) -> str:
        """What is amiss: a node that does not run or see all others, a log that is not led or
        lacks something. Empty if nothing is."""
        for node in self.nodes.values():
            if not node.is_ready:
                return f"{node.name} is not ready"
            if not self._clustered:
                continue
            status = node.status()
            if status is None:
                return f"{node.name} does not say how it is"
            if status["leader"] is None or status["queues_without_leader"]:
                return f"{node.name} knows not all leaders"
            for trouble in ("incomplete_groups", "damaged_groups"):
                if status[trouble]:
                    return f"{node.name} has {status[trouble]} {trouble.replace('_', ' ')}"
            up = {one["name"] for one in status["nodes"] if one["state"] == "up"}
            if not up >= set(self.nodes):
                return f"{node.name} sees {', '.join(sorted(up))} only"
            behind = {one["name"]: one["behind_entries"] for one in status["nodes"]}
            if late := {name: count for name, count in behind.items() if count > UNDER_WAY}:
                return f"{node.name} leads logs that others lack entries of: {late}"
        return ""

    def await_healthy(self, within_s: float = HEALTHY_DEADLINE_S) -> float:
        """How long it took; AssertionError with what the nodes say if it does not happen."""
        began = time.monotonic()
        while ailment := self.ailment():
            if time.monotonic() - began > within_s:
                seen = {name: self._seen(node) for name, node in self.nodes.items()}
                raise AssertionError(f"{ailment} after {within_s} s: {seen}\n{self.log_tails()}")
            time.sleep(0.05)
        return time.monotonic() - began

    def _seen(self, node: Node) -> Any:
        return node.status() if node.alive and not node.paused else node.exit_code

    def leader_of(self, queue: str) -> str | None:
        """The node that leads a queue, if one that runs knows."""
        if not self._clustered:
            return None
        for node in self.nodes.values():
            if node.alive and not node.paused:
                for row in node.ask("queues") or ():
                    if row["name"] == queue and row["leader"] in self.nodes:
                        return str(row["leader"])
        return None

    def replace(self, name: str) -> None:
        """Take a node out whose data is of no use, and let it join again with an empty disk."""
        node = self.nodes[name]
        node.kill()
        node.wipe()
        helper = next(one for one in self.nodes.values() if one is not node and one.alive)
        api = Api(HOST, helper.ports["http"])
        removed = api.call("DELETE", "cluster", "nodes", name)
        assert removed.status == 204, removed
        told = len(node.log_text())
        node.launch()
        # It has a few seconds to ask for it, which a busy machine may need to start it.
        eventually(
            lambda: "it waits to be added" in node.log_text()[told:],
            f"node {name} to ask the others",
            within_s=READY_DEADLINE_S,
        )
        host_port = f"{HOST}:{self.peer_ports[name]}"
        added = api.call("PUT", "cluster", "nodes", name, body={"address": host_port})
        assert added.status == 201, added
        api.close()

    def heal(self) -> None:
        """End every fault, and start what does not run."""
        self.heal_others("")

    def heal_others(self, name: str) -> None:
        """The same, but for one node that is left as it is."""
        self.network.heal()
        for node in self.nodes.values():
            if node.name == name:
                continue
            node.resume()
            node.empty_disk()
            node.free_fds()
            if not node.alive:
                node.launch()

    def log_tails(self) -> str:
        return "\n".join(
            f"--- {node.name}\n{node.log_text()[-3000:]}" for node in self.nodes.values()
        )

    def tracebacks(self) -> list[str]:
        """What no fault may bring about."""
        return [
            f"{node.name}: {node.log_text()[node.log_text().index(TRACEBACK) :][:3000]}"
            for node in self.nodes.values()
            if TRACEBACK in node.log_text()
        ]

    def close(self) -> None:
        for node in self.nodes.values():
            node.resume()
            node.kill()
            if self._small_disks:
                node.unmount()
        self.network.close()

    def wipe(self) -> None:
        """After the end: logs stay, data goes, which is some hundred megabytes."""
        for node in self.nodes.values():
            node.wipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
