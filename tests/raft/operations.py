"""What an operator does to a group: adds nodes, promotes and removes them, loses one for good."""

from typing import TYPE_CHECKING

from queues.raft.config import Change, Config, Step
from tests.raft.member import Member

if TYPE_CHECKING:
    from tests.raft.sim import Simulation

MEMBERS_MAX = 6
NODES_MAX = 12  # ever, of one run: numbers are not used twice


class Operator:
    """Careful in one thing only: it never leaves a group without a majority of living voters."""

    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        self.lost: set[int] = set()
        self.leaders_removed = 0

    def work(self) -> None:
        sim = self.sim
        if not sim.stormy:
            return
        sim.at(sim.spread(sim.weather.change_s), 0, self.work)
        leaders = [member for member in sim.members.values() if member.leads]
        if leaders:
            leader = sim.random.choice(leaders)
            if sim.paused_until[leader.node] <= sim.now:
                often = (self.add, self.promote, self.remove)
                what = sim.random.choice((*often, *often, self.lose))
                what(leader)
                sim.arm(leader)

    def add(self, leader: Member) -> None:
        assert leader.core is not None
        sim, config = self.sim, leader.core.config
        if (
            len(config.voters) + len(config.learners) >= MEMBERS_MAX
            or len(sim.members) >= NODES_MAX
        ):
            return
        node = max(sim.members) + 1
        known = sim.random.choice((sim.voters, config.voters))  # by whatever it was told
        sim.add_member(node, Config(known))
        sim.restart(node)
        self.change(leader, Step.ADD_LEARNER, node)

    def promote(self, leader: Member) -> None:
        assert leader.core is not None
        learners = [node for node in leader.core.config.learners if node not in self.lost]
        if learners:
            self.change(leader, Step.PROMOTE, self.sim.random.choice(learners))

    def remove(self, leader: Member) -> None:
        assert leader.core is not None
        config = leader.core.config
        node = self.sim.random.choice((*config.voters, *config.learners))
        if self.would_live({*config.voters} - {node}, self.lost):
            self.change(leader, Step.REMOVE, node)

    def would_live(self, voters: set[int], lost: set[int]) -> bool:
        return bool(voters) and len(voters - lost) > len(voters) // 2

    def lose(self, leader: Member) -> None:
        """Its disk is gone; whoever takes its place comes under a new number, by `add`."""
        core = leader.core
        assert core is not None
        newest = max(member.core.term for member in self.sim.members.values() if member.core)
        if core.term < newest or core._change_under_way() or core.commit < core._term_start:
            return
        config = core.config
        node = self.sim.random.choice(config.voters)
        if not self.would_live({*config.voters}, {*self.lost, node}):
            return
        self.sim.say(f"lose {node}")
        self.lost.add(node)
        self.sim.crash(node)

    def change(self, leader: Member, step: Step, node: int) -> None:
        if leader.propose_conf(Change(step, node)):
            self.sim.say(f"{leader.node}: {step.value} {node}")
            self.leaders_removed += step is Step.REMOVE and node == leader.node
