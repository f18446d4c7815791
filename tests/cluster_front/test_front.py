"""One queue on three nodes: what publishers and consumers see of its leader, wherever that is."""

import pytest

from broker.cluster.placement import Placement
from broker.cluster.queue_wire import Op, encode_deliver, encode_returns, head
from queues.message import Wishes
from queues.queue import Queue
from tests.cluster_front.world import UID, Client, World, message


@pytest.fixture
def world():
    world = World()
    world.elect(1)
    world.settle_down()
    return world


def bodies(client):
    return [body for body, _, _ in client.seen]


@pytest.mark.parametrize("node", [1, 2])
def test_what_is_published_anywhere_is_confirmed_once_and_delivered_anywhere(world, node):
    receipt = world.publish(node, [b"a", b"b" * 100_000, b""])
    assert not receipt.told
    clients = [Client(world.nodes[n]) for n in (1, 3)]
    consumer = clients[1].consume()
    world.settle_down()
    assert (receipt.told, receipt.refused) == (1, set())
    assert bodies(clients[1]) == [b"a", b"b" * 100_000, b""]
    assert consumer.credit.used == 3
    clients[1].hand_back(list(clients[1].unacked), "ack")
    world.settle_down(1000)
    assert world.leader.replica.messages == 0
    assert not any(node.front.keeps for node in world.nodes.values())
    assert not world.nodes[3].fronts.pending_bytes


def test_prefetch_bounds_what_a_remote_consumer_holds(world):
    client = Client(world.nodes[2])
    client.consume(prefetch=3)
    world.publish(3, [b"%d" % n for n in range(10)])
    world.settle_down()
    assert bodies(client) == [b"0", b"1", b"2"]
    client.hand_back([1, 2], "ack")
    world.settle_down()
    assert bodies(client) == [b"%d" % n for n in range(5)]


def test_a_channels_credit_is_shared_and_can_change(world):
    client = Client(world.nodes[2], limit=2)
    client.consume()
    client.consume()
    world.settle_down()
    world.publish(1, [b"%d" % n for n in range(10)])
    world.settle_down()
    assert len(client.unacked) == 2
    client.credit.limit = 5
    client.resume()
    world.settle_down()
    assert len(client.unacked) == 5


def test_a_slow_client_does_not_pile_up_at_its_node(world):
    client = Client(world.nodes[2])
    client.consume(no_ack=True)
    world.settle_down()
    client.paused = True
    for n in range(40):
        world.publish(1, [b"%d" % n + b"x" * 100_000])
    world.settle_down()
    assert not client.seen
    assert world.leader.front.queue.ready > 15
    client.resume()
    world.flush()
    world.settle_down(1000)
    assert len(client.seen) == 40
    assert world.leader.replica.messages == 0


def test_what_comes_after_a_cancel_goes_back_as_if_nobody_had_it(world):
    client, other = Client(world.nodes[2]), Client(world.nodes[3])
    consumer = client.consume(prefetch=10)
    world.settle_down()
    world.publish(1, [b"a", b"b"])
    world.group.commit()  # delivered, and on their way to node 2
    world.flush()
    client.cancel(consumer)
    world.settle_down()
    other.consume()
    world.settle_down()
    assert not client.seen
    assert [seen[:2] for seen in other.seen] == [(b"a", False), (b"b", False)]


def test_what_others_have_overtaken_comes_with_the_flag(world):
    client, other = Client(world.nodes[2]), Client(world.nodes[3])
    consumer = client.consume(prefetch=1)
    world.settle_down()
    other.consume()
    world.settle_down()
    world.publish(1, [b"a", b"b"])
    world.group.commit()  # delivered, and on their way
    world.flush()
    client.cancel(consumer)
    world.settle_down()
    assert sorted(seen[:2] for seen in other.seen) == [(b"a", True), (b"b", False)]


def test_what_waits_for_room_comes_when_there_is_some(world):
    """The client holds more than the leader knows of, and then nothing more is published."""
    client = Client(world.nodes[2])
    consumer = client.consume(prefetch=1)
    world.settle_down()
    consumer.hold(1)
    world.publish(1, [b"a"])
    world.settle_down()
    assert not client.seen
    consumer.release(1)
    world.nodes[2].front.settle(consumer, [])
    assert bodies(client) == [b"a"]


