"""Nodes with logs in common, in simulated time: disks that forget, links that break, crashes."""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TypeVar
from unittest.mock import patch

import trio
import trio.testing

from broker.cluster import bundles, parcels
from broker.cluster.kinds import Kind
from broker.cluster.leaders import LeaderBook
from broker.cluster.mail import Key, Piece
from broker.cluster.parcels import PIECE_BYTES
from broker.hosted_log import MemberLog
from broker.log_host import LogHost
from broker.startup import DiskFailedError
from broker.timers import Timers
from queues.raft.messages import NodeId
from queues.raft.ready import NotLeaderError
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer
from tests.cluster_host.machine import Book, ListMachine
from tests.support.promises import check
from tests.support.simdisk import SimDisk

OPTIONS = StoreOptions(wal_file_bytes=16 * 1024, free_bytes_min=0, reserve_bytes=8 * 1024)
EPOCH_MS = 1_700_000_000_000.0
T = TypeVar("T")


class Line:
    """What waits for one node: small things, and large ones that these pass. See pipe.Pipe."""

    def __init__(self) -> None:
        self.small: deque[tuple[Kind, bytes]] = deque()
        self.large: deque[tuple[Key, bytes]] = deque()
        self.size_bytes = 0
        self.turned_away = False

    def carries(self, key: Key) -> bool:
        return any(key == carried for carried, _ in self.large)

    def take(self, bytes_max: float) -> list[tuple[Kind, bytes]]:
        """At least one, if there is any; all that is small, if it fits, and some that is large."""
        taken: list[tuple[Kind, bytes]] = []
        while (self.small or self.large) and bytes_max > 0:
            frame = self.small.popleft() if self.small else self._next_large()
            taken.append(frame)
            bytes_max -= len(frame[1])
            self.size_bytes -= len(frame[1])
        return taken

    def _next_large(self) -> tuple[Kind, bytes]:
        key, body = self.large.popleft()
        return key[0], body


