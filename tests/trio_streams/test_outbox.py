"""What a producer has to send, against a broker that loses, refuses and answers in any order."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Chunk
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Refused, Status
from clients.stream_errors import ConnectionLostError, FencedError, RefusedError, error_of
from clients.stream_outbox import IN_FLIGHT_MAX, Outbox
from clients.stream_plans import Again, Ask, run

PARTITIONS = 2


class Partition:
    """One of a broker's: takes what is next, knows what it has, and refuses what is ahead."""

    def __init__(self):
        self.values = []

    def append(self, chunk):
        made = Chunk(chunk)
        sequence = made.header.producer.sequence
        if sequence > len(self.values):
            expected = len(self.values)
            return RefusedError(Refused(Status.OUT_OF_ORDER, "ahead", (expected,)))
        if sequence < len(self.values):
            return wire.Appended(duplicate=True, offset=UNKNOWN_OFFSET)
        self.values += [record.value for record in made]
        return wire.Appended(duplicate=False, offset=sequence)


def allocate(outbox):
    run(outbox.allocate("p"), lambda _: wire.ProducerAllocated(1, 0))


def settle(outbox, sent, answer):
    if isinstance(answer, Exception):
        outbox.fail(sent, answer)
    else:
        outbox.confirm(sent, answer)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("close"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.sampled_from(["take", "refuse", "answer"]), st.integers(0, 20)),
        st.tuples(st.just("cut"), st.integers(0, 20)),
    ),
    max_size=80,
)


class World:
    """Requests reach the broker in order; what it says comes back in any order, or never."""

    def __init__(self):
        self.outbox = Outbox("s", PARTITIONS, idempotent=True)
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.added = [[] for _ in range(PARTITIONS)]
        self.requests = deque()
        self.answers = []
        allocate(self.outbox)

    def add(self, partition):
        value = b"%d" % len(self.added[partition])
        self.added[partition].append(value)
        self.outbox.add(value, None, None, partition)

    def close(self, partition):
        if partition in self.outbox.open_partitions:
            self.outbox.close_batch(partition)

    def send(self, _):
        self.outbox.trouble = None
        self.requests.extend(self.outbox.due())

    def take(self, _):
        if self.requests:
            sent = self.requests.popleft()
            self.answers.append((sent, self.partitions[sent.partition].append(sent.chunk)))

    def refuse(self, _):
        if self.requests:
            refusal = RefusedError(Refused(Status.UNAVAILABLE, "no leader"))
            self.answers.append((self.requests.popleft(), refusal))

    def answer(self, place):
        if self.answers:
            settle(self.outbox, *self.answers.pop(place % len(self.answers)))

    def cut(self, taken):
        """Some of what is under way is taken before; nothing is answered."""
        for _ in range(taken):
            self.take(0)
        lost = [sent for sent, _ in self.answers] + list(self.requests)
        self.answers, self.requests = [], deque()
        for sent in lost:
            self.outbox.fail(sent, ConnectionLostError("cut"))

    def drain(self):
        for partition in range(PARTITIONS):
            self.close(partition)
        while len(self.outbox):
            self.send(0)
            while self.requests:
                self.take(0)
            while self.answers:
                self.answer(0)


@given(STEPS)
@settings(max_examples=300)
def test_every_record_is_stored_once_and_in_order(steps):
    world = World()
    for name, argument in steps:
        getattr(world, name)(argument)
        assert world.outbox.failure is None
        under_way = [sent.partition for sent in world.requests]
        under_way += [sent.partition for sent, _ in world.answers]
        assert all(under_way.count(each) <= IN_FLIGHT_MAX for each in range(PARTITIONS))
    world.drain()
    assert [each.values for each in world.partitions] == world.added
    assert world.outbox.confirmed == sum(map(len, world.added))
    assert world.outbox.unconfirmed_bytes == 0
    assert world.outbox.pending == []


def test_what_the_broker_refuses_for_good_ends_it():
    outbox = Outbox("s", 1, idempotent=True)
    allocate(outbox)
    outbox.add(b"a", None, None, 0)
    outbox.close_batch(0)
    [sent] = outbox.due()
    outbox.fail(sent, error_of(Refused(Status.PRODUCER_FENCED, "newer")))
    assert isinstance(outbox.failure, FencedError)
    assert not outbox.needs_number


def test_a_first_chunk_that_is_out_of_order_is_not_sent_for_ever():
    outbox = Outbox("s", 1, idempotent=True)
    allocate(outbox)
    outbox.add(b"a", None, None, 0)
    outbox.close_batch(0)
    [sent] = outbox.due()
    outbox.fail(sent, RefusedError(Refused(Status.OUT_OF_ORDER, "what came before is lost", (7,))))
    assert outbox.failure is not None


def test_without_a_number_nothing_is_sent_twice():
    outbox = Outbox("s", 1, idempotent=False)
    assert not outbox.needs_number
    outbox.add(b"a", None, None, 0)
    outbox.close_batch(0)
    [sent] = outbox.due()
    assert Chunk(sent.chunk).header.producer is None
    outbox.fail(sent, ConnectionLostError("cut"))
    assert isinstance(outbox.failure, ConnectionLostError)


def test_pauses_grow_until_something_is_confirmed():
    outbox = Outbox("s", 1, idempotent=True)
    allocate(outbox)
    pauses = []
    outbox.add(b"a", None, None, 0)
    outbox.close_batch(0)
    for _ in range(3):
        [sent] = outbox.due()
        outbox.fail(sent, ConnectionLostError("cut"))
        run(outbox.catch_breath(), pauses.append)
    [sent] = outbox.due()
    outbox.confirm(sent, wire.Appended(duplicate=False, offset=0))
    outbox.add(b"b", None, None, 0)
    outbox.close_batch(0)
    [sent] = outbox.due()
    outbox.fail(sent, ConnectionLostError("cut"))
    run(outbox.catch_breath(), pauses.append)
    assert [each.attempt for each in pauses] == [0, 1, 2, 0]
    assert all(isinstance(each, Again) for each in pauses)


def test_a_new_epoch_begins_when_all_of_the_old_one_is_confirmed():
    outbox = Outbox("s", 2, idempotent=True)
    allocate(outbox)
    for partition in (0, 1):
        outbox.add(b"old", None, None, partition)
        outbox.close_batch(partition)
    old = list(outbox.due())
    outbox.sequences[0] = 2**32
    outbox.add(b"new", None, None, 0)
    outbox.close_batch(0)
    assert list(outbox.due()) == []
    for sent in old:
        assert not outbox.needs_number
        outbox.confirm(sent, wire.Appended(duplicate=False, offset=0))
    assert outbox.needs_number
    asked = []

    def answer(step):
        assert isinstance(step, Ask)
        asked.append(step.message)
        return wire.ProducerAllocated(1, 1)

    run(outbox.allocate("p"), answer)
    assert asked == [wire.AllocateProducer("p")]
    [sent] = outbox.due()
    assert Chunk(sent.chunk).header.producer == (1, 1, 0)
