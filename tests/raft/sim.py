"""Simulation of whole groups in simulated time: one seed is one run, and replays exactly.

python -m tests.raft.sim --seed N        one run with its trace
python -m tests.raft.sim --seeds A-B     many runs, without
"""

import heapq
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from queues.raft.config import Config, Tunables
from queues.raft.core import Raft
from queues.raft.messages import Message
from tests.raft.ledger import Ledger, ViolationError
from tests.raft.links import Links
from tests.raft.member import Member
from tests.raft.operations import Operator

HEAL_S = 30.0  # by then a healed group must agree again
MESSAGES_MAX = 200_000  # of one run; more is a storm of messages that beget each other
BEAT_S = 0.15
TURN_S = 0.002  # mean length of a turn that more than one message has a part in
SUSPECT_S = 1.0
WIDE = {  # a window of one entry is slow; in the end everybody shall have everything
    "append_bytes_max": 10_000,
    "append_entries_max": 256,
    "fetch_bytes_max": 10_000,
    "fetch_entries_max": 1024,
    "window_bytes": 10_000,
}
NEVER = (-10.0, 0)


@dataclass(slots=True)
class Beat:
    """The node's heartbeat: what it says of its place in the group."""

    frm: int
    to: int
    boot: int
    term: int
    leads: bool


@dataclass(slots=True)
class Weather:
    """How bad things are in one run; drawn from the seed."""

    voters: int
    faults_s: float  # how long faults last
    delay_s: float
    drop: float
    double: float
    sync_s: float
    propose_s: float
    fault_s: float  # mean time between crashes, cuts and pauses
    chore_s: float  # mean time between snapshots, transfers and reads
    payload_max: int
    change_s: float  # mean time between changes of members
    links: bool  # connections that break, else datagrams that get lost, doubled and reordered

    @classmethod
    def draw(cls, random: Random) -> "Weather":
        return cls(
            voters=random.choice((1, 2, 3, 3, 3, 3, 5)),
            faults_s=random.choice((6.0, 12.0)),
            delay_s=random.choice((0.001, 0.01, 0.1)),
            drop=random.choice((0.0, 0.02, 0.2)),
            double=random.choice((0.0, 0.05, 0.3)),
            sync_s=random.choice((0.001, 0.02, 0.2)),
            propose_s=random.choice((0.01, 0.05, 0.2)),
            fault_s=random.choice((0.3, 1.0, 4.0)),
            chore_s=random.choice((0.1, 0.5, 5.0)),
            payload_max=random.choice((1, 40, 400)),
            change_s=random.choice((0.2, 1.0, 1e9)),
            links=random.random() < 0.5,
        )


def draw_tunables(random: Random) -> Tunables:
    append_bytes_max = random.choice((1, 100, 10_000))
    # Hundreds of appends under way that all come in another order never get anywhere.
    append_entries_max = random.choice((1, 2, 256))
    largest = 10_000 if append_bytes_max > 1 and append_entries_max > 2 else 300
    window_bytes = random.choice((1, 300, largest))
    return Tunables(
        election_s=random.choice((0.3, 1.0)),
        rank_s=random.choice((0.01, 0.05)),
        heartbeat_s=random.choice((0.05, 0.15)),
        check_beats=random.choice((3, 8)),
        transfer_beats=random.choice((2, 8)),
        snapshot_beats=random.choice((3, 20)),
        hasty_tries=random.choice((0, 5)),
        fetch_bytes_max=random.choice((1, 10_000)),
        fetch_entries_max=random.choice((1, 4)),
        append_bytes_max=append_bytes_max,
        append_entries_max=append_entries_max,
        window_bytes=window_bytes,
        cache_bytes=random.choice((0, 200, 10_000)),
    )


