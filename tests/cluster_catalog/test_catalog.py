"""One change asked for on one node is made once on every node, and answered where it was asked."""

import pytest

from broker.cluster.placement import Placement
from broker.protocol.errors import ChannelError
from tests.cluster_catalog.fakes import Cluster, snapshot


def exchange(name, kind="direct", **options):
    wanted = {"auto_delete": False, "internal": False, "durable": True, **options}
    return [
        *("exchange", "/", name, kind, wanted["auto_delete"], wanted["internal"], {}),
        wanted["durable"],
    ]


def queue(name, node=1, *, uid=None, durable=False, owner=None, boot=1, groups=()):
    placement = Placement(groups) if groups else Placement(home=node, boot=boot)
    kind = "quorum" if groups else "classic"
    return [
        *("queue", "/", name, uid or name.encode().ljust(16, b"-"), False, kind, {}, durable),
        *(owner, placement.encode()),
    ]


def bind(source, name, key="k", owner=None):
    return ["binding", "/", source, "queue", name, key, {}, owner]


@pytest.fixture
def cluster():
    cluster = Cluster(3)
    started = [cluster.start(number) for number in cluster.nodes]
    cluster.elect(1)
    for number in cluster.nodes:
        cluster.hear_of_leader(number)
    cluster.settle()
    assert started == [[None]] * 3
    return cluster


def ask(cluster, number, change):
    answers = []
    cluster.nodes[number].catalog.request(change, answers.append)
    return answers


def test_a_change_asked_for_anywhere_is_made_everywhere(cluster):
    answers = ask(cluster, 2, exchange("x"))
    cluster.settle()
    assert answers == [None]
    assert all("x" in node.vhost.exchanges for node in cluster.nodes.values())


def test_the_answer_waits_for_every_node_that_is_up(cluster):
    answers = ask(cluster, 2, exchange("x"))
    cluster.deliver_all()
    cluster.commit()
    cluster.apply(2)
    cluster.clock.advance(1)
    cluster.deliver_all()
    assert answers == []
    cluster.apply(3)
    cluster.clock.advance(1)
    cluster.deliver_all()
    assert answers == [None]


def test_a_node_that_goes_down_does_not_hold_the_answer_up(cluster):
    answers = ask(cluster, 2, exchange("x"))
    cluster.deliver_all()
    cluster.commit()
    cluster.apply(2)
    cluster.clock.advance(1)
    cluster.deliver_all()
    cluster.disconnect(2, 3)
    assert answers == [None]


def test_a_node_that_is_up_and_silent_holds_answers_up_for_its_lease_and_only_once(cluster):
    def asked_and_made(name):
        answers = ask(cluster, 2, exchange(name))
        cluster.deliver_all()
        cluster.commit()
        cluster.apply(2)
        cluster.clock.advance(1)
        cluster.deliver_all()
        return answers

    first = asked_and_made("x1")
    cluster.clock.advance(2500)
    assert first == []
    cluster.clock.advance(1000)
    assert first == [None]
    assert asked_and_made("x2") == [None]
    cluster.apply(3, 10)
    cluster.clock.advance(1)
    cluster.deliver_all()
    assert asked_and_made("x3") == []  # it is waited for again


def test_what_cannot_be_is_refused_where_it_was_asked(cluster):
    ask(cluster, 1, exchange("x", "direct"))
    cluster.settle()
    (error,) = _answered(cluster, ask(cluster, 3, exchange("x", "fanout")))
    assert isinstance(error, ChannelError)
    assert error.code == 406
    assert "inequivalent arg 'type'" in error.text
    assert error.text.count("exchange 'x' in vhost '/'") == 1


def _answered(cluster, answers):
    cluster.settle()
    return answers


def test_without_a_quorum_there_is_an_error_after_a_while(cluster):
    cluster.disconnect(1, 2)
    cluster.disconnect(1, 3)
    asked, read = ask(cluster, 1, exchange("x")), []
    cluster.nodes[1].catalog.read(read.append)
    cluster.settle()
    cluster.clock.advance(4900)
    assert asked == read == []
    cluster.clock.advance(1000)
    for (error,) in (asked, read):
        assert (error.code, error.text) == (506, "no quorum of nodes for the definitions")


def test_a_request_that_the_old_leader_had_proposed_is_made_once(cluster):
    answers = ask(cluster, 3, exchange("x", auto_delete=True))
    also = ask(cluster, 3, queue("q", 3))
    bound = ask(cluster, 3, bind("x", "q"))
    cluster.deliver_all()
    cluster.elect(2, adopted=1)  # it has all of them in its log, and 3 sends them again
    cluster.hear_of_leader(1)
    cluster.hear_of_leader(3)
    gone = ask(cluster, 3, ["-queue", "/", "q", b"q".ljust(16, b"-")])
    cluster.settle()
    assert answers == also == bound == gone == [None]
    # Made again behind the delete, they would have brought queue and exchange back.
    for node in cluster.nodes.values():
        assert "x" not in node.vhost.exchanges
        assert "q" not in node.vhost.queues


