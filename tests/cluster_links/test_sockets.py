"""Links over real sockets: TLS, slow peers, and processes that stop or die."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trustme

from broker.cluster.kinds import Kind
from broker.cluster.network import Network, TcpNetwork
from broker.cluster.parcels import Parcels, send_parcel
from broker.cluster.table import split_address
from broker.cluster.tls import load_contexts
from broker.startup import StartupError
from tests.cluster_links.harness import Cluster, cluster_of, until
from tests.support.ports import free_ports

MIB = 1024 * 1024
SOME = (Kind.QUEUE, b"some queue")


def loopback(names: str) -> dict[str, str]:
    return {n: f"127.0.0.1:{port}" for n, port in zip(names, free_ports(len(names)), strict=True)}


def plain(address: str) -> Network:
    return TcpNetwork(*split_address(address))


class Pki:
    """An authority, and a certificate of it for loopback."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        self.authority, self.certificate, self.key = (
            directory / name for name in ("ca.pem", "cert.pem", "key.pem")
        )
        authority.cert_pem.write_to_path(str(self.authority))
        certificate.cert_chain_pems[0].write_to_path(str(self.certificate))
        certificate.private_key_pem.write_to_path(str(self.key))

    def network(self, address: str) -> Network:
        tls = load_contexts(self.certificate, self.key, self.authority)
        return TcpNetwork(*split_address(address), tls)


async def exchange(cluster: Cluster, bodies: list[bytes]) -> None:
    """All bodies from the first to the second and back."""
    for sender, receiver in ((1, 2), (2, 1)):
        node = cluster["ab"[sender - 1]]
        for body in bodies:
            node.peers.send(receiver, Kind.QUEUE, body)
        node.peers.flush()
        other = cluster["ab"[receiver - 1]]
        await until(lambda other=other: len(other.of(Kind.QUEUE)) >= len(bodies))
        assert [event[2] for event in other.of(Kind.QUEUE)] == bodies


BODIES = [b"", b"x", os.urandom(70_000), os.urandom(3 * MIB), bytes(16 * MIB)]


async def test_messages_of_all_sizes_over_tcp(tmp_path: Path) -> None:
    async with cluster_of("ab", tmp_path, plain, addresses=loopback("ab"), timeout_s=20) as cluster:
        await exchange(cluster, BODIES)


