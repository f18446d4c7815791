"""Policies in effect on a vhost's queues and exchanges, slice by slice where there are many."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker import policy_store
from broker.policies import effective_options, parse_policy
from broker.protocol.errors import ChannelError
from broker.vhost import VHost
from queues.options import parse_options
from tests.channel.fakes import body_of, fetch, stored_message
from tests.queues.fakes import FakeContext

ME = object()


class Scene:
    """A vhost on a clock of its own."""

    def __init__(self):
        self.clock = FakeContext()
        self.vhost = VHost("/", self.clock)
        self.recorded = []
        self.vhost.journal = self

    def record(self, *change):
        self.recorded.append(change)

    def declare(self, name, *, durable=False, owner=None, arguments=None):
        return self.vhost.declare_queue(
            name,
            durable=durable,
            auto_delete=False,
            owner=owner,
            arguments=arguments or {},
            user_of=ME,
        )

    def declare_exchange(self, name, arguments=None):
        self.vhost.declare_exchange(
            name,
            "direct",
            durable=False,
            auto_delete=False,
            internal=False,
            arguments=arguments or {},
        )
        return self.vhost.exchanges[name]

    def put(self, name, definition, *, kind="policy", pattern="", priority=0, apply_to="all"):
        body = {"pattern": pattern, "definition": definition, "priority": priority}
        policy = parse_policy(name, {**body, "apply-to": apply_to}, kind=kind)
        self.vhost.policies.put(kind, policy)

    def remove(self, name, kind="policy"):
        self.vhost.policies.remove(kind, name)


@pytest.fixture
def scene():
    return Scene()


def publish(queue, *bodies):
    queue.publish([stored_message(body) for body in bodies], None)


def bodies(queue):
    return [body_of(message) for message in fetch(queue)]


# One queue


def test_a_policy_reaches_the_queues_that_are_there_and_those_that_come(scene):
    before = scene.declare("before")
    scene.put("p", {"max-length": 2})
    after = scene.declare("after")
    for queue in (before, after):
        assert (queue.policy, queue.operator_policy, queue.options.max_length) == ("p", None, 2)
        publish(queue, b"1", b"2", b"3")
        assert bodies(queue) == [b"2", b"3"]


def test_without_the_policy_a_queue_is_as_it_was_declared(scene):
    queue = scene.declare("q", arguments={"x-max-length": 5})
    declared = queue.options
    scene.put("p", {"max-length": 2, "message-ttl": 100})
    scene.put("o", {"expires": 1000}, kind="operator-policy")
    assert (queue.policy, queue.operator_policy) == ("p", "o")
    scene.remove("p")
    scene.remove("o", "operator-policy")
    assert queue.options == declared
    assert (queue.policy, queue.operator_policy) == (None, None)


def test_what_is_too_much_for_a_new_limit_goes_at_once(scene):
    queue = scene.declare("q")
    publish(queue, b"1", b"2", b"3")
    scene.put("p", {"max-length": 1})
    assert bodies(queue) == [b"3"]


def test_a_time_to_live_is_for_messages_that_come_after_it(scene):
    """As in RabbitMQ, where each message's time is set when it comes."""
    queue = scene.declare("q")
    publish(queue, b"old")
    scene.put("p", {"message-ttl": 50})
    scene.clock.advance(100)
    assert bodies(queue) == [b"old"]
    publish(queue, b"new")
    scene.clock.advance(100)
    assert queue.ready == 0
    publish(queue, b"timed")
    scene.remove("p")
    publish(queue, b"untimed")
    scene.clock.advance(100)
    assert bodies(queue) == [b"untimed"]


def test_an_unused_queue_goes_when_a_policy_says_so(scene):
    scene.declare("q")
    scene.clock.advance(100)
    scene.put("p", {"expires": 50})
    scene.clock.advance(49)
    assert "q" in scene.vhost.queues
    scene.clock.advance(1)
    assert "q" not in scene.vhost.queues


def test_a_queue_stays_when_the_policy_is_gone_in_time(scene):
    scene.declare("q")
    scene.put("p", {"expires": 50})
    scene.clock.advance(49)
    scene.remove("p")
    scene.clock.advance(100)
    assert "q" in scene.vhost.queues


