"""A replica of a queue takes over and gives away: what publishers and consumers notice of it."""

import pytest

import queues.cold
import queues.durable
import queues.live_log
from queues.consumers import Consumer
from queues.publishers import Origin
from tests.queues.fakes import FakeReceipt, FakeSink, consume, fetch, message, names
from tests.queues.replicas import Group

SESSION = b"0123456789abcdef"


def send(queue, seq, *wanted, session=SESSION):
    """Answers to a batch with this number."""
    receipt = FakeReceipt()
    made = [each if not isinstance(each, int) else message(each) for each in wanted]
    queue.publish(made, receipt, Origin(session, seq))
    return receipt.answers


def led(**options):
    group = Group(**options)
    group.elect(0)
    return group


def move(group, number, *, kept=0):
    group.depose(kept=kept)
    group.elect(number)


def delivered(group, **options):
    """A consumer that takes all there is: what it got."""
    sink = FakeSink()
    consumer = consume(group.queue, sink, **options)
    group.settle_down()
    return consumer, sink.take()


def alive(group):
    """Names of all that a new leader has to offer."""
    move(group, 1)
    _, found = delivered(group, no_ack=True)
    return names(found)


# Publishers that repeat themselves


def test_a_batch_that_is_in_the_log_is_confirmed_and_not_stored_again():
    group = led()
    assert send(group.queue, 1, 10, 11) == []
    group.settle_down()
    assert send(group.queue, 1, 10, 11) == [[]]
    move(group, 1)
    assert send(group.queue, 1, 10, 11) == [[]]
    send(group.queue, 2, 12)
    group.settle_down()
    assert alive(group) == [10, 11, 12]


def test_a_batch_that_is_on_its_way_is_answered_with_it():
    group = led()
    first = send(group.queue, 1, 10)
    second = send(group.queue, 1, 10)
    group.submit()
    third = send(group.queue, 1, 10)
    assert first == second == third == []
    group.commit()
    assert first == second == third == [[]]
    assert alive(group) == [10]


def test_what_was_not_committed_is_stored_when_it_comes_again():
    group = led()
    lost = send(group.queue, 1, 10)
    group.submit()
    move(group, 1)
    again = send(group.queue, 1, 10)
    group.settle_down()
    assert (lost, again) == ([], [[]])
    assert alive(group) == [10]


def test_what_was_committed_behind_the_leaders_back_is_not_stored_again():
    group = led()
    lost = send(group.queue, 1, 10)
    group.submit()
    move(group, 1, kept=1)
    assert send(group.queue, 1, 10) == [[]]
    assert lost == []
    assert alive(group) == [10]


def test_sessions_do_not_know_of_each_other():
    group = led()
    send(group.queue, 1, 10)
    send(group.queue, 1, 20, session=bytes(16))
    group.settle_down()
    assert alive(group) == [10, 20]


def test_a_replica_that_starts_from_a_checkpoint_knows_what_was_sent():
    group = led()
    send(group.queue, 1, 10)
    group.settle_down()
    behind = group.members[1]
    behind.receive(group.leader)
    behind.restart()
    move(group, 1)
    assert send(group.queue, 1, 10) == [[]]
    assert alive(group) == [10]


@pytest.mark.parametrize("moves", [False, True])
def test_a_refused_message_is_refused_again_however_much_was_taken_since(moves):
    group = led(max_length=2, overflow="reject-publish")
    partly = send(group.queue, 1, 10, 11, 12)
    wholly = send(group.queue, 2, 13, 14)
    while_under_way = send(group.queue, 1, 10, 11, 12), send(group.queue, 2, 13, 14)
    group.settle_down()
    assert (partly, wholly) == ([[12]], [[13, 14]])
    assert while_under_way == (partly, wholly)
    delivered(group, no_ack=True)
    send(group.queue, 3, 15)
    group.settle_down()
    if moves:
        move(group, 1)
    assert send(group.queue, 1, 10, 11, 12) == partly
    assert send(group.queue, 2, 13, 14) == wholly
    assert send(group.queue, 3, 15) == [[]]


