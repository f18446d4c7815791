"""The queue against a model too simple to be wrong, through random lives."""

from copy import deepcopy
from itertools import permutations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from queues.consumers import Consumer
from queues.options import QueueOptions
from tests.queues.fakes import FakeContext, FakeReceipt, FakeSink, message, names, new_queue
from tests.queues.model import ModelChannel, ModelConsumer, ModelMessage, ModelQueue

CHANNELS = 3
LONG_MS = 1100  # more than any timer here but those of leases that were extended

LEASES = st.none() | st.integers(1, 9)
# What a policy may change while the queue lives.
CHANGING = {
    "message_ttl_ms": st.integers(0, 12),
    "max_length": st.integers(0, 4),
    "max_length_bytes": st.integers(0, 50),
    "overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    "delivery_limit": st.integers(0, 2),
    "message_delay_ms": st.integers(0, 4),
    "retry_delay_ms": st.integers(0, 5),
    "retry_backoff": st.sampled_from([1.0, 2.0, 3.0]),
    "retry_max_delay_ms": st.integers(1, 12),
    "visibility_timeout_ms": st.integers(1, 12),
    "dedup_window_ms": st.integers(0, 9),
}
RATE = {"redelivery_rate": st.sampled_from([1, 1, 2, 0])}
PLAIN = {"max_priority": st.integers(0, 3)}
AGING = {"max_priority": st.just(3), "priority_aging_ms": st.integers(1, 6)}
ACTIVE = {"single_active_consumer": st.booleans()}
OPTIONS = st.fixed_dictionaries(RATE, optional=CHANGING | PLAIN | ACTIVE) | st.fixed_dictionaries(
    RATE | AGING, optional=CHANGING | ACTIVE
)
PUBLISH = st.fixed_dictionaries(
    {"size": st.integers(0, 30), "priority": st.integers(0, 5)},
    optional={
        "ttl": st.integers(0, 10),
        "delay_ms": st.integers(0, 8),
        "dedup_id": st.sampled_from("abc"),
    },
)


