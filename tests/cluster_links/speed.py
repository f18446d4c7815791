"""How fast a link is between two processes: `python -m tests.cluster_links.speed`."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

from broker.cluster.identity import Identity
from broker.cluster.kinds import Kind
from broker.cluster.network import TcpNetwork
from broker.cluster.options import PeersOptions
from broker.cluster.peers import Peers
from tests.support.ports import free_ports

BYTES = 1_500_000_000
SMALL_FRAMES = 1_000_000


async def sink(peers: Peers) -> None:
    """Counts what comes and says so when it has come."""
    counts = {Kind.QUEUE: 0, Kind.RAFT: 0}

    def counting(kind: Kind, last: int) -> None:
        def handle(node: int, body: bytes) -> None:
            counts[kind] += 1
            if counts[kind] == last:
                peers.send(node, Kind.ANSWER, b"done")

        peers.handlers[kind] = handle

    counting(Kind.QUEUE, BYTES // 65536)
    counting(Kind.RAFT, SMALL_FRAMES)
    await peers.run()


async def source(peers: Peers) -> None:
    relieved, done, linked = trio.Event(), trio.Event(), trio.Event()

    def relief(_node: int) -> None:
        relieved.set()

    def answered(_node: int, _body: bytes) -> None:
        done.set()

    peers.handlers[Kind.ANSWER] = answered
    peers.on_relief.append(relief)
    peers.on_up.append(lambda _: linked.set())

    async def push(kind: Kind, body: bytes, frames: int, batch: int) -> float:
        nonlocal relieved, done
        done = trio.Event()
        begin = time.perf_counter()
        while frames > 0:
            for _ in range(min(batch, frames)):
                peers.send(2, kind, body)
            frames -= batch
            peers.flush()
            relieved = trio.Event()
            if peers.congested(2):
                await relieved.wait()
            else:
                await trio.lowlevel.checkpoint()
        await done.wait()
        return time.perf_counter() - begin

    async with trio.open_nursery() as nursery:
        await nursery.start(peers.run)
        await linked.wait()
        took = await push(Kind.QUEUE, os.urandom(65536), BYTES // 65536, 8)
        print(f"64 KiB frames: {BYTES / took / 1e6:.0f} MB/s")
        took = await push(Kind.RAFT, os.urandom(40), SMALL_FRAMES, 64)
        print(f"40 B frames: {SMALL_FRAMES / took:.0f}/s")
        nursery.cancel_scope.cancel()


def make(name: str, directory: Path, ports: list[int]) -> Peers:
    listed = {each: f"127.0.0.1:{port}" for each, port in zip("ab", ports, strict=True)}
    options = PeersOptions(secret=b"of this measurement", address=listed[name], listed=listed)
    port = int(listed[name].rpartition(":")[2])
    directory.mkdir(exist_ok=True)
    return Peers(Identity.open(directory, name), options, TcpNetwork("127.0.0.1", port))


async def run(name: str, directory: Path, ports: list[int]) -> None:
    await (source if name == "a" else sink)(make(name, directory, ports))


def main() -> None:
    if len(sys.argv) > 1:
        name, directory, *ports = sys.argv[1:]
        trio.run(run, name, Path(directory), [int(port) for port in ports])
        return
    ports = free_ports(2)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.cluster_links.speed"]
        processes = [
            subprocess.Popen([*command, name, f"{directory}/{name}", *map(str, ports)])
            for name in "ba"
        ]
        processes[1].wait()
        processes[0].kill()
        processes[0].wait()


if __name__ == "__main__":
    main()
