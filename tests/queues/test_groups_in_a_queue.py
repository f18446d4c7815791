"""A queue with message groups through random lives: what must hold whatever the turns are."""

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
from tests.queues.fakes import FakeContext, FakeSink, message, names, new_queue

GROUPS = st.sampled_from([None, "a", "a", "b", "b", "c"])
OPTIONS = st.fixed_dictionaries(
    {
        "retry_delay_ms": st.integers(0, 9),
        "retry_max_delay_ms": st.just(30),
        "redelivery_rate": st.sampled_from([1, 1, 0]),
    },
    optional={
        "message_ttl_ms": st.integers(0, 12),
        "max_length": st.integers(0, 6),
        "delivery_limit": st.integers(0, 9),
        "retry_backoff": st.sampled_from([1.0, 2.0]),
        "visibility_timeout_ms": st.integers(1, 12),
    },
)
PUBLISH = st.fixed_dictionaries(
    {"group": GROUPS},
    optional={"ttl": st.integers(0, 10), "delay_ms": st.integers(1, 8)},
)


class WatchedSink(FakeSink):
    def __init__(self, on_delivery):
        super().__init__()
        self.on_delivery = on_delivery

    def deliver(self, consumer, messages):
        super().deliver(consumer, messages)
        for each in messages:
            self.on_delivery(consumer, each)

    def revoke(self, consumer, messages):
        for each in messages:
            del self.on_delivery.__self__.held[names([each])[0]]
        return super().revoke(consumer, messages)