def test_exclusive_use_is_decided_by_the_leader(world):
    first, second = Client(world.nodes[2]), Client(world.nodes[3])
    first.consume(exclusive=True)
    second.consume()
    world.settle_down()
    assert first.consumers
    assert [error.code for error in second.refused] == [403]
    here = Client(world.nodes[1])
    here.consume()
    assert [error.code for error in here.refused] == [403]


def test_the_single_active_consumer_stays_so_when_the_leader_changes():
    world = World(single_active_consumer=True)
    world.elect(1)
    world.settle_down()
    waiting, active = Client(world.nodes[2]), Client(world.nodes[3])
    active.consume(prefetch=1)
    world.settle_down()
    waiting.consume(prefetch=1)
    world.settle_down()
    world.publish(1, [b"a", b"b", b"c"])
    world.settle_down()
    world.elect(2)
    world.settle_down(3000)
    active.hand_back(list(active.unacked), "ack")
    world.settle_down()
    assert (bodies(active), bodies(waiting)) == ([b"a", b"b"], [])
    active.close()
    world.settle_down()
    assert bodies(waiting) == [b"c"]


def test_get_holds_a_message_like_any_other(world):
    client = Client(world.nodes[2])
    world.publish(1, [b"a", b"b"])
    world.settle_down()
    answers = client.get()
    world.flush()
    world.settle_down()
    assert bytes(answers[0][0].body) == b"a"
    assert answers[0][1] == 1
    assert client.credit.fetched == 1
    assert world.leader.front.queue.unacked == 1
    client.hand_back([1], "requeue")
    world.flush()
    world.settle_down()
    assert client.credit.fetched == 0
    again = client.get(no_ack=True)
    world.flush()
    world.settle_down()
    assert again[0][0].redelivered
    assert again[0][0].delivery_count == 1
    empty = [client.get(no_ack=True), client.get()]
    world.flush()
    world.settle_down(1000)
    assert empty[1] == [None]
    assert world.leader.replica.messages == 0


def test_a_lease_that_is_over_is_taken_from_the_client(world):
    client = Client(world.nodes[2])
    consumer = client.consume(lease_ms=100)
    world.settle_down()
    world.publish(1, [b"a"])
    world.settle_down()
    held = list(client.unacked.values())
    client.cancel(consumer)
    world.settle_down(200)
    assert not client.unacked
    assert (world.leader.front.ready, world.leader.replica.messages) == (1, 1)
    consumer.queue.settle(*[held[0][0], [held[0][1]]])  # nobody can: the tag is unknown now
    world.settle_down()
    assert (world.leader.front.ready, world.leader.replica.messages) == (1, 1)


@pytest.mark.parametrize("holder", [1, 2, 3])
@pytest.mark.parametrize("how", ["consumer", "cancelled consumer", "get", "own lease, cancelled"])
def test_leases_begin_anew_when_the_leader_changes(holder, how):
    world = World(visibility_timeout_ms=None if how.startswith("own") else 4000)
    world.elect(1)
    world.settle_down()
    client = Client(world.nodes[holder])
    world.publish(1, [b"a"])
    world.settle_down()
    if how == "get":
        client.get()
    else:
        consumer = client.consume(lease_ms=4000 if how.startswith("own") else None)
    world.settle_down()
    if how.endswith("cancelled") or how.startswith("cancelled"):
        client.cancel(consumer)
    assert len(client.unacked) == 1
    world.elect(2)
    world.settle_down(3000)
    assert len(client.unacked) == 1
    if how == "consumer":
        client.cancel(consumer)
    world.settle_down(4000)
    assert not client.unacked
    assert world.leader.front.ready == 1
    assert world.leader.front.unacked == 0


def test_an_ack_that_crosses_the_news_of_the_end_of_its_lease_counts(world):
    client = Client(world.nodes[2])
    client.consume(lease_ms=100)
    world.settle_down()
    world.publish(1, [b"a"])
    world.settle_down()
    world.clock.advance(150)
    world.flush()  # the leader has asked for it
    client.hand_back(list(client.unacked), "ack")
    world.settle_down(1000)
    assert client.seen == [(b"a", False, "c0")]
    assert world.leader.replica.messages == 0


