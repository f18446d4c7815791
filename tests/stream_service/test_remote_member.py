"""AMQP consumers in groups that another node has: they read, commit, and outlive its loss."""

import pytest

from broker.streams.remote_groups import RemoteGroups
from broker.streams.routed_service import RoutedService
from queues.consumers import Consumer
from queues.stream.names import OFFSETS_STREAM
from queues.stream.wishes import Edge, ReaderWishes
from tests.stream.scene import Sink
from tests.stream_service.shared_log import VHOST, Cluster
from tests.stream_service.test_replicated import Local, Routes, fetch_offset, join


class Scene:
    def __init__(self):
        self.cluster = cluster = Cluster("s")
        for log in ("s", OFFSETS_STREAM, "transactions"):
            cluster.elect(log, "a")
        services = {}
        self.groups = {}
        for node in cluster.names:
            routes = Routes(cluster, node, services)
            services[node] = RoutedService(Local(cluster, node), routes)
            book = cluster.groups[node].books[VHOST]
            self.groups[node] = RemoteGroups(VHOST, services[node], cluster.clock, book)
            book.on_moved = self.moved

    def moved(self, group):
        """As the node that has the groups tells the others."""
        for groups in self.groups.values():
            self.cluster.clock.call_at(0, lambda each=groups: each.look(group))

    def publish(self, *values):
        leader = self.cluster.logs["s"].leader
        partition = self.cluster.partition(leader, "s")
        partition.append([None] * len(values), values, [b""] * len(values), None)
        self.cluster.settle()

    def consume(self, node, instance="", tag="c", then=lambda _: None):
        stream = self.cluster.vhosts[node].queues["s"]
        consumer = Consumer(tag, stream, Sink(), prefetch=100)
        wishes = ReaderWishes(Edge.FIRST, (0,), None)
        self.groups[node].consume(stream, consumer, wishes, "g", instance, then)
        stream.start_consumer(consumer)
        self.cluster.settle()
        return consumer

    def ack(self, consumer, count):
        places = consumer.sink.unacked[:count]
        del consumer.sink.unacked[:count]
        consumer.release(len(places))
        consumer.queue.settle(consumer, places)

    def wait(self, milliseconds=3000):
        for _ in range(milliseconds // 100):
            self.cluster.clock.pass_by(100)
            self.cluster.settle()

    def move(self, to):
        self.cluster.logs[OFFSETS_STREAM].depose()
        self.cluster.elect(OFFSETS_STREAM, to)

    def committed(self):
        leader = self.cluster.logs[OFFSETS_STREAM].leader
        return [each.offset for each in fetch_offset(self.cluster, leader).only.offsets]


@pytest.fixture
def scene():
    return Scene()


def values(consumer):
    return [value for _, _, value in consumer.sink.got]


def test_a_consumer_of_another_node_reads_and_commits_what_it_acks(scene):
    scene.publish(b"1", b"2", b"3")
    consumer = scene.consume("b")
    assert values(consumer) == [b"1", b"2", b"3"]
    assert scene.committed() == [0], "where it began"
    scene.ack(consumer, 2)
    scene.wait()
    assert scene.committed() == [2]


def test_it_goes_on_when_another_node_has_the_groups(scene):
    scene.publish(b"1", b"2")
    consumer = scene.consume("b")
    scene.ack(consumer, 2)
    scene.wait()
    scene.move(to="c")
    scene.wait()
    scene.publish(b"3")
    assert values(consumer) == [b"1", b"2", b"3"]
    scene.ack(consumer, 1)
    scene.wait()
    assert scene.committed() == [3]
    assert not consumer.sink.cancelled


def test_what_it_had_not_acked_comes_again_after_it_joined_anew(scene):
    scene.publish(b"1", b"2")
    consumer = scene.consume("b")
    scene.ack(consumer, 1)
    scene.wait()
    scene.move(to="c")
    scene.wait()
    assert values(consumer) == [b"1", b"2", b"2"]


def test_two_nodes_never_read_a_partition_at_once_and_the_next_begins_where_one_left(scene):
    scene.publish(b"1", b"2")
    first = scene.consume("b")
    second = scene.consume("c", tag="d")
    assert values(second) == []
    scene.ack(first, 1)
    scene.wait()
    first.queue.remove_consumer(first)
    scene.cluster.settle()
    scene.wait()
    assert values(second) == [b"2"]


def test_a_partition_that_moves_is_let_go_of(scene):
    scene.publish(b"1")
    consumer = scene.consume("b")
    scene.ack(consumer, 1)
    scene.wait()
    book = scene.cluster.groups["a"].books[VHOST]
    group = book.groups["g"]
    (member,) = group.members()
    told = join(scene.cluster, "a")
    scene.cluster.settle()
    group.leave(member.member, scene.cluster.clock.now_ms())
    book.changed(group)
    scene.cluster.settle()
    assert told.only.member in {each.member for each in group.members()}
    scene.wait()
    assert len(group.members()) == 2, "it joined anew, and waits"
    scene.publish(b"2")
    scene.wait()
    assert b"2" not in values(consumer)


def test_without_a_word_from_its_group_it_stops_before_another_may_begin(scene):
    scene.publish(b"1")
    consumer = scene.consume("b")
    scene.ack(consumer, 1)
    scene.wait()
    scene.cluster.logs[OFFSETS_STREAM].depose()
    scene.publish(b"2")
    scene.wait()
    assert values(consumer) == [b"1", b"2"], "nobody else can have it yet"
    scene.wait(60_000)
    scene.publish(b"3")
    assert values(consumer) == [b"1", b"2"]
    scene.cluster.elect(OFFSETS_STREAM, "c")
    scene.wait()
    assert values(consumer)[2:] == [b"2", b"3"], "from where it had committed"


def test_a_consumer_that_leaves_while_it_joins_is_no_member(scene):
    stream = scene.cluster.vhosts["b"].queues["s"]
    consumer = Consumer("c", stream, Sink(), prefetch=100)
    wishes, answers = ReaderWishes(Edge.FIRST, (0,), None), []
    scene.groups["b"].consume(stream, consumer, wishes, "g", "", answers.append)
    stream.remove_consumer(consumer)
    scene.wait()
    assert scene.cluster.groups["a"].books[VHOST].groups["g"].members() == []
    assert len(answers) == 1


def test_one_that_comes_begins_as_soon_as_the_other_has_acked(scene):
    """The partition moves; what was acked of it is committed before."""
    scene.publish(b"1", b"2", b"3")
    first = scene.consume("b")
    second = scene.consume("c", tag="d")
    group = scene.cluster.groups["a"].books[VHOST].groups["g"]
    holder = next(each.member for each in group.members() if each.assigned)
    scene.ack(first, 2)
    group.leave(holder, scene.cluster.clock.now_ms())
    scene.cluster.groups["a"].books[VHOST].changed(group)
    scene.wait(200)
    assert values(second)[-1:] == [b"3"]
    assert second.sink.redelivered[-1:] == [True]


def test_consume_is_answered_when_it_has_its_share(scene):
    answers = []
    scene.publish(b"1")
    scene.consume("b", then=answers.append)
    assert answers == [None]
    scene.cluster.logs[OFFSETS_STREAM].depose()
    scene.consume("c", tag="d", then=answers.append)
    assert answers == [None], "nobody has the groups"
    scene.wait()
    assert answers == [None, None], "it waits no longer, and joins when it can"


def test_a_partition_that_was_handed_over_is_not_said_to_be_delivered_again(scene):
    scene.publish(b"1", b"2")
    first = scene.consume("b")
    scene.ack(first, 2)
    first.queue.remove_consumer(first)
    scene.cluster.settle()
    scene.publish(b"3")
    second = scene.consume("c", tag="d")
    assert values(second) == [b"3"]
    assert second.sink.redelivered == [False]
    second.queue.remove_consumer(second)
    scene.cluster.settle()
    third = scene.consume("b", tag="e")
    assert values(third) == [b"3"]
    assert third.sink.redelivered == [True]


def test_nothing_is_committed_of_a_stream_that_is_deleted(scene):
    scene.publish(b"1", b"2")
    consumer = scene.consume("b")
    scene.ack(consumer, 2)
    stream = scene.cluster.vhosts["b"].queues["s"]
    stream.deleted = True
    stream.dismiss(consumer)
    scene.wait()
    assert scene.committed() == [0], "a stream of its name would begin elsewhere"
    assert scene.cluster.groups["a"].books[VHOST].groups["g"].members() == []


def test_without_a_word_from_its_group_for_some_beats_it_pauses(scene):
    """Whoever has the groups next may give its partition to another at once."""
    scene.publish(b"1")
    consumer = scene.consume("b")
    scene.ack(consumer, 1)
    scene.wait()
    scene.cluster.logs[OFFSETS_STREAM].depose()
    scene.wait(5000)
    scene.publish(b"2")
    assert values(consumer) == [b"1"]
    scene.cluster.elect(OFFSETS_STREAM, "c")
    scene.wait()
    assert values(consumer) == [b"1", b"2"]


def test_it_goes_on_where_it_paused_if_nothing_has_moved(scene):
    scene.publish(b"1", b"2")
    consumer = scene.consume("b")
    scene.ack(consumer, 1)
    scene.wait()
    routes = scene.groups["b"]._service._routes
    found, routes.leader_of = routes.leader_of, lambda _: None  # its node is cut off
    scene.wait(5000)
    scene.publish(b"3")
    assert values(consumer) == [b"1", b"2"]
    routes.leader_of = found
    scene.wait()
    assert values(consumer) == [b"1", b"2", b"3"], "what it holds unacked does not come again"


def test_what_a_lost_holder_may_have_had_is_flagged_though_this_replica_lags(scene):
    scene.publish(b"1")
    first = scene.consume("b")
    log = scene.cluster.logs["s"]
    log.late["c"] = []
    scene.publish(b"2", b"3")
    assert values(first) == [b"1", b"2", b"3"]
    stream = scene.cluster.vhosts["c"].queues["s"]
    stream.partitions[0].ask_end = lambda then: then(scene.cluster.partition("a", "s").next_offset)
    scene.groups["b"]._service._routes.leader_of = lambda _: None  # its node is cut off
    second = scene.consume("c", tag="d")
    group = scene.cluster.groups["a"].books[VHOST].groups["g"]
    while not next(each.assigned for each in group.members() if each.member[0] == "d"):
        scene.wait(100)
    log.catch_up("c")
    scene.wait()
    assert values(second) == [b"1", b"2", b"3"]
    assert all(second.sink.redelivered)
