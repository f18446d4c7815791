"""What died stays in its queue until its dead letter is safe, however often that is refused."""

import pytest

from queues import burials
from queues.consumers import Consumer
from queues.options import QueueOptions
from tests.queues.fakes import FakeContext, FakeSink, message, names, new_queue
from tests.queues.replicas import Group


class Graveyard(FakeContext):
    """Takes dead letters, refuses them, or lets them wait."""

    def __init__(self):
        super().__init__()
        self.is_open = False
        self.under_way = None  # answers to come, once it keeps people waiting
        self.tries = []  # (time, names)

    def dead_letter(self, queue, burial, then):
        self.tries.append((self.now, names(burial.messages)))
        if self.under_way is not None:
            self.under_way.append((burial, then))
        else:
            self.answer(burial, then)

    def answer(self, burial, then):
        if self.is_open:
            self.dead += [(name, burial.reason) for name in names(burial.messages)]
        then([] if self.is_open else burial.messages)


@pytest.fixture
def context():
    return Graveyard()


@pytest.fixture
def dead_max(monkeypatch):
    def set_to(number):
        for module in ("queues.burials", "queues.queue"):
            monkeypatch.setattr(f"{module}.DEAD_MAX", number)

    return set_to


def reject(queue, *chosen):
    """Fetch and reject as many messages, each by itself."""
    holder = Consumer("", queue, FakeSink(), fetching=True)
    held = [queue.get(holder) for _ in chosen]
    for one in held:
        queue.discard(holder, [one])
    return held


def publish(queue, *numbers, **more):
    queue.publish([message(number, **more) for number in numbers], None)


def test_what_is_refused_is_tried_again_until_it_is_taken(context):
    queue = new_queue(context)
    publish(queue, 0)
    reject(queue, 0)
    assert (queue.dying, context.dead) == (1, [])
    context.advance(10_000)
    assert (queue.dying, context.dead) == (1, [])
    assert 3 < len(context.tries) < 20
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    assert (queue.dying, context.dead) == (0, [(0, "rejected")])
    tries = len(context.tries)
    context.advance(2 * burials.PAUSE_MS_MAX)
    assert (len(context.tries), context.timers) == (tries, 0)


def test_pauses_grow_and_are_short_again_after_a_success(context):
    queue = new_queue(context)
    publish(queue, 0, 1)
    reject(queue, 0)
    context.advance(20_000)
    pauses = [b - a for (a, _), (b, _) in zip(context.tries, context.tries[1:], strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[0] == burials.PAUSE_MS_MIN
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    context.is_open = False
    context.tries.clear()
    reject(queue, 1)
    context.advance(burials.PAUSE_MS_MIN)
    assert [at - context.tries[0][0] for at, _ in context.tries] == [0, burials.PAUSE_MS_MIN]


def test_they_go_in_the_order_in_which_they_died(context):
    queue = new_queue(context)
    publish(queue, *range(6))
    reject(queue, 0, 1)
    context.under_way = []
    context.advance(burials.PAUSE_MS_MIN)
    reject(queue, 2, 3)
    [(first, then_first), (second, then_second), *_] = context.under_way
    context.under_way = None
    then_second(second.messages)
    then_first(first.messages)
    reject(queue, 4, 5)
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    assert context.dead[:2] == [(0, "rejected"), (1, "rejected")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"message_ttl_ms": 5}, "expired"),
        ({"max_length": 0}, "maxlen"),
        ({"delivery_limit": 0}, "delivery_limit"),
    ],
)
def test_all_ways_to_die_wait_alike(context, options, reason):
    queue = new_queue(context, **options)
    publish(queue, 0)
    if reason == "delivery_limit":
        holder = Consumer("", queue, FakeSink(), fetching=True)
        queue.requeue(holder, [queue.get(holder)])
    context.advance(50)
    assert (queue.ready, queue.dying, context.dead) == (0, 1, [])
    assert not queue.is_empty
    assert queue.statistics().dying == 1
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    assert (queue.dying, context.dead) == (0, [(0, reason)])
    assert queue.is_empty


