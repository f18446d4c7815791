"""Nodes are added, drained, removed and replaced while every group keeps its quorum."""

from collections import Counter

import pytest

from broker.cluster.members import Members
from queues.raft.config import Config
from tests.cluster_catalog.fakes import Cluster
from tests.cluster_catalog.groups import METADATA, World


@pytest.fixture
def world():
    """Four nodes; three queues on three of them each."""
    world = World(4)
    world.declare("a", (1, 2, 3))
    world.declare("b", (3, 2, 4))
    world.declare("c", (2, 1, 3))
    return world


def test_a_removed_nodes_replicas_are_replaced_one_at_a_time_and_then_it_is_gone(world):
    assert world.ask("remove", "n3") is None
    world.settle()
    assert world.groups[b"a".ljust(16, b"-")].steps == [
        ("add learner", 4),
        ("promote", 4),
        ("remove", 3),
    ]
    for group in world.groups.values():
        assert 3 not in (*group.config.voters, *group.config.learners)
        assert len(group.config.voters) == 3
    for number in (1, 2, 4):
        state = world.cluster.nodes[number].state
        assert {*state.nodes.by_number} == {1, 2, 4}
        assert not any(p.placement.former for p in state.placed.values())
    assert set(world.placement("b").groups[0]) == {1, 2, 4}


def test_a_dead_node_is_replaced_by_a_new_one_under_a_new_number(world):
    world.kill(3)
    assert world.ask("remove", "n3") is None
    world.settle()
    assert {*world.cluster.nodes[1].state.nodes.by_number} == {1, 2, 4}
    assert world.ask("add", "n3", b"another data dir", "h:9") is None
    assert world.cluster.nodes[1].state.nodes.by_number[5].name == "n3"
    world.alive.add(5)
    world.settle()
    assert set(world.groups[METADATA].config.voters) == {1, 2, 4, 5}


def test_without_a_spare_node_groups_become_smaller():
    world = World(3)
    world.declare("a", (3, 1, 2))
    assert world.ask("remove", "n3") is None
    world.settle()
    assert set(world.groups[b"a".ljust(16, b"-")].config.voters) == {1, 2}
    assert {*world.cluster.nodes[1].state.nodes.by_number} == {1, 2}


def test_a_removal_that_would_cost_the_quorum_is_refused():
    world = World(3)
    world.kill(3)
    error = world.ask("remove", "n2")
    assert error.code == 406
    assert "no quorum" in error.text
    assert world.ask("remove", "n3") is None


def test_a_node_that_classic_queues_live_on_alone_is_removed_only_if_that_is_said(world):
    place = [4, 1, [], []]
    world.cluster.nodes[4].catalog.request(
        ["queue", "/", "classic", b"c" * 16, False, "classic", {}, True, None, place]
    )
    world.cluster.settle()
    error = world.ask("remove", "n4")
    assert (error.code, "'classic'" in error.text) == (406, True)
    assert world.ask("remove", "n4", lose_classic=True) is None
    world.settle()
    assert "classic" not in world.cluster.nodes[1].vhost.queues
    assert {*world.cluster.nodes[1].state.nodes.by_number} == {1, 2, 3}


def test_a_removal_can_be_taken_back(world):
    assert world.ask("remove", "n3") is None
    assert world.ask("keep", "n3") is None
    world.settle()
    assert {*world.cluster.nodes[1].state.nodes.by_number} == {1, 2, 3, 4}


def test_a_drained_node_leads_nothing_and_gets_nothing_until_it_is_started_anew(world):
    assert world.ask("drain", "n3", by=2) is None
    world.settle()
    assert all(group.leader != 3 for group in world.groups.values())
    assert 3 not in world.cluster.nodes[1].state.nodes.usable()
    node = world.cluster.nodes[3]
    node.catalog.request(["boot", 3, 2, {1: 1}])
    world.cluster.settle()
    assert 3 in world.cluster.nodes[1].state.nodes.usable()


