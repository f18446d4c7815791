"""What is a policy and what is refused, with words that say why."""

import pytest

from broker.policies import APPLY_TO, InvalidPolicyError, parse_policy
from queues.options import POLICY_ARGUMENTS

GOOD = {"pattern": "^q", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"}
QUEUE_KEYS = sorted(name.removeprefix("x-") for name in POLICY_ARGUMENTS)


def parse(name="p", *, kind="policy", **parts):
    return parse_policy(name, {**GOOD, **parts}, kind=kind)


def defined(definition, kind="policy"):
    return parse(definition=definition, kind=kind).definition


def refused(name="p", *, kind="policy", body=None, **parts):
    with pytest.raises(InvalidPolicyError) as caught:
        parse_policy(name, {**GOOD, **parts} if body is None else body, kind=kind)
    return str(caught.value)


def test_a_policy_is_what_was_said():
    policy = parse("limits", priority=-3, **{"apply-to": "all"})
    assert (policy.name, policy.pattern, policy.apply_to) == ("limits", "^q", "all")
    assert (policy.priority, policy.definition) == (-3, {"max-length": 1})


def test_priority_is_0_and_apply_to_is_all_unless_said():
    policy = parse_policy("p", {"pattern": "", "definition": {"max-length": 1}}, kind="policy")
    assert (policy.priority, policy.apply_to) == (0, "all")


def test_parts_that_mean_nothing_are_ignored():
    assert parse(vhost="other", name_of_author="me", extra=[]) == parse()


@pytest.mark.parametrize("key", QUEUE_KEYS)
def test_every_argument_that_policies_may_set_is_known(key):
    accepted = []
    for value in (1, True, "drop-head"):
        try:
            accepted.append(defined({key: value}))
        except InvalidPolicyError:
            continue
    assert accepted, key


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"pattern": "("}, "pattern is not a regular expression"),
        ({"pattern": "a(?=b)"}, "pattern is not a regular expression"),
        ({"pattern": "(" * 1025}, "pattern must be a text of at most 1024 letters"),
        ({"pattern": 5}, "pattern must be a text"),
        ({"pattern": None}, "pattern must be a text"),
        ({"pattern": "\ud800"}, "pattern is not a valid text"),
        ({"apply-to": "nope"}, "apply-to must be one of queues, classic_queues"),
        ({"apply-to": 5}, "apply-to must be one of"),
        ({"apply-to": None}, "apply-to must be one of"),
        ({"apply-to": []}, "apply-to must be one of"),
        ({"priority": "a"}, "priority must be a whole number"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": None}, "priority must be a whole number"),
        ({"priority": 2**31}, "priority must be a whole number from -2147483647 to 2147483647"),
        ({"definition": {}}, "at least one setting"),
        ({"definition": 5}, "at least one setting"),
        ({"definition": []}, "at least one setting"),
        ({"definition": None}, "at least one setting"),
        ({"definition": {"nope": 1, "max-length": 1, "nada": 2}}, "nope, nada: not recognised"),
        ({"definition": {"x-max-length": 1}}, "x-max-length: not recognised"),
        ({"definition": {"queue-type": "quorum"}}, "queue-type: not recognised"),
        ({"definition": {"single-active-consumer": True}}, "not recognised"),
        ({"definition": {"max-length": -1}}, "max-length: expected a number that is not negative"),
        ({"definition": {"max-length": "a"}}, "max-length: expected a number"),
        ({"definition": {"max-length": 1.5}}, "max-length: expected a number"),
        ({"definition": {"max-length": None}}, "max-length: expected a number"),
        ({"definition": {"max-length": 2**63}}, "max-length: at most"),
        ({"definition": {"message-ttl": -1}}, "message-ttl: expected a number from 0"),
        ({"definition": {"expires": 0}}, "expires: expected a number from 1"),
        ({"definition": {"overflow": "nope"}}, "overflow: expected one of drop-head"),
        ({"definition": {"dead-letter-exchange": 5}}, "dead-letter-exchange: expected a string"),
        ({"definition": {"dead-letter-routing-key": "k" * 256}}, "at most 255 bytes"),
        ({"definition": {"dead-letter-routing-key": "\udfff"}}, "is not a valid text"),
        ({"definition": {"priority-aging-ms": 0}}, "priority-aging-ms: expected a number"),
        ({"definition": {"alternate-exchange": 5}}, "alternate-exchange: expected a string"),
        ({"definition": {"ha-mode": 5}}, "ha-mode: expected a string"),
        ({"definition": {"max-in-memory-length": -1}}, "max-in-memory-length: expected a number"),
        ({"definition": {"ha-params": {}}}, "ha-params: expected a number or a list of strings"),
        ({"definition": {"ha-params": [1]}}, "ha-params: expected a number or a list of strings"),
    ],
)
def test_a_mistake_is_refused_and_named(parts, words):
    assert words in refused(**parts)


def test_a_policy_without_its_parts_is_refused():
    assert refused(body={}) == "pattern is missing"
    assert refused(body={"pattern": ""}) == "definition is missing"


def test_a_policy_needs_a_name_of_bounded_length():
    assert refused("") == "a policy needs a name"
    assert refused("é" * 128) == "name: at most 255 bytes"
    assert parse("n" * 255).name == "n" * 255


@pytest.mark.parametrize(
    "definition",
    [
        {"dead-letter-routing-key": "k"},
        {"priority-aging-ms": 5},
        {"message-groups": True, "max-priority": 3},
        {"message-ttl": 0},
        {"delivery-limit": -1},
        {"retry-backoff": 1.5},
        {"alternate-exchange": "x", "max-length": 2**63 - 1},
    ],
)
def test_what_a_queue_would_be_refused_for_may_be_part_of_a_policy(definition):
    """The queue may bring the rest; and where it does not, it must not suffer."""
    assert defined(definition) == definition


@pytest.mark.parametrize(
    "definition",
    [
        {"ha-mode": "all"},
        {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
        {"ha-mode": "nodes", "ha-params": ["rabbit@a", "rabbit@b"]},
        {"queue-mode": "lazy", "queue-version": 2, "queue-master-locator": "min-masters"},
        {"max-in-memory-length": 5, "max-in-memory-bytes": 0},
        {"federation-upstream-set": "all"},
        {"dead-letter-strategy": "at-least-once"},
    ],
)
def test_what_only_rabbitmq_has_a_use_for_is_kept(definition):
    assert defined(definition) == definition


@pytest.mark.parametrize(
    "key",
    [
        *("expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit"),
        *("max-in-memory-length", "max-in-memory-bytes"),
    ],
)
def test_an_operator_may_set_what_rabbitmq_lets_operators_set(key):
    assert defined({key: 5}, kind="operator-policy") == {key: 5}


@pytest.mark.parametrize(
    "definition",
    [
        {"overflow": "drop-head"},
        {"dead-letter-exchange": "x"},
        {"alternate-exchange": "x"},
        {"ha-mode": "all"},
        {"queue-mode": "lazy"},
        {"max-priority": 5},
        {"dedup-window": 5},
    ],
)
def test_an_operator_may_set_nothing_else(definition):
    (key,) = definition
    words = refused(kind="operator-policy", definition=definition)
    assert words == f"{key}: not recognised as settings of an operator policy"


@pytest.mark.parametrize("apply_to", APPLY_TO)
def test_policies_apply_to_what_rabbitmq_knows(apply_to):
    assert parse(**{"apply-to": apply_to}).apply_to == apply_to