class GroupsLife(RuleBasedStateMachine):
    """Every message is somewhere, once; and each delivery is looked at when it happens."""

    def __init__(self):
        super().__init__()
        self.context = FakeContext()
        self.context.dead_letter = self._died
        self.made = {}  # name → message
        self.groups = {}  # name → group
        self.live = set()  # names of what was published and did not leave
        self.held = {}  # name → holder
        self.sinks = [WatchedSink(self._delivered) for _ in range(2)]
        self.consumers = []

    @initialize(
        options=OPTIONS,
        sole=st.sampled_from([False, False, True]),
        batch=st.lists(PUBLISH, min_size=2, max_size=8),
        prefetch=st.integers(1, 4),
    )
    def declare(self, options, sole, batch, prefetch):
        self.sole = sole
        self.grouped = True
        self.queue = new_queue(
            self.context, message_groups=True, single_active_consumer=sole, **options
        )
        self.add_consumer(number=0, prefetch=prefetch, no_ack=False, lease=None)
        self.publish(batch)

    # What the queue does

    def _delivered(self, consumer, given):
        [name] = names([given])
        assert name in self.live, "it was gone"
        assert name not in self.held, "somebody has it"
        self._check_order(name)
        if consumer.no_ack:
            self.live.remove(name)
        else:
            self.held[name] = consumer

    def _check_order(self, name):
        """All others of its group wait behind it."""
        group = self.groups[name]
        if not self.grouped or group is None:
            return
        others = {n for n in self.live if self.groups[n] == group} - {name} - self._never_due()
        ready = set(names(self.queue._ready))
        assert others <= ready, "another one of its group is out, or failed and waits"
        number = self.made[name].sequence
        assert all(self.made[n].sequence > number for n in others), "out of order"

    def _died(self, queue, burial, then):
        reason = burial.reason
        for each in burial.messages:
            [name] = names([each])
            self.live.remove(name)
            assert name not in self.held
            limit = queue.options.delivery_limit
            if reason == "expired":
                assert each.expires_at <= self.context.now
            elif reason == "delivery_limit":
                assert each.delivery_count > limit
            elif reason == "maxlen":
                assert queue.options.max_length is not None
            else:
                assert reason == "rejected"
        then([])

    def _delayed(self):
        delays = self.queue.away._delays
        return [] if delays is None else list(delays._held.values())

    def _never_due(self):
        """Names of delayed messages that were never delivered."""
        return set(names(m for m in self._delayed() if not m.delivery_count))

    def _in_turns(self):
        pacer = self.queue.away._pacer
        return [] if pacer is None else pacer.waiting()

    # What clients do

    @rule(batch=st.lists(PUBLISH, min_size=1, max_size=8))
    def publish(self, batch):
        made = []
        for wanted in batch:
            name = len(self.made)
            expires = self.context.now + wanted.pop("ttl") if "ttl" in wanted else None
            made.append(message(name, expires_at=expires, **wanted))
            self.made[name] = made[-1]
            self.groups[name] = wanted["group"]
            self.live.add(name)
        self.queue.publish(made, None)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data):
        self._hand_back_one(data, "settle")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data):
        self._hand_back_one(data, "requeue")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def reject(self, data):
        self._hand_back_one(data, "discard")

    def _hand_back_one(self, data, how):
        name = data.draw(st.sampled_from(sorted(self.held)))
        self._hand_back(self.held[name], [name], how)

    def _hand_back(self, holder, chosen, how, **options):
        for name in chosen:
            del self.held[name]
            if how == "settle":
                self.live.remove(name)
        holder.release(len(chosen))
        getattr(self.queue, how)(holder, [self.made[n] for n in chosen], **options)

    @rule(no_ack=st.booleans(), lease=st.none() | st.integers(1, 9))
    def get(self, no_ack, lease):
        sink = self.sinks[0]
        holder = Consumer("", self.queue, sink, no_ack=no_ack, fetching=True, lease_ms=lease)
        free = self._free()
        found = self.queue.get(holder)
        assert (found is not None) == bool(free)
        if found is not None:
            self._delivered(holder, found)

    @precondition(lambda self: len(self.live) > 2)
    @rule()
    def purge(self):
        gone = self.live - self.held.keys()
        assert self.queue.purge() == len(gone)
        self.live -= gone

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(
        number=st.integers(0, 1),
        prefetch=st.integers(0, 3),
        no_ack=st.sampled_from([False, False, True]),
        lease=st.none() | st.integers(1, 9),
    )
    def add_consumer(self, number, prefetch, no_ack, lease):
        options = {"prefetch": prefetch, "no_ack": no_ack, "lease_ms": lease}
        consumer = Consumer("c", self.queue, self.sinks[number], **options)
        self.consumers.append(consumer)
        self.queue.add_consumer(consumer)
        self.queue.start_consumer()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def remove_consumer(self, data):
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.queue.remove_consumer(consumer)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose_a_holder(self, data):
        lost = self.held[data.draw(st.sampled_from(sorted(self.held)))]
        if lost in self.consumers:
            self.consumers.remove(lost)
            self.queue.remove_consumer(lost)
        held = [name for name, holder in self.held.items() if holder is lost]
        self._hand_back(lost, held, "requeue", lost=True)

    @precondition(lambda self: self._delayed())
    @rule(data=st.data(), ms=st.integers(0, 9))
    def move(self, data, ms):
        chosen = data.draw(st.sampled_from(sorted(names(self._delayed()))))
        number = self.made[chosen].sequence
        assert self.queue.away.delays.move(number, self.context.now + ms)

    @precondition(lambda self: self._delayed())
    @rule(data=st.data())
    def cancel(self, data):
        chosen = data.draw(st.sampled_from(sorted(names(self._delayed()))))
        self.live.remove(chosen)
        assert self.queue.away.delays.cancel(self.made[chosen].sequence)

    @rule(options=OPTIONS)
    def configure(self, options):
        sole = self.queue.options.single_active_consumer
        self.queue.configure(
            QueueOptions(message_groups=self.grouped, single_active_consumer=sole, **options)
        )

    @precondition(lambda self: not self.held)
    @rule()
    def groups_come_and_go(self):
        """While nobody holds anything: what consumers have then is in no group."""
        self.grouped = not self.grouped
        sole = self.queue.options.single_active_consumer
        options = QueueOptions(message_groups=self.grouped, single_active_consumer=sole)
        self.queue.configure(options)

    @rule(ms=st.integers(1, 8))
    def wait(self, ms):
        self.context.advance(ms)
        assert all(m.due_ms > self.context.now for m in self._delayed())

    @rule(ms=st.integers(20, 1100))
    def wait_for_turns(self, ms):
        self.wait(ms)

    # Always

    @invariant()
    def every_message_is_somewhere_once(self):
        if hasattr(self, "queue"):
            waiting = names(self.queue._ready) + names(self._in_turns())
            everywhere = waiting + names(self._delayed()) + list(self.held)
            assert sorted(everywhere) == sorted(self.live)
            assert self.queue.ready == len(waiting)
            assert self.queue.unacked == len(self.held)
            assert self.queue.away.delayed_count == len(self._delayed())
            for sink in self.sinks:
                used = [h for h in self.held.values() if h.sink is sink and not h.fetching]
                assert sink.credit.used == len(used)

    def _free(self):
        """What could be delivered."""
        ready = set(names(self.queue._ready))
        if not self.grouped:
            return ready
        away = self.live - ready - self._never_due()
        blocked = {self.groups[name] for name in away} - {None}
        return {name for name in ready if self.groups[name] not in blocked}

    @invariant()
    def nobody_waits_while_there_is_something_to_deliver(self):
        if hasattr(self, "queue") and self._free():
            able = self.consumers[:1] if self.sole else self.consumers
            assert all(consumer.room() <= 0 for consumer in able)

    def teardown(self):
        """When all is settled nothing is left, and no group is blocked."""
        if not hasattr(self, "queue"):
            return
        for consumer in self.consumers:
            self.queue.remove_consumer(consumer)
        self.consumers.clear()
        for name, holder in list(self.held.items()):
            if name in self.held:
                self._hand_back(holder, [name], "settle")
        self.queue.configure(QueueOptions(message_groups=self.grouped, redelivery_rate=0))
        self.context.advance(100)
        assert self.queue.ready == len(self.live)
        sink = WatchedSink(self._delivered)
        consumer = Consumer("c", self.queue, sink, no_ack=True)
        self.queue.add_consumer(consumer)
        self.queue.start_consumer()
        assert (self.live, self.queue.ready) == (set(), 0)
        assert self.context.timers == 0


GroupsLife.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=120, stateful_step_count=40, database=None
)
TestGroupsLife = GroupsLife.TestCase
