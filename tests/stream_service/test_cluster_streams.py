"""Streams on logs that several nodes have: published anywhere, stored once, read everywhere."""

from types import SimpleNamespace

import pytest

from broker.protocol.chunk import Producer
from broker.streams.host import Streams, partition_uid
from queues.stream.arguments import parse_stream_options
from queues.stream.forwarding import encode_on_disk
from queues.stream.participant import TransactionKey, Vote, WriterRows
from queues.stream.staged_rows import Lost
from queues.stream.stream import Stream
from tests.stream.scene import messages
from tests.stream_service.shared_log import Clock, SharedLog
from tests.support.simdisk import SimDisk

STREAM_UID = b"s" * 16
UID = partition_uid(STREAM_UID, 0)


class Receipt:
    def __init__(self):
        self.refused = None

    def stored(self, refused):
        assert self.refused is None, "told twice"
        self.refused = refused


class Node:
    """To its streams it is their `Replication`."""

    def __init__(self, world, number):
        self.world = world
        self.node = number
        self.boot = 1
        self.watchers = []
        self.relieved = 0
        self.host = SimpleNamespace(crowded=set(), overloaded=False, relieve=self.relieve)
        directories = SimpleNamespace(disk=lambda _: SimDisk())
        self.streams = Streams(self.host, world.clock, lambda: None, directories, None)
        self.streams.replication = self
        options = parse_stream_options({"x-queue-type": "stream"})
        self.stream = Stream("s", world.clock, options, arguments={})
        self.stream.uid = STREAM_UID
        self.streams.make(self.stream)

    @property
    def partition(self):
        return self.stream.partitions[0]

    def relieve(self):
        self.relieved += 1

    def join(self, stream, number, uid, make):
        assert (number, uid) == (0, UID)
        log = self.world.log
        log.machines[self.node] = make(log.member(self.node))

    def entries(self, log, indexes):
        return [(index, self.world.log.entries[index - 1]) for index in indexes]

    def leader_of(self, uid):
        assert uid == UID
        return self.world.log.leader

    def watch(self, uid, watcher):
        self.watchers.append(watcher)

    def unwatch(self, uid, watcher):
        self.watchers.remove(watcher)

    def forget(self, uid):
        assert not self.watchers

    def forward(self, uid, node, body, then):
        self.world.mail.append((node, uid, body, then))

    def publish(self, *bodies):
        receipt = Receipt()
        self.stream.publish(messages(*bodies, exchange="", key="s"), receipt)
        return receipt

    def values(self):
        answers = []
        self.partition.reader.read(0, 1 << 30, answers.append)
        return [record.value for chunk in answers[0].chunks for record in chunk]


class World:
    def __init__(self):
        self.clock = Clock()
        self.log = SharedLog()
        self.mail = []
        self.nodes = [Node(self, number) for number in (1, 2, 3)]

    def elect(self, number):
        self.log.elect(number)
        self.tell(number)

    def depose(self, **how):
        self.log.depose(**how)
        self.tell(None)

    def tell(self, leader):
        for node in self.nodes:
            for watcher in list(node.watchers):
                watcher(leader)

    def flush(self):
        for node in self.nodes:
            node.streams.flush()

    def deliver(self):
        mail, self.mail = self.mail, []
        for number, uid, body, then in mail:
            self.nodes[number - 1].streams.handle_forwarded(uid, body, then)

    def settle(self):
        moving = True
        while moving:
            self.flush()
            moving = bool(self.mail)
            self.deliver()
            moving |= self.log.leader is not None and self.log.commit()


@pytest.fixture
def world():
    return World()


def test_what_is_published_anywhere_is_read_everywhere(world):
    world.elect(1)
    receipts = [node.publish(b"%d" % node.node) for node in world.nodes]
    assert [each.refused for each in receipts] == [None] * 3
    world.settle()
    assert [each.refused for each in receipts] == [[]] * 3
    found = [node.values() for node in world.nodes]
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == [b"1", b"2", b"3"]


def test_what_was_on_its_way_when_the_leader_went_is_stored_once(world):
    world.elect(1)
    local, remote = world.nodes[0].publish(b"here"), world.nodes[1].publish(b"there")
    world.flush()
    world.deliver()
    world.log.propose()
    assert len(world.log.proposed) == 2
    world.depose(survives=1)
    world.elect(2)
    world.settle()
    assert (local.refused, remote.refused) == ([], [])
    for node in world.nodes:
        assert sorted(node.values()) == [b"here", b"there"]


def test_what_waits_for_a_leader_goes_to_it_in_order(world):
    first, second = world.nodes[2].publish(b"1"), world.nodes[2].publish(b"2")
    world.settle()
    assert first.refused is None
    world.elect(3)
    world.settle()
    assert (first.refused, second.refused) == ([], [])
    assert world.nodes[0].values() == [b"1", b"2"]


def test_publishes_are_nacked_when_nobody_will_lead(world):
    receipt = world.nodes[1].publish(b"1")
    world.nodes[1].streams.refuse(UID)
    assert len(receipt.refused) == 1
    world.elect(1)
    late = world.nodes[1].publish(b"2")
    world.settle()
    assert late.refused == []
    assert world.nodes[2].values() == [b"2"]


