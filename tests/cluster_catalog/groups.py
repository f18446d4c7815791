"""Raft groups that change their members and leaders at a word, under the eyes of their keepers."""

from broker.cluster.keeper import Keeper
from broker.cluster.members import Members
from queues.raft.config import Change, ConfChangeError, Config, Step
from tests.cluster_catalog.fakes import Cluster

METADATA = b"metadata".ljust(16)


class Group:
    """One group, as all its members see it."""

    def __init__(self, world, uid, members):
        self.world = world
        self.uid = uid
        self.config = Config(tuple(members))
        self.leader = members[0]
        self.steps = []

    def has_quorum(self, config=None):
        alive = [n for n in (config or self.config).voters if n in self.world.alive]
        return len(alive) >= (config or self.config).quorum

    def change(self, step, node, then):
        after = Change(step, node).applied_to(self.config)
        if step is Step.PROMOTE and node not in self.world.alive:
            then(ConfChangeError("has not caught up"))
            return
        assert self.has_quorum(), "a change without a quorum"
        assert self.has_quorum(after), f"{step} {node} would cost {self.uid} its quorum"
        self.config = after
        self.steps.append((step.value, node))
        if self.leader not in after.voters:
            self.leader = None
        self.world.later.append(lambda: then(None))


class Member:
    """What a node has of a group."""

    def __init__(self, group, node):
        self.uid = group.uid
        self._group = group
        self._node = node

    @property
    def leads(self):
        return self._group.leader == self._node and self._group.has_quorum()

    @property
    def config(self):
        return self._group.config

    def transfer(self, to):
        assert to in self._group.config.voters
        if to in self._group.world.alive:
            self._group.leader = to

    def add_learner(self, node, then):
        self._group.change(Step.ADD_LEARNER, node, then)

    def promote(self, node, then):
        self._group.change(Step.PROMOTE, node, then)

    def remove(self, node, then):
        self._group.change(Step.REMOVE, node, then)


class World:
    """Nodes with catalogs, keepers and membership operations; node 1 leads the metadata."""

    def __init__(self, count):
        self.cluster = Cluster(count)
        self.alive = set(self.cluster.nodes)
        self.groups = {METADATA: Group(self, METADATA, sorted(self.cluster.nodes))}
        self.later = []
        self.keepers = {}
        self.members = {}
        for number in self.cluster.nodes:
            self.cluster.start(number)
        self.cluster.elect(1)
        for number in self.cluster.nodes:
            self.cluster.hear_of_leader(number)
        self.cluster.settle()
        for number in self.cluster.nodes:
            self._equip(number)

    def _equip(self, number):
        catalog = self.cluster.nodes[number].catalog
        members = self.members[number] = Members(
            catalog,
            self.cluster.clock,
            metadata_uid=METADATA,
            metadata_config=lambda: self.groups[METADATA].config,
            up=lambda: self.alive - {number},
            leader_of=self.leader_of,
            group_uid=lambda uid, group: uid[:15] + bytes((group,)),
        )
        keeper = self.keepers[number] = Keeper(
            number,
            self.cluster.clock,
            groups=lambda: [Member(group, number) for group in self.groups.values()],
            wish_of=members.wish_of,
            is_up=self.alive.__contains__,
        )
        catalog.on_members.append(keeper.look)

    def leader_of(self, uid):
        group = self.groups.get(uid)
        return group.leader if group is not None and group.has_quorum() else None

    def declare(self, name, members):
        uid = name.encode().ljust(16, b"-")
        place = [None, 0, [list(members)], []]
        change = ["queue", "/", name, uid, False, "quorum", {}, True, None, place]
        self.cluster.nodes[1].catalog.request(change)
        self.groups[uid] = Group(self, uid, members)
        self.cluster.settle()
        return self.groups[uid]

    def kill(self, number):
        """A node that is not the metadata leader dies; its groups find other leaders."""
        self.alive.discard(number)
        for other in list(self.cluster.nodes):
            self.cluster.disconnect(number, other)
        for group in self.groups.values():
            if group.leader == number:
                group.leader = next((n for n in group.config.voters if n in self.alive), None)

    def settle(self, seconds=20):
        for _ in range(seconds * 5):
            self.cluster.settle(3)
            later, self.later = self.later, []
            for act in later:
                act()
            for group in self.groups.values():  # a group without a leader elects one
                if group.leader not in self.alive and group.has_quorum():
                    group.leader = next(n for n in group.config.voters if n in self.alive)
                    self.keepers[group.leader].look()
            self.cluster.clock.advance(200)

    def ask(self, operation, *arguments, by=1, **options):
        answers = []
        getattr(self.members[by], operation)(*arguments, answers.append, **options)
        self.cluster.settle(12)
        return answers[0]

    def placement(self, name):
        return self.cluster.nodes[1].vhost.queues[name].placement