def test_a_request_that_was_lost_with_the_leader_is_made_by_the_next_one(cluster):
    answers = ask(cluster, 3, exchange("x"))
    cluster.deliver_all()
    cluster.elect(2, adopted=0)
    cluster.hear_of_leader(1)
    cluster.hear_of_leader(3)
    cluster.settle()
    assert answers == [None]


def test_requests_do_not_overtake_each_other_when_one_is_lost(cluster):
    first = ask(cluster, 3, exchange("x"))
    cluster.wires[3, 1].clear()  # the link was cut, and nobody has noticed
    second = ask(cluster, 3, ["-exchange", "/", "x", False])
    cluster.settle()
    assert first == second == []
    cluster.clock.advance(600)
    cluster.settle()
    assert first == second == [None]
    assert "x" not in cluster.nodes[3].vhost.exchanges


def test_a_request_whose_result_came_in_an_installed_state_is_answered(cluster):
    ask(cluster, 1, exchange("x"))
    answers = ask(cluster, 3, exchange("x", "fanout"))
    cluster.deliver_all()
    cluster.commit()
    cluster.apply(2, 10)
    cluster.install(3)
    cluster.settle()
    assert [error.code for error in answers] == [406]


def test_a_read_sees_what_was_answered_before_it(cluster):
    answers, seen = ask(cluster, 2, exchange("x")), []
    cluster.deliver_all()
    cluster.commit()
    cluster.disconnect(2, 3)  # so that 2 does not wait for 3
    cluster.apply(2)
    cluster.clock.advance(1)
    cluster.deliver_all()
    assert answers == [None]
    catalog = cluster.nodes[3].catalog
    catalog.read(lambda error: seen.append((error, "x" in cluster.nodes[3].vhost.exchanges)))
    cluster.settle()
    assert seen == [(None, True)]


def test_a_deposed_leader_does_not_answer_reads(cluster):
    old = cluster.nodes[1]
    seen = []
    old.catalog.read(seen.append)
    cluster.elect(2)
    cluster.settle()
    assert seen == []
    cluster.hear_of_leader(1)
    cluster.settle()
    assert seen == [None]


def test_a_late_delete_does_not_hit_the_next_queue_of_that_name(cluster):
    ask(cluster, 1, queue("q", uid=b"1" * 16))
    ask(cluster, 1, ["-queue", "/", "q", b"1" * 16])
    ask(cluster, 2, queue("q", uid=b"2" * 16))
    cluster.settle()
    assert _answered(cluster, ask(cluster, 3, ["-queue", "/", "q", b"1" * 16])) == [None]
    assert all(node.vhost.queues["q"].uid == b"2" * 16 for node in cluster.nodes.values())


def test_exclusive_queues_go_with_their_connection(cluster):
    link = object()
    catalog = cluster.nodes[2].catalog
    owner = catalog.claim(link)
    ask(cluster, 2, queue("mine", 2, owner=list(owner)))
    cluster.settle()
    refused = _answered(cluster, ask(cluster, 3, queue("mine", 3)))
    assert [error.code for error in refused] == [405]
    with pytest.raises(ChannelError, match="locked"):
        cluster.nodes[2].vhost.queue("mine", user_of=object())
    assert cluster.nodes[2].vhost.queue("mine", user_of=link).name == "mine"
    cluster.nodes[2].vhost.forget_owner(link)
    cluster.nodes[2].vhost.forget_owner(link)
    cluster.settle()
    assert not any(node.vhost.queues for node in cluster.nodes.values())


def test_what_a_node_had_in_memory_goes_when_it_is_started_anew(cluster):
    for name, options in (
        ("passing", {"durable": False}),
        ("owned", {"durable": True, "owner": [2, 1, 7]}),
        ("lasting", {"durable": True}),
    ):
        ask(cluster, 2, queue(name, 2, **options))
    ask(cluster, 3, queue("elsewhere", 3))
    ask(cluster, 3, exchange("x", durable=False))
    cluster.settle()
    cluster.restart(2)
    for other in (1, 3):
        cluster.connect(2, other)
    done = cluster.start(2)
    cluster.hear_of_leader(2)
    cluster.settle()
    assert done == [None]
    for node in cluster.nodes.values():
        assert {*node.vhost.queues} == {"lasting", "elsewhere"}
        assert "x" in node.vhost.exchanges  # others carried on with it
        assert snapshot(node) == snapshot(cluster.nodes[1])