@pytest.mark.parametrize("node", [1, 2])
def test_whether_a_lease_was_extended_is_known_where_the_queue_is_led(world, node):
    """The first node leads."""
    client = Client(world.nodes[node])
    client.consume(lease_ms=100)
    world.settle_down()
    world.publish(1, [b"a"])
    world.settle_down()
    ((consumer, message),) = client.unacked.values()
    answers = []

    def extend(lease_ms):
        extended = consumer.queue.extend_lease(message, lease_ms)
        answers.append(extended) if isinstance(extended, bool) else extended(answers.append)
        world.settle_down()

    extend(2000)
    world.settle_down(1000)
    assert len(client.seen) == 1
    client.hand_back(list(client.unacked), "ack")
    world.settle_down()
    extend(2000)
    assert answers == [True, False]


def test_questions_are_answered_by_the_leader(world):
    client = Client(world.nodes[3])
    client.consume(prefetch=1)
    world.publish(1, [b"a", b"b", b"c"])
    world.settle_down()
    front, said = world.nodes[2].front, []
    front.counts(lambda *counts: said.append(counts))
    front.check_delete(if_unused=True, if_empty=False, then=said.append)
    front.check_delete(if_unused=False, if_empty=True, then=said.append)
    front.check_delete(if_unused=False, if_empty=False, then=said.append)
    world.settle_down()
    front.statistics(said.append)
    world.settle_down()
    front.purge(said.append)
    world.settle_down()
    assert said[0] == (2, 1)
    assert [said[1].code, said[2].code, said[3]] == [406, 406, 2]
    assert said[1].text == "queue 'q' in vhost '/' in use"
    assert said[2].text == "queue 'q' in vhost '/' not empty"
    assert (said[4].ready, said[4].unacked, said[4].consumers) == (2, 1, 1)
    assert said[5] == 2
    assert front.ready == 2  # as last heard


def test_a_purge_is_answered_when_a_majority_has_it(world):
    world.publish(1, [b"a"])
    world.settle_down()
    for other in (2, 3):
        world.cut(1, other)
    said = []
    world.nodes[1].front.purge(said.append)
    world.settle_down(1000)
    assert not said
    for other in (2, 3):
        world.heal(1, other)
    world.settle_down(1000)
    assert said == [1]


def test_acks_are_said_to_be_stored_when_a_majority_has_them(world):
    client, said = Client(world.nodes[1]), []
    client.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    for other in (2, 3):
        world.cut(1, other)
    client.hand_back(list(client.unacked), "ack")
    world.nodes[1].front.when_settled(said.append)
    world.settle_down(1000)
    assert not said
    for other in (2, 3):
        world.heal(1, other)
    world.settle_down(1000)
    assert said == [None]


def test_acks_that_a_lost_leader_did_not_store_are_stored_by_the_next(world):
    client, said = Client(world.nodes[2]), []
    client.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    client.hand_back(list(client.unacked), "ack")
    world.nodes[2].front.when_settled(said.append)
    world.crash(1)
    world.elect(3)
    world.settle_down(3000)
    assert said == [None]
    assert world.leader.replica.messages == 0


def test_a_new_leader_starts_the_time_after_which_a_queue_expires_anew():
    world = World(expires_ms=1000)
    world.elect(1)
    world.settle_down(800)
    world.elect(2)
    world.settle_down(800)
    assert not world.unused
    world.settle_down(400)
    assert [queue is world.leader.front.queue for queue in world.unused] == [True]


def test_a_question_without_a_leader_fails_in_time(world):
    for other in (1, 3):
        world.cut(2, other)
    said, client = [], Client(world.nodes[2])
    world.nodes[2].front.purge(said.append)
    client.consume()
    world.settle_down(11_000)
    assert [error.code for error in (*said, *client.refused)] == [506, 506]