class QueueLife(RuleBasedStateMachine):
    """Each rule does the same to both and then all that can be seen must be the same."""

    def __init__(self):
        super().__init__()
        self.context = FakeContext()
        self.sinks = [FakeSink(str(n)) for n in range(CHANNELS)]
        self.consumers = {}  # by tag, also those that left
        self.there = []  # tags of those that did not
        self.holders = {}  # name of a message that was fetched → who holds it
        self.published = []  # messages by name

    @initialize(
        options=OPTIONS,
        batch=st.lists(PUBLISH, min_size=2, max_size=8),
        prefetch=st.integers(1, 4),
    )
    def declare(self, options, batch, prefetch):
        self.queue = new_queue(self.context, **options)
        self.model = ModelQueue(QueueOptions(**options), self.context.now)
        self.model.channels = [ModelChannel() for _ in range(CHANNELS)]
        for sink in self.sinks:
            sink.on_revoked = self._wake_if_limited
        self.add_consumer(number=0, prefetch=prefetch, priority=0, no_ack=False, lease=None)
        self.publish(batch)

    def _wake_if_limited(self, sink):
        if sink.credit.limit:
            for tag in self.there:
                if self.consumers[tag].sink is sink:
                    self.queue.consumer_ready(self.consumers[tag])

    def _wake_channel(self, number):
        """As a channel does whenever there may be room for all its consumers."""
        for tag in self.there:
            if self.consumers[tag].sink is self.sinks[number]:
                self.queue.consumer_ready(self.consumers[tag])
        self.model.wake_channel(self.model.channels[number])

    # Messages in

    @rule(batch=st.lists(PUBLISH, min_size=1, max_size=8))
    def publish(self, batch):
        made, models = [], []
        for wanted in batch:
            name = len(self.published)
            expires = self.context.now + wanted.pop("ttl") if "ttl" in wanted else None
            made.append(message(name, expires_at=expires, **wanted))
            wanted["delay"] = wanted.pop("delay_ms", None)
            models.append(ModelMessage(name, expires=expires, **wanted))
            self.published.append(made[-1])
        receipt = FakeReceipt()
        self.queue.publish(list(made), receipt)
        assert receipt.answers == [self.model.publish(models)]

    # Messages out

    def _holder(self, model):
        """The consumer of this model."""
        if model.fetching:
            return self.holders[model.held[0].name]
        return self.consumers[model.tag]

    def _holding(self):
        return [c for c in self.model.consumers + self.model.holders if c.held]

    @precondition(lambda self: self._holding())
    @rule(data=st.data())
    def ack(self, data):
        self._hand_back_some(data, "settle")

    @precondition(lambda self: self._holding())
    @rule(data=st.data())
    def fail(self, data):
        self._hand_back_some(data, "requeue")

    @precondition(lambda self: self._holding())
    @rule(data=st.data())
    def reject(self, data):
        self._hand_back_some(data, "discard")

    def _hand_back_some(self, data, how):
        """Of what somebody holds, in the order it was delivered."""
        model = data.draw(st.sampled_from(self._holding()))
        count = data.draw(st.integers(1, len(model.held)))
        start = data.draw(st.integers(0, len(model.held) - count))
        self._hand_back(model, model.held[start : start + count], how)

    def _hand_back(self, model, chosen, how, **options):
        holder = self._holder(model)
        holder.release(len(chosen))
        messages = [self.published[m.name] for m in chosen]
        sink = holder.sink
        sink.settling = [m for m in sink.settling if m not in messages]
        getattr(self.queue, how)(holder, messages, **options)
        getattr(self.model, how)(model, chosen, **options)
        if sink.credit.limit:
            self._wake_channel(self.sinks.index(sink))

    @rule(no_ack=st.booleans(), lease=LEASES)
    def get(self, no_ack, lease):
        options = {"no_ack": no_ack, "fetching": True}
        holder = Consumer("", self.queue, self.sinks[0], lease_ms=lease, **options)
        model = ModelConsumer("", self.model.channels[0], lease=lease, **options)
        found = self.queue.get(holder)
        name = None if found is None else names([found])[0]
        assert name == self.model.get(model)
        if name is not None:
            self.holders[name] = holder

    @precondition(lambda self: len(self.published) > 6)
    @rule()
    def purge(self):
        assert self.queue.purge() == self.model.purge()

    # Messages that are away

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), ms=LEASES)
    def extend_a_lease(self, data, ms):
        name = data.draw(st.sampled_from(sorted(self.model.leases)))
        assert self.queue.extend_lease(self.published[name], ms) == self.model.extend(name, ms)

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def extend_what_may_not_be_held_at_all(self, data):
        name = data.draw(st.integers(0, len(self.published) - 1))
        assert self.queue.extend_lease(self.published[name], 5) == self.model.extend(name, 5)

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data())
    def ack_in_a_transaction(self, data):
        """It is not settled yet, but cannot be revoked."""
        name = data.draw(st.sampled_from(sorted(self.model.leases)))
        self._holder(self.model.leases[name][1]).sink.settling.append(self.published[name])
        self.model.settling.add(name)

    @precondition(lambda self: self.model.delayed)
    @rule(data=st.data(), ms=st.integers(-2, 9))
    def move_a_delayed_message(self, data, ms):
        name = data.draw(st.sampled_from([m.name for m in self.model.delayed]))
        due = self.context.now + ms
        assert self.queue.away.delays.move(self.published[name].sequence, due)
        self.model.move(name, due)

    @precondition(lambda self: self.model.delayed)
    @rule(data=st.data())
    def cancel_a_delayed_message(self, data):
        name = data.draw(st.sampled_from([m.name for m in self.model.delayed]))
        assert self.queue.away.delays.cancel(self.published[name].sequence)
        assert not self.queue.away.delays.cancel(self.published[name].sequence)
        self.model.cancel(name)

    # Consumers

    @precondition(lambda self: len(self.there) < 6)
    @rule(
        number=st.integers(0, CHANNELS - 1),
        prefetch=st.integers(0, 4),
        priority=st.integers(-1, 1),
        no_ack=st.sampled_from([False, False, True]),
        lease=LEASES,
    )
    def add_consumer(self, number, prefetch, priority, no_ack, lease):
        tag = str(len(self.consumers))
        options = {"prefetch": prefetch, "priority": priority, "no_ack": no_ack}
        consumer = Consumer(tag, self.queue, self.sinks[number], lease_ms=lease, **options)
        model = ModelConsumer(tag, self.model.channels[number], own_lease=lease, **options)
        self.consumers[tag] = consumer
        self.there.append(tag)
        self.queue.add_consumer(consumer)
        self.queue.start_consumer()
        self.model.add_consumer(model)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def remove_consumer(self, data):
        self._remove_consumer(data.draw(st.sampled_from(self.there)))

    @precondition(lambda self: self._holding())
    @rule(data=st.data())
    def lose_a_holder(self, data):
        model = data.draw(st.sampled_from(self._holding()))
        if model in self.model.consumers:
            self._remove_consumer(model.tag)
        if model.held:
            self._hand_back(model, model.held.copy(), "requeue", lost=True)

    def _remove_consumer(self, tag):
        model = next(c for c in self.model.consumers if c.tag == tag)
        self.there.remove(tag)
        self.queue.remove_consumer(self.consumers[tag])
        self.model.remove_consumer(model)
        return model

    @rule(number=st.integers(0, CHANNELS - 1))
    def pause_or_resume(self, number):
        sink = self.sinks[number]
        sink.switched_off = self.model.channels[number].paused = not sink.switched_off
        if not sink.switched_off:
            self._wake_channel(number)

    @rule(number=st.integers(0, CHANNELS - 1), limit=st.integers(0, 5))
    def change_the_channels_prefetch(self, number, limit):
        self.sinks[number].credit.limit = self.model.channels[number].limit = limit
        self._wake_channel(number)

    # The queue

    @rule(changes=st.fixed_dictionaries(RATE, optional=CHANGING), priorities=st.integers(0, 3))
    def configure(self, changes, priorities):
        old = self.queue.options
        options = QueueOptions(
            single_active_consumer=old.single_active_consumer,
            max_priority=priorities if old.priority_aging_ms is None else old.max_priority,
            priority_aging_ms=old.priority_aging_ms,
            **changes,
        )
        self.queue.configure(options)
        self.model.configure(options)

    # Time

    @rule(ms=st.integers(1, 8))
    def wait(self, ms):
        for _ in range(ms):
            self.context.advance(1)
            self._follow(self.model.tick())

    @rule(ms=st.integers(20, 600))
    def wait_for_turns(self, ms):
        self.wait(ms)

    def _follow(self, kinds):
        """The model does what happens in this millisecond, in an order that explains the queue."""
        if len(kinds) > 1:
            seen = self._visible()
            for order in permutations(kinds):
                twin = deepcopy(self.model)
                for kind in order:
                    twin.happen(kind)
                if twin.visible() == seen:
                    self.model = twin
                    return
        for kind in kinds:
            self.model.happen(kind)

    # What must be the same after each step

    def _visible(self):
        queue, away = self.queue, self.queue.away
        held = away._delays._held.values() if away._delays is not None else []
        leases = away._leases._held if away._leases is not None else {}
        received = {tag: [] for tag in self.consumers}
        for sink in self.sinks:
            for tag, delivered in sink.delivered:
                received[tag] += names([delivered])
        assert away.delayed_count == len(held)
        assert away.leased_count == len(leases)
        return {
            "ready": names(queue._ready),
            "counts": (queue.ready, queue.ready_bytes, queue.unacked),
            "delayed": sorted((m.due_ms, names([m])[0]) for m in held),
            "in turns": sorted(names(away._pacer.waiting() if away._pacer is not None else [])),
            "leases": {names([m])[0]: until for until, _, m in leases.values()},
            "consumers": [c.tag for c in queue.consumers],
            "received": received,
            "used": {tag: consumer.credit.used for tag, consumer in self.consumers.items()},
            "returned": {names([m])[0]: m.delivery_count for m in self.published},
            "dead": {
                reason: [name for name, why in self.context.dead if why == reason]
                for reason in ("expired", "maxlen", "rejected", "delivery_limit")
            },
        }

    @invariant()
    def all_that_can_be_seen_is_the_same(self):
        if hasattr(self, "queue"):
            seen, expected = self._visible(), self.model.visible()
            for what, value in expected.items():
                assert seen[what] == value, what

    @invariant()
    def the_credit_of_channels_is_right(self):
        for sink in self.sinks:
            here = [c for c in self.consumers.values() if c.sink is sink]
            assert sink.credit.used == sum(consumer.credit.used for consumer in here)

    @invariant()
    def returned_messages_are_known_as_such(self):
        for made in self.published:
            assert made.redelivered == (made.delivery_count > 0)

    @invariant()
    def nobody_waits_while_there_is_something_to_deliver(self):
        """Said without the model's turns, which could be wrong in the same way as the queue's."""
        if hasattr(self, "queue") and len(self.queue._ready):
            sole = self.queue.options.single_active_consumer
            able = self.queue.consumers[:1] if sole else self.queue.consumers
            assert all(consumer.room() <= 0 for consumer in able)

    def teardown(self):
        """When everything is settled no clock goes on ticking."""
        if not hasattr(self, "queue"):
            return
        for tag in self.there.copy():
            self._remove_consumer(tag)
        for model in self._holding():
            self._hand_back(model, model.held.copy(), "settle")
        self.queue.purge()
        assert (self.queue.unacked, self.queue.ready, self.queue.away.delayed_count) == (0, 0, 0)
        self.context.advance(LONG_MS)
        assert self.context.timers == 0
        assert self.queue.delete() == 0


QueueLife.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=200, stateful_step_count=40, database=None
)
TestQueueLife = QueueLife.TestCase