def test_a_drained_metadata_leader_hands_that_over_too(world):
    assert world.ask("drain", "n1") is None
    world.settle()
    assert world.groups[METADATA].leader != 1


def test_a_queues_leader_is_moved_on_request(world):
    assert world.ask("transfer", "/", "a", "n3", by=4) is None
    world.settle()
    assert world.groups[b"a".ljust(16, b"-")].leader == 3
    assert world.placement("a").groups == ((3, 1, 2),)
    assert not world.cluster.nodes[1].state.transfers
    assert world.ask("transfer", "/", "a", "n4").code == 406  # it has no part of it
    assert world.ask("transfer", "/", "nope", "n1").code == 404
    assert world.ask("transfer", "/", "a", "nope").code == 404


def test_rebalancing_evens_out_replicas_and_leaders():
    world = World(4)
    for number in range(12):
        world.declare(f"q{number}", (1, 2, 3))
    assert world.ask("rebalance") is None
    world.settle(60)
    groups = [group for uid, group in world.groups.items() if uid != METADATA]
    replicas = Counter(node for group in groups for node in group.config.voters)
    leaders = Counter(group.leader for group in groups)
    assert sorted(replicas.values()) == [9, 9, 9, 9]
    assert sorted(leaders.values()) == [3, 3, 3, 3]
    assert not world.cluster.nodes[1].state.rebalancing


def test_status_tells_what_is_down_and_which_groups_suffer(world):
    world.kill(3)
    world.kill(4)
    status = world.members[1].status()
    assert [(node["name"], node["up"]) for node in status["nodes"]] == [
        ("n1", True),
        ("n2", True),
        ("n3", False),
        ("n4", False),
    ]
    assert status["metadata_leader"] is None  # two of four are no majority
    (trouble,) = status["troubled"]
    assert (trouble["queue"], trouble["quorum"], trouble["up"]) == ("b", False, ["n2"])
    assert [node["replicas"] for node in status["nodes"]] == [2, 3, 3, 1]


def test_a_new_cluster_takes_no_log_from_founders_that_have_not_been_heard():
    """The first node that starts makes all of them known, before anything else."""
    cluster = Cluster(3)
    wishes = []
    catalog = cluster.nodes[1].catalog
    members = Members(
        catalog,
        cluster.clock,
        metadata_uid=METADATA,
        metadata_config=lambda: Config((1, 2, 3)),
        up=lambda: {2, 3},
        leader_of=lambda _: 1,
        group_uid=lambda uid, _: uid,
    )
    catalog.on_members.append(lambda: wishes.append(members.wish_of(METADATA)))
    cluster.start(1, cluster.table())
    cluster.elect(1)
    cluster.settle()
    assert {wish.members for wish in wishes} == {(1, 2, 3)}
    assert all({*node.state.nodes.by_number} == {1, 2, 3} for node in cluster.nodes.values())


def test_founders_that_were_removed_do_not_come_back(world):
    assert world.ask("remove", "n3") is None
    world.settle()
    world.cluster.nodes[1].catalog.request(["founders", [[3, "n3", b"%016d" % 3, "h:3"]]])
    world.settle()
    assert 3 not in world.cluster.nodes[2].state.nodes.by_number


def test_a_queue_that_lost_a_replica_gets_another_when_there_is_a_node_for_it():
    """Of three nodes a removed one leaves two replicas; whoever comes for it has the third."""
    world = World(3)
    world.declare("q", (1, 2, 3))
    world.kill(3)
    assert world.ask("remove", "n3") is None
    world.settle()
    assert set(world.placement("q").groups[0]) == {1, 2}
    assert world.ask("add", "n4", b"another data dir", "h:9") is None
    world.alive.add(4)
    world.settle()
    assert set(world.placement("q").groups[0]) == {1, 2, 4}
    assert set(world.groups[b"q".ljust(16, b"-")].config.voters) == {1, 2, 4}