def test_publishes_without_a_majority_in_sight_are_refused(world):
    for other in (2, 3):
        world.cut(1, other)
    here = world.publish(1, [b"a"])
    world.settle_down(2000)
    assert not here.told
    world.settle_down(4000)
    assert here.refused == {b"a"}
    at_once = world.publish(1, [b"b"])
    assert at_once.refused == {b"b"}
    world.elect(2)
    for other in (2, 3):
        world.heal(1, other)
    world.settle_down(3000)
    later = world.publish(1, [b"c"])
    world.settle_down(1000)
    assert (later.told, later.refused) == (1, set())


@pytest.mark.parametrize("publisher", [1, 2, 3])
@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_unconfirmed_publishes_are_repeated_in_order_and_stored_once(world, publisher, survivors):
    for n in range(3):
        world.publish(publisher, [b"%d" % n])
        while world.net.busy():
            world.carry(world.net.busy()[0])
        world.group.gather(1)
    world.elect(2, survivors)
    world.settle_down(3000)
    assert world.confirmed == {b"0", b"1", b"2"}
    client = Client(world.nodes[3])
    client.consume()
    world.settle_down()
    assert bodies(client) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("holder", [1, 2, 3])
def test_what_a_consumer_holds_stays_with_it_when_the_leader_changes(world, holder):
    client, other = Client(world.nodes[holder]), Client(world.nodes[3])
    consumer = client.consume(prefetch=2)
    world.settle_down()
    world.publish(1, [b"a", b"b", b"c"])
    world.settle_down()
    client.cancel(consumer)
    world.flush()
    world.settle_down()
    other.consume()
    world.settle_down()
    world.elect(2)
    world.settle_down(3000)
    assert bodies(other) == [b"c"]
    client.hand_back(list(client.unacked), "ack")
    other.hand_back(list(other.unacked), "ack")
    world.flush()
    world.settle_down(1000)
    assert world.leader.replica.messages == 0
    assert world.leader.front.queue.unacked == 0


def test_what_a_consumer_holds_stays_with_it_though_others_come_back_in_turns():
    world = World(redelivery_rate=1)
    world.elect(1)
    world.settle_down()
    held, lost, other = Client(world.nodes[3]), Client(world.nodes[1]), Client(world.nodes[2])
    held.consume(prefetch=4)
    world.publish(1, [b"%d" % n for n in range(4)])
    world.settle_down()
    lost.consume()
    world.publish(1, [b"%d" % n for n in range(4, 8)])
    world.settle_down()
    assert (len(held.unacked), len(lost.unacked)) == (4, 4)
    world.crash(1)
    world.elect(2)
    while world.work:
        world.do_work()  # all of them are read before anybody claims any
    other.consume()
    world.settle_down(10_000)
    assert bodies(other) == [b"4", b"5", b"6", b"7"]
    held.hand_back(list(held.unacked), "ack")
    other.hand_back(list(other.unacked), "ack")
    world.settle_down(1000)
    assert world.leader.replica.messages == 0


def test_an_ack_that_died_with_the_leader_is_said_again(world):
    client = Client(world.nodes[3])
    client.consume()
    world.settle_down()
    world.publish(3, [b"a", b"b"])
    world.settle_down()
    client.hand_back([1], "ack")
    world.flush()
    while world.net.busy():
        world.carry(world.net.busy()[0])  # the leader knows, and its log does not
    world.crash(1)
    world.elect(2)
    world.settle_down(3000)
    assert bodies(client) == [b"a", b"b"]
    assert world.leader.replica.messages == 1


@pytest.mark.parametrize("asker", [1, 3])
@pytest.mark.parametrize("what", ["get", "counts", "check_delete", "purge"])
def test_a_leader_that_was_deposed_unawares_does_not_say_what_it_remembers(asker, what):
    world = World(members=(1, 2, 3, 4, 5), nodes=(1, 2, 3, 4, 5))
    world.elect(1)
    world.settle_down()
    for one in (1, 3):
        for other in (2, 4, 5):
            world.cut(one, other)
    world.elect(2)
    world.publish(2, [b"a", b"b"])
    world.settle_down()
    client, answers = Client(world.nodes[asker]), []
    front = client.node.front
    if what == "get":
        answers = client.get()
    elif what == "counts":
        front.counts(lambda *counts: answers.append(counts))
    elif what == "purge":
        front.purge(answers.append)
    else:
        front.check_delete(if_unused=False, if_empty=True, then=answers.append)
    world.settle_down(1000)
    assert not answers
    for one in (1, 3):
        for other in (2, 4, 5):
            world.heal(one, other)
    world.settle_down(3000)
    [answer] = answers
    if what == "get":
        assert bytes(answer[0].body) == b"a"
    elif what == "check_delete":
        assert answer.code == 406
    else:
        assert answer == {"counts": (2, 0), "purge": 2}[what]


