"""A group through random lives: nobody shares a partition, and zombies commit nothing."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.stream.group_errors import GroupError
from queues.stream.group_records import Position, Record
from queues.stream.groups import ConsumerGroup, GroupOptions, load_groups
from queues.stream.names import PartitionId

SESSION_MS = 50
RELEASE_MS = 80
STREAMS = {"a": 3, "b": 2}


@dataclass
class Client:
    """A consumer that does as it is told; once `alive` is off, the group should know it no more."""

    member: str
    generation: int
    instance: str
    streams: frozenset
    owned: set = field(default_factory=set)
    leaving: frozenset = frozenset()
    heard_ms: int = 0

    def hear(self, told, now_ms):
        self.generation = told.generation
        self.owned = set(told.assigned | told.leaving)
        self.leaving = told.leaving
        self.heard_ms = now_ms


class GroupLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0
        self.group = ConsumerGroup("g", GroupOptions(SESSION_MS, RELEASE_MS))
        for stream, count in STREAMS.items():
            self.group.set_partitions(stream, count, 0)
        self.clients = []
        self.zombies = []  # copies of clients as they were when they were given up or moved on
        self.records = []
        self.offsets = {}

    def one(self, number):
        return self.clients[number % len(self.clients)]

    def bury(self, client):
        self.clients.remove(client)
        self.zombies.append(client)

    def bury_the_lost(self):
        known = {each.member for each in self.group.members()}
        for client in [each for each in self.clients if each.member not in known]:
            self.bury(client)

    @rule(
        streams=st.frozensets(st.sampled_from(sorted(STREAMS)), min_size=1),
        instance=st.sampled_from(["", "", "i", "j"]),
    )
    @precondition(lambda self: len(self.clients) < 4)
    def join(self, streams, instance):
        before = self.group.generation
        former = [each for each in self.clients if instance and each.instance == instance]
        told = self.group.join("c", streams, self.now, instance=instance)
        for client in former:
            self.bury(client)
            if client.streams == streams:
                assert self.group.generation == before
                assert told.assigned >= client.owned - client.leaving or client.generation < before
        client = Client(told.member, told.generation, instance, streams)
        client.hear(told, self.now)
        self.clients.append(client)

    @rule(number=st.integers(0, 9), release=st.booleans())
    @precondition(lambda self: self.clients)
    def heartbeat(self, number, release):
        client = self.one(number)
        released = client.leaving if release else ()
        client.owned -= set(released)
        told = self.group.heartbeat(client.member, client.generation, self.now, released=released)
        client.hear(told, self.now)

    @rule(number=st.integers(0, 9), streams=st.frozensets(st.sampled_from(sorted(STREAMS))))
    @precondition(lambda self: self.clients)
    def subscribe(self, number, streams):
        client = self.one(number)
        told = self.group.join("c", streams, self.now, member=client.member)
        client.streams = streams
        client.hear(told, self.now)

    @rule(number=st.integers(0, 9))
    @precondition(lambda self: self.clients)
    def leave(self, number):
        client = self.one(number)
        self.group.leave(client.member, self.now)
        self.bury(client)

    @rule(step_ms=st.integers(1, 40))
    def wait(self, step_ms):
        self.now += step_ms
        self.group.tick(self.now)
        self.bury_the_lost()
        assert all(self.now < each.heard_ms + SESSION_MS for each in self.clients)

    @rule(stream=st.sampled_from(sorted(STREAMS)), count=st.integers(1, 4))
    def partition(self, stream, count):
        self.group.set_partitions(stream, count, self.now)

    @rule(number=st.integers(0, 9), offset=st.integers(0, 99))
    @precondition(lambda self: self.clients)
    def commit(self, number, offset):
        client = self.one(number)
        positions = {partition: Position(offset, "m") for partition in client.owned}
        self.group.commit(client.member, client.generation, positions, self.now)
        self.offsets |= dict.fromkeys(client.owned, offset)

    @rule(number=st.integers(0, 9), partition=st.integers(0, 3))
    @precondition(lambda self: self.clients)
    def trespass(self, number, partition):
        client = self.one(number)
        taken = {each for other in self.clients if other is not client for each in other.owned}
        if (partition := PartitionId("a", partition)) in taken:
            with pytest.raises(GroupError):
                self.group.commit(
                    client.member, client.generation, {partition: Position(1000)}, self.now
                )

    @rule(number=st.integers(0, 9))
    @precondition(lambda self: self.zombies)
    def zombie_commit(self, number):
        zombie = self.zombies[number % len(self.zombies)]
        for partition in zombie.owned | {PartitionId("a", 0)}:
            try:
                positions = {partition: Position(1000)}
                self.group.commit(zombie.member, zombie.generation, positions, self.now)
            except GroupError:
                continue
            raise AssertionError(f"{zombie} committed")

    @rule()
    def restart(self):
        """Another coordinator takes over with nothing but the records."""
        self.records += self.group.take_records()
        self.group = load_groups(self.records, GroupOptions(SESSION_MS, RELEASE_MS)).get(
            "g", self.group
        )
        for stream, count in STREAMS.items():
            self.group.set_partitions(stream, count, self.now)
        self.bury_the_lost()

    @invariant()
    def nobody_shares_a_partition(self):
        owners = Counter(partition for each in self.clients for partition in each.owned)
        assert all(count == 1 for count in owners.values()), owners

    @invariant()
    def offsets_are_those_that_were_committed(self):
        assert {p: c.offset for p, c in self.group.offsets.items()} == self.offsets

    @invariant()
    def records_build_the_same_group(self):
        self.records += self.group.take_records()
        latest = dict(self.records)  # as compaction leaves them
        for records in (self.records, latest.items()):
            rebuilt = load_groups(Record(*each) for each in records)
            assert [each for g in rebuilt.values() for each in g.all_records()] == (
                self.group.all_records() if rebuilt else []
            )

    def teardown(self):
        """When everyone does as told, everyone soon has a fair share of all there is."""
        for _ in range(3):
            for client in list(self.clients):
                self.heartbeat(self.clients.index(client), release=True)
        wanted = {stream for each in self.clients for stream in each.streams}
        owned = [partition for each in self.clients for partition in each.owned]
        counts = self.group._partitions
        assert len(owned) == sum(counts[stream] for stream in wanted)


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=120, stateful_step_count=30)
