"""What becomes of a queue's own arguments, a policy and an operator's policy together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policies import Policy, effective_arguments, effective_options
from queues.options import POLICY_ARGUMENTS, InvalidArgumentError, parse_options

NUMBERS = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")


def policy(definition):
    return None if definition is None else Policy.make("p", "", "all", 0, definition)


def merged(arguments, definition=None, operator=None):
    return effective_arguments(arguments, policy(definition), policy(operator))


@pytest.mark.parametrize(
    ("arguments", "definition", "operator", "effective"),
    [
        ({}, None, None, {}),
        ({}, {"max-length": 5}, None, {"x-max-length": 5}),
        ({"x-max-length": 3}, {"max-length": 5}, None, {"x-max-length": 3}),
        ({"x-max-length": 7}, {"max-length": 5}, None, {"x-max-length": 5}),
        ({"x-max-length": 7}, {"max-length": 5}, {"max-length": 2}, {"x-max-length": 2}),
        ({"x-max-length": 7}, {"max-length": 5}, {"max-length": 9}, {"x-max-length": 5}),
        ({"x-max-length": 7}, None, {"max-length": 9}, {"x-max-length": 7}),
        ({}, None, {"max-length": 9}, {"x-max-length": 9}),
        ({}, {"max-length": 5}, {"expires": 9}, {"x-max-length": 5, "x-expires": 9}),
        ({"x-delivery-limit": -1}, {"delivery-limit": 5}, None, {"x-delivery-limit": 5}),
        ({"x-delivery-limit": 5}, {"delivery-limit": -1}, None, {"x-delivery-limit": 5}),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, None, "own"),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b"}, None, "own"),
        ({"x-max-priority": 9}, {"max-priority": 5}, None, "own"),
        ({"x-retry-delay": 9}, {"retry-delay": 5}, None, "own"),
        ({"x-anything": 1}, {"ha-mode": "all", "alternate-exchange": "x"}, None, "own"),
        ({}, None, {"max-in-memory-length": 1}, {}),
        (
            {"x-dead-letter-exchange": "a"},
            {"dead-letter-routing-key": "k"},
            None,
            {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"},
        ),
    ],
)
def test_own_arguments_win_but_the_smallest_number_counts(
    arguments, definition, operator, effective
):
    before = dict(arguments)
    assert merged(arguments, definition, operator) == (
        arguments if effective == "own" else effective
    )
    assert arguments == before


LIMITS = st.one_of(st.none(), st.integers(0, 9))


@given(key=st.sampled_from(NUMBERS), own=LIMITS, by_policy=LIMITS, by_operator=LIMITS)
def test_of_three_numbers_the_smallest_counts(key, own, by_policy, by_operator):
    def as_definition(value):
        return None if value is None else {key: value}

    arguments = {} if own is None else {f"x-{key}": own}
    effective = merged(arguments, as_definition(by_policy), as_definition(by_operator))
    given_ones = [value for value in (own, by_policy, by_operator) if value is not None]
    assert effective == ({f"x-{key}": min(given_ones)} if given_ones else {})


@pytest.mark.parametrize(
    ("arguments", "definition", "left_out"),
    [
        ({}, {"dead-letter-routing-key": "k"}, ["x-dead-letter-routing-key"]),
        ({}, {"priority-aging-ms": 5}, ["x-priority-aging-ms"]),
        ({}, {"max-priority": 5, "priority-aging-ms": 5}, []),
        ({"x-max-priority": 5}, {"priority-aging-ms": 5}, []),
        ({"x-max-priority": 5}, {"message-groups": True}, ["x-message-groups"]),
        ({"x-message-groups": True}, {"max-priority": 5}, ["x-max-priority"]),
        ({}, {"max-priority": 5, "message-groups": True}, ["x-message-groups"]),
        (
            {"x-message-groups": True},
            {"max-priority": 5, "priority-aging-ms": 9, "max-length": 3},
            ["x-max-priority", "x-priority-aging-ms"],
        ),
    ],
)
def test_what_does_not_go_with_a_queue_is_left_out_and_the_rest_stands(
    arguments, definition, left_out
):
    options, found = effective_options(arguments, policy(definition), None, queue_type="classic")
    assert sorted(found) == left_out
    kept = {f"x-{key}": value for key, value in definition.items() if f"x-{key}" not in left_out}
    assert options == parse_options({**kept, **arguments})


def test_the_delivery_limit_of_quorum_queues_is_a_default_and_no_cap():
    quorum = {"queue_type": "quorum"}
    assert effective_options({}, None, None, **quorum)[0].delivery_limit == 20
    by_policy = policy({"delivery-limit": 50})
    assert effective_options({}, by_policy, None, **quorum)[0].delivery_limit == 50
    assert effective_options({}, None, by_policy, **quorum)[0].delivery_limit == 50
    own = {"x-delivery-limit": 30}
    assert effective_options(own, by_policy, None, **quorum)[0].delivery_limit == 30


def _accepted(name):
    """Some values that the argument can have."""
    company = {"x-dead-letter-exchange": "", "x-max-priority": 1}
    values = []
    for value in (0, 1, 7, 300, True, False, "drop-head", "reject-publish", "x"):
        try:
            parse_options({**company, name: value})
        except InvalidArgumentError as error:
            if error.name == name and "together" not in error.reason:
                continue
        values.append(value)
    return values


VALUES = {name: _accepted(name) for name in sorted(POLICY_ARGUMENTS)}
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
)
OPERATORS = st.none() | st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 9), min_size=1)


def _parses(arguments, queue_type):
    try:
        parse_options(arguments, default=queue_type)
    except InvalidArgumentError:
        return False
    return True


@given(
    arguments=ARGUMENTS.filter(lambda arguments: _parses(arguments, "classic")),
    definition=ARGUMENTS,
    operator=OPERATORS,
    queue_type=st.sampled_from(["classic", "quorum"]),
)
def test_no_policy_breaks_a_queue_or_takes_from_it_what_it_declared(
    arguments, definition, operator, queue_type
):
    by_policy = policy({name.removeprefix("x-"): value for name, value in definition.items()})
    options, left_out = effective_options(
        arguments, by_policy, policy(operator), queue_type=queue_type
    )
    effective = effective_arguments(arguments, by_policy, policy(operator))
    assert not left_out or not _parses(effective, queue_type)
    assert not set(left_out) & arguments.keys()
    for name in left_out:
        del effective[name]
    assert options == parse_options(effective, default=queue_type)
    assert {k: v for k, v in effective.items() if k in arguments and k[2:] not in NUMBERS} == {
        k: v for k, v in arguments.items() if k[2:] not in NUMBERS
    }
