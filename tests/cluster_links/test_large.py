"""Large messages on a link: passed by small ones, in order among their like, bounded, given up."""

from pathlib import Path
from random import Random

import pytest
import trio

from broker.cluster import pipe as pipes
from broker.cluster.frames import FrameReader
from broker.cluster.heartbeats import Brim
from broker.cluster.kinds import Kind
from broker.cluster.pipe import Pipe
from tests.cluster_links.harness import MemoryNet, cluster_of, until

ONE, OTHER = (Kind.RAFT_BULK, b"one"), (Kind.RAFT_BULK, b"other")
PIECE = bytes(100)


class Taker:
    """A wire that takes so many bytes at a time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.reader = FrameReader()
        self.frames: list[tuple[int, bytes]] = []

    def write_nowait(self, data: memoryview) -> int:
        taken = bytes(data[: self.bytes_max])
        self.frames += self.reader.feed(taken)
        return len(taken)


def pipe_of(bytes_max: int) -> tuple[Pipe, Taker]:
    taker = Taker(bytes_max)
    return Pipe(taker), taker  # type: ignore[arg-type]


def drain(pipe: Pipe) -> None:
    while pipe.waiting_bytes:
        if pipe._rest:
            pipe._written(pipe.wire.write_nowait(pipe._rest))
        else:
            pipe.flush()


def test_what_is_small_waits_for_one_write_of_what_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipes, "LARGE_WRITE_BYTES", 300)
    pipe, taker = pipe_of(10_000)
    for _ in range(50):
        pipe.put_large(ONE, (PIECE,))
    pipe.flush()
    pipe.put(Kind.META, (b"small",))
    pipe.flush()
    assert [kind for kind, _ in taker.frames].index(Kind.META) <= 3
    drain(pipe)
    assert len(taker.frames) == 51
    assert not pipe.carries(ONE)


def test_a_flood_of_small_ones_does_not_starve_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipes, "LARGE_WRITE_BYTES", 300)
    pipe, _ = pipe_of(10_000)
    for _ in range(50):
        pipe.put_large(ONE, (PIECE,))
    for _ in range(30):
        for _ in range(20):
            pipe.put(Kind.META, (PIECE,))
        pipe.flush()
    assert not pipe.carries(ONE)


def test_any_mixture_arrives_whole_and_in_order_of_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever must stay behind something large asks first, as parcels do."""
    monkeypatch.setattr(pipes, "LARGE_WRITE_BYTES", 50)
    for seed in range(200):
        random = Random(seed)
        pipe, taker = pipe_of(random.choice([1, 7, 90, 5000]))
        sent: dict[bytes, list[bytes]] = {b"a": [], b"b": [], b"c": []}
        for number in range(60):
            name = random.choice(list(sent))
            key = (Kind.RAFT_BULK, name)
            body = name + b"%d " % number + b"x" * random.choice([0, 3, 200])
            sent[name].append(body)
            if len(body) > 100 or pipe.carries(key):
                pipe.put_large(key, (body[:5], memoryview(body)[5:]))
            else:
                pipe.put(Kind.RAFT_BULK, (body,))
            if random.random() < 0.5:
                pipe.flush()
            if random.random() < 0.5 and pipe._rest:
                pipe._written(pipe.wire.write_nowait(pipe._rest))
        drain(pipe)
        for name, bodies in sent.items():
            assert [body for _, body in taker.frames if body[:1] == name] == bodies
        assert pipe.large_bytes == 0
        assert not pipe.keys_carried


def test_above_the_brim_a_link_must_keep_a_pace() -> None:
    brim = Brim(1000, 100, 4.0)
    table = [  # time, waiting, written, whether it is late
        (0.0, 900, 0, False),
        (10.0, 1001, 0, False),  # much may wait
        (13.9, 1001, 99, False),
        (14.1, 1001, 99, True),  # but not go out so slowly
        (14.2, 1001, 100, False),
        (18.0, 5000, 150, False),
        (18.1, 5000, 200, False),
        (22.0, 900, 200, False),  # below it there is no hurry
        (40.0, 1001, 200, False),
    ]
    for now, waiting, written, late in table:
        assert brim.late(now, waiting=waiting, written=written) is late, now


async def test_enough_of_something_large_is_enough_only_for_what_belongs_to_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    options = {"high_bytes": 1000, "low_bytes": 200, "large_keys_max": 2, "timeout_s": 50}
    async with cluster_of("ab", tmp_path, MemoryNet().of, **options) as cluster:
        peers = cluster["a"].peers
        relieved: list[int] = []
        peers.on_relief.append(relieved.append)
        peers.handlers[Kind.RAFT_BULK] = lambda _node, _body: None
        cluster["b"].peers.handlers[Kind.RAFT_BULK] = lambda _node, _body: None
        for _ in range(20):
            peers.send_large(2, ONE, PIECE)
        assert peers.carries(2, ONE)
        assert peers.congested(2, ONE)
        assert not peers.congested(2, OTHER)
        peers.send_large(2, OTHER, PIECE)
        assert peers.congested(2, (Kind.QUEUE, b"a third"))  # enough have something large in line
        peers.flush()
        await until(lambda: bool(relieved))
        assert not peers.carries(2, ONE)
        assert not peers.congested(2, ONE)


async def test_a_node_of_the_first_version_gets_everything_in_order(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say that messages may pass each other."""
    monkeypatch.setattr("broker.cluster.link._UNDERSTOOD", b"")
    async with cluster_of("ab", tmp_path, MemoryNet().of, timeout_s=50) as cluster:
        peers, other = cluster["a"].peers, cluster["b"]
        key = (Kind.QUEUE, b"one")
        for number in range(5):
            peers.send_large(2, key, b"large %d" % number)
        assert not peers.carries(2, key)
        peers.send(2, Kind.QUEUE, b"small")
        peers.flush()
        await until(lambda: len(other.of(Kind.QUEUE)) == 6)
        bodies = [body for _, _, body in other.of(Kind.QUEUE)]
        assert bodies == [*[b"large %d" % n for n in range(5)], b"small"]
