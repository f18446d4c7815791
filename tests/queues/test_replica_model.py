"""A replicated queue whose leader changes all the time: nothing is lost, nothing stored twice."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import queues.burials
import queues.cold
import queues.durable
import queues.live
import queues.live_log
import queues.paged
import queues.publishers
import queues.queue
from queues.consumers import Consumer
from queues.paged import MESSAGE_OVERHEAD_BYTES
from queues.publishers import Origin
from tests.durability.test_queue_on_log_model import Truth
from tests.queues.fakes import FakeReceipt, FakeSink, message, names
from tests.queues.replicas import Group

# So small that a few steps go through every transition.
SMALL = {
    (queues.durable, "ENTRY_MESSAGES_MAX"): 6,
    (queues.cold, "LOAD_MESSAGES"): 5,
    (queues.cold, "LOAD_ENTRIES"): 3,
    (queues.live_log, "CHECKPOINT_ENTRIES"): 3,
    (queues.live_log, "CHECKPOINT_BYTES"): 600,
    (queues.durable, "LOW_MESSAGES"): 3,
    (queues.paged, "HOT_BYTES_FLOOR"): 20,
    (queues.live, "_COMPACT_SLOTS"): 3,
    (queues.burials, "DEAD_MAX"): 3,
    (queues.queue, "DEAD_MAX"): 3,
    (queues.publishers, "REFUSED_MAX"): 3,
}
HOT_BYTES = 5 * MESSAGE_OVERHEAD_BYTES
MEMBERS = 3
MESSAGE_BYTES = 10  # as all of them are made
SESSIONS = [bytes([number]) * 16 for number in range(2)]

ORDER = st.sampled_from(
    [{}, {}, {"max_priority": 2}, {"message_groups": True}, {"message_groups": True}]
)
OPTIONS = st.fixed_dictionaries(
    {"redelivery_rate": st.just(0)},
    optional={
        "retry_delay_ms": st.integers(1, 20),
        "retry_max_delay_ms": st.just(40),
        "delivery_limit": st.integers(1, 4),
        "visibility_timeout_ms": st.integers(5, 30),
        "dedup_window_ms": st.integers(0, 30),
        "message_ttl_ms": st.integers(40, 100),
    },
)
LIMIT = st.sampled_from(
    [{}, {}, {"max_length": 4, "overflow": "reject-publish"}, {"max_length": 8}]
)
PUBLISH = st.fixed_dictionaries(
    {
        "group": st.sampled_from([None, "a", "a", "b", "b"]),
        "priority": st.sampled_from([0, 0, 1, 2]),
    },
    optional={"delay_ms": st.integers(1, 20), "dedup_id": st.sampled_from("abcd")},
)


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch):
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


class Batch:
    """What a publisher sends until it is answered: the same each time."""

    def __init__(self, seq, wanted, lost):
        self.seq = seq
        self.lost = lost  # so many answers do not reach the publisher
        self.wanted = wanted  # (name, what it asks for) each

    def made(self):
        return [message(name, **asked) for name, asked in self.wanted]


class WatchedSink(FakeSink):
    def __init__(self, life):
        super().__init__()
        self._life = life

    def deliver(self, consumer, messages):
        super().deliver(consumer, messages)
        for each in messages:
            self._life.delivered(consumer, each)

    def revoke(self, consumer, messages):
        consumer.release(len(messages))
        self._life.returned(consumer, [self._life.name_of(m) for m in messages])
        return messages


class ReplicatedLife(RuleBasedStateMachine):
    """`truth` is what the committed entries say, `now` what the leader was told and says."""

    @initialize(
        order=ORDER,
        options=OPTIONS,
        limit=LIMIT,
        first=st.integers(0, MEMBERS - 1),
        batches=st.lists(st.lists(PUBLISH, min_size=2, max_size=4), min_size=2, max_size=3),
        prefetch=st.integers(1, 6),
    )
    def start(self, order, options, limit, first, batches, prefetch):
        self.group = Group(size=MEMBERS, budget_bytes=HOT_BYTES, **order, **options, **limit)
        self.options = self.group.options
        self.is_plain = not order
        self.truth = Truth()
        self.published = itertools.count()
        self.asked = {}  # what messages ask for, by name
        self.session_of = {}
        self.unanswered = {session: [] for session in SESSIONS}  # batches in order
        self.sent = dict.fromkeys(SESSIONS, 0)  # the last number of each
        self.stored = set()  # names of what publishers were told is safe
        self.ever = set()  # names of what was ever delivered
        self.dead = set()
        self.takes_letters = True  # whoever gets what died
        self.first_delivered = defaultdict(lambda: -1)  # the last one, by session
        self.holding = False
        self.detached = []  # (prefetch, names and messages it holds) of consumers without a leader
        self.incarnation = 0
        self.group.on_lead = self._leads
        self.group.on_follow = self._follows
        self.group.on_dead = self._died
        self.group.on_commit = self._committed
        self._reset()
        self.detached = [(prefetch, {}), (2, {})]
        self.group.elect(first)
        self.deal()
        for batch in batches:
            self.publish(SESSIONS[0], batch, lost=0)
            self.group.settle_down()
        while self.detached:
            self.attach(0, keeps=True, known=False)

    def _reset(self):
        self.consumers = []
        self.held = {}  # name → (holder, message)
        self.touched = {}  # messages that were handed back to this leader
        self.sink = WatchedSink(self)

    @property
    def queue(self):
        return self.group.queue

    def name_of(self, given):
        return self.truth.numbers[given.sequence]

    # What the queue does

    def _committed(self, entry):
        before = len(self.truth.numbers)
        self.truth.apply(entry)
        fresh = self.truth.numbers[before:]
        assert len(set(self.truth.numbers)) == len(self.truth.numbers), "stored twice"
        if self.queue is not None:
            self.now.numbers += fresh
            self.now.alive.update(fresh)
            self.now.due.update({n: self.truth.due[n] for n in fresh if n in self.truth.due})

    def delivered(self, consumer, given):
        [name] = names([given])
        now = self.now
        assert self.name_of(given) == name, "not what its number says"
        assert not self.holding, "delivered before everybody could say what they hold"
        assert name in now.alive, "it was gone, or is not safe yet"
        assert name not in self.held, "somebody has it"
        assert now.due.get(name, 0) <= self.group.now, "early"
        assert given.delivery_count == now.counts.get(name, 0)
        if name in self.ever or now.counts.get(name):
            assert given.redelivered, "it was delivered before"
        elif self.is_plain and name not in now.due:
            session = self.session_of[name]
            assert name > self.first_delivered[session], "out of order"
            self.first_delivered[session] = name
        group = self.asked[name]["group"]
        if self.options.message_groups and group is not None:
            out = [n for n in self.held if self.asked[n]["group"] == group]
            assert not out, "two of a group are out"
        self.ever.add(name)
        self.held[name] = (consumer, given)

    def _died(self, queue, burial, then):
        assert not queue.retired
        assert not self.holding or burial.reason in ("rejected", "delivery_limit")
        for each in burial.messages:
            [name] = names([each])
            assert self.name_of(each) == name
            assert name not in self.held, "somebody has it"
            assert name in self.now.alive, "it died before"
            if self.takes_letters:
                self.now.alive.remove(name)
                self.dead.add(name)
        then([] if self.takes_letters else burial.messages)

    def returned(self, consumer, chosen):
        """These fail; called before the queue gets to know."""
        now = self.now
        limit = self.options.delivery_limit
        for name in chosen:
            holder, self.touched[name] = self.held.pop(name)
            assert holder is consumer
            if limit is None or now.counts.get(name, 0) < limit:
                now.counts[name] = now.counts.get(name, 0) + 1
                if self.options.retry_delay_ms:  # or later, if it has to be read first
                    now.due[name] = self.group.now + self.options.retry_delay_ms

    # Leaders come and go

    def _leads(self, queue):
        self.incarnation += 1
        self.holding = True
        queue.hold_dealing()
        self.now = self.truth.copy()
        assert queue.ready + queue.away.delayed_count == len(self.truth.alive)

    def _follows(self):
        """What consumers hold stays with them; what they are was known to the queue only."""
        for consumer in self.consumers:
            held = {n: m for n, (holder, m) in self.held.items() if holder is consumer}
            self.detached.append((consumer.credit.limit, held))
        self._reset()
        self.holding = False

    @precondition(lambda self: self.group.leader is not None)
    @rule(
        data=st.data(),
        killed=st.booleans(),
        pause=st.sampled_from([False, False, True]),
        down_ms=st.integers(0, 20),
    )
    def leader_changes(self, data, killed, pause, down_ms):
        kept = data.draw(st.integers(0, len(self.group.open)), "proposals that made it")
        self.group.depose(kept=kept, killed=killed)
        self.group.advance(down_ms)
        if not pause:
            self._take_over(data)

    def _take_over(self, data):
        self.elect(data.draw(st.integers(0, MEMBERS - 1), "leader"))
        if data.draw(st.booleans(), "at once"):
            while self.detached:
                self.attach(0, keeps=True, known=data.draw(st.booleans(), "known"))
            self.deal()

    @precondition(lambda self: self.group.leader is None)
    @rule(number=st.integers(0, MEMBERS - 1))
    def elect(self, number):
        self.group.elect(number)
        for session in SESSIONS:
            self.send_again(session)

    @precondition(lambda self: self.group.leader is not None and not self.group.open)
    @rule(data=st.data(), works=st.booleans(), committed=st.sampled_from([True, True, False]))
    def hand_over(self, data, works, committed):
        ready = []
        replica = self.group.leader.replica
        replica.prepare_transfer(lambda: ready.append(True))
        if committed:
            self.group.submit()
            self.group.commit()
            assert ready
        if works:
            self.group.depose()
            self._take_over(data)
        else:
            replica.cancel_transfer()

    @precondition(lambda self: self.group.leader is not None and self.detached)
    @rule(which=st.integers(0, 5), keeps=st.booleans(), known=st.booleans())
    def attach(self, which, keeps, known):
        """A consumer finds the leader and says what it has; or it is lost, with all of that."""
        prefetch, had = self.detached.pop(which % len(self.detached))
        consumer = Consumer("c", self.queue, self.sink, prefetch=prefetch)
        self.consumers.append(consumer)
        self.queue.add_consumer(consumer)
        if keeps and had:
            self._claim(consumer, had, known=known)
        self.queue.start_consumer()

    def _claim(self, consumer, had, *, known):
        number = self.truth.numbers.index
        wanted = [number(name) for name in had]
        with_content = [m for m in had.values() if known and not m.is_stand_in]
        claimed = self.queue.claim(consumer, [*wanted, *wanted, 10_000], with_content)
        got = {self.name_of(m): m for m in claimed}
        assert all(got.get(self.name_of(m), m) is m for m in with_content)
        assert len(got) == len(claimed), "claimed twice"
        assert not got.keys() & self.held.keys(), "somebody has it"
        assert got.keys() <= had.keys() & self.now.alive
        if self.holding:
            waits = {n for n in had if self.now.due.get(n, 0) > self.group.now}
            others = self.held.keys() | self.touched.keys()
            assert got.keys() == (had.keys() & self.now.alive) - waits - others
        consumer.hold(len(claimed))
        self.held |= {name: (consumer, m) for name, m in got.items()}
        assert {m.sequence for m in self.queue.held(wanted)} >= {m.sequence for m in claimed}

    @precondition(lambda self: self.holding)
    @rule()
    def deal(self):
        self.holding = False
        self.queue.start_dealing()

    # What publishers do

    @rule(
        session=st.sampled_from(SESSIONS),
        batch=st.lists(PUBLISH, min_size=1, max_size=4),
        lost=st.integers(0, 2),
    )
    def publish(self, session, batch, lost):
        wanted = []
        for asked in batch:
            name = next(self.published)
            self.asked[name] = asked
            self.session_of[name] = session
            wanted.append((name, asked))
        self.sent[session] += 1
        one = Batch(self.sent[session], wanted, lost)
        self.unanswered[session].append(one)
        if self.group.leader is not None:
            self._send(session, one)

    @precondition(lambda self: self.group.leader is not None)
    @rule(session=st.sampled_from(SESSIONS))
    def send_again(self, session):
        for batch in list(self.unanswered[session]):
            self._send(session, batch)

    def _send(self, session, batch):
        incarnation = self.incarnation

        def stored(refused):
            assert incarnation == self.incarnation, "an answer from a queue that is over"
            self._answered(session, batch, set(names(refused)))

        receipt = FakeReceipt()
        receipt.stored = stored
        self.queue.publish(batch.made(), receipt, Origin(session, batch.seq))

    def _answered(self, session, batch, refused):
        there = set(self.truth.numbers)
        ids = {self.asked[n].get("dedup_id") for n in there} - {None}
        for name, asked in batch.wanted:
            if name not in refused:
                repeats = self.options.dedup_window_ms and asked.get("dedup_id") in ids
                assert name in there or repeats, "confirmed, and not in the log"
        self.stored.update({name for name, _ in batch.wanted} - refused)
        if batch.lost:
            batch.lost -= 1
        elif batch in self.unanswered[session]:
            self.unanswered[session].remove(batch)

    # What consumers do

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["settle", "requeue", "lost", "discard"]))
    def hand_back(self, data, how):
        for name in data.draw(st.lists(st.sampled_from(sorted(self.held)), max_size=3)):
            if name in self.held:
                self._hand_back(name, how)

    def _hand_back(self, name, how):
        holder, given = self.held[name]
        self.touched[name] = given
        holder.release(1)
        if how in ("requeue", "lost"):
            due = dict(self.now.due)
            self.returned(holder, [name])
            if how == "lost":
                self.now.due = due
            self.queue.requeue(holder, [given], lost=how == "lost")
        else:
            del self.held[name]
            if how == "settle":
                self.now.alive.remove(name)
            getattr(self.queue, how)(holder, [given])

    @precondition(lambda self: self.group.leader is not None and len(self.now.alive) > 7)
    @rule()
    def purge(self):
        counted = self.queue.unacked
        self.queue.purge()
        assert self.queue.unacked == counted
        unread = {name for name, given in self.touched.items() if given.is_stand_in}
        gone = self.now.alive - self.held.keys() - unread
        self.now.alive -= gone
        self.dead |= gone

    @rule()
    def dead_letters_are_refused_or_taken_again(self):
        self.takes_letters = not self.takes_letters

    # Disks, time, and members that lag

    @precondition(lambda self: self.group.leader is not None)
    @rule()
    def submit(self):
        self.group.submit()

    @precondition(lambda self: self.group.open)
    @rule(count=st.integers(1, 5))
    def commit(self, count):
        self.group.commit(count)

    @rule(number=st.integers(0, MEMBERS - 1), count=st.none() | st.integers(1, 3))
    def finish_read(self, number, count):
        log = self.group.members[number].log
        if log.reads:
            log.finish_read(count)

    @precondition(lambda self: self.group.leader is not None)
    @rule()
    def all_goes_well(self):
        self.group.settle_down()

    @rule(data=st.data(), number=st.integers(0, MEMBERS - 1))
    def finish_checkpoint_or_lag(self, data, number):
        member = self.group.members[number]
        if member.log.checkpoints and data.draw(st.booleans(), "checkpoint"):
            member.log.finish_checkpoint()
        elif member is not self.group.leader:
            step = data.draw(st.sampled_from(["catch up", "restart", "install"]))
            if step == "catch up":
                member.catch_up(data.draw(st.integers(1, 5)))
            elif step == "restart":
                member.restart()
            else:
                source = self.group.members[data.draw(st.integers(0, MEMBERS - 1))]
                if source.applied > member.applied and source.has_all():
                    member.receive(source)

    @rule(ms=st.integers(1, 15))
    def wait(self, ms):
        self.group.advance(ms)

    # Always

    @invariant()
    def replicas_that_applied_the_same_are_the_same(self):
        if hasattr(self, "group"):
            states = {}
            for member in self.group.members:
                assert member.replica.damage is None
                state = member.replica.state()
                assert states.setdefault(member.applied, state) == state

    @invariant()
    def followers_hold_nothing(self):
        if hasattr(self, "group"):
            for member in self.group.members:
                if member is not self.group.leader:
                    assert member.budget.used == 0
                    assert member.replica.queue is None

    @invariant()
    def everything_is_counted(self):
        if hasattr(self, "group") and self.queue is not None:
            queue = self.queue
            assert queue.damaged is None
            counted = queue.ready + queue.unacked + queue.away.delayed_count + queue.dying
            assert counted == len(self.now.alive)
            assert queue.unacked >= len(self.held)
            if not queue.statistics().on_disk:
                assert queue.ready_bytes == MESSAGE_BYTES * queue.ready

    def teardown(self):
        """In the end everything that was stored was delivered, or is dead."""
        if not hasattr(self, "group"):
            return
        self.takes_letters = True
        if self.group.leader is None:
            self.elect(0)
        if self.holding:
            self.deal()
        self.detached.append((0, {}))
        while self.detached:
            self.attach(0, keeps=False, known=False)
        for _ in range(200):
            self.group.settle_down()
            for name in list(self.held):
                self._hand_back(name, "settle")
            self.group.advance(10)
            if not self.truth.alive and not any(self.unanswered.values()):
                break
            for session in SESSIONS:
                self.send_again(session)
        assert not self.truth.alive, "never delivered"
        assert not any(self.unanswered.values()), "never answered"
        there = set(self.truth.numbers)
        assert self.stored & there <= self.ever | self.dead, "lost"


# The same numbers, whoever collects the class.
@pytest.mark.usefixtures("_small_numbers")
class TestReplicatedLife(ReplicatedLife.TestCase):
    settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
