"""Definitions through crashes: what comes back is what was there, but for the last moment."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import broker.journal
from broker.definitions import durable_definitions, replay
from broker.journal import Journal
from broker.policies import effective_options, parse_policy
from broker.protocol.errors import AMQPError
from broker.timers import Timers
from broker.vhost import VHost
from tests.durability.fake_log import FakeDisk, FakeLog

EXCHANGES = st.sampled_from(["x1", "x2", "x3"])
QUEUES = st.sampled_from(["q1", "q2"])
KEYS = st.sampled_from(["", "k"])
TTLS = st.integers(1000, 1002)
POLICIES = st.sampled_from(["p1", "p2"])
POLICY_KINDS = st.sampled_from(["policy", "operator-policy"])
ME = object()


class StoppedClock(Timers):
    """Trio's clock is not there; no time has to pass."""

    def now_ms(self):
        return 0


def definitions(vhost):
    """What would survive, as a set of texts; and all policies, which should."""
    sets = vhost.policies.sets.items()
    policies = {f"{kind}: {policy}" for kind, found in sets for policy in found}
    return policies | {repr(change) for change in durable_definitions(vhost)}


class DefinitionsLife(RuleBasedStateMachine):
    """After a crash each definition is there if it was at every moment that the disk may show."""

    def __init__(self):
        super().__init__()
        self.disk = FakeDisk()
        self._open()

    def _open(self):
        self.vhost = VHost("/", StoppedClock())
        self.log = FakeLog(self.disk)
        self.journal = self.log.machine = Journal(self.log, lambda: durable_definitions(self.vhost))
        checkpoint = [self.disk.checkpoint] if self.disk.checkpoint else []
        for change in self.journal.recover([*checkpoint, *self.disk.above_checkpoint()]):
            replay(self.vhost, change)
        self.vhost.policies.apply_to_all()
        self.vhost.journal = self.journal
        self.log.on_submit = self._submitted
        self.moments = [definitions(self.vhost)]  # since the last entry that is durable
        self.at = {}  # index of an entry → which moment it ends at
        self.told = 0

    def _submitted(self, index):
        self.at[index] = len(self.moments) - 1

    def _do(self, action, *arguments, **options):
        try:
            action(*arguments, **options)
        except AMQPError:
            pass
        else:
            now = definitions(self.vhost)
            if now != self.moments[-1]:
                self.moments.append(now)
            moment = len(self.moments) - 1
            self.journal.when_durable(lambda: self._told(moment))

    def _told(self, moment):
        """The client hears that its change is durable."""
        done = [m for index, m in self.at.items() if index <= self.disk.last]
        assert not self.at or moment <= max(done, default=0), "told too early"
        self.told = max(self.told, moment)

    @rule(name=EXCHANGES, durable=st.booleans(), auto_delete=st.booleans())
    def declare_exchange(self, name, durable, auto_delete):
        options = {"durable": durable, "auto_delete": auto_delete, "internal": False}
        self._do(self.vhost.declare_exchange, name, "topic", arguments={}, **options)

    @rule(name=QUEUES, durable=st.booleans())
    def declare_queue(self, name, durable):
        options = {"durable": durable, "auto_delete": False, "owner": None, "user_of": ME}
        self._do(self.vhost.declare_queue, name, arguments={"x-anything": name}, **options)

    @rule(name=EXCHANGES, if_unused=st.booleans())
    def delete_exchange(self, name, if_unused):
        self._do(self.vhost.delete_exchange, name, if_unused=if_unused)

    @rule(name=QUEUES)
    def delete_queue(self, name):
        self._do(self.vhost.delete_queue, name, if_unused=False, if_empty=False, user_of=ME)

    @rule(source=EXCHANGES, data=st.data(), key=KEYS, verb=st.sampled_from(["bind", "unbind"]))
    def bind_or_unbind(self, source, data, key, verb):
        there = [*self.vhost.queues.values()]
        there += [x for x in self.vhost.exchanges.values() if x.name in ("x1", "x2", "x3")]
        if there and source in self.vhost.exchanges:
            target = data.draw(st.sampled_from(there))
            self._do(getattr(self.vhost, verb), source, target, key, {"n": 1})

    @rule(name=POLICIES, kind=POLICY_KINDS, pattern=st.sampled_from(["1", "^"]), ms=TTLS)
    def put_policy(self, name, kind, pattern, ms):
        body = {"pattern": pattern, "definition": {"message-ttl": ms}}
        self._do(self.vhost.policies.put, kind, parse_policy(name, body, kind=kind))

    @rule(name=POLICIES, kind=POLICY_KINDS)
    def remove_policy(self, name, kind):
        self._do(self.vhost.policies.remove, kind, name)

    @rule()
    def submit(self):
        self.log.submit()

    @precondition(lambda self: self.log.writes)
    @rule(count=st.integers(1, 3))
    def commit(self, count):
        self.log.commit(count)

    @precondition(lambda self: self.log.writes)
    @rule()
    def commit_all(self):
        self.log.commit()

    @rule(data=st.data())
    def crash(self, data):
        kept = data.draw(st.integers(0, len(self.log.writes)))
        self.log.crash(kept, ())
        oldest = max([self.at[i] for i in self.at if i <= self.disk.last], default=0)
        assert oldest >= self.told, "what a client was told is gone"
        # A checkpoint may show more than the log does, up to the last moment of all.
        possible = self.moments[oldest:]
        self._open()
        found = definitions(self.vhost)
        assert found <= set().union(*possible), "invented"
        assert set.intersection(*possible) <= found, "lost"

    @invariant()
    def every_queue_does_what_the_policies_say(self):
        sets = self.vhost.policies.sets
        for queue in self.vhost.queues.values():
            kind = queue.options.type
            found = [policies.match(kind, queue.name) for policies in sets.values()]
            wanted, _ = effective_options(queue.arguments, *found, queue_type=kind)
            assert queue.options == wanted

    @invariant()
    def nothing_waits_for_nothing(self):
        if not (self.log.writes or self.log.dirty):
            assert not self.journal.pending


@pytest.fixture(autouse=True)
def _checkpoint_often(monkeypatch):
    monkeypatch.setattr(broker.journal, "CHECKPOINT_CHANGES", 4)


@pytest.mark.usefixtures("_checkpoint_often")
class TestDefinitionsLife(DefinitionsLife.TestCase):
    settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_an_exchange_that_transient_bindings_kept_alive_is_still_there():
    """Replayed without them, it must not go with its last durable binding."""
    life = DefinitionsLife()
    life.declare_exchange("x1", durable=True, auto_delete=True)
    life.declare_exchange("x2", durable=True, auto_delete=False)
    life.declare_queue("q1", durable=True)
    life.declare_queue("q2", durable=False)
    vhost = life.vhost
    for destination in (vhost.queues["q1"], vhost.queues["q2"], vhost.exchanges["x2"]):
        vhost.bind("x1", destination, "k", {})
    life.delete_queue("q1")
    life.delete_exchange("x2", if_unused=False)
    life.log.settle_down()
    life.log.crash(0, ())
    life._open()
    assert {"x1", "x2", "q1", "q2"} & {*life.vhost.exchanges, *life.vhost.queues} == {"x1"}