def test_too_much_without_a_leader_holds_publishers_back(world, monkeypatch):
    monkeypatch.setattr("queues.stream.outgoing.OUTGOING_BYTES_MAX", 1000)
    node = world.nodes[1]
    node.publish(bytes(2000))
    assert len(node.host.crowded) == 1
    world.elect(1)
    world.settle()
    assert node.relieved
    assert not node.host.crowded


def test_much_for_all_partitions_of_a_node_together_holds_publishers_back_too(world):
    node = world.nodes[1]
    node.streams._outgoing_budget.limit = 1000
    node.publish(bytes(2000))
    assert len(node.host.crowded) == 1
    world.elect(1)
    world.settle()
    assert not node.host.crowded
    assert node.streams._outgoing_budget.used == 0


def test_an_answer_that_never_comes_is_asked_for_again(world):
    world.elect(1)
    receipt = world.nodes[1].publish(b"1")
    world.flush()
    ((_, _, _, then),) = world.mail
    world.mail.clear()
    then(None)
    world.settle()
    assert receipt.refused is None, "it waits for news, or for a while"
    world.nodes[1].streams._tick()
    world.settle()
    assert receipt.refused == []
    assert world.nodes[0].values() == [b"1"]


def test_rows_are_staged_where_the_partition_leads(world):
    world.elect(1)
    key, answers = TransactionKey("p", 1, 1), []
    world.nodes[1].partition.staged.prepare(1, key, (WriterRows("w", 0),), answers.append)
    world.settle()
    assert answers == [Vote.YES]
    assert [node.partition.staged.held for node in world.nodes] == [[1]] * 3
    world.depose()
    world.nodes[1].partition.staged.prepare(2, key, (WriterRows("w", 0),), answers.append)
    assert answers[1:] == [Lost.LOST]


def test_a_deleted_stream_answers_whoever_waits(world):
    receipt = world.nodes[1].publish(b"1")
    world.nodes[1].stream._context = SimpleNamespace(when_durable=lambda action: None)
    world.log.machines[2]._log.delete = lambda: None
    world.nodes[1].stream.delete()
    assert receipt.refused == []
    assert world.nodes[1].watchers == []
    answers = []
    world.nodes[1].streams.handle_forwarded(UID, b"\1", answers.append)
    assert len(answers) == 1


@pytest.fixture
def hasty(world):
    """Confirms come when the leader has it on its disk."""
    for node in world.nodes:
        options = parse_stream_options({"x-queue-type": "stream", "x-acks": "1"})
        node.stream.configure(options)
    world.elect(1)
    return world


@pytest.mark.parametrize("place", [0, 1], ids=["at the leader", "elsewhere"])
def test_what_the_leader_has_on_its_disk_is_confirmed_if_that_is_enough(hasty, place):
    node = hasty.nodes[place]
    first = node.publish(b"1")
    hasty.flush()
    hasty.deliver()
    hasty.log.propose()
    assert first.refused is None
    hasty.nodes[0].partition.on_disk(0)
    assert first.refused is None, "it is not on its disk"
    hasty.nodes[0].partition.on_disk(1)
    assert first.refused == []
    second = node.publish(b"2")
    hasty.settle()
    assert second.refused == []
    assert [each.values() for each in hasty.nodes] == [[b"1", b"2"]] * 3


def test_what_was_confirmed_early_is_still_stored_while_its_node_lives(hasty):
    receipt = hasty.nodes[1].publish(b"1")
    hasty.flush()
    hasty.deliver()
    hasty.log.propose()
    hasty.nodes[0].partition.on_disk(1)
    assert receipt.refused == []
    hasty.depose(survives=0)
    hasty.elect(3)
    hasty.settle()
    assert hasty.nodes[0].values() == [b"1"], "once"
    assert receipt.refused == []


def test_a_majority_is_needed_unless_the_stream_says_otherwise(world):
    world.elect(1)
    receipt = world.nodes[1].publish(b"1")
    world.flush()
    world.deliver()
    world.log.propose()
    world.nodes[0].partition.on_disk(1)
    assert receipt.refused is None


def test_nobody_waits_for_the_disk_of_a_leader_that_is_none(hasty):
    answers = []
    producer = Producer(1, 2, 3)
    hasty.nodes[0].partition.when_on_disk(producer, answers.append)
    hasty.depose()
    hasty.nodes[0].partition.when_on_disk(producer, answers.append)
    hasty.nodes[0].streams.handle_forwarded(b"x" * 16, encode_on_disk(producer), answers.append)
    assert answers == [None, None, b"\0"]


def test_a_replica_says_when_it_has_what_its_leader_has(world):
    world.elect(1)
    world.nodes[0].publish(b"1")
    world.settle()
    acted = []
    world.nodes[0].stream.when_current([0], lambda: acted.append("leader"))
    assert acted == ["leader"], "at once"
    behind = world.nodes[1]
    world.log.propose()
    behind.partition.next_offset -= 1  # as if it had not applied the last record
    behind.stream.when_current([0], lambda: acted.append("behind"))
    world.deliver()
    assert acted == ["leader"]
    behind.partition.next_offset += 1
    behind.partition._holder.advanced()
    assert acted == ["leader", "behind"]


def test_nobody_waits_for_ever_for_a_leader_that_does_not_answer(world):
    world.elect(1)
    acted = []
    world.nodes[1].stream.when_current([0], lambda: acted.append(1))
    assert acted == []
    world.clock.pass_by(2000)
    assert acted == [1]