class Simulation:
    def __init__(
        self,
        seed: int,
        core_class: type[Raft] = Raft,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random = Random(seed)
        self.turns = Random(seed)  # which messages share a turn
        self.weather = Weather.draw(random)
        self.trace = trace
        self.now = 0.0
        self.events: list[tuple[float, int, int, Callable[[], None]]] = []
        self.counter = self.messages = 0
        self.ledger = Ledger()
        self.tunables = draw_tunables(random)
        self.core_class = core_class
        self.voters = tuple(range(1, self.weather.voters + 1))
        self.members: dict[int, Member] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.paused_until: dict[int, float] = {}
        self.heard: dict[tuple[int, int], tuple[float, int]] = {}  # a of b: when, which boot
        self.timers: dict[int, float | None] = {}
        self.stormy = True
        self.links = Links(self) if self.weather.links else None
        self.operator = Operator(self)
        for node in self.voters:
            self.add_member(node, Config(self.voters))
        if trace:
            trace(f"seed {seed}: {self.weather} {self.tunables}")

    def add_member(self, node: int, config: Config) -> None:
        member = Member(
            node,
            config,
            self.transmit,
            ledger=self.ledger,
            random=self.random,
            tunables=self.tunables,
            core_class=self.core_class,
        )
        self.members[node] = member
        member.members = self.members
        self.paused_until[node] = 0.0
        self.timers[node] = None
        if self.links is None:
            self.at(self.random.random() * BEAT_S, node, lambda: self.beat(node))

    # Events.

    def at(self, delay: float, node: int, action: Callable[[], None]) -> None:
        self.counter += 1
        heapq.heappush(self.events, (self.now + delay, self.counter, node, action))

    def run_until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            when, _, node, action = heapq.heappop(self.events)
            pause = self.paused_until.get(node, 0.0)
            if pause > when:
                self.counter += 1
                heapq.heappush(self.events, (pause, self.counter, node, action))
                continue
            self.now = when
            action()
            if node:
                self.arm(self.members[node])
        self.now = end

    def arm(self, member: Member) -> None:
        """Plan what the node itself will do next: its timer, its disk, its answers."""
        core = member.core
        if core is None:
            return
        node, boot = member.node, member.boots
        if core.deadline is not None and core.deadline != self.timers[node]:
            self.timers[node] = core.deadline
            delay = max(core.deadline - self.now, 0.0)
            self.at(delay, node, lambda: self.if_same_boot(node, boot, self.timer))
        if member.disk.pending:
            self.at(
                self.spread(self.weather.sync_s),
                node,
                lambda: self.if_same_boot(node, boot, self.sync),
            )
        if member.reads or member.snapshots:
            self.at(self.spread(0.01), node, lambda: self.if_same_boot(node, boot, Member.serve))

    def if_same_boot(self, node: int, boot: int, action: Callable[[Member], None]) -> None:
        member = self.members[node]
        if member.core is not None and member.boots == boot:
            action(member)

    def timer(self, member: Member) -> None:
        self.timers[member.node] = None
        member.tick(self.now)

    def sync(self, member: Member) -> None:
        if member.disk.pending:
            member.sync(self.random.randint(1, len(member.disk.pending)))

    def spread(self, mean: float) -> float:
        return self.random.expovariate(1.0 / mean)

    def say(self, text: str) -> None:
        if self.trace:
            self.trace(f"{self.now:9.4f} {text}")

    # The network.

    def transmit(self, message: Message | Beat) -> None:
        random, weather = self.random, self.weather
        self.messages += 1
        if self.messages > MESSAGES_MAX:
            raise ViolationError("a storm of messages")
        if not isinstance(message, Beat):
            self.say(f"{message.frm}→{message.to} {message}")
        if self.links is not None:
            assert not isinstance(message, Beat)
            self.links.transmit(message)
            return
        if (message.frm, message.to) in self.cuts:
            return
        if self.stormy and random.random() < weather.drop:
            return
        copies = 2 if self.stormy and random.random() < weather.double else 1
        for _ in range(copies):
            self.at(self.spread(weather.delay_s), message.to, lambda: self.arrive(message))

    def arrive(self, message: Message | Beat) -> None:
        member = self.members[message.to]
        if member.core is None:
            return
        if isinstance(message, Beat):
            self.on_beat(member, message)
        else:
            ends_turn = self.turns.random() < 0.5
            member.step(message, self.now, ends_turn=ends_turn)
            if not ends_turn:
                node, boot = member.node, member.boots
                delay = self.turns.expovariate(1.0 / TURN_S)
                self.at(delay, node, lambda: self.if_same_boot(node, boot, Member.end_turn))

    # The node's heartbeat: who lives, who leads.

    def beat(self, node: int) -> None:
        member = self.members[node]
        self.at(BEAT_S, node, lambda: self.beat(node))
        core = member.core
        if core is None:
            return
        for peer in self.members:
            if peer != node:
                self.transmit(Beat(node, peer, member.boots, core.term, member.leads))
                if self.now - self.heard.get((node, peer), NEVER)[0] > SUSPECT_S:
                    member.down.add(peer)
                    core.peer_down(peer, self.now)
                    if core.leader == peer:
                        core.suspect_leader(self.now)
        member.pump()

    def on_beat(self, member: Member, beat: Beat) -> None:
        core = member.core
        assert core is not None
        when, boot = self.heard.get((member.node, beat.frm), NEVER)
        self.heard[member.node, beat.frm] = (self.now, max(boot, beat.boot))
        if beat.boot > boot or self.now - when > SUSPECT_S:
            member.down.discard(beat.frm)
            core.peer_up(beat.frm, self.now)
        demoted = beat.term >= core.term and not beat.leads
        if core.leader == beat.frm and (beat.boot > boot or demoted):
            core.suspect_leader(self.now)
        member.pump()

    # What people and fate do.

    def client(self) -> None:
        self.at(self.spread(self.weather.propose_s), 0, self.client)
        leaders = [member for member in self.members.values() if member.leads]
        if leaders:
            member = self.random.choice(leaders)
            if self.paused_until[member.node] <= self.now:
                self.propose(member)

    def propose(self, member: Member) -> bool:
        size = self.random.randint(0, self.weather.payload_max)
        self.counter += 1
        done = member.propose(b"%d " % self.counter + b"x" * size)
        self.arm(member)
        return done

    def chore(self) -> None:
        self.at(self.spread(self.weather.chore_s), 0, self.chore)
        member = self.random.choice(list(self.members.values()))
        if member.core is None or self.paused_until[member.node] > self.now:
            return
        what = self.random.choice(("compact", "compact", "read", "transfer"))
        if what == "compact":
            member.compact()
        elif what == "read":
            self.counter += 1
            member.read(self.counter)
        elif member.leads and self.stormy and member.core._others():
            to = self.random.choice(member.core._others())
            self.say(f"transfer {member.node} → {to}")
            member.core.transfer(to)
            member.pump()
        self.arm(member)

    def fault(self) -> None:
        if not self.stormy:
            return
        random = self.random
        self.at(self.spread(self.weather.fault_s), 0, self.fault)
        node = random.choice(list(self.members))
        what = random.choice(("crash", "pause", "cut", "cut", "mend"))
        self.say(f"{what} {node}")
        if what == "crash":
            self.crash(node)
        elif what == "pause":
            self.paused_until[node] = self.now + self.spread(0.7)
            if self.links is not None:
                self.links.paused(node)
        elif what == "cut":
            other = random.choice(list(self.members))
            self.cuts |= (
                {(node, other), (other, node)} if random.random() < 0.5 else {(node, other)}
            )
            if self.links is not None:
                self.links.cut(node, other)
        else:
            self.cuts.clear()

    def crash(self, node: int) -> None:
        if self.members[node].core is not None:
            self.members[node].crash()
            if self.links is not None:
                self.links.stopped(node)
            self.at(self.spread(0.5), 0, lambda: self.restart(node))

    def restart(self, node: int) -> None:
        member = self.members[node]
        if member.core is None and node not in self.operator.lost:
            self.say(f"restart {node}: {member.disk.durable.hard} last {member.disk.durable.last}")
            self.timers[node] = None
            if self.links is not None:
                self.links.started(node)
            member.start(self.now)
            self.arm(member)

    # One run.

    def run(self) -> "Simulation":
        for node in self.members:
            self.restart(node)
        if self.random.random() < 0.5:
            self.members[1].campaign(self.now)
            self.arm(self.members[1])
        if self.links is not None:
            self.links.connect()
        self.at(self.spread(self.weather.change_s), 0, self.operator.work)
        self.at(0.0, 0, self.client)
        self.at(self.spread(self.weather.fault_s), 0, self.fault)
        self.at(self.spread(self.weather.chore_s), 0, self.chore)
        self.run_until(self.weather.faults_s)
        self.heal()
        end = self.now + HEAL_S
        while self.now < end and not self.agrees():
            self.run_until(self.now + 0.5)
        if not self.agrees():
            raise ViolationError("healed, and still no agreement")
        self.check_confirmed()
        return self

    def heal(self) -> None:
        self.say("heal")
        self.stormy = False
        self.cuts.clear()
        self.paused_until = dict.fromkeys(self.paused_until, 0.0)
        self.weather.propose_s = max(self.weather.propose_s, 0.5)
        self.weather.delay_s = min(self.weather.delay_s, 0.01)
        self.goal = self.ledger.confirmed_max
        for member in self.members.values():
            self.restart(member.node)
            member.tunables = replace(member.tunables, **WIDE)
            if member.core is not None:
                member.core.tunables = member.tunables

    def agrees(self) -> bool:
        """All living members have applied something that was confirmed after the storm."""
        leaders = [member.core for member in self.members.values() if member.core and member.leads]
        if not leaders or self.ledger.confirmed_max <= self.goal:
            return False
        config = max(leaders, key=lambda core: core.term).config
        nodes = {*config.voters, *config.learners} - self.operator.lost
        return min(self.members[node].state[0] for node in nodes) > self.goal

    def check_confirmed(self) -> None:
        for index, term in self.ledger.confirmed.items():
            if self.ledger.applied[index][0] != term:
                raise ViolationError(f"confirmed ({index}, {term}) did not survive")


def soak(first: int, last: int, core_class: type[Raft] = Raft) -> None:
    for seed in range(first, last + 1):
        try:
            Simulation(seed, core_class).run()
        except AssertionError as error:
            sys.stdout.write(f"seed {seed}: {error!r}\n")
            raise
        if seed % 100 == 0:
            sys.stdout.write(f"seed {seed} done\n")
            sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", metavar="A-B")
    args = parser.parse_args()
    if args.seed is not None:
        Simulation(args.seed, trace=lambda line: sys.stdout.write(line + "\n")).run()
    else:
        first, last = (args.seeds or "1-1000").split("-")
        soak(int(first), int(last))


if __name__ == "__main__":
    main()