def test_a_batch_of_duplicates_is_known_again_when_their_ids_are_forgotten():
    group = led(dedup_window_ms=10)
    send(group.queue, 1, message(10, dedup_id="x"))
    send(group.queue, 2, message(11, dedup_id="x"))
    group.settle_down()
    group.advance(20)
    assert send(group.queue, 2, message(11, dedup_id="x")) == [[]]
    group.settle_down()
    assert alive(group) == [10]


def test_a_queue_that_is_over_answers_nobody():
    group = led()
    queue = group.queue
    before = send(queue, 1, 10)
    group.depose()
    after = send(queue, 2, 11)
    queue.purge()
    group.elect(1)
    group.settle_down()
    assert before == after == []
    assert queue.retired


# Leading and following


def test_leading_and_following_any_number_of_times():
    group = led()
    for turn in range(10):
        send(group.queue, turn + 1, turn)
        group.settle_down()
        move(group, (turn + 1) % 2)
        for member in group.members:
            member.catch_up() if member is not group.leader else None
            assert member.replica.messages == turn + 1
    _, found = delivered(group, no_ack=True)
    assert names(found) == list(range(10))
    assert all(each.redelivered for each in found)


def test_a_queue_that_is_over_gives_its_memory_and_its_clocks_back():
    group = led(message_ttl_ms=500, visibility_timeout_ms=100, retry_delay_ms=50, expires_ms=900)
    for seq in range(1, 6):
        send(group.queue, seq, seq, message(seq + 10, delay_ms=30))
    group.settle_down()
    consumer, [first, *_] = delivered(group, prefetch=2)
    group.queue.requeue(consumer, [first])
    leader, context = group.leader, group.leader.context
    assert context.timers
    assert leader.budget.used
    group.depose()
    assert context.timers == 0
    assert leader.budget.used == 0


def test_late_reads_of_a_queue_that_is_over_are_ignored():
    group = led()
    send(group.queue, 1, 10, 11)
    group.settle_down()
    move(group, 1)
    old = group.leader
    assert old.log.reads
    move(group, 2)
    old.log.finish_read()
    assert old.budget.used == 0
    assert len(delivered(group, no_ack=True)[1]) == 2


def test_what_was_never_delivered_is_so_after_a_transfer_in_good_order():
    group = led()
    send(group.queue, 1, 10, 11, 12)
    group.settle_down()
    delivered(group, prefetch=1)
    ready = []
    group.leader.replica.prepare_transfer(lambda: ready.append(True))
    assert not ready
    group.settle_down()
    assert ready
    move(group, 1)
    _, found = delivered(group)
    assert [(n, m.redelivered) for n, m in zip(names(found), found, strict=True)] == [
        (10, True),
        (11, False),
        (12, False),
    ]
    move(group, 2)  # without any order: what the log said of before is not true any more
    _, found = delivered(group)
    assert [m.redelivered for m in found] == [True, True, True]


def test_nothing_is_delivered_by_one_that_is_about_to_hand_over_until_it_gives_that_up():
    group = led()
    send(group.queue, 1, 10)
    group.settle_down()
    replica = group.leader.replica
    called = []
    replica.prepare_transfer(lambda: called.append(True))
    sink = FakeSink()
    consume(group.queue, sink)
    assert fetch(group.queue) is None
    assert sink.names == []
    replica.cancel_transfer()
    group.settle_down()
    assert sink.names == [10]
    assert called == [], "it would have handed over all the same"
    move(group, 1)
    _, [found] = delivered(group)
    assert found.redelivered


