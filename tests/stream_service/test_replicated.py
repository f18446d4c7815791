"""Groups, transactions and producer ids when the node that decides is another one."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import Operation, Status
from broker.streams.producer_registry import ProducerRegistry
from broker.streams.routed_service import RoutedService, decode_forwarded, encode_forwarded
from queues.stream.names import OFFSETS_STREAM
from queues.stream.producers import ProducerId
from queues.stream.staged_rows import Lost
from tests.stream_service.asking import (
    CALLER,
    Told,
    commit,
    commit_offset,
    fetch_offset,
    join,
    opened,
    stage,
    whole_end,
)
from tests.stream_service.shared_log import VHOST, Cluster, SharedLog

# Producer ids


def registries(log, nodes="ab"):
    for node in nodes:
        log.machines[node] = ProducerRegistry(log.member(node), lambda: 1000, replicated=True)
    return log.machines.values()


def test_no_producer_id_is_given_twice_by_two_nodes():
    log = SharedLog()
    first, second = registries(log)
    given = Told()
    first.allocate("", given)
    assert given.only is Lost.LOST, "it does not lead"
    log.elect("a")
    waiting = [Told(), Told()]
    first.allocate("", waiting[0])
    log.propose()
    first.allocate("", waiting[1])
    log.depose(survives=1)
    assert [each.only for each in waiting] == [Lost.LOST, Lost.LOST]
    log.elect("b")
    given = Told()
    second.allocate("", given)
    log.commit()
    assert given.only == ProducerId(2, 0), "1 is given, to somebody who was not told"
    assert first.state() == second.state()
    log.depose()
    log.elect("a")
    given = Told()
    first.allocate("", given)
    log.commit()
    assert given.only == ProducerId(3, 0)
    third = ProducerRegistry(log.member("c"), lambda: 1000, replicated=True)
    assert third.install(3, first.state()) == []
    assert third.state() == first.state()


# Groups


@pytest.fixture
def cluster():
    cluster = Cluster("s")
    for log in ("s", OFFSETS_STREAM, "transactions"):
        cluster.elect(log, "a")
    return cluster


def test_groups_are_only_where_their_log_leads(cluster):
    assert join(cluster, "b").status == Status.UNAVAILABLE
    told = join(cluster, "a")
    assert not told, "before it is durable"
    cluster.settle()
    assert told.only.assigned == (wire.Partition("s", 0),)


def test_a_new_leader_knows_offsets_and_generation_and_fences_who_was_there_before(cluster):
    first = join(cluster, "a")
    cluster.settle()
    member, generation = first.only.member, first.only.generation
    done = commit_offset(cluster, "a", member, generation, 7)
    cluster.settle()
    assert done.only == wire.Empty()
    late = commit_offset(cluster, "a", member, generation, 9)
    cluster.logs[OFFSETS_STREAM].depose()
    assert late.status == Status.UNAVAILABLE
    assert fetch_offset(cluster, "a").status == Status.UNAVAILABLE
    cluster.elect(OFFSETS_STREAM, "b")
    found = fetch_offset(cluster, "b")
    assert [each.offset for each in found.only.offsets] == [7]
    assert commit_offset(cluster, "b", member, generation, 8).status == Status.UNKNOWN_MEMBER
    again = join(cluster, "b")
    cluster.settle()
    assert again.only.generation > generation
    assert again.only.member != member
    cluster.logs[OFFSETS_STREAM].depose()
    cluster.elect(OFFSETS_STREAM, "a")
    assert [each.offset for each in fetch_offset(cluster, "a").only.offsets] == [7]
    third = join(cluster, "a")
    cluster.settle()
    assert third.only.generation > again.only.generation


def test_a_change_that_survives_its_leader_counts_though_nobody_was_told(cluster):
    first = join(cluster, "a")
    cluster.settle()
    late = commit_offset(cluster, "a", first.only.member, first.only.generation, 9)
    cluster.logs[OFFSETS_STREAM].propose()
    cluster.logs[OFFSETS_STREAM].depose(survives=1)
    assert late.status == Status.UNAVAILABLE
    cluster.elect(OFFSETS_STREAM, "c")
    assert [each.offset for each in fetch_offset(cluster, "c").only.offsets] == [9]


def test_members_that_are_silent_are_given_up_by_the_leader_only(cluster):
    join(cluster, "a")
    cluster.settle()
    cluster.logs[OFFSETS_STREAM].depose()
    cluster.clock.pass_by(100_000)
    assert cluster.groups["a"].books[VHOST].groups == {}
    cluster.elect(OFFSETS_STREAM, "a")
    group = cluster.groups["a"].books[VHOST].groups["g"]
    assert group.members() == []
    join(cluster, "a")
    cluster.settle()
    for _ in range(60):
        cluster.clock.pass_by(1000)
        cluster.settle()
    assert group.members() == []


# Transactions


def test_a_transaction_is_whole_on_every_node_wherever_its_parts_lead(cluster):
    key = opened(cluster)
    cluster.logs["s"].depose()
    cluster.elect("s", "b")
    cluster.logs[OFFSETS_STREAM].depose()
    cluster.elect(OFFSETS_STREAM, "c")
    staged = stage(cluster, "a", key, [b"x", b"y"])
    cluster.settle()
    assert staged.only == wire.Staged(duplicate=False)
    positions = (wire.Position(wire.Partition("s", 0), 2, ""),)
    told = commit(cluster, "a", key, 2, (wire.GroupPart("g", "", 0, positions),))
    cluster.settle()
    assert told.only.rows == 2
    for node in cluster.names:
        assert cluster.values(node, "s") == [b"x", b"y"]
        partition = cluster.partition(node, "s")
        assert whole_end(cluster, node, "s") == partition.stable_end == 2
    assert [each.offset for each in fetch_offset(cluster, "c").only.offsets] == [2]


def test_a_transaction_in_doubt_is_driven_to_its_decision_by_the_next_leader(cluster):
    key = opened(cluster)
    stage(cluster, "a", key, [b"x"])
    cluster.settle()
    told = commit(cluster, "a", key, 1)
    cluster.logs["transactions"].propose()
    cluster.logs["transactions"].depose(survives=1)
    assert told.status == Status.UNAVAILABLE
    assert commit(cluster, "a", key, 1).status == Status.UNAVAILABLE
    cluster.elect("transactions", "b")
    cluster.settle()
    for node in cluster.names:
        assert cluster.values(node, "s") == [b"x"]
    again = commit(cluster, "b", key, 1)
    cluster.settle()
    assert again.only.rows == 1
    assert cluster.values("c", "s") == [b"x"], "and not twice"
    states = {log.state() for log in cluster.logs["transactions"].machines.values()}
    assert len(states) == 1


def test_a_transaction_outlives_a_partition_without_a_leader(cluster):
    key = opened(cluster)
    stage(cluster, "a", key, [b"x"])
    cluster.settle()
    cluster.logs["s"].depose()
    told = commit(cluster, "a", key, 1)
    cluster.settle()
    assert not told
    cluster.elect("s", "c")
    cluster.clock.pass_by(1000)
    cluster.settle()
    assert told.only.rows == 1
    assert cluster.values("b", "s") == [b"x"]


def test_a_transaction_that_takes_too_long_expires_under_its_next_leader(cluster):
    key = opened(cluster)
    stage(cluster, "a", key, [b"x"])
    cluster.settle()
    cluster.logs["s"].depose()
    commit(cluster, "a", key, 1)
    cluster.settle()
    cluster.logs["transactions"].depose()
    cluster.clock.pass_by(60_000)
    cluster.elect("transactions", "b")
    cluster.settle()
    cluster.elect("s", "b")
    cluster.clock.pass_by(1000)
    cluster.settle()
    told = commit(cluster, "b", key, 1)
    cluster.settle()
    assert told.status == Status.TRANSACTION_ABORTED, "its rows went with the first attempt"
    assert cluster.values("a", "s") == []


def test_a_cut_waits_for_the_replicas_of_its_own_node():
    cluster = Cluster("s", "t")
    for log in ("s", "t", OFFSETS_STREAM, "transactions"):
        cluster.elect(log, "a")
    key = opened(cluster)
    for name in ("s", "t"):
        chunk = encode_chunk([None], [name.encode()], [b""], 1000)
        cluster.transactions["a"].stage(CALLER, wire.Stage(key, name, 0, "w", 0, chunk), Told())
    cluster.settle()
    held = cluster.logs["t"].machines.pop("b")  # it lags
    at = len(cluster.logs["t"].entries)
    parts = tuple(
        wire.PartitionPart(wire.Partition(name, 0), (wire.WriterRows("w", 1),)) for name in "st"
    )
    told = Told()
    cluster.transactions["a"].commit(CALLER, wire.Commit(key, parts, ()), told)
    cluster.settle()
    assert told.only.rows == 2
    assert whole_end(cluster, "a", "s") == 1
    assert cluster.partition("b", "s").next_offset == 1
    assert whole_end(cluster, "b", "s") == 0, "the other half is not here yet"
    for index, entry in enumerate(cluster.logs["t"].entries[at:], at + 1):
        held.apply(index, entry)
    assert whole_end(cluster, "b", "s") == 1


# Requests


class Routes:
    def __init__(self, cluster, node, services):
        self.cluster, self.node, self.services = cluster, node, services

    def leader_of(self, uid):
        log = self.cluster.logs["transactions" if uid != b"groups" else OFFSETS_STREAM]
        return log.leader

    def groups_log(self, vhost, then):
        then(b"groups")

    def transactions_log(self, vhost):
        return b"transactions"

    def ask(self, node, body, then):
        self.services[node].handle_forwarded(body, then)


class Local:
    """The service of one node, as far as it is routed."""

    def __init__(self, cluster, node):
        groups, transactions = cluster.groups[node], cluster.transactions[node]
        for operation in Operation:
            name = operation.name.lower()
            for part in (groups, transactions):
                if hasattr(part, name):
                    setattr(self, name, getattr(part, name))
        for name in (
            "metadata",
            "identify",
            "list_streams",
            "offset_for",
            "fetch",
            "watch",
            "append",
        ):
            setattr(self, name, None)
        self.allocate_producer = None


def test_requests_find_the_node_that_decides(cluster):
    services = {}
    for node in cluster.names:
        services[node] = RoutedService(Local(cluster, node), Routes(cluster, node, services))
    for node in "abc":
        told = Told()
        services[node].join(CALLER, wire.Join("g", "me", "", "", ("s",)), told)
        cluster.settle()
        assert told.only.member.startswith("me")
    told = Told()
    services["b"].describe_group(CALLER, wire.DescribeGroup("g"), told)
    cluster.settle()
    assert len(told.only.members) == 3
    told = Told()
    services["c"].describe_group(CALLER, wire.DescribeGroup("none"), told)
    assert told.status == Status.GROUP_NOT_FOUND
    told = Told()
    services["b"].open_transactions(CALLER, wire.OpenTransactions("p"), told)
    cluster.settle()
    assert told.only.epoch == 1
    cluster.logs["transactions"].depose()
    told = Told()
    services["b"].open_transactions(CALLER, wire.OpenTransactions("p"), told)
    assert told.status == Status.UNAVAILABLE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\0\0\0\0",
        b"\x20\0\0\0\0\0",
        encode_forwarded(Operation.JOIN, CALLER, wire.Join("g", "", "", "", ())) + b"more",
        encode_forwarded(Operation.JOIN, CALLER, wire.Join("g", "", "", "", ()))[:-1],
    ],
)
def test_nonsense_from_another_node_is_refused(body):
    with pytest.raises(MalformedError):
        decode_forwarded(body)