def test_dealing_waits_for_the_claims_of_all_that_are_up(world):
    holder, eager = Client(world.nodes[3]), Client(world.nodes[2])
    holder.consume(prefetch=1)
    world.settle_down()
    world.publish(1, [b"a"])
    world.settle_down()
    eager.consume()
    world.settle_down()
    world.group.elect(2)
    world.flush()
    for key in [key for key in world.net.busy() if key[0] != 3]:
        while world.net.lanes[key]:
            world.carry(key)
    assert not eager.seen
    world.settle_down()
    assert not eager.seen
    assert world.leader.front.queue.unacked == 1


def test_what_nobody_claims_is_redelivered(world):
    holder, other = Client(world.nodes[3]), Client(world.nodes[2])
    holder.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    world.crash(3)
    world.crash(1)
    world.restart(1)
    world.elect(2)
    other.consume()
    world.settle_down(3000)
    assert [seen[:2] for seen in other.seen] == [(b"a", True)]


def test_a_node_that_is_lost_gives_back_what_it_had(world):
    holder, other = Client(world.nodes[3]), Client(world.nodes[2])
    holder.consume()
    world.settle_down()
    world.publish(1, [b"a"])
    world.settle_down()
    other.consume()
    world.settle_down()
    world.cut(1, 3)
    world.settle_down()
    assert [seen[:2] for seen in other.seen] == [(b"a", True)]
    holder.hand_back([1], "ack")  # too late
    world.heal(1, 3)
    world.settle_down(1000)
    assert world.leader.front.queue.unacked == 1
    other.hand_back([1], "ack")
    world.flush()
    world.settle_down(1000)
    assert world.leader.replica.messages == 0


def test_a_deleted_queue_cancels_its_consumers_everywhere(world):
    clients = [Client(world.nodes[n]) for n in (1, 2)]
    for client in clients:
        client.consume()
    world.settle_down()
    waiting = world.publish(3, [b"a"])
    for number in (1, 2, 3):
        world.nodes[number].front.delete()
    world.settle_down()
    assert [client.cancelled for client in clients] == [["c0"], ["c0"]]
    assert waiting.told == 1
    assert not any(node.fronts.pending_bytes for node in world.nodes.values())
    assert not any(node.book._leads or node.book._watchers for node in world.nodes.values())


def test_refused_messages_are_those_that_the_publisher_sent():
    world = World(max_length=2, overflow="reject-publish")
    world.elect(1)
    world.settle_down()
    remote = world.publish(2, [b"a", b"b", b"c"])
    world.settle_down()
    here = world.publish(1, [b"d"])
    world.settle_down()
    assert (remote.refused, here.refused) == ({b"c"}, {b"d"})


def test_wishes_priority_and_expiry_travel(world):
    world.publish(2, [b"late"], wishes=Wishes(delay_ms=5000), priority=7)
    world.publish(2, [b"brief"], expires_at=world.clock.now + 100)
    world.publish(2, [b"once"], wishes=Wishes(dedup_id=b"i" * 16))
    world.publish(2, [b"twice"], wishes=Wishes(dedup_id=b"i" * 16))
    world.settle_down(200)
    client = Client(world.nodes[3])
    client.consume()
    world.settle_down()
    assert bodies(client) == [b"once"]
    world.settle_down(6000)
    assert bodies(client) == [b"once", b"late"]
    assert world.dead == [([b"brief"], "expired")]