def test_a_checkpoint_from_before_another_state_was_installed_means_nothing(monkeypatch):
    monkeypatch.setattr(queues.live_log, "CHECKPOINT_ENTRIES", 1)
    group = led()
    for seq in range(1, 4):
        send(group.queue, seq, seq)
        group.settle_down()
        group.queue.purge()
        group.settle_down()
    behind = group.members[1]
    behind.catch_up()
    assert behind.log.checkpoints
    send(group.queue, 4, 4)
    group.settle_down()
    behind.receive(group.leader)
    behind.log.finish_checkpoint()
    [needed] = behind.replica.kept()
    assert needed in behind.log.entries
    group.queue.purge()
    group.settle_down()
    behind.catch_up()
    assert needed not in behind.log.entries, "under the checkpoint it goes at once"


def test_a_damaged_replica_serves_nothing():
    group = led()
    send(group.queue, 1, 10)
    group.settle_down()
    group.members[1].replica.damaged("a sector is gone")
    move(group, 1)
    assert group.queue.damaged == "a sector is gone"
    assert send(group.queue, 2, 11) == [[11]]


def test_deleting_lets_the_log_go_on_leaders_and_followers():
    group = led()
    send(group.queue, 1, 10)
    group.settle_down()
    queue = group.queue
    assert [member.replica.delete() for member in group.members] == [1, 0, 0]
    assert queue.deleted
    assert all(member.log.deleted for member in group.members)


# Claims


def held_over(group, count, *, hold=True, prefetch=0, **options):
    """Messages are with a consumer while the leader changes; the new one holds its deals back."""
    send(group.queue, 1, *options.pop("wanted", range(count)))
    group.settle_down()
    _, had = delivered(group, prefetch=prefetch)
    group.on_lead = (lambda queue: queue.hold_dealing()) if hold else group.on_lead
    move(group, 1)
    sink = FakeSink()
    consumer = Consumer("c", group.queue, sink, **options)
    group.queue.add_consumer(consumer)
    return consumer, sink, had


def test_claimed_messages_stay_with_their_holder_and_the_rest_is_redelivered():
    group = led()
    consumer, sink, had = held_over(group, 4)
    queue = group.queue
    claimed = queue.claim(consumer, [1, 3, 3, 77])
    assert [m.sequence for m in claimed] == [1, 3]
    assert queue.claim(consumer, [1]) == []
    group.settle_down()
    assert sink.names == []
    assert fetch(queue) is None
    assert queue.is_loading, "a get has to wait"
    queue.start_dealing()
    assert sink.names == [0, 2]
    assert queue.unacked == 4
    queue.settle(consumer, [*claimed[:1], had[3]])  # or whatever has the number
    group.settle_down()
    move(group, 2)
    group.queue.start_dealing()
    assert sorted(names(delivered(group)[1])) == [0, 2]


def test_a_claim_before_or_after_messages_are_read_back_is_the_same():
    for read_first in (False, True):
        group = led()
        consumer, _, _ = held_over(group, 3)
        if read_first:
            group.settle_down()
        assert [m.sequence for m in group.queue.claim(consumer, [0, 2])] == [0, 2]
        assert (group.queue.ready, group.queue.unacked) == (1, 2)


def test_late_claims_get_what_nobody_else_has():
    group = led()
    consumer, sink, _ = held_over(group, 3, hold=False, prefetch=3)
    other = Consumer("other", group.queue, sink, prefetch=1)
    group.queue.remove_consumer(consumer)
    group.queue.add_consumer(other)
    group.queue.start_consumer()
    group.settle_down()
    assert sink.names == [0]
    assert [m.sequence for m in group.queue.claim(consumer, [0, 1])] == [1]


@pytest.mark.parametrize("known", [False, True])
def test_a_claimed_message_comes_back_with_all_that_is_in_it(known):
    group = led()
    consumer, sink, had = held_over(group, 2)
    claimed = group.queue.claim(consumer, [0, 1], had if known else ())
    assert [m.is_stand_in for m in claimed] == [not known] * 2
    if known:
        assert claimed == had
    group.queue.start_dealing()
    group.queue.requeue(consumer, claimed)
    group.settle_down()
    assert [(m.delivery_count, m.redelivered) for _, m in sink.delivered] == [(1, True)] * 2
    assert sink.names == [0, 1]
    assert group.queue.held([0, 1]) == []


