"""What befalls the cluster: links that break, nodes that die, disks that fail."""

from contextlib import suppress
from random import Random

import trio

from broker.journal import DEFINITIONS_UID
from broker.policies import Policy
from broker.policy_store import change_of
from queues.raft.config import ConfChangeError
from queues.raft.ready import NotLeaderError
from tests.support.simdisk import input_output_error

LETTERS = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
RULES = (None, LETTERS, {"delivery-limit": 50}, {**LETTERS, "max-length": 1_000_000})


def _leads(home, uid: bytes) -> bool:
    storage = home.life.storage if home.life is not None else None
    log = storage.replication.logs.get(uid) if storage is not None else None
    return log is not None and log.leads


class Faults:
    def __init__(self, world) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(64))
        self.flipped = None  # the one node whose disk lies

    async def run(self) -> None:
        world, random = self.world, self.random
        names, weights = list(world.swarm.faults), list(world.swarm.faults.values())
        while not world.finishing:
            await trio.sleep(random.expovariate(1 / world.swarm.fault_s))
            if world.finishing:
                return
            name = random.choices(names, weights)[0]
            world.ledger.counts[name] += 1
            await getattr(self, f"_{name}")()

    async def _nothing(self) -> None:
        await trio.sleep(1.0)

    def _home(self):
        return self.random.choice(list(self.world.homes.values()))

    async def _while(self, seconds: float) -> None:
        await trio.sleep(self.random.expovariate(1 / seconds))

    async def _ambush(self) -> None:
        """Something happens at the worst of moments."""
        random, world = self.random, self.world
        moment = random.choice(world.swarm.moments)
        how = random.choice(world.swarm.ambushes)
        world.armed = (moment, trio.Event(), [])
        with trio.move_on_after(2.0):
            await world.armed[1].wait()
        (_, _, where), world.armed = world.armed, None
        if not where:
            return
        uid = world.uids.get(where[0], DEFINITIONS_UID)
        homes = [home for home in world.homes.values() if _leads(home, uid)] or [self._home()]
        world.say("ambush:", moment, where[0], "→", how, homes[0].name)
        if how == "isolate":
            await self._isolate(homes[0])
            return
        if how == "all":
            homes = list(world.homes.values())
        for home in homes:
            home.crash(power=how != "kill")
        await self._back(*homes)

    # Links

    async def _cut(self, *, one_way: bool = False) -> None:
        if len(self.world.homes) > 1:
            one, other = self.random.sample(list(self.world.homes.values()), 2)
            self.world.say("cut", one.name, other.name, "one way" if one_way else "")
            self.world.net.cut(one.address, other.address, one_way=one_way)
            await self._while(1.5)
            self.heal()

    async def _cut_one_way(self) -> None:
        await self._cut(one_way=True)

    def _cut_off(self, home) -> None:
        for other in self.world.homes.values():
            if other is not home:
                self.world.net.cut(home.address, other.address)

    async def _isolate(self, home=None) -> None:
        home = home or self._home()
        self.world.say("isolate", home.name)
        self._cut_off(home)
        await self._while(2.5)
        self.heal()

    async def _outage(self) -> None:
        """Some nodes are down, or out of the others' sight, for longer than any timer."""
        homes = list(self.world.homes.values())
        some = self.random.sample(homes, self.random.randint(1, max(1, len(homes) - 1)))
        seconds = self.random.choice(self.world.swarm.outages_s)
        cut = not self.world.swarm.calm and self.random.random() < 0.5
        names = "".join(home.name for home in some)
        self.world.say("outage of", names, "for", seconds, "s:", "cut off" if cut else "down")
        for home in some:
            if not cut:
                home.crash(power=self.random.random() < 0.5)
            for other in homes if cut else ():
                if other not in some:
                    self.world.net.cut(home.address, other.address)
        await trio.sleep(seconds)
        self.heal()
        self._start(*some)

    async def _rule(self) -> None:
        """A policy comes or goes."""
        homes = [home for home in self.world.homes.values() if home.up]
        if homes and "q-ruled" in self.world.ledger.books:
            node = self.random.choice(homes).life.node
            vhost = node.vhosts["/"]
            rules = self.random.choice(RULES)
            self.world.say("policy:", rules)
            change: list[object] = ["-policy", vhost.name, "rules"]
            if rules is not None:
                policy = Policy.make("rules", "^q-ruled$", "all", 0, dict(rules))
                change = ["policy", vhost.name, *change_of(policy)]
            vhost.catalog.request(change, lambda _: None)
            node.flush()

    async def _strand(self) -> None:
        """A leader goes on alone for a while, dies, and comes back when others have gone on."""
        name = self.random.choice(list(self.world.uids))
        uid = self.world.uids[name]
        homes = [home for home in self.world.homes.values() if _leads(home, uid)]
        if homes:
            self.world.say("strand", homes[0].name, "which leads", name)
            self._cut_off(homes[0])
            await self._while(0.7)
            homes[0].crash(power=False)
            self.heal()
            await trio.sleep(0.5)
            await self._back(homes[0])

    def heal(self) -> None:
        if self.world.net.cuts:
            self.world.say("heal")
            self.world.net.heal()

    async def _break_link(self) -> None:
        ends = self.world.net.ends[-12:]
        if ends:
            self.world.say("break a connection")
            for end in self.random.choice(ends):
                await trio.aclose_forcefully(end)

    async def _slow(self) -> None:
        net = self.world.net
        before, net.delay_s = net.delay_s, self.random.choice([0.05, 0.3])
        self.world.say("slow:", net.delay_s)
        for end in net.ends[-4:]:
            for one in end:
                await trio.aclose_forcefully(one)
        await self._while(2.0)
        net.delay_s = before

    async def _pause(self) -> None:
        """A process that stands still: neither links nor disk nor timers nor clients go on."""
        home = self._home()
        if not home.up:
            return
        self.world.say("pause", home.life)
        life = home.life
        timers, run = life.node.timers, self.random.choice([0.3, 1.5, 4.0])
        until = timers.now_ms() + int(run * 1000)
        held = [(when, order, timer) for when, order, timer in timers._heap if when < until]
        timers._heap[:] = sorted(
            [(max(when, until), order, timer) for when, order, timer in timers._heap]
        )
        self._cut_off(home)
        await trio.sleep(run)
        self.world.say("go on", life, len(held))
        self.heal()

    # Nodes

    async def _back(self, *homes) -> None:
        await self._while(1.0)
        self._start(*homes)

    def _start(self, *homes) -> None:
        """Those that the end of the run has not started already."""
        for home in homes:
            if home.life is None:
                home.start()

    async def _kill(self, *, power: bool = False) -> None:
        home = self._home()
        self.world.say("power fails at" if power else "kill", home.name)
        home.crash(power=power)
        await self._back(home)

    async def _power(self) -> None:
        await self._kill(power=True)

    async def _kill_all(self) -> None:
        power = self.random.random() < 0.5
        self.world.say("all", "lose power" if power else "are killed")
        homes = list(self.world.homes.values())
        for home in homes:
            home.crash(power=power)
        await self._back(*homes)

    async def _stop(self) -> None:
        home = self._home()
        if home.up:
            self.world.say("stop", home.life)
            await home.life.stop()
            home.crash(power=False)
            await self._back(home)

    async def _transfer_definitions(self) -> None:
        await self._transfer(DEFINITIONS_UID)

    async def _transfer(self, uid: bytes | None = None) -> None:
        """Of some log to another of its voters."""
        homes = [home for home in self.world.homes.values() if home.up]
        led = [
            (home, log)
            for home in homes
            for log in home.life.storage.replication.logs.values()
            if uid in (None, log.uid)
            and log.leads
            and log.config is not None
            and len(log.config.voters) > 1
        ]
        if led:
            home, log = self.random.choice(led)
            others = sorted(set(log.config.voters) - {home.life.storage.me})
            to = self.random.choice(others)
            what = "the definitions" if log.uid == DEFINITIONS_UID else log.uid.hex()[:6]
            self.world.say("hand", what, "over from", home.life, "to", to)
            with suppress(NotLeaderError, ConfChangeError):
                log.transfer(to)
            home.life.node.flush()

    async def _drain(self) -> None:
        """A node is to lead nothing for a while."""
        homes = [home for home in self.world.homes.values() if home.up]
        if homes:
            name, life = self._home().name, self.random.choice(homes).life
            self.world.say("drain", name)
            life.storage.members.drain(name, lambda _: None)
            life.node.flush()
            await self._while(2.0)
            if not life.over:
                life.storage.members.drain(name, lambda _: None, on=False)
                life.node.flush()

    async def _full(self) -> None:
        home = self._home()
        self.world.say("the disk of", home.name, "is full")
        home.disk.capacity_bytes = home.disk.used_bytes()
        await self._while(2.0)
        home.disk.capacity_bytes = 1 << 40

    async def _eio(self) -> None:
        """One operation fails: that ends the node."""
        home = self._home()
        if not home.up:
            return
        left, bad = self.random.randint(1, 20), self.random.choice(["write", "sync", "read"])
        self.world.say("the disk of", home.name, "will fail to", bad)

        def fault(operation: str, name: str) -> None:
            nonlocal left
            left -= operation == bad
            if left <= 0 and operation == bad:
                input_output_error(operation, name)

        home.failing = True
        home.disk.fault = fault
        await trio.sleep(1.0)
        home.crash(power=True)
        await self._back(home)

    async def _wipe(self) -> None:
        """A node loses all that it had, while one that lags behind could be elected by its vote."""
        homes = [home for home in self.world.homes.values() if home.up]
        if self.flipped is not None or len(homes) < 3 or len(homes) < len(self.world.homes):
            return
        lost, behind, *others = self.random.sample(homes, len(homes))
        self.flipped = lost
        behind.crash(power=False)
        await trio.sleep(1.0)
        self.world.say(lost.name, "loses its disk")
        for other in others:
            other.crash(power=False)
        lost.wipe()
        await trio.sleep(0.1)
        self._start(lost, behind)
        await trio.sleep(3.0)
        self._start(*others)

    async def _flip(self) -> None:
        """A bit of a closed file of one node's disk, while it is down."""
        home = self.flipped or self._home()
        if home.wiped:
            return
        names = sorted(n for n in home.disk.list() if n.startswith(("wal-", "seg-")))
        if len(self.world.homes) < 3 or len(names) < 2:
            return
        home.crash(power=False)
        name = self.random.choice(names[:-1])
        size = len(home.disk.content(name).rstrip(b"\0"))
        if size:
            self.flipped = home
            home.flipped = True
            self.world.say("flip a bit of", name, "of", home.name)
            home.disk.flip(name, self.random.randrange(size), self.random.randrange(8))
        await self._back(home)