async def test_messages_of_all_sizes_over_tls(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    addresses = loopback("ab")
    async with cluster_of(
        "ab", tmp_path, pki.network, addresses=addresses, timeout_s=20
    ) as cluster:
        await exchange(cluster, BODIES)


def reasons(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(
        str(record.fields["reason"])  # type: ignore[attr-defined]
        for record in caplog.records
        if record.msg == "link_refused"
    )


async def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    networks = {"a": Pki(tmp_path / "one").network, "b": Pki(tmp_path / "two").network}
    addresses = loopback("ab")
    names = {address: name for name, address in addresses.items()}

    def network(address: str) -> Network:
        return networks[names[address]](address)

    async with cluster_of("ab", tmp_path, network, addresses=addresses, started=False) as cluster:
        await cluster.start()
        await until(lambda: "certificate verify failed" in reasons(caplog).lower())
        assert not cluster["a"].peers.formed.is_set()


async def test_a_node_without_tls_is_refused_by_those_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    networks: dict[str, Callable[[str], Network]] = {"a": plain, "b": Pki(tmp_path / "p").network}
    addresses = loopback("ab")
    names = {address: name for name, address in addresses.items()}

    def network(address: str) -> Network:
        return networks[names[address]](address)

    async with cluster_of(
        "ab", tmp_path, network, addresses=addresses, started=False, hello_timeout_s=0.3
    ) as cluster:
        await cluster.start()
        await until(lambda: "WRONG_VERSION" in reasons(caplog) or "ssl" in reasons(caplog).lower())
        assert not cluster["a"].peers.formed.is_set()


def test_files_that_are_no_certificates_are_told(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    (tmp_path / "text").write_text("no key\n")
    with pytest.raises(StartupError, match="cannot use"):
        load_contexts(pki.certificate, tmp_path / "text", pki.authority)
    with pytest.raises(StartupError, match="cannot read"):
        load_contexts(pki.certificate, tmp_path / "missing", pki.authority)


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    with pytest.RaisesGroup(StartupError, flatten_subgroups=True):
        async with cluster_of("a", tmp_path, plain, addresses={"a": address}):
            pass
    await listener.aclose()


async def stuff(cluster: Cluster, size_bytes: int) -> None:
    """Queue this much from a to b without giving b a chance to read."""
    for _ in range(size_bytes // MIB):
        cluster["a"].peers.send(2, Kind.QUEUE, bytes(MIB))
    cluster["a"].peers.flush()


async def test_a_node_is_congested_until_it_has_read_most(tmp_path: Path) -> None:
    async with cluster_of("ab", tmp_path, plain, addresses=loopback("ab"), timeout_s=20) as cluster:
        a = cluster["a"].peers
        relieved: list[int] = []
        a.on_relief.append(relieved.append)
        assert not a.congested(2, SOME)
        await stuff(cluster, 30 * MIB)
        assert a.congested(2, SOME)
        await until(lambda: bool(relieved))
        assert relieved == [2]
        assert not a.congested(2, SOME)
        assert a.statistics()[0].bytes_waiting <= a.options.low_bytes
        await until(lambda: len(cluster["b"].of(Kind.QUEUE)) == 30)


async def test_relief_comes_too_if_all_goes_out_at_once(tmp_path: Path) -> None:
    options = {"high_bytes": 1000, "low_bytes": 100, "timeout_s": 20}
    async with cluster_of("ab", tmp_path, plain, addresses=loopback("ab"), **options) as cluster:
        a = cluster["a"].peers
        relieved: list[int] = []
        a.on_relief.append(relieved.append)
        a.send(2, Kind.RAFT, bytes(2000))
        assert a.congested(2, SOME)
        a.flush()
        assert not relieved
        await until(lambda: relieved == [2])


async def test_a_link_is_kept_however_much_waits_as_long_as_it_moves(tmp_path: Path) -> None:
    options = {"timeout_s": 20, "brim_bytes": MIB}
    async with cluster_of("ab", tmp_path, plain, addresses=loopback("ab"), **options) as cluster:
        a, b = cluster["a"], cluster["b"]
        await stuff(cluster, 100 * MIB)
        await until(lambda: len(b.of(Kind.QUEUE)) == 100)
        assert not a.of("down")


async def test_small_messages_pass_a_large_one_over_sockets(tmp_path: Path) -> None:
    """The large one is not copied as a whole, and comes as it was sent."""
    large, parcels = os.urandom(64 * MIB), Parcels()
    options = {"timeout_s": 20, "brim_bytes": MIB}
    async with cluster_of("ab", tmp_path, plain, addresses=loopback("ab"), **options) as cluster:
        a, b = cluster["a"], cluster["b"]
        send_parcel(a.peers, 2, Kind.QUEUE, [large], b"one")
        a.peers.flush()
        send_parcel(a.peers, 2, Kind.QUEUE, [b"behind it"], b"one")
        send_parcel(a.peers, 2, Kind.QUEUE, [b"passing"], b"other")
        a.peers.flush()
        taken: list[bytes] = []

        def take() -> int:
            for _, node, body in b.of(Kind.QUEUE):
                parcel = parcels.taken(node, body)  # type: ignore[arg-type]
                if parcel is not None:
                    taken.append(bytes(parcel))
            b.events.clear()
            return len(taken)

        await until(lambda: take() == 3)
        assert taken == [b"passing", large, b"behind it"]
        assert not a.of("down")


CHILD = """
import sys, trio
from pathlib import Path
from tests.cluster_links.speed import make

async def main():
    peers = make(sys.argv[1], Path(sys.argv[2]), [int(port) for port in sys.argv[3:]])
    say = lambda *words: print(*words, flush=True)
    peers.on_up.append(lambda node: say("up", node))
    peers.on_down.append(lambda node: say("down", node))
    from broker.cluster.kinds import Kind
    peers.handlers[Kind.RAFT] = lambda node, body: say("got", body.decode())
    count = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peers.run)
        while True:
            await trio.sleep(0.02)
            for node in peers.up():
                count += 1
                peers.send(node, Kind.RAFT, b"%d" % count)
            peers.flush()

trio.run(main)
"""


class Child:
    """A node in a process of its own that says what it sees."""

    def __init__(self, name: str, directory: Path, ports: list[int]) -> None:
        command = [sys.executable, "-c", CHILD, name, str(directory / name), *map(str, ports)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def next(self, *words: str) -> list[str]:
        """The next line that starts with one of these."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split()[0] in words:
                return line.split()
        raise AssertionError("the process has ended")


@pytest.fixture
def children(tmp_path: Path) -> Iterator[dict[str, Child]]:
    ports = free_ports(2)
    children = {name: Child(name, tmp_path, ports) for name in "ab"}
    for child in children.values():
        child.next("up")
    yield children
    for child in children.values():
        child.process.kill()
        child.process.wait()
        assert child.process.stdout is not None
        child.process.stdout.close()


@pytest.mark.parametrize(("victim", "other"), ["ab", "ba"])
def test_a_killed_process_is_down(children: dict[str, Child], victim: str, other: str) -> None:
    children[victim].process.send_signal(signal.SIGKILL)
    assert children[other].next("down")[0] == "down"


@pytest.mark.parametrize(("victim", "other"), ["ab", "ba"])
def test_a_stopped_process_is_down_and_knows_it_when_it_wakes(
    children: dict[str, Child], victim: str, other: str
) -> None:
    """What was sent to it before its stop was noticed lies in its sockets: it is not handled."""
    stopped = children[victim]
    before = stopped.next("got")
    stopped.process.send_signal(signal.SIGSTOP)
    assert children[other].next("down")[0] == "down"
    stopped.process.send_signal(signal.SIGCONT)
    handled = [int(before[1])]
    while (words := stopped.next("got", "down", "up"))[0] == "got":
        handled.append(int(words[1]))
    assert words[0] == "down"
    # At most what it had read or was reading when it was stopped, of fifty a second.
    assert len(handled) <= 10
    assert stopped.next("got", "down", "up")[0] == "up"
    assert int(stopped.next("got")[1]) > handled[-1] + 20