def test_a_claimed_message_has_failed_as_often_as_the_log_says():
    group = led()
    send(group.queue, 1, 0)
    group.settle_down()
    consumer, had = delivered(group)
    group.queue.requeue(consumer, had)
    group.settle_down()
    move(group, 1)
    [claimed] = group.queue.claim(consumer, [0])
    assert claimed.delivery_count == 1
    group.queue.requeue(consumer, [claimed])
    group.settle_down()
    _, [again] = delivered(group)
    assert again.delivery_count == 2


def test_a_claimed_message_is_dead_lettered_with_all_that_is_in_it():
    group = led(delivery_limit=0)
    dead = []
    group.on_dead = lambda _, burial, then: dead.append((names(burial.messages), burial.reason))
    consumer, _, _ = held_over(group, 2)
    first, second = group.queue.claim(consumer, [0, 1])
    group.queue.discard(consumer, [first])
    group.queue.requeue(consumer, [second])
    assert dead == []
    group.settle_down()
    assert dead == [([0], "rejected"), ([1], "delivery_limit")]


def test_leases_of_claimed_messages_begin_anew():
    group = led(visibility_timeout_ms=50)
    consumer, sink, had = held_over(group, 1)
    sink.revoke = lambda consumer, messages: messages
    group.advance(40)
    group.queue.claim(consumer, [0])
    group.queue.start_dealing()
    group.advance(40)
    assert group.queue.extend_lease(had[0], None)
    group.advance(40)
    group.settle_down()
    assert sink.names == []
    group.advance(20)
    group.settle_down()
    assert sink.names == [0]


def test_groups_of_claimed_messages_stay_blocked():
    group = led(message_groups=True)
    wanted = [message(0, group="a"), message(1, group="a"), message(2, group="b")]
    consumer, sink, _ = held_over(group, 0, wanted=wanted, prefetch=1)
    [claimed] = group.queue.claim(consumer, [0])
    group.queue.start_dealing()
    assert sink.names == []
    group.settle_down()
    assert sink.names == [2]
    group.queue.settle(consumer, [claimed])
    assert sink.names == [2, 1]


def test_a_message_that_failed_once_may_be_claimed_while_it_is_read_for_its_group():
    group = led(message_groups=True, retry_delay_ms=10)
    send(group.queue, 1, message(0, group="a"), message(1, group="a"))
    group.settle_down()
    consumer, had = delivered(group)
    group.queue.requeue(consumer, had)
    group.settle_down()
    group.advance(20)
    group.settle_down()
    move(group, 1)
    sink = FakeSink()
    consumer = Consumer("c", group.queue, sink)
    claimed = group.queue.claim(consumer, [0], had)
    assert claimed == had
    group.queue.requeue(consumer, claimed, lost=True)
    group.queue.add_consumer(consumer)
    group.queue.start_consumer()
    group.settle_down()
    assert sink.names == [0]
    group.queue.settle(consumer, claimed)
    assert sink.names == [0, 1]


def test_a_message_that_is_claimed_while_it_is_read_may_fail_and_be_purged():
    group = led(retry_delay_ms=100)
    send(group.queue, 1, message(0, delay_ms=5))
    group.settle_down()
    group.advance(10)
    group.settle_down()
    _, had = delivered(group)
    move(group, 1)
    assert group.leader.log.reads, "it is due, and being read"
    consumer = Consumer("c", group.queue, FakeSink())
    group.queue.requeue(consumer, group.queue.claim(consumer, [0], had))
    group.settle_down()
    assert group.queue.away.delayed_count == 1
    assert group.queue.purge() == 1
    group.settle_down()
    assert group.leader.replica.messages == 0