def test_transient_exchanges_go_when_all_nodes_were_stopped(cluster):
    ask(cluster, 3, exchange("passing", durable=False))
    ask(cluster, 3, exchange("lasting"))
    cluster.settle()
    for number in (1, 2, 3):
        cluster.restart(number)
    for a, b in ((1, 2), (1, 3), (2, 3)):
        cluster.connect(a, b)
    cluster.elect(3)
    for number in (1, 2, 3):
        cluster.start(number)
        cluster.hear_of_leader(number)
    cluster.settle()
    for node in cluster.nodes.values():
        assert "lasting" in node.vhost.exchanges
        assert "passing" not in node.vhost.exchanges


def test_what_a_lost_node_had_in_memory_is_given_up_after_a_while(cluster):
    ask(cluster, 3, queue("q", 3))
    cluster.settle()
    cluster.disconnect(1, 3)
    cluster.disconnect(2, 3)
    cluster.clock.advance(2900)
    cluster.settle()
    assert "q" in cluster.nodes[1].vhost.queues
    cluster.clock.advance(200)
    cluster.settle()
    assert "q" not in cluster.nodes[1].vhost.queues
    again = _answered(cluster, ask(cluster, 2, queue("q", 2, uid=b"2" * 16)))
    assert again == [None]
    cluster.connect(1, 3)
    cluster.connect(2, 3)
    cluster.settle()
    assert cluster.nodes[3].vhost.queues["q"].uid == b"2" * 16


def test_a_node_restarts_from_its_checkpoint(cluster):
    for name in ("x1", "x2"):
        ask(cluster, 1, exchange(name))
    cluster.settle()
    node = cluster.nodes[2]
    node.checkpoint(node.at, node.catalog.encoded_state(), lambda: None)
    ask(cluster, 1, ["-exchange", "/", "x1", False])
    cluster.settle()
    cluster.restart(2)
    for other in (1, 3):
        cluster.connect(2, other)
    done = cluster.start(2)
    cluster.hear_of_leader(2)
    cluster.settle()
    assert done == [None]
    assert snapshot(cluster.nodes[2]) == snapshot(cluster.nodes[1])


def test_settings_of_a_queue_are_the_same_everywhere_and_in_checkpoints(cluster):
    ask(cluster, 1, [*queue("made", uid=b"m" * 16), {"x-max-length": 3}])
    ask(cluster, 1, queue("altered", uid=b"a" * 16))
    cluster.settle()
    node = cluster.nodes[2]
    node.checkpoint(node.at, node.catalog.encoded_state(), lambda: None)
    cluster.restart(2)
    for other in (1, 3):
        cluster.connect(2, other)
    cluster.start(2)
    cluster.hear_of_leader(2)
    cluster.settle()
    cluster.disconnect(1, 3)
    answers = ask(cluster, 1, ["settings", "/", "altered", b"a" * 16, {"x-max-length": 7}])
    stale = ask(cluster, 1, ["settings", "/", "altered", b"o" * 16, {"x-max-length": 9}])
    cluster.settle()
    cluster.install(3)
    assert answers == [None]
    assert stale[0].code == 404
    for one in cluster.nodes.values():
        lengths = {name: q.options.max_length for name, q in one.vhost.queues.items()}
        assert lengths == {"made": 3, "altered": 7}
        assert one.vhost.queues["altered"].settings == {"x-max-length": 7}


def test_an_installed_state_leaves_queues_that_stay_as_they_are(cluster):
    ask(cluster, 1, queue("stays", uid=b"s" * 16))
    ask(cluster, 1, queue("goes", uid=b"g" * 16))
    ask(cluster, 1, queue("new", uid=b"1" * 16))
    cluster.settle()
    there = {**cluster.nodes[3].vhost.queues}
    cluster.disconnect(1, 3)
    for change in (
        ["-queue", "/", "goes", b"g" * 16],
        ["-queue", "/", "new", b"1" * 16],
        queue("new", uid=b"2" * 16),
        exchange("x", auto_delete=True),
        bind("x", "stays"),
        ["policy", "/", "p", "st", "queues", 0, {"max-length": 5}],
    ):
        ask(cluster, 1, change)
    cluster.settle()
    cluster.install(3)
    now = cluster.nodes[3].vhost.queues
    assert now["stays"] is there["stays"]
    assert now["stays"].options.max_length == 5
    assert there["goes"].deleted
    assert there["new"].deleted
    assert now["new"].uid == b"2" * 16
    assert snapshot(cluster.nodes[3]) == snapshot(cluster.nodes[1])


def test_nodes_start_what_they_hold_only_when_they_are_up_to_date():
    cluster = Cluster(3)
    begun = []
    cluster.nodes[2].catalog.when_ready(lambda: begun.append(2))
    for number in cluster.nodes:
        cluster.start(number)
    cluster.settle()
    assert begun == []
    cluster.elect(1)
    for number in cluster.nodes:
        cluster.hear_of_leader(number)
    cluster.settle()
    assert begun == [2]
    cluster.nodes[2].catalog.when_ready(lambda: begun.append("at once"))
    assert begun == [2, "at once"]
