"""A node of the simulated cluster: its disk lasts, its lives begin and end."""

from random import Random
from typing import TYPE_CHECKING

import trio

from broker.cluster.cluster import Cluster
from broker.cluster.cluster_storage import ClusterStorage
from broker.cluster_settings import Address, ClusterMember
from broker.config import Config
from broker.node import Node
from broker.startup import DiskFailedError, StartupError
from queues.storage.reclaim import Reclaimer
from tests.cluster_simulation.ledger import check
from tests.support.internal_errors import let_out
from tests.support.simdisk import SimDisk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster_simulation.world import World

EPOCH_MS = 1_700_000_000_000.0
SPACE_CHECK_S = 1.0
GRACE_S = 2.0
PORT = 1


class Life:
    """From a start to a stop or a crash. Once `over`, nobody hears of it any more."""

    def __init__(self, home: "Home") -> None:
        self.home = home
        self.world = home.world
        self.number = home.lives
        self.over = False
        self.died_at = float("inf")
        self.serving = False  # clients may come
        self.clients: list = []  # connections to it
        self.scope = trio.CancelScope()
        self.storage: ClusterStorage | None = None
        self._random = Random(self.world.random.getrandbits(64))
        self._wake = trio.Event()

    def __repr__(self) -> str:
        return f"{self.home.name}.{self.number}"

    async def run(self) -> None:
        try:
            with self.scope:
                await self._live()
        except* DiskFailedError:
            check(self.home.failing or self.over, self, "the disk failed, of itself")
        except* StartupError as error:
            check(self.home.flipped, self, "does not start:", error.exceptions)
            self.world.say(self, "does not start")
            self.home.out = True
        self.world.say(self, "is over")
        self.end()

    async def _live(self) -> None:
        home, world = self.home, self.world
        self.node = Node(home.config())
        let_out(self.node.errors)
        self.node.timers._epoch_ms = EPOCH_MS + home.clock_off_ms
        async with trio.open_nursery() as self.nursery:
            self.nursery.start_soon(self.node.timers.run, self.node.flush)
            self.cluster = Cluster(
                self.node,
                network=world.net.of(home.address),
                off_loop=self._later,
                random=Random(self._random.getrandbits(64)),
                make_storage=self._make_storage,
            )
            await self.nursery.start(self.cluster.peers.run)
            storage = await self.cluster.join()
            self.nursery.start_soon(self._write)
            await self.nursery.start(storage.run)
            await self.cluster.start(f"{home.name}:5672", f"{home.name}:15672")
            self.world.say(self, "serves, as node", self.cluster.peers.me)
            check(not home.wiped, self, "is let in though it has forgotten everything")
            self.serving = True
            await trio.sleep_forever()

    def _make_storage(self, node, peers, *, founder):
        storage = ClusterStorage(
            node,
            peers,
            founder=founder,
            disk=self.home.disk,
            threaded=False,
            options=self.world.swarm.options,
        )
        storage.replication.random = Random(self._random.getrandbits(64))
        storage.host.off_loop = self._later
        storage._budget.limit = self.world.swarm.hot_bytes
        use = storage.host.use

        def watch(store):
            submit = store.submit

            def submit_and_wake(batch):
                number = submit(batch)
                self._wake.set()
                return number

            store.submit = submit_and_wake
            use(store)
            self._reclaimer = Reclaimer(store)

        storage.host.use = watch
        self.storage = storage
        return storage

    async def _later(self, work):
        await trio.sleep(self._random.expovariate(1 / self.world.swarm.read_s))
        if self.over:
            await trio.sleep_forever()
        with self.world.turns.aside():
            return work()

    async def _write(self) -> None:
        """What the store's own threads do in a real node."""
        store = self.storage.host.store
        while True:
            with trio.move_on_after(SPACE_CHECK_S) as waited:
                await self._wake.wait()
            self._wake = trio.Event()
            await trio.sleep(self._random.expovariate(1 / self.world.swarm.sync_s))
            if self.over or store.failed:
                return
            if self._random.random() < 0.3:
                for _ in range(20):
                    self._reclaimer.step()
            if waited.cancelled_caught:
                store.check_space()
            store.flush()

    # Its end

    def end(self) -> None:
        """Nothing that it would still do is done."""
        if self.over:
            return
        self.over = True
        self.serving = False
        self.died_at = trio.current_time()
        for client in list(self.clients):
            client.lost()
        if hasattr(self, "node"):
            self.node.others = self.node.host = None
        if self.storage is not None:
            host = self.storage.host
            host.failure = host.failure or RuntimeError("this life is over")
            host._submits.clear()
        self.scope.cancel()
        self.home.life = None

    async def stop(self) -> None:
        """In good order, as the server does it: clients are dropped, and hear of it soon after."""
        self.serving = False
        self.died_at = trio.current_time()
        self.node.stopping = True
        for client in list(self.clients):
            await client.connection.shut_down()
        with trio.move_on_after(GRACE_S):
            while self.clients and not self.over:  # noqa: ASYNC110 - of two kinds
                await trio.sleep(0.05)
        if self.storage is not None and not self.over:
            await self.storage.close()
        self.end()


class Home:
    """What a node's lives share."""

    def __init__(self, world: "World", name: str, directory: "Path") -> None:
        self.world = world
        self.name = name
        self.address = f"{name}:{PORT}"
        self.directory = directory
        self.disk = SimDisk()
        self.life: Life | None = None
        self.lives = 0
        self.failing = False  # the disk is about to fail
        self.flipped = False  # a bit of it is not what it was
        self.wiped = False  # it lost all that it had, and is a stranger now
        self.out = False  # it takes no part any more
        self.clock_off_ms = world.random.choice([0, 0, -400, 500])
        directory.mkdir()

    def config(self) -> Config:
        members = tuple(ClusterMember(n, Address(n, PORT)) for n in self.world.names)
        return Config(
            data_dir=self.directory,
            node_name=self.name,
            cluster=members,
            cluster_secret="hares sleep with open eyes",
            memory_limit=1 << 30,
            disk_free_bytes_min=0,
        )

    def wipe(self) -> None:
        """Another disk, with nothing on it."""
        self.crash(power=False)
        self.disk = SimDisk()
        for path in self.directory.iterdir():
            if path.is_file():
                path.unlink()
        self.wiped = self.out = True

    @property
    def up(self) -> bool:
        return self.life is not None and self.life.serving

    def start(self) -> None:
        assert self.life is None
        if self.out and not self.wiped:
            return
        self.lives += 1
        self.life = Life(self)
        self.world.say("start", self.life)
        self.world.nursery.start_soon(self.life.run)

    def crash(self, *, power: bool) -> None:
        """The process dies; with `power`, what was not synced may be lost."""
        if self.life is not None:
            self.life.end()
        if power:
            self.disk.crash(self.world.random)
        else:
            self.disk.kill()
        self.failing = False