@pytest.mark.parametrize(("returned", "found"), [(True, [0, 2]), (False, [2])])
def test_messages_that_are_delayed_or_settled_cannot_be_claimed(returned, found):
    """But for one that may have been delivered again, by a clock that was ahead of this one."""
    group = led(retry_delay_ms=100)
    send(group.queue, 1, 0, 1, 2)
    group.settle_down()
    consumer, had = delivered(group)
    group.queue.requeue(consumer, [had[0]])
    group.queue.settle(consumer, [had[1]])
    group.settle_down()
    move(group, 1)
    claimed = group.queue.claim(consumer, [0, 1, 2], returned=returned)
    assert [m.sequence for m in claimed] == found


def test_a_message_can_be_claimed_that_is_due_by_the_clock_of_the_node_that_led_before():
    group = led()
    send(group.queue, 1, message(0, delay_ms=500), message(1, delay_ms=5000))
    group.settle_down()
    move(group, 1)
    assert group.queue.away.delayed_count == 2
    consumer = Consumer("c", group.queue, FakeSink())
    claimed = group.queue.claim(consumer, [0, 1])
    assert [m.sequence for m in claimed] == [0]
    assert group.queue.away.delayed_count == 1
    group.advance(600)
    group.settle_down()
    assert (group.queue.ready, group.queue.unacked) == (0, 1)
    group.queue.settle(consumer, claimed)
    group.settle_down()
    assert group.leader.replica.messages == 1


def test_what_is_claimed_neither_expires_nor_is_purged_nor_dropped():
    group = led(message_ttl_ms=30, max_length=5)
    dead = []

    def bury(queue, burial, then):
        dead.extend(names(burial.messages))
        then([])

    group.on_dead = bury
    consumer, _, _ = held_over(group, 3)
    group.advance(60)
    group.settle_down()
    assert dead == [], "somebody may hold them"
    [claimed] = group.queue.claim(consumer, [1])
    group.queue.start_dealing()
    group.settle_down()
    assert dead == [0, 2]
    group.queue.purge()
    group.settle_down()
    assert group.queue.held([1]) == [claimed]
    assert group.leader.replica.messages == group.queue.unacked == 1


def test_a_claimed_message_that_was_settled_meanwhile_is_no_damage(monkeypatch):
    monkeypatch.setattr(queues.durable, "ENTRY_MESSAGES_MAX", 1)
    monkeypatch.setattr(queues.cold, "LOAD_MESSAGES", 1)
    group = led(message_groups=True)
    for name in range(3):
        send(group.queue, name + 1, message(name, group="abc"[name]))
        group.settle_down()
    delivered(group)
    move(group, 1)
    consumer = Consumer("c", group.queue, FakeSink())
    queue, log = group.queue, group.leader.log
    [first] = queue.claim(consumer, [0])
    log.finish_read()  # of what was asked for before; now the claimed one is, for its group
    queue.settle(consumer, [first])
    group.submit()
    group.commit()
    del log.entries[log.reads[0][0][0]]  # as if it were released
    queue.claim(consumer, [2])
    log.finish_read()
    queue.requeue(consumer, [first])
    group.settle_down()
    assert queue.damaged is None
    assert not queue.is_loading


def test_many_claims_are_read_back_in_several_goes(monkeypatch):
    monkeypatch.setattr(queues.durable, "ENTRY_MESSAGES_MAX", 1)
    group = led()
    for name in range(100):
        send(group.queue, name + 1, name)
        group.settle_down()
    delivered(group)
    group.on_lead = lambda queue: queue.hold_dealing()
    move(group, 1)
    sink = FakeSink()
    consumer = Consumer("c", group.queue, sink)
    group.queue.add_consumer(consumer)
    claimed = group.queue.claim(consumer, range(100))
    assert len(claimed) == 100
    group.queue.start_dealing()
    group.queue.requeue(consumer, claimed, lost=True)
    group.settle_down()
    assert sink.names == list(range(100))