def test_a_publisher_knows_what_was_refused_also_when_the_leader_changed_on_the_way():
    world = World(max_length=2, overflow="reject-publish")
    world.elect(1)
    world.settle_down()
    for other in (2, 3):
        world.cut(1, other)
    receipt = world.publish(1, [b"a", b"b"])  # taken and numbered here, and never committed
    world.elect(2)
    world.publish(3, [b"x"])
    world.settle_down(1000)
    for other in (2, 3):
        world.heal(1, other)
    world.settle_down(3000)
    assert (receipt.told, receipt.refused) == (1, {b"b"})


@pytest.mark.parametrize("no_ack", [False, True])
def test_an_ack_that_a_deposed_leader_took_here_is_said_to_the_next(world, no_ack):
    client = Client(world.nodes[1])
    client.consume(no_ack=no_ack)
    world.publish(1, [b"a"])
    world.group.commit()
    client.hand_back(list(client.unacked), "ack")
    world.elect(2)  # before the log has it
    world.settle_down(3000)
    assert bodies(client) == [b"a"]
    assert world.leader.replica.messages == 0


def commit(client, tags):
    """Ack these and ask whether that is kept, as tx.commit does: the answers, when there are."""
    answers = []
    client.hand_back(tags, "ack")
    client.node.front.when_settled(answers.append)
    client.node.world.flush()
    return answers


@pytest.mark.parametrize("holder", [1, 3])
def test_an_ack_outlasts_a_leader_that_could_not_write_it_however_long_that_takes(world, holder):
    client = Client(world.nodes[holder])
    client.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    for other in {1, 2, 3} - {1, holder}:
        world.cut(1, other)
    if holder == 3:
        world.cut(2, 3)  # holder and leader see each other, and nobody else
    answers = commit(client, [1])
    world.group.members = (1, 2, 3, 4, 5)  # without a majority until there is another leader
    world.settle_down(3000)
    assert not answers
    world.group.members = (1, 2, 3)
    world.heal(2, 3)
    world.cut(1, 3)
    world.elect(2)
    world.heal(1, 2)
    world.heal(1, 3)
    world.settle_down(3000)
    assert answers == [None]
    assert world.leader.replica.messages == 0


@pytest.mark.parametrize("leader", [1, 2])
def test_a_commit_fails_whose_acks_come_too_late_for_the_next_leader(leader):
    world = World(retry_delay_ms=60_000)
    world.elect(1)
    world.settle_down()
    late, other = Client(world.nodes[1]), Client(world.nodes[2])
    late.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    world.cut(1, 2)
    world.cut(1, 3)
    answers = commit(late, [1])
    world.elect(2)
    other.consume()
    world.settle_down(1000)
    assert bodies(other) == [b"a"]
    if leader == 1:  # what consumers elsewhere hold it would get before they claim it
        other.hand_back([1], "requeue")
        world.settle_down(1000)
    world.heal(1, 2)
    world.heal(1, 3)
    world.elect(leader)
    world.settle_down(3000)
    assert len(answers) == 1
    assert answers[0].code == 506
    assert world.leader.replica.messages == 1
    again = commit(late, [])
    world.settle_down(1000)
    assert again == [None]


def test_what_belongs_to_an_earlier_stay_is_not_heard(world):
    client = Client(world.nodes[2])
    consumer = client.consume()
    world.publish(1, [b"a"])
    world.settle_down()
    front, desk = world.nodes[2].front, world.nodes[1].fronts.desks[UID]
    stay = front._stay.attachment
    stray = encode_deliver(consumer.number, [message(b"stray")])
    world.nodes[2].fronts.received(1, b"".join((head(Op.DELIVER, UID, stay - 1), *stray)))
    assert bodies(client) == [b"a"]
    settles = encode_returns(1, [(consumer.number, 0, [0])])
    body = head(Op.RETURN, UID, stay - 1) + settles
    assert not desk.received(2, Op.RETURN, stay - 1, body)
    world.settle_down()
    assert world.leader.replica.messages == 1


def test_a_leader_that_leads_anew_calls_fronts_that_noticed_nothing(world):
    client = Client(world.nodes[2])
    client.consume()
    world.settle_down()
    world.group.step_down(1)
    for key, lane in world.net.lanes.items():
        if key[0] == 1:
            lane.clear()  # a member elsewhere hears of the new term first
    world.elect(1)
    world.publish(1, [b"a"])
    world.settle_down(3000)
    assert bodies(client) == [b"a"]