def test_dead_letters_go_where_the_policy_says_now(scene):
    queue, letters = scene.declare("q", arguments={"x-max-length": 1}), scene.declare("letters")
    publish(queue, b"1", b"2")
    scene.put(
        "p", {"dead-letter-exchange": "", "dead-letter-routing-key": "letters"}, pattern="^q$"
    )
    publish(queue, b"3")
    scene.remove("p")
    publish(queue, b"4")
    assert bodies(letters) == [b"2"]


def test_exclusive_and_server_named_queues_are_matched_too(scene):
    scene.put("p", {"max-length": 2})
    assert scene.declare("mine", owner=ME).policy == "p"
    assert scene.declare("amq.gen-1").policy == "p"


def test_apply_to_tells_the_types_of_queues_apart(scene):
    classic, quorum = scene.declare("c"), scene.declare("q", durable=True)
    scene.put("p", {"max-length": 2}, apply_to="quorum_queues")
    assert (classic.policy, quorum.policy) == (None, "p")
    scene.put("p", {"max-length": 2}, apply_to="classic_queues")
    assert (classic.policy, quorum.policy) == ("p", None)
    scene.put("p", {"max-length": 2}, apply_to="exchanges")
    assert (classic.policy, quorum.policy) == (None, None)


def test_a_queue_declared_again_is_compared_by_its_arguments(scene):
    scene.declare("q")
    scene.put("p", {"max-length": 2})
    scene.declare("q")
    with pytest.raises(ChannelError, match="inequivalent arg 'x-max-length'"):
        scene.declare("q", arguments={"x-max-length": 2})


def test_what_does_not_fit_is_told_once(scene, caplog):
    caplog.set_level("WARNING", logger="leveret.policies")
    for number in range(5):
        scene.declare(f"q{number}")
    scene.put("p", {"dead-letter-routing-key": "k", "max-length": 3})
    scene.put("other", {"max-length": 3}, priority=-1)
    scene.declare("late")
    assert scene.vhost.queues["q4"].options.max_length == 3
    (told,) = caplog.records
    assert told.message == "setting_left_out"
    assert told.fields["setting"] == "dead-letter-routing-key"
    scene.put("p", {"dead-letter-routing-key": "k", "max-length": 4})
    assert len(caplog.records) == 2


# Exchanges


def routed(scene, exchange, key="k"):
    return [queue.name for queue in scene.vhost._targets(scene.vhost.exchange(exchange), key)]


def test_an_alternate_exchange_by_policy_takes_what_is_not_routed(scene):
    queue = scene.declare("q")
    scene.declare_exchange("x")
    scene.vhost.bind("amq.fanout", queue, "", {})
    assert routed(scene, "x") == []
    scene.put("p", {"alternate-exchange": "amq.fanout"}, pattern="^x")
    assert routed(scene, "x") == ["q"]
    scene.declare_exchange("x-late")
    assert routed(scene, "x-late") == ["q"]
    scene.remove("p")
    assert routed(scene, "x") == routed(scene, "x-late") == []


def test_an_exchanges_own_alternate_wins(scene):
    exchange = scene.declare_exchange("x", {"alternate-exchange": "amq.direct"})
    scene.put("p", {"alternate-exchange": "amq.fanout"})
    assert (exchange.policy, exchange.alternate) == ("p", "amq.direct")
    scene.remove("p")
    assert (exchange.policy, exchange.alternate) == (None, "amq.direct")


