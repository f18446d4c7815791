"""Links between nodes, on a network in memory that can be cut, and a clock that jumps."""

from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from broker.cluster.heartbeats import Pulse
from broker.cluster.kinds import Kind
from broker.cluster.peers import Peers
from tests.cluster_links.harness import Cluster, MemoryNet, cluster_of, until


@pytest.fixture
def net() -> MemoryNet:
    return MemoryNet()


def numbers(cluster: Cluster) -> dict[str, int]:
    return {name: node.peers.me for name, node in cluster.nodes.items()}


async def test_three_fresh_nodes_form_and_all_see_each_other(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("cab", tmp_path, net.of) as cluster:
        assert numbers(cluster) == {"a": 1, "b": 2, "c": 3}
        assert {node.peers.cluster for node in cluster.nodes.values()} == {
            cluster["a"].peers.cluster
        }
        assert cluster["b"].peers.up() == {1, 3}
        assert cluster["b"].peers.is_up(3)
        assert not cluster["b"].peers.is_up(2)
        assert [info.name for info in cluster["c"].peers.table.values()] == ["a", "b", "c"]


async def test_messages_of_a_lane_arrive_once_and_in_order(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    net.delay_s = 0.003
    random = Random(5)
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        sent: dict[Kind, list[bytes]] = {Kind.RAFT: [], Kind.QUEUE: []}
        for number in range(2000):
            kind = random.choice([Kind.RAFT, Kind.QUEUE])
            body = number.to_bytes(4, "big") + random.randbytes(random.choice([0, 10, 20_000]))
            sent[kind].append(body)
            cluster["a"].peers.send(2, kind, body[:3], body[3:])
            if random.random() < 0.1:
                cluster["a"].peers.flush()
                await trio.sleep(random.choice([0, 0.002]))
            if random.random() < 0.01:
                await until(lambda: cluster["a"].peers.statistics()[0].bytes_waiting == 0)
        cluster["a"].peers.flush()
        b = cluster["b"]
        await until(lambda: len(b.events) == 2000 + 1)
        for kind, bodies in sent.items():
            assert [event[2] for event in b.of(kind)] == bodies
        assert all(event[1] == 1 for event in b.events)


async def test_nothing_is_sent_before_a_flush_or_to_a_node_that_is_down(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        a = cluster["a"].peers
        cluster["c"].kill()
        await until(lambda: not a.is_up(3))
        a.send(3, Kind.RAFT, b"lost")
        a.send(9, Kind.RAFT, b"nobody")
        a.flush()
        await cluster.start("c")
        await cluster.until_up()
        a.send(3, Kind.RAFT, b"heard")
        a.flush()
        await until(lambda: bool(cluster["c"].of(Kind.RAFT)))
        assert cluster["c"].of(Kind.RAFT) == [(Kind.RAFT, 1, b"heard")]


@pytest.mark.parametrize("one_way", [None, ("a:1", "b:1"), ("b:1", "a:1")])
async def test_both_ends_of_a_cut_link_are_down_after_the_time_out(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, one_way: tuple[str, str] | None
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        await trio.sleep(1)
        frm, to = one_way or ("a:1", "b:1")
        net.cut(frm, to, one_way=one_way is not None)
        cut_at = trio.current_time()
        a, b = cluster["a"], cluster["b"]
        await until(lambda: not a.peers.is_up(2) and not b.peers.is_up(1))
        assert 0.8 < trio.current_time() - cut_at < 1.3
        assert a.peers.up() == b.peers.up() == {3}
        await trio.sleep(5)
        assert not a.peers.is_up(2)
        net.heal()
        await cluster.until_up()
        assert a.of("up").count(("up", 2)) == 2
        assert a.of("down") == [("down", 2)]
        assert not cluster["c"].of("down")


@pytest.mark.parametrize("victim", ["a", "b"])
async def test_the_end_of_a_process_is_noticed_at_once(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, victim: str
) -> None:
    other = "b" if victim == "a" else "a"
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        died_at = trio.current_time()
        cluster[victim].kill()
        await until(lambda: bool(cluster[other].of("down")))
        assert trio.current_time() - died_at < 0.1
        boot = cluster[other].peers.boot_of(cluster[victim].peers.me)
        await cluster.start(victim)
        await cluster.until_up()
        assert cluster[other].peers.boot_of(cluster[victim].peers.me) == boot + 1


async def test_one_lane_that_breaks_takes_the_link_down_and_it_comes_back(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        await net.break_newest()  # the bulk lane
        await until(lambda: bool(cluster["b"].of("down")) and bool(cluster["a"].of("down")))
        await cluster.until_up()


async def test_a_bulk_lane_that_carries_nothing_takes_the_link_down(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        a = cluster["a"].peers
        wire = a._links[2].pipes[1].wire

        async def swallow(data: memoryview) -> int:
            await trio.lowlevel.checkpoint()
            return len(data)

        a._links[2].pipes[1].wire = Swallowing(wire, swallow)  # type: ignore[assignment]
        began = trio.current_time()
        await until(lambda: bool(cluster["a"].of("down")))
        assert 4 <= trio.current_time() - began < 5.5


class Swallowing:
    """A wire whose writes go nowhere."""

    def __init__(self, wire: object, write: object) -> None:
        self._wire = wire
        self.write = write

    def __getattr__(self, name: str) -> object:
        return getattr(self._wire, name)


async def test_a_handler_that_raises_ends_the_link_and_not_the_node(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:

        def fail(node: int, body: bytes) -> None:
            raise RuntimeError("planted")

        b = cluster["b"]
        b.peers.handlers[Kind.LEADS] = fail
        cluster["a"].peers.send(2, Kind.LEADS, b"")
        cluster["a"].peers.send(2, Kind.RAFT, b"behind it on the same link")
        cluster["a"].peers.flush()
        await until(lambda: ("down", 1) in b.events)
        assert not b.of(Kind.RAFT)
        assert "handler_failed" in caplog.text
        await cluster.until_up()
        assert not b.of(Kind.RAFT)
        assert ("down", 3) not in b.events


async def test_a_kind_that_nobody_handles_ends_the_link(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        cluster["a"].peers.send(2, Kind.ALARM, b"")
        cluster["a"].peers.flush()
        await until(lambda: bool(cluster["b"].of("down")))


async def test_a_length_beyond_the_limit_ends_the_link(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        pipe = cluster["a"].peers._links[2].pipes[0]
        pipe._pieces.append(b"\xff\xff\xff\xff\x0a")
        pipe.queued_bytes += 5
        pipe.flush()
        await until(lambda: bool(cluster["b"].of("down")))


@pytest.mark.parametrize("seed", range(12))
async def test_callbacks_see_a_state_that_agrees_with_them(
    seed: int, tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Up before the first message and down after the last, whatever the delays."""
    net.delays = Random(seed)

    def greet(peers: Peers) -> None:
        def up(node: int) -> None:
            assert peers.is_up(node)
            peers.send(node, Kind.RAFT, b"first")
            peers.send(node, Kind.QUEUE, b"first")
            peers.flush()

        def down(node: int) -> None:
            assert not peers.is_up(node)

        peers.on_up.append(up)
        peers.on_down.append(down)

    async with cluster_of("abcd", tmp_path, net.of, started=False) as cluster:
        for node in cluster.nodes.values():
            node.prepare = greet
        await cluster.start()
        await cluster.until_up()
        for node in cluster.nodes.values():
            await until(lambda node=node: len(node.events) == 9)
            seen: set[object] = set()
            for word, number, *_ in node.events:
                assert word == "up" or number in seen
                seen.add(number)


async def test_a_link_made_anew_replaces_one_that_is_not_known_to_be_dead(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """The dialer noticed its end, the other did not: the old one goes down before the new is up."""
    async with cluster_of("ab", tmp_path, net.of, timeout_s=60.0) as cluster:
        a, b = cluster["a"], cluster["b"]
        net.cut("a:1", "b:1", one_way=True)
        a.peers.drop(2, "planted")
        await until(lambda: bool(a.of("down")))
        assert b.peers.is_up(1)
        net.heal()
        await until(lambda: len(b.of("up")) == 2)
        assert b.events == [("up", 1), ("down", 1), ("up", 1)]


async def test_the_digest_of_a_node_rides_on_its_heartbeats(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        got: list[tuple[int, bytes]] = []
        cluster["b"].peers.on_digest.append(lambda node, digest: got.append((node, digest)))
        cluster["a"].peers.digest = lambda node: b"for %d" % node
        await until(lambda: (1, b"for 2") in got)


async def test_round_trips_and_answers_are_measured_from_sending(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    net.delay_s = 0.03
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        await trio.sleep(1)
        a = cluster["a"].peers
        (statistics,) = a.statistics()
        assert statistics.round_trip_s == pytest.approx(0.06, abs=0.001)
        ages = []
        for _ in range(400):
            await trio.sleep(0.001)
            ages.append(trio.current_time() - a.answered_at(2))
        assert min(ages) == pytest.approx(0.06, abs=0.002)
        assert max(ages) == pytest.approx(0.06 + 0.15, abs=0.002)
        cluster["b"].kill()
        await until(lambda: not a.is_up(2))
        assert a.answered_at(2) == float("-inf")


async def test_who_wakes_from_a_long_stop_knows_its_view_is_stale(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Time passes in which no task runs. What lies in the sockets then is not handled."""
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        a, b = cluster["a"], cluster["b"]
        await trio.sleep(0.5)
        b.peers.send(1, Kind.RAFT, b"from before the stop")
        b.peers.flush()
        autojump_clock.jump(3.0)
        await until(lambda: bool(a.of("down")))
        assert not a.of(Kind.RAFT)
        await cluster.until_up()


async def test_a_removed_node_goes_down_and_is_refused(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        table = cluster["a"].peers.table
        del table[3]
        for name in "ab":
            cluster[name].peers.set_table(table)
        await until(lambda: cluster["a"].peers.up() == {2} and cluster["b"].peers.up() == {1})
        await until(lambda: not cluster["c"].peers.up())
        await trio.sleep(5)
        assert not cluster["c"].peers.up()
        cluster["a"].kill()
        await cluster.start("a")
        await cluster.until_up("a", "b")
        assert cluster["a"].peers.table == table


async def test_seeded_cuts_and_kills_never_break_the_promises(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """Ups and downs alternate; between them messages of one sender's start are a prefix."""
    seed = 11
    print(f"seed {seed}")
    random = Random(seed)
    net.delay_s = 0.002
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        counter = 0
        for _ in range(400):
            match random.randrange(12):
                case 0:
                    frm, to = random.sample("abc", 2)
                    net.cut(f"{frm}:1", f"{to}:1", one_way=random.random() < 0.5)
                case 1 | 2:
                    net.heal()
                case 3:
                    name = random.choice("abc")
                    cluster[name].kill()
                    await until(lambda name=name: f"{name}:1" not in net.listening)
                    await cluster.start(name)
                case _:
                    for node in cluster.nodes.values():
                        for other in node.peers.up():
                            counter += 1
                            node.peers.send(other, Kind.RAFT, counter.to_bytes(8, "big"))
                        node.peers.flush()
            await trio.sleep(random.choice([0.0, 0.05, 0.4]))
        net.heal()
        await cluster.until_up()
        for node in cluster.nodes.values():
            check_promises(node.events)


def check_promises(events: list[tuple[object, ...]]) -> None:
    up: set[object] = set()
    newest: dict[object, object] = {}
    for word, number, *rest in events:
        if word == "up":
            assert number not in up
            up.add(number)
        elif word == "down":
            assert number in up
            up.discard(number)
        else:
            assert number in up
            assert rest[0] > newest.get(number, b"")  # type: ignore[operator]
            newest[number] = rest[0]


async def test_a_node_whose_own_loop_is_late_does_not_take_others_for_dead(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    """A starved machine: half a second passes, again and again, in which nothing here ran."""
    net.delay_s = 0.01
    async with cluster_of("abc", tmp_path, net.of) as cluster:
        for _ in range(20):
            autojump_clock.jump(0.45)
            await trio.sleep(0.015)
        await trio.sleep(3.0)
        for node in cluster.nodes.values():
            assert not node.of("down")


async def test_a_node_that_is_silent_is_down_in_time_on_one_that_is_late_now_and_then(
    tmp_path: Path, net: MemoryNet, autojump_clock: MockClock
) -> None:
    async with cluster_of("ab", tmp_path, net.of) as cluster:
        net.cut("a:1", "b:1")
        began = trio.current_time()
        while not cluster["a"].of("down"):
            autojump_clock.jump(0.2)
            await trio.sleep(0.1)
        assert trio.current_time() - began <= 2.5


@pytest.mark.parametrize(
    ("late_s", "deadline"),
    [
        ((), 11.0),
        ((0.3,), 11.3),
        ((0.3, 0.4), 11.7),
        ((0.5, 0.5, 0.5), 12.0),  # at most once more the time-out
        ((3.0,), 11.0),  # it was stopped: the others have given it up
    ],
)
def test_time_in_which_this_node_did_not_listen_does_not_count(
    late_s: tuple[float, ...], deadline: float
) -> None:
    pulse, now = Pulse(10.0, 1.0), 10.0
    for each in late_s:
        now += each
        pulse.excuse(each, now)
    assert pulse.deadline == pytest.approx(deadline)
    pulse.got_answer(now + 0.1, now + 0.2)
    assert pulse.deadline == pytest.approx(now + 1.1)
