"""Fresh nodes become one cluster, whoever crashes when; one more finds its place."""

from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from broker.cluster.enrolment import Membership
from broker.cluster.forming import Card, Join, Outcome, Take, Wait, decide
from broker.cluster.identity import Identity
from broker.cluster.table import PeerInfo, Table
from tests.cluster_links.harness import Cluster, MemoryNet, Node, cluster_of, until

LISTED = ("a", "b", "c")
CLUSTER = b"C" * 16


@pytest.fixture
def net() -> MemoryNet:
    return MemoryNet()


def card(
    name: str,
    *,
    listed: tuple[str, ...] = LISTED,
    cluster: bytes | None = None,
    table: Table | None = None,
    life: int = 0,
) -> Card:
    return Card(info(name, life), listed, cluster, table or {})


def info(name: str, life: int = 0) -> PeerInfo:
    return PeerInfo(name, f"{name}{life}".encode().ljust(16), f"{name}:1")


TABLE = {number: info(name) for number, name in enumerate(LISTED, start=1)}


def others(*cards: Card) -> dict[str, Card]:
    return {each.info.name: each for each in cards}


@pytest.mark.parametrize(
    ("mine", "seen", "outcome"),
    [
        (card("a"), others(card("b"), card("c")), Take(CLUSTER, 1, TABLE)),
        (card("b"), others(card("a"), card("c")), Wait),
        (card("a"), others(card("b")), Wait),
        (card("a"), {}, Wait),
        (card("a", listed=("a",)), {}, Take(CLUSTER, 1, {1: info("a")})),
        # The lists differ.
        (card("a"), others(card("b"), card("c", listed=("b", "c"))), Wait),
        # One has the table, and this node is in it: under its own name, of this very life.
        (card("c"), others(card("a", cluster=CLUSTER, table=TABLE)), Take(CLUSTER, 3, TABLE)),
        (card("a"), others(card("b", cluster=CLUSTER, table=TABLE)), Take(CLUSTER, 1, TABLE)),
        (card("c", life=1), others(card("a", cluster=CLUSTER, table=TABLE)), Join),
        (card("a", life=1), others(card("b", cluster=CLUSTER, table=TABLE), card("c")), Join),
        (card("d"), others(card("a", cluster=CLUSTER, table=TABLE), card("b"), card("c")), Join),
    ],
)
def test_what_a_fresh_node_does(
    mine: Card, seen: dict[str, Card], outcome: Outcome | type[Outcome]
) -> None:
    decided = decide(mine, seen, lambda: CLUSTER)
    if isinstance(outcome, type):
        assert isinstance(decided, outcome)
    else:
        assert decided == outcome


def test_a_copied_data_directory_does_not_form() -> None:
    twin = card("b")._replace(info=PeerInfo("b", info("a").uuid, "b:1"))
    decided = decide(card("a"), others(twin, card("c")))
    assert isinstance(decided, Wait)
    assert "same uuid" in decided.reason


@pytest.mark.parametrize("seed", range(200))
def test_asking_in_any_order_with_crashes_forms_one_cluster(seed: int) -> None:
    """Nodes ask one another, answers get old, and a crash forgets all that is not on disk."""
    random = Random(seed)
    disks: dict[str, Card] = {name: card(name) for name in LISTED}
    rounds: dict[str, dict[str, Card]] = {name: {} for name in LISTED}
    made: list[bytes] = []

    def new_cluster() -> bytes:
        made.append(len(made).to_bytes(16, "big"))
        return made[-1]

    for _ in range(2000):
        name = random.choice(LISTED)
        step = random.randrange(10)
        if step == 0:
            rounds[name] = {}
        elif disks[name].cluster is None:
            if step < 8:
                other = random.choice([each for each in LISTED if each != name])
                rounds[name][other] = disks[other]
            else:
                outcome = decide(disks[name], rounds[name], new_cluster)
                assert not isinstance(outcome, Join)
                if isinstance(outcome, Take) and random.random() < 0.7:  # else it dies before
                    taken = disks[name]._replace(cluster=outcome.cluster, table=outcome.table)
                    disks[name] = taken
                    assert outcome.table[outcome.number].uuid == taken.info.uuid
                rounds[name] = {}
    assert len({each.cluster for each in disks.values()}) == 1
    assert disks["a"].cluster is not None


async def grown(cluster: Cluster, tmp_path: Path, net: MemoryNet) -> Node:
    """A fourth node, which lists the others and is started."""
    listed = {name: f"{name}:1" for name in "abcd"}
    node = Node("d", tmp_path / "d", listed, net.of)
    cluster.nodes["d"] = node
    await cluster.start("d")
    return node


async def test_those_that_form_a_cluster_do_not_wait_to_be_added(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Else one that is emptied and comes back would be added as what it was."""
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        assert not any(cluster[name].peers.waiting for name in "abc")


async def test_a_fresh_node_waits_till_the_cluster_has_added_it(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        d = await grown(cluster, tmp_path, net)
        await until(lambda: d.peers.membership is Membership.JOINING)
        await trio.sleep(5)
        assert not d.peers.formed.is_set()
        assert not d.events
        a = cluster["a"].peers
        await until(lambda: "d" in a.waiting)
        table = {**a.table, 7: a.waiting["d"]}
        for name in "abc":
            cluster[name].peers.set_table(table)
        with trio.fail_after(5):
            await d.peers.formed.wait()
            await cluster.until_up()
        assert d.peers.me == 7
        assert d.peers.table == table
        assert not a.waiting
        # It stays so over starts of everyone.
        for name in "abcd":
            cluster[name].kill()
            await until(lambda name=name: f"{name}:1" not in net.listening)
        await cluster.start()
        await cluster.until_up()
        assert d.peers.me == 7


async def test_one_node_alone_is_a_cluster(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("a", tmp_path, net.of) as cluster:
        await cluster["a"].peers.formed.wait()
        assert cluster["a"].peers.me == 1


async def test_nodes_started_one_by_one_do_not_form_before_all_are_there(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("abc", tmp_path, net.of, started=False) as cluster:
        await cluster.start("a", "b")
        await trio.sleep(20)
        assert cluster["a"].peers.membership is Membership.FORMING
        await cluster.start("c")
        await cluster.until_up()


@pytest.mark.parametrize("seed", range(12))
async def test_forming_survives_crashes_at_any_point(
    seed: int, tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    net.delay_s = 0.01
    async with cluster_of("abcd", tmp_path, net.of, started=False) as cluster:
        await cluster.start()
        for _ in range(25):
            await trio.sleep(random.uniform(0, 0.15))
            name = random.choice("abcd")
            cluster[name].kill()
            await until(lambda name=name: f"{name}:1" not in net.listening)
            await cluster.start(name)
        await cluster.until_up()
        ids = {node.peers.cluster for node in cluster.nodes.values()}
        assert len(ids) == 1
        assert [node.peers.me for node in cluster.nodes.values()] == [1, 2, 3, 4]
        on_disk = Identity.open(tmp_path / "d", "d")
        assert on_disk.cluster in ids


async def test_a_disk_that_is_full_keeps_a_node_from_taking_part_not_from_trying(
    tmp_path: Path,
    net: MemoryNet,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from broker.cluster import identity as identity_module

    async with cluster_of("ab", tmp_path, net.of, started=False) as cluster:
        await cluster.start("a", "b")

        def full(_fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(identity_module.os, "fsync", full)
        await trio.sleep(5)
        assert "identity_not_saved" in caplog.text
        assert cluster["a"].peers.me == cluster["b"].peers.me == 0
        monkeypatch.undo()
        await cluster.until_up()