def test_predeclared_exchanges_are_matched_and_the_default_one_is_not(scene):
    scene.put("p", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    assert scene.vhost.exchanges["amq.direct"].alternate == "amq.fanout"
    assert scene.vhost.default.alternate is None
    assert scene.vhost.default.policy is None


def test_routes_that_were_remembered_are_forgotten_when_an_alternate_comes(scene):
    scene.declare_exchange("x")
    forgotten = []
    scene.vhost.policies._forget_routes = lambda: forgotten.append(1)
    scene.put("p", {"alternate-exchange": "amq.fanout"}, pattern="^x$")
    assert len(forgotten) == 1
    scene.put("p", {"alternate-exchange": "amq.fanout"}, pattern="^x")
    assert len(forgotten) == 1, "nothing changed"
    scene.remove("p")
    assert len(forgotten) == 2


# What is written down


def test_changes_are_recorded_before_they_are_made(scene):
    scene.put("p", {"max-length": 2}, pattern="^q", priority=3)
    scene.put("o", {"expires": 9}, kind="operator-policy")
    scene.remove("p")
    scene.remove("o", "operator-policy")
    scene.remove("p")
    assert scene.recorded == [
        ("policy", "/", "p", "^q", "all", 3, {"max-length": 2}),
        ("operator-policy", "/", "o", "", "all", 0, {"expires": 9}),
        ("-policy", "/", "p"),
        ("-operator-policy", "/", "o"),
    ]


def test_there_may_be_so_many_policies(scene, monkeypatch):
    monkeypatch.setattr(policy_store, "POLICIES_MAX", 2)
    scene.put("a", {"max-length": 1})
    scene.put("b", {"max-length": 1})
    with pytest.raises(ChannelError, match="2 policies"):
        scene.put("c", {"max-length": 1})
    scene.put("b", {"max-length": 2})
    scene.put("c", {"max-length": 1}, kind="operator-policy")
    assert [policy.name for policy in scene.vhost.policies.sets["policy"]] == ["a", "b"]
    assert len(scene.recorded) == 4


# Many queues


@pytest.fixture
def many(scene, monkeypatch):
    """More queues than one slice takes."""
    monkeypatch.setattr(policy_store, "SLICE_QUEUES", 10)
    for number in range(100):
        scene.declare(f"q{number}")
    return scene


def limits(scene):
    return {queue.options.max_length for queue in scene.vhost.queues.values()}


def test_a_change_reaches_many_queues_slice_by_slice(many):
    done = []
    many.put("p", {"max-length": 1})
    many.vhost.policies.when_applied(lambda: done.append(True))
    reached = []
    while not done:
        reached.append(sum(queue.policy == "p" for queue in many.vhost.queues.values()))
        many.clock.advance(1)
    assert reached == sorted(set(reached)), "each slice reaches some more"
    assert max(b - a for a, b in itertools.pairwise(reached)) <= 10
    assert len(reached) > 5
    assert limits(many) == {1}
    assert many.clock.timers == 0


def test_the_newest_of_several_changes_wins_everywhere(many):
    done = []
    for length in range(1, 30):
        many.put("p", {"max-length": length})
        many.vhost.policies.when_applied(lambda: done.append(limits(many)))
        many.clock.advance(1)
    assert not done
    many.remove("p")
    many.clock.advance(50)
    assert done == [{None}] * 29


def test_changes_without_end_still_reach_every_queue(many):
    for length in range(1, 100):
        many.put("p", {"max-length": length})
        many.clock.advance(1)
    assert None not in limits(many)


def test_queues_that_come_and_go_meanwhile_are_right_as_well(many):
    many.put("p", {"max-length": 1, "expires": 1000})
    dropped = [many.vhost.queues[f"q{number}"] for number in range(50)]
    for queue in dropped:
        many.vhost.drop_queue(queue)
    late, again = many.declare("late"), many.declare("q0")
    assert late.policy == again.policy == "p"
    many.clock.advance(50)
    assert limits(many) == {1}
    assert many.clock.timers == len(many.vhost.queues), "those that are gone watch nothing"


def test_many_patterns_make_the_slices_smaller(many):
    for number in range(540):
        many.put(f"n{number}", {"max-length": 9}, pattern="^other", priority=1)
    many.clock.advance(2000)
    many.put("p", {"max-length": 1})
    before = sum(queue.policy == "p" for queue in many.vhost.queues.values())
    many.clock.advance(1)
    assert sum(queue.policy == "p" for queue in many.vhost.queues.values()) <= before + 1
    many.clock.advance(200)
    assert limits(many) == {1}


NAMES = st.sampled_from(["q1", "q2", "q3", "x1", "x2", "x3"])
POLICY_NAMES = st.sampled_from(["a", "b", "c"])
PATTERNS = st.sampled_from(["", "1$", "^q", "^x", "nothing"])
DEFINITIONS = st.dictionaries(
    st.sampled_from(["max-length", "delivery-limit", "expires"]),
    st.integers(100_000, 100_005),
    min_size=1,
)


class PolicyLife(RuleBasedStateMachine):
    """Queues and policies come and go in any order, with slices of one."""

    def __init__(self):
        super().__init__()
        self.scene = Scene()

    @rule(name=NAMES, length=st.sampled_from([None, 100_003]), durable=st.booleans())
    def declare(self, name, length, durable):
        if name not in self.scene.vhost.queues:
            arguments = {} if length is None else {"x-max-length": length}
            self.scene.declare(name, durable=durable, arguments=arguments)

    @rule(name=NAMES)
    def delete(self, name):
        self.scene.vhost.delete_queue(name, if_unused=False, if_empty=False, user_of=ME)

    @rule(
        name=POLICY_NAMES,
        pattern=PATTERNS,
        definition=DEFINITIONS,
        priority=st.integers(0, 1),
        kind=st.sampled_from(["policy", "operator-policy"]),
        apply_to=st.sampled_from(["all", "queues", "quorum_queues", "exchanges"]),
    )
    def put(self, name, pattern, definition, priority, kind, apply_to):
        parts = {"pattern": pattern, "priority": priority, "apply_to": apply_to}
        self.scene.put(name, definition, kind=kind, **parts)

    @rule(name=POLICY_NAMES, kind=st.sampled_from(["policy", "operator-policy"]))
    def remove(self, name, kind):
        self.scene.remove(name, kind)

    @rule(ms=st.integers(1, 5))
    def wait(self, ms):
        self.scene.clock.advance(ms)

    def _wanted(self, queue):
        queue_type = parse_options(queue.arguments, default=queue.options.type).type
        sets = self.scene.vhost.policies.sets
        found = [sets[kind].match(queue_type, queue.name) for kind in sets]
        return effective_options(queue.arguments, *found, queue_type=queue_type)[0]

    @invariant()
    def what_is_done_is_right(self):
        policies = self.scene.vhost.policies
        due = set(policies._due)
        for queue in self.scene.vhost.queues.values():
            assert queue in due or queue.options == self._wanted(queue)
        assert bool(self.scene.vhost.policies._due) <= bool(self.scene.clock.timers)

    def teardown(self):
        self.scene.clock.advance(100)
        assert not self.scene.vhost.policies._due
        self.what_is_done_is_right()


@pytest.fixture
def _slices_of_one(monkeypatch):
    monkeypatch.setattr(policy_store, "SLICE_QUEUES", 1)


@pytest.mark.usefixtures("_slices_of_one")
class TestPolicyLife(PolicyLife.TestCase):
    settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


# Settings: arguments altered since the queue was declared


def test_settings_count_more_than_what_a_queue_was_declared_with(scene):
    queue = scene.declare("q", arguments={"x-max-length": 5})
    scene.vhost.policies.alter(queue, {"x-max-length": 1, "x-message-ttl": 9})
    assert (queue.options.max_length, queue.options.message_ttl_ms) == (1, 9)
    assert scene.declare("q", arguments={"x-max-length": 5}) is queue
    scene.vhost.policies.alter(queue, {})
    assert (queue.options.max_length, queue.options.message_ttl_ms) == (5, None)


def test_of_settings_and_a_policy_the_smaller_number_counts(scene):
    queue = scene.declare("q")
    scene.put("p", {"max-length": 3})
    scene.vhost.policies.alter(queue, {"x-max-length": 4, "x-message-ttl": 9})
    assert (queue.options.max_length, queue.options.message_ttl_ms) == (3, 9)
    scene.remove("p")
    assert (queue.options.max_length, queue.options.message_ttl_ms) == (4, 9)


@pytest.mark.parametrize(
    "altered",
    [{"x-max-length": -1}, {"x-queue-type": "stream"}, {"x-dead-letter-routing-key": "k"}],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_and_change_nothing(scene, altered):
    queue = scene.declare("q")
    before = queue.options
    with pytest.raises(ChannelError) as refused:
        scene.vhost.policies.alter(queue, altered)
    assert refused.value.code == 406
    assert (queue.options, queue.settings) == (before, {})
