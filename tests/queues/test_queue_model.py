"""The queue against a model too simple to be wrong, through random lives."""

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

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "message_ttl_ms": st.integers(0, 12),
        "max_length": st.integers(0, 4),
        "max_length_bytes": st.integers(0, 50),
        "overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "max_priority": st.integers(0, 3),
        "delivery_limit": st.integers(0, 2),
        "single_active_consumer": st.booleans(),
    },
)
# size of the body, priority, the message's own TTL
PUBLISH = st.tuples(
    st.integers(0, 30), st.integers(0, 5), st.none() | st.none() | st.integers(0, 10)
)


class QueueLife(RuleBasedStateMachine):
    """Each rule does the same to both and then all that can be seen must be the same."""

    def __init__(self):
        super().__init__()
        self.context = FakeContext()
        self.sinks = [FakeSink(str(n)) for n in range(CHANNELS)]
        self.channels = [ModelChannel() for _ in range(CHANNELS)]
        self.pairs = []  # (consumer, its model), in the order they came
        self.departed = []
        self.published = []  # messages by name
        self.models = []
        self.holders = {}  # name of a message fetched with get → its holder

    @initialize(options=OPTIONS)
    def declare(self, options):
        self.queue = new_queue(self.context, **options)
        self.model = ModelQueue(QueueOptions(**options), self.context.now)

    def _wake_channel(self, number):
        """As a channel does whenever there may be room for all its consumers."""
        for consumer, model in [p for p in self.pairs if p[0].sink is self.sinks[number]]:
            self.queue.consumer_ready(consumer)
            self.model.consumer_ready(model)

    # Messages in

    @rule(batch=st.lists(PUBLISH, min_size=1, max_size=12))
    def publish(self, batch):
        made, models = [], []
        for size, priority, ttl in batch:
            name = len(self.published)
            expires = None if ttl is None else self.context.now + ttl
            made.append(message(name, size=size, priority=priority, expires_at=expires))
            level = min(priority, self.queue.options.max_priority or 0)
            models.append(ModelMessage(name, size, level, expires))
            self.published.append(made[-1])
            self.models.append(models[-1])
        receipt = FakeReceipt()
        self.queue.publish(list(made), receipt)
        assert receipt.answers == [self.model.publish(models)]

    # Messages out

    def _hand_back(self, data, how):
        """Some of what some consumer holds, in the order it was delivered, goes back."""
        holding = [p for p in self.pairs + self.departed if p[1].held]
        if not holding:
            return
        consumer, model = data.draw(st.sampled_from(holding))
        count = data.draw(st.integers(1, len(model.held)))
        start = data.draw(st.integers(0, len(model.held) - count))
        chosen = model.held[start : start + count]
        consumer.release(count)
        getattr(self.queue, how)(consumer, [self.published[m.name] for m in chosen])
        getattr(self.model, how)(model, chosen)
        if consumer.sink.credit.limit:
            self._wake_channel(self.sinks.index(consumer.sink))

    @rule(data=st.data())
    def ack(self, data):
        self._hand_back(data, "settle")

    @rule(data=st.data())
    def requeue(self, data):
        self._hand_back(data, "requeue")

    @rule(data=st.data())
    def discard(self, data):
        self._hand_back(data, "discard")

    @rule(no_ack=st.booleans())
    def get(self, no_ack):
        holder = Consumer("", self.queue, self.sinks[0], no_ack=no_ack, fetching=True)
        found = self.queue.get(holder)
        assert (None if found is None else names([found])[0]) == self.model.get(no_ack=no_ack)
        if found is not None and not no_ack:
            self.holders[names([found])[0]] = holder

    @precondition(lambda self: self.model.held_by_get)
    @rule(data=st.data(), how=st.sampled_from(["settle", "requeue", "discard"]))
    def hand_back_what_was_fetched(self, data, how):
        chosen = data.draw(st.sampled_from(self.model.held_by_get))
        holder = self.holders.pop(chosen.name)
        holder.release(1)
        getattr(self.queue, how)(holder, [self.published[chosen.name]])
        getattr(self.model, how)(None, [chosen])

    @rule()
    def purge(self):
        assert self.queue.purge() == self.model.purge()

    # Consumers

    @precondition(lambda self: len(self.pairs) < 6)
    @rule(
        number=st.integers(0, CHANNELS - 1),
        prefetch=st.integers(0, 4),
        priority=st.integers(-1, 1),
        no_ack=st.booleans(),
    )
    def add_consumer(self, number, prefetch, priority, no_ack):
        tag = str(len(self.pairs) + len(self.departed))
        options = {"prefetch": prefetch, "priority": priority, "no_ack": no_ack}
        consumer = Consumer(tag, self.queue, self.sinks[number], **options)
        model = ModelConsumer(tag, self.channels[number], **options)
        self.pairs.append((consumer, model))
        self.queue.add_consumer(consumer)
        self.queue.start_consumer()
        self.model.add_consumer(model)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def remove_consumer(self, data):
        pair = data.draw(st.sampled_from(self.pairs))
        self.pairs.remove(pair)
        self.departed.append(pair)
        self.queue.remove_consumer(pair[0])
        self.model.remove_consumer(pair[1])

    @rule(number=st.integers(0, CHANNELS - 1))
    def pause_or_resume(self, number):
        sink = self.sinks[number]
        sink.switched_off = self.channels[number].paused = not sink.switched_off
        if not sink.switched_off:
            self._wake_channel(number)

    @rule(number=st.integers(0, CHANNELS - 1), limit=st.integers(0, 5))
    def change_the_channels_prefetch(self, number, limit):
        self.sinks[number].credit.limit = self.channels[number].limit = limit
        self._wake_channel(number)

    # Time

    @rule(ms=st.integers(1, 8))
    def wait(self, ms):
        self.context.advance(ms)
        self.model.advance(ms)

    # What must be the same after each step

    @invariant()
    def what_is_in_the_queue_is_right(self):
        if hasattr(self, "queue"):
            model = self.model
            assert names(self.queue._ready) == [m.name for m in model.ready]
            assert self.queue.ready == len(model.ready)
            assert self.queue.ready_bytes == model.ready_bytes
            held = [m for _, c in self.pairs + self.departed for m in c.held]
            assert self.queue.unacked == len(held) + len(model.held_by_get)
            assert self.queue.consumers == [consumer for consumer, _ in self.pairs]

    @invariant()
    def each_consumer_got_its_share_in_order(self):
        if hasattr(self, "queue"):
            for consumer, model in self.pairs + self.departed:
                got = [m for tag, m in consumer.sink.delivered if tag == consumer.tag]
                assert names(got) == model.received
                assert consumer.credit.used == (0 if consumer.no_ack else len(model.held))
            for sink in self.sinks:
                here = [c for c in self.pairs + self.departed if c[0].sink is sink]
                assert sink.credit.used == sum(len(model.held) for _, model in here)

    @invariant()
    def what_died_died_of_the_same(self):
        if hasattr(self, "queue"):
            for reason in ("expired", "maxlen", "rejected", "delivery_limit"):
                found = [name for name, why in self.context.dead if why == reason]
                assert found == [name for name, why in self.model.dead if why == reason], reason

    @invariant()
    def returned_messages_are_known_as_such(self):
        for made, model in zip(self.published, self.models, strict=True):
            assert made.delivery_count == model.returned
            assert made.redelivered == (model.returned > 0)

    @invariant()
    def nobody_waits_while_there_is_something_to_deliver(self):
        """Said without the model's turns, which could be wrong in the same way as the queue's."""
        if hasattr(self, "queue") and self.queue.ready:
            sole = self.queue.options.single_active_consumer
            able = self.queue.consumers[:1] if sole else self.queue.consumers
            assert all(consumer.room() <= 0 for consumer in able)


QueueLife.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=400, stateful_step_count=40, database=None
)
TestQueueLife = QueueLife.TestCase