def test_no_more_may_die_than_may_wait_and_the_rest_stays_in_line(context, dead_max):
    dead_max(3)
    queue = new_queue(context, message_ttl_ms=5)
    publish(queue, *range(5))
    context.advance(10)
    sink = FakeSink()
    consumer = Consumer("c", queue, sink)
    queue.add_consumer(consumer)
    queue.start_consumer()
    publish(queue, 5)
    assert (queue.dying, queue.ready) == (3, 3)
    assert (sink.names, queue.get(Consumer("", queue, FakeSink(), fetching=True))) == ([], None)
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    assert [name for name, _ in context.dead] == [0, 1, 2, 3, 4, 5]
    publish(queue, 6)
    assert sink.names == [6]


def test_a_queue_that_is_too_long_drops_what_may_die_and_the_rest_later(context, dead_max):
    dead_max(2)
    queue = new_queue(context, max_length=1)
    publish(queue, *range(5))
    assert (queue.dying, queue.ready) == (2, 3)
    context.is_open = True
    context.advance(burials.PAUSE_MS_MAX)
    assert ([name for name, _ in context.dead], queue.ready) == ([0, 1, 2, 3], 1)


def test_a_limit_in_bytes_holds_as_well(context, monkeypatch):
    monkeypatch.setattr(burials, "DEAD_BYTES_MAX", 100)
    queue = new_queue(context)
    publish(queue, 0, size=100)
    publish(queue, 1)
    reject(queue, 0)
    assert queue.get(Consumer("", queue, FakeSink(), fetching=True)) is None
    context.is_open = True
    context.advance(burials.PAUSE_MS_MIN)
    assert names([queue.get(Consumer("", queue, FakeSink(), fetching=True))]) == [1]


def test_a_purge_takes_what_waits_and_ends_the_tries_of_what_is_under_way(context):
    queue = new_queue(context)
    publish(queue, 0, 1, 2)
    reject(queue, 0)
    assert queue.purge() == 3
    assert queue.is_empty
    publish(queue, 3)
    context.under_way = []
    context.advance(burials.PAUSE_MS_MAX)
    reject(queue, 3)
    assert queue.purge() == 0
    [(burial, then)] = context.under_way
    then(burial.messages)
    assert queue.is_empty


@pytest.mark.parametrize("end", ["delete", "retire"])
def test_nothing_is_sent_or_heard_of_a_queue_that_is_over(context, end):
    queue = new_queue(context)
    publish(queue, 0)
    context.under_way = []
    reject(queue, 0)
    getattr(queue, end)()
    [(burial, then)] = context.under_way
    then(burial.messages)
    context.advance(burials.PAUSE_MS_MAX)
    assert (len(context.tries), context.timers, queue.dying) == (1, 0, 0)


def test_other_options_are_tried_at_once(context):
    queue = new_queue(context)
    publish(queue, 0)
    reject(queue, 0)
    context.advance(10_000)
    context.is_open = True
    queue.configure(QueueOptions(dead_letter_exchange="elsewhere"))
    assert (queue.dying, context.dead) == (0, [(0, "rejected")])


def test_another_leader_finds_what_the_last_one_could_not_bury():
    group = Group()
    refused = []
    group.on_dead = lambda _, burial, then: (refused.append(burial), then(burial.messages))
    group.elect(0)
    publish(group.queue, 0)
    group.settle_down()
    reject(group.queue, 0)
    group.settle_down()
    group.depose()
    group.on_dead = lambda _, burial, then: (refused.append(burial), then([]))
    group.elect(1)
    group.settle_down()
    [again] = reject(group.queue, 0)
    assert again.redelivered
    group.settle_down()
    assert group.leader.replica.messages == 0
    [first, second] = [burial.messages[0].sequence for burial in refused]
    assert first == second