def test_a_leader_that_is_not_ready_is_asked_again():
    world = World()
    world.nodes[1].book.i_lead(UID, 1)  # others hear of it before it has opened its desk
    receipt = world.publish(2, [b"a"])
    world.settle_down()
    world.elect(1)
    world.settle_down(500)
    assert (receipt.told, receipt.refused) == (1, set())


def test_what_waits_for_other_nodes_holds_publishers_back(world):
    said, fronts = [], world.nodes[2].fronts
    fronts._crowd = said.append
    fronts.pending_bytes_max = 100_000
    world.publish(2, [b"x" * 60_000])
    assert not fronts.congested
    world.publish(2, [b"x" * 60_000])
    assert fronts.congested
    world.settle_down()
    assert (said, fronts.congested, fronts.pending_bytes) == ([True, False], False, 0)


def test_what_is_too_long_for_one_message_goes_in_parts(world):
    sent = [b"%d" % n + b"x" * size for n, size in enumerate((5_000_000, 10, 4_000_000, 20) * 2)]
    client = Client(world.nodes[3])
    client.consume()
    for body in sent[:4]:
        world.publish(2, [body])
    world.publish(2, sent[4:])
    assert all(len(body) < 3_000_000 for lane in world.net.lanes.values() for _, body in lane)
    world.settle_down()
    client.resume()
    world.settle_down()
    assert list(map(hash, bodies(client))) == list(map(hash, sent))
    client.hand_back(list(client.unacked), "ack")
    fetched = Client(world.nodes[2])
    client.close()
    world.publish(2, [b"y" * 5_000_000])
    world.settle_down()
    answers = fetched.get(no_ack=True)
    world.settle_down(1000)
    assert answers[0][0].body_bytes == 5_000_000
    assert world.leader.replica.messages == 0


@pytest.mark.parametrize("publisher", [1, 2])
def test_one_consumer_sees_what_one_publisher_sent_in_order_through_changes_of_leader(publisher):
    world = World()
    world.elect(1)
    client = Client(world.nodes[3])
    client.consume(prefetch=4)
    for n in range(40):
        world.publish(publisher, [b"%d" % n])
        if n % 3 == 0:
            world.settle_down()
        if n % 7 == 6:
            world.elect(1 + n % 3, survivors=n % 2)
            world.settle_down(3000)
        client.hand_back(list(client.unacked)[:2], "ack")
    for _ in range(40):
        world.settle_down()
        client.hand_back(list(client.unacked), "ack")
    new = [int(body) for body, redelivered, _ in client.seen if not redelivered]
    assert new == sorted(new)
    assert {int(body) for body in bodies(client)} == set(range(40))
    assert world.leader.replica.messages == 0


# Queues that live on one node


@pytest.fixture
def home():
    """A queue in memory, on node 1."""
    world = World()
    for node in world.nodes.values():
        node.front.placement = Placement(home=1)
        node.book.fix(UID, 1)
    queue = Queue("q", world, world.options, arguments={}, durable=False, **LIFE)
    world.nodes[1].fronts.lead(UID, queue, alone=True)
    world.settle_down(500)
    return world


LIFE = {"auto_delete": False, "owner": None}


def test_a_queue_in_memory_is_used_from_other_nodes(home):
    client = Client(home.nodes[3])
    client.consume(prefetch=1)
    receipt = home.publish(2, [b"a", b"b"])
    home.settle_down()
    assert receipt.told == 1
    client.hand_back(list(client.unacked), "ack")
    home.settle_down()
    assert bodies(client) == [b"a", b"b"]


def test_without_its_home_consumers_are_cancelled_and_publishes_refused(home):
    client = Client(home.nodes[3])
    client.consume()
    home.settle_down()
    waiting = home.publish(3, [b"a"])
    home.cut(1, 3)
    assert client.cancelled == ["c0"]
    assert waiting.refused == {b"a"}
    assert home.publish(3, [b"b"]).refused == {b"b"}
    home.heal(1, 3)
    later = home.publish(3, [b"c"])
    home.settle_down()
    assert (later.told, later.refused) == (1, set())