class Life:
    """One life of a node, from a start to a crash."""

    def __init__(self, world: "World", node: NodeId, boot: int) -> None:
        self.world = world
        self.node = node
        self.boot = boot
        self.over = False
        self.seen: set[NodeId] = set()  # nodes that are up
        self.lines: dict[NodeId, Line] = {}
        self.draining = self.turn_under_way = False
        self.linked: dict[NodeId, int] = {}  # generation of the link that it was told is up
        self.early: dict[int, list[tuple[Kind, bytes]]] = {}  # by generation
        self.scope = trio.CancelScope()
        self.timers = Timers()
        self.timers._epoch_ms = EPOCH_MS
        self.host = LogHost(self.timers, self.flush, lambda full: None, self._later)
        events = StoreEvents(self.host.told_durable, self.host.told_failed, lambda full: None)
        self.store = LogStore.open(
            world.disks[node], OPTIONS, events, new_store_id=lambda: b"s" * 16, threaded=False
        )
        self.reclaimer = Reclaimer(self.store)
        self.host.use(self.store)
        self.book = LeaderBook(node, self)
        self.replication = self.host.connect(node, self, self.book)
        self.replication.random = Random(world.random.getrandbits(64))
        self.handlers = self.replication.handlers()
        self.machines: dict[bytes, ListMachine] = {}
        self.on_down: list[Callable[[NodeId], None]] = []
        self.syncing = False

    def join(self, uid: bytes) -> MemberLog:
        world = self.world
        name = f"{uid[:1].decode()} on {self.node}.{self.boot}"
        machine = ListMachine(world, world.books[uid], name, world.checkpoint_every)
        self.machines[uid] = machine
        return self.host.join(uid, world.voters, machine.on, first=world.voters[0])

    async def run(self) -> None:
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.timers.run, self.flush)
                    nursery.start_soon(self.host.run)
        except* DiskFailedError:
            check(self.over, "the disk failed, of itself")

    async def _later(self, work: Callable[[], T]) -> T:
        await trio.sleep(self.world.spread(self.world.read_s))
        if self.over:
            await trio.sleep_forever()
        return work()

    def end(self) -> None:
        self.over = True
        self.host.failure = self.host.failure or RuntimeError("this life is over")
        self.host._submits.clear()
        self.scope.cancel()

    # The links, as the host sees them.

    def send(self, node: NodeId, kind: Kind, *pieces: Piece) -> None:
        if node in self.seen:
            line, body = self.lines[node], b"".join(pieces)
            line.small.append((kind, body))
            self._queued(line, body)

    def send_large(self, node: NodeId, key: Key, *pieces: Piece) -> None:
        if node in self.seen:
            line, body = self.lines[node], b"".join(pieces)
            line.large.append((key, body))
            self._queued(line, body)

    def _queued(self, line: Line, body: bytes) -> None:
        line.size_bytes += len(body)
        self.world.waiting_max = max(self.world.waiting_max, line.size_bytes)

    def carries(self, node: NodeId, key: Key) -> bool:
        return node in self.seen and self.lines[node].carries(key)

    def is_up(self, node: NodeId) -> bool:
        return node in self.seen

    def up(self) -> set[NodeId]:
        return self.seen

    def congested(self, node: NodeId, key: Key) -> bool:
        full = node in self.seen and self.lines[node].size_bytes > self.world.high_bytes
        if full:
            self.lines[node].turned_away = True
        return full

    def flush(self) -> None:
        """The end of a turn."""
        if self.over:
            return
        self.turn_under_way = False
        self.host.flush()
        if not self.draining:
            self._drain()
        if self.store.submitted > self.store.durable and not self.syncing:
            self.syncing = True
            self.world.at(self.world.spread(self.world.sync_s), self._sync)

    def _drain(self) -> None:
        """Send what the links take; more of it a moment later."""
        self.draining = False
        if self.over:
            return
        for node, line in list(self.lines.items()):
            for kind, body in line.take(self.world.pace_bytes):
                self.world.transmit(self, node, kind, body)
            if line.turned_away and line.size_bytes <= self.world.high_bytes // 4:
                line.turned_away = False
                self.host.relieved()
                self.end_turn_soon()
            if line.small or line.large:
                self.draining = True
        if self.draining:
            self.world.at(0.001, self._drain)

    def end_turn_soon(self) -> None:
        if not self.turn_under_way:
            self.turn_under_way = True
            self.world.at(self.world.spread(0.002), self._end_turn)

    def _end_turn(self) -> None:
        if self.turn_under_way:
            self.flush()

    def _sync(self) -> None:
        self.syncing = False
        if not self.over:
            if self.world.random.random() < 0.3:
                for _ in range(20):
                    self.reclaimer.step()
            self.store.flush()

    def get(self, frm: NodeId, kind: Kind, body: bytes) -> None:
        """One frame of a read: others of that read may come before the turn ends."""
        if not self.over and frm in self.seen:
            self.handlers[kind](frm, body)
            if self.world.random.random() < self.world.coalesce:
                self.end_turn_soon()
            else:
                self.flush()

    def saw_up(self, node: NodeId, *, restarted: bool) -> None:
        self.seen.add(node)
        self.lines[node] = Line()
        self.host.node_up(node, restarted=restarted)
        self.flush()

    def saw_down(self, node: NodeId) -> None:
        if node in self.seen:
            self.seen.discard(node)
            del self.lines[node], self.linked[node]
            self.host.node_down(node)
            for told in self.on_down:
                told(node)
            self.flush()


