"""Only a node that can know says that a decision is carried out."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from broker.streams.group_participant import SWEEP_MS
from queues.stream.group_records import Position
from queues.stream.names import OFFSETS_STREAM, GroupId, PartitionId
from queues.stream.participant import Decision, GroupPart, Marker, TransactionKey, Vote
from queues.stream.transaction_commands import Mark, Prepare
from tests.stream_service.asking import (
    Told,
    commit,
    commit_offset,
    fetch_offset,
    join,
    opened,
    stage,
)
from tests.stream_service.shared_log import VHOST, Cluster

POSITIONS = (wire.Position(wire.Partition("s", 0), 2, ""),)
GROUP = (wire.GroupPart("g", "", 0, POSITIONS),)


@pytest.fixture
def cluster():
    cluster = Cluster("s")
    for log in ("s", OFFSETS_STREAM, "transactions"):
        cluster.elect(log, "a")
    return cluster


def decided(cluster):
    """A transaction that is decided, with a group that has not heard of it."""
    key = opened(cluster)
    stage(cluster, "a", key, [b"x", b"y"])
    cluster.settle()
    told = commit(cluster, "a", key, 2, GROUP)
    for log in ("transactions", "s", OFFSETS_STREAM):  # COMMIT, and who votes
        cluster.logs[log].commit()
    return told


def offsets(cluster, node):
    return [each.offset for each in fetch_offset(cluster, node).only.offsets]


def test_a_node_that_loses_the_groups_while_it_reads_them_confirms_no_marker(cluster):
    told = decided(cluster)
    cluster.logs[OFFSETS_STREAM].depose()
    reader = cluster.partition("b", OFFSETS_STREAM).reader
    waiting = []
    reading, reader.read = reader.read, lambda *asked: waiting.append(asked)
    cluster.elect(OFFSETS_STREAM, "b")
    cluster.logs["transactions"].commit()  # DECIDE: the marker waits for b's groups to be read
    assert waiting
    cluster.logs[OFFSETS_STREAM].depose()
    reader.read = reading
    cluster.settle()
    assert not told, "the group has not heard of it"
    cluster.elect(OFFSETS_STREAM, "c")
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert told.only.rows == 2
    assert offsets(cluster, "c") == [2]
    cluster.logs[OFFSETS_STREAM].depose()
    cluster.elect(OFFSETS_STREAM, "a")
    assert offsets(cluster, "a") == [2]


def test_a_node_that_cannot_read_the_groups_confirms_no_marker(cluster):
    told = decided(cluster)
    book = cluster.groups["a"].books[VHOST]
    book.trouble, book.groups, kept = "a record of another version", {}, book.groups
    cluster.settle()
    assert not told
    book.trouble, book.groups = None, kept
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert told.only.rows == 2
    assert offsets(cluster, "a") == [2]


def test_a_node_that_lost_the_groups_unawares_does_not_take_one_for_deleted(cluster):
    """The group came to be where the groups are now."""
    book = cluster.groups["a"].books[VHOST]
    book.barrier = lambda then: then(ConnectionError("no majority knows it as leader"))
    told = Told()
    key = TransactionKey("p", 1, 0)
    marker = Marker(42, 9, key, Decision.COMMIT, ())
    cluster.transactions["a"]._books[VHOST].groups.mark(Mark(GroupId("g"), (marker,), 0), told)
    assert told.only is None
    book.barrier = lambda then: then(None)
    told = Told()
    cluster.transactions["a"]._books[VHOST].groups.mark(Mark(GroupId("g"), (marker,), 0), told)
    assert told.only == 42, "it is deleted"


def hold_too_late(cluster):
    """A prepare that comes when its transaction has ended."""
    told = decided(cluster)
    cluster.settle()
    assert told.only.rows == 2
    group, late = GroupId("g"), Told()
    part = GroupPart(group, "", 0, {PartitionId("s", 0): Position(7, "")})
    effect = Prepare(group, 1, TransactionKey("guest\0p", 1, 0), part)
    cluster.transactions["a"]._books[VHOST].groups.prepare(effect, late)
    cluster.settle()
    assert late.only is Vote.YES
    assert fetch_offset(cluster, "a").status == Status.OFFSET_UNSTABLE


def test_a_group_lets_go_of_what_it_holds_for_a_transaction_that_has_ended(cluster):
    hold_too_late(cluster)
    cluster.clock.pass_by(SWEEP_MS)
    cluster.settle()
    assert offsets(cluster, "a") == [2]


def test_a_new_leader_of_the_groups_lets_go_of_it_at_once(cluster):
    hold_too_late(cluster)
    cluster.logs[OFFSETS_STREAM].depose()
    cluster.elect(OFFSETS_STREAM, "b")
    cluster.settle()
    assert offsets(cluster, "b") == [2]


def test_what_is_unfinished_stays_held_by_every_leader_of_the_groups(cluster):
    told = decided(cluster)
    log = cluster.logs["transactions"]
    log.depose()
    for node in ("b", "c", "a"):
        cluster.logs[OFFSETS_STREAM].depose()
        cluster.elect(OFFSETS_STREAM, node)
        for _ in range(3):
            cluster.clock.pass_by(SWEEP_MS)
            cluster.settle()
        assert list(cluster.groups[node].books[VHOST].groups["g"].held) == [1]
    assert told.status == Status.UNAVAILABLE
    cluster.elect("transactions", "b")
    cluster.settle()
    assert offsets(cluster, "a") == [], "in doubt for so long, it was aborted"


def test_a_partition_that_is_not_known_yet_is_not_deleted(cluster):
    key = opened(cluster)
    stage(cluster, "a", key, [b"x"])
    cluster.settle()
    told = commit(cluster, "a", key, 1)
    log = cluster.logs["transactions"]
    log.commit()
    cluster.logs["s"].commit()  # it is prepared
    log.propose()
    log.depose(survives=1)  # DECIDE is in the log, and nobody has carried it out
    assert told.status == Status.UNAVAILABLE
    stream = cluster.vhosts["b"].queues.pop("s")  # b was away when it was declared
    cluster.behind.add("b")
    cluster.elect("transactions", "b")
    for _ in range(3):
        cluster.clock.pass_by(1000)
        cluster.settle()
    assert log.machines["b"].coordinator.unfinished == 1
    cluster.vhosts["b"].queues["s"] = stream
    cluster.behind.clear()
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert log.machines["b"].coordinator.unfinished == 0
    assert cluster.values("c", "s") == [b"x"]


def test_a_partition_that_is_deleted_holds_up_no_transaction(cluster):
    key = opened(cluster)
    stage(cluster, "a", key, [b"x"])
    cluster.settle()
    told = commit(cluster, "a", key, 1)
    log = cluster.logs["transactions"]
    log.commit()
    cluster.logs["s"].commit()
    for node in cluster.names:
        del cluster.vhosts[node].queues["s"]
    cluster.settle()
    assert told.only.rows == 1
    assert log.machines["a"].coordinator.unfinished == 0


def test_offsets_in_a_stream_that_is_not_known_yet_are_kept(cluster):
    first = join(cluster, "a")
    cluster.settle()
    commit_offset(cluster, "a", first.only.member, first.only.generation, 7)
    cluster.settle()
    cluster.logs[OFFSETS_STREAM].depose()
    stream = cluster.vhosts["b"].queues.pop("s")
    cluster.behind.add("b")
    cluster.elect(OFFSETS_STREAM, "b")
    cluster.settle()
    assert offsets(cluster, "b") == [7]
    cluster.vhosts["b"].queues["s"] = stream
    cluster.behind.clear()
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert offsets(cluster, "b") == [7]


def test_offsets_go_with_a_stream_that_was_deleted_while_nobody_had_the_groups(cluster):
    first = join(cluster, "a")
    cluster.settle()
    commit_offset(cluster, "a", first.only.member, first.only.generation, 7)
    cluster.settle()
    cluster.logs[OFFSETS_STREAM].depose()
    del cluster.vhosts["b"].queues["s"]
    cluster.behind.add("b")
    cluster.elect(OFFSETS_STREAM, "b")
    cluster.behind.clear()
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert offsets(cluster, "b") == []


@pytest.mark.parametrize("is_behind", [False, True])
def test_offsets_of_a_stream_that_was_declared_again_are_not_those_of_the_new_one(
    cluster, is_behind
):
    """It was deleted and declared again while nobody had the groups."""
    first = join(cluster, "a")
    cluster.settle()
    commit_offset(cluster, "a", first.only.member, first.only.generation, 7)
    cluster.settle()
    cluster.logs[OFFSETS_STREAM].depose()
    old = cluster.vhosts["b"].queues["s"].uid
    cluster.vhosts["b"].queues["s"].uid = bytes(len(old))
    if is_behind:  # it is the node that lags, and has another stream of that name still
        cluster.behind.add("b")
    cluster.elect(OFFSETS_STREAM, "b")
    cluster.settle()
    if is_behind:
        told = fetch_offset(cluster, "b")
        assert not told, "it cannot know yet"
        cluster.vhosts["b"].queues["s"].uid = old
        cluster.behind.clear()
        cluster.clock.pass_by(1000)
        cluster.settle()
        assert [each.offset for each in told.only.offsets] == [7]
    else:
        assert offsets(cluster, "b") == []