class World:
    """`run` a scenario in it; everything comes from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        voters: int | None = None,
        logs: int = 2,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        self.trace = trace
        self.nodes = tuple(range(1, nodes + 1))
        self.voters = self.nodes[: voters or nodes]
        self.uids = [bytes([65 + number]) * 16 for number in range(logs)]
        self.books = {uid: Book() for uid in self.uids}
        self.disks = {node: SimDisk() for node in self.nodes}
        self.lives: dict[NodeId, Life] = {}
        self.boots = dict.fromkeys(self.nodes, 0)
        self.met: dict[tuple[NodeId, NodeId], int] = {}  # boot number last seen of the other
        self.links: dict[tuple[NodeId, NodeId], int] = {}  # generation of those that are up
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.checkpoint_every = random.choice([3, 10, 40])
        self.read_s = random.choice([0.0001, 0.002, 0.02])
        self.sync_s = random.choice([0.0002, 0.002, 0.02])
        self.delay_s = random.choice([0.0002, 0.002, 0.02])
        self.drop = random.choice([0.0, 0.0, 0.02])
        self.coalesce = random.choice([0.0, 0.5])  # frames that share a turn with the next one
        # What is large, and how much is enough for a node: little, so that both are common.
        self.piece_bytes = random.choice([PIECE_BYTES, 100])
        self.high_bytes = random.choice([1 << 30, 1000])
        self.pace_bytes = random.choice([float("inf"), 1000.0])  # in each millisecond
        self.waiting_max = 0  # bytes that waited for one node at any time
        self.entries = count(1)
        self.reads = self.transfers = 0
        self._generation = count(1)
        self._last_in_lane: dict[tuple[NodeId, NodeId, int], float] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._news = trio.Event()
        self.nursery: trio.Nursery

    def run(self, scenario: "Callable[[World], object]") -> None:
        scheduler = trio._core._run
        scheduler._r.seed(self.seed)  # type: ignore[attr-defined]

        async def main() -> None:
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(self._serve)
                await scenario(self)  # type: ignore[misc]
                for life in self.lives.values():
                    life.end()
                self.nursery.cancel_scope.cancel()

        with (
            patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", new=True),
            patch.object(parcels, "PIECE_BYTES", self.piece_bytes),
            patch.object(bundles, "PIECE_BYTES", self.piece_bytes),
            patch.object(bundles, "LARGE_BYTES", 2 * self.piece_bytes),
        ):
            trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    def say(self, *words: object) -> None:
        if self.trace is not None:
            self.trace(f"{trio.current_time():9.4f} " + " ".join(map(str, words)))

    # Events.

    def spread(self, mean: float) -> float:
        return self.random.expovariate(1.0 / mean)

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (trio.current_time() + delay_s, next(self._order), action))
        self._news.set()

    async def _serve(self) -> None:
        while True:
            now = trio.current_time()
            while self._events and self._events[0][0] <= now:
                action = heapq.heappop(self._events)[2]
                action()
                await trio.lowlevel.checkpoint()
            self._news = trio.Event()
            wait_s = self._events[0][0] - trio.current_time() if self._events else 3600.0
            with trio.move_on_after(max(wait_s, 0.0)):
                await self._news.wait()

    # The network.

    def transmit(self, life: Life, to: NodeId, kind: Kind, body: bytes) -> None:
        generation = self.links.get((life.node, to))
        if generation is None:
            return
        whole = kind in (Kind.RAFT, Kind.RAFT_BULK) and body[:1] == b"\0"
        if whole and self.random.random() < self.drop:
            return
        lane = (life.node, to, kind.lane)
        when = max(trio.current_time() + self.spread(self.delay_s), self._last_in_lane.get(lane, 0))
        self._last_in_lane[lane] = when

        def arrive() -> None:
            if self.links.get((life.node, to)) == generation and to in self.lives:
                receiver = self.lives[to]
                if receiver.linked.get(life.node) == generation:
                    receiver.get(life.node, kind, body)
                else:  # it has not heard yet that the link is up
                    receiver.early.setdefault(generation, []).append((kind, body))

        self.at(when - trio.current_time(), arrive)

    def link(self) -> None:
        """Whoever can see each other does."""
        for a in self.nodes:
            for b in self.nodes:
                both = a < b and a in self.lives and b in self.lives
                if both and (a, b) not in self.links and (a, b) not in self.cuts:
                    self._connect(a, b)

    def _connect(self, a: NodeId, b: NodeId) -> None:
        generation = next(self._generation)
        self.links[a, b] = self.links[b, a] = generation
        for one, other in ((a, b), (b, a)):
            self.at(
                self.spread(0.01), lambda one=one, other=other: self._up(one, other, generation)
            )

    def _up(self, one: NodeId, other: NodeId, generation: int) -> None:
        if self.links.get((one, other)) == generation:
            boot = self.boots[other]
            restarted = self.met.get((one, other), boot) != boot
            self.met[one, other] = boot
            life = self.lives[one]
            if other in life.seen:
                return  # it has yet to hear that the link before is down
            life.linked[other] = generation
            life.saw_up(other, restarted=restarted)
            for kind, body in life.early.pop(generation, ()):
                life.get(other, kind, body)

    def unlink(self, a: NodeId, b: NodeId) -> None:
        if self.links.pop((a, b), None) is not None:
            del self.links[b, a]
            for one, other in ((a, b), (b, a)):
                life = self.lives.get(one)
                if life is not None:
                    self.at(
                        self.spread(0.3), lambda life=life, other=other: self._down(life, other)
                    )

    def _down(self, life: Life, other: NodeId) -> None:
        if not life.over:
            life.saw_down(other)
            if (life.node, other) in self.links:  # it came back before that was noticed
                generation = self.links[life.node, other]
                self.at(0.0, lambda: self._up(life.node, other, generation))

    # Nodes.

    def start(self, node: NodeId, *, join: bool = True) -> Life:
        self.boots[node] += 1
        self.say("start", node)
        self.lives[node] = life = Life(self, node, self.boots[node])
        self.nursery.start_soon(life.run)
        if join:
            for uid in self.uids:
                life.join(uid)
        life.flush()
        self.at(self.spread(0.05), self.link)
        return life

    def crash(self, node: NodeId) -> None:
        self.say("crash", node)
        self.lives.pop(node).end()
        for other in self.nodes:
            if other != node:
                self.unlink(*sorted((node, other)))
        if self.random.random() < 0.5:
            self.disks[node].crash(self.random)
        else:
            self.disks[node].kill()

    # Clients.

    def leader(self, uid: bytes) -> ListMachine | None:
        leading = [life.machines[uid] for life in self.lives.values() if life.machines[uid].leading]
        return self.random.choice(leading) if leading else None

    def write(self, uid: bytes) -> None:
        machine = self.leader(uid)
        if machine is None:
            return
        for _ in range(self.random.choice([1, 1, 2, 8])):
            if machine.live and self.random.random() < 0.5:
                entry = b"kill %d" % self.random.choice(machine.live)
            else:
                size = self.random.choice([0, 10, 300])
                entry = b"add %d %s" % (next(self.entries), b"x" * size)
            machine.say(entry + b" " if entry.startswith(b"add") else entry)
        assert machine.log is not None
        self.end_turn(machine)

    def end_turn(self, machine: ListMachine) -> None:
        assert machine.log is not None
        machine.log._host.end_turn()

    def read(self, uid: bytes) -> None:
        machine = self.leader(uid)
        if machine is None:
            return
        assert machine.log is not None
        floor = machine.book.confirmed_max

        def then(error: Exception | None) -> None:
            if error is None:
                self.reads += 1
                check(machine.index >= floor, machine.name, "reads what was before", floor)
            else:
                assert isinstance(error, NotLeaderError)

        machine.log.read_index(then)
        self.end_turn(machine)

    async def until(self, condition: Callable[[], bool], step_s: float = 0.01) -> None:
        end = trio.current_time() + 120.0
        while not condition():
            check(trio.current_time() < end, "in vain:", condition)
            await trio.sleep(step_s)

    # What must hold in the end.

    async def heal(self) -> None:
        self.say("heal")
        self.cuts.clear()
        self.drop = 0.0
        for node in self.voters:
            if node not in self.lives:
                self.start(node)
        self.link()
        for uid in self.uids:
            await self._agree(uid)

    async def _agree(self, uid: bytes) -> None:
        """A last entry is confirmed, and all have the same list then."""
        book, last = self.books[uid], b"add %d last " % next(self.entries)

        async def confirmed() -> None:
            while last not in book.confirmed:
                machine = self.leader(uid)
                if machine is not None:
                    machine.say(last)
                    self.end_turn(machine)
                await trio.sleep(1.0)

        with trio.move_on_after(120.0):
            await confirmed()
        check(last in book.confirmed, "healed, and nothing can be written")
        machines = [life.machines[uid] for life in self.lives.values()]
        goal = book.confirmed_max
        await self.until(lambda: min(machine.index for machine in machines) >= goal)
        for machine in machines:
            machine.check_live()
        for entry, index in book.confirmed.items():
            check(book.history[index][0] == entry, "confirmed", entry, "at", index, "and lost")
