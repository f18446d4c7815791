"""The headers exchange against RabbitMQ's answers and a transcription of the rule."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges.headers import HeadersTable, validate
from tests.exchanges.fake_queue import Queue, matched


def lets_through(arguments, headers):
    table = HeadersTable({})
    table.bind(Queue("q"), "", arguments)
    return bool(matched(table, headers=headers))


NEW_YEAR = datetime(2020, 1, 1, tzinfo=UTC)
A = {"a": 1}
XA = {"x-a": 1}
BOTH = {"a": 1, "x-a": 1}

# (binding, message, what RabbitMQ 3.10.8 answered)
CASES = [
    ({}, {}, True),
    ({}, A, True),
    ({"a": 1}, {}, False),
    ({"x-match": "all"}, A, True),
    ({"x-match": "any"}, A, False),
    ({"x-match": "any"}, {"x-match": "any"}, False),
    ({"x-match": "all-with-x"}, {}, True),
    ({"x-match": "any-with-x"}, XA, False),
    ({"x-match": "all-with-x", "a": 1}, {"x-match": "all-with-x", "a": 1}, True),
    ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
    ({"a": 1, "b": 2}, A, False),
    ({"x-match": "any", "a": 1, "b": 2}, A, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
    ({"x-a": 1}, {}, True),
    ({"a": 1, "x-a": 1}, A, True),
    ({"x-match": "any", "x-a": 1}, XA, False),
    ({"x-match": "any", "a": 1, "x-a": 1}, XA, False),
    ({"x-match": "all-with-x", "x-a": 1}, {}, False),
    ({"x-match": "all-with-x", "x-a": 1}, XA, True),
    ({"x-match": "all-with-x", "a": 1, "x-a": 1}, A, False),
    ({"x-match": "all-with-x", "a": 1, "x-a": 1}, BOTH, True),
    ({"x-match": "any-with-x", "x-a": None}, XA, True),
    ({"x-match": "any-with-x", "a": 1, "x-a": 1}, A, True),
    ({"x-match": "any-with-x", "x-match2": 1}, {"x-match": "any-with-x"}, False),
    ({"k": None}, {"k": 5}, True),
    ({"k": None}, {"k": None}, True),
    ({"k": None}, {"other": 5}, False),
    ({"k": "x"}, {"k": None}, False),
    ({"k": ""}, {"k": None}, False),
    ({"k": 0}, {"k": None}, False),
    ({"k": 1}, {"k": True}, False),
    ({"k": True}, {"k": 1}, False),
    ({"k": True}, {"k": 1.0}, False),
    ({"k": 0}, {"k": False}, False),
    ({"k": 1}, {"k": 1.0}, True),
    ({"k": 1.0}, {"k": 1}, True),
    ({"k": 2**62 + 1}, {"k": float(2**62)}, False),
    ({"k": "1"}, {"k": 1}, False),
    ({"k": "a"}, {"k": b"a"}, True),
    ({"k": bytearray(b"a")}, {"k": "a"}, True),
    ({"k": Decimal(1)}, {"k": 1}, False),
    ({"k": Decimal("1.0")}, {"k": Decimal("1.0")}, True),
    ({"k": Decimal("1.0")}, {"k": Decimal("1.00")}, False),
    ({"k": NEW_YEAR}, {"k": 1577836800}, True),
    ({"k": [1, 2]}, {"k": [1, 2]}, True),
    ({"k": [1, 2]}, {"k": [2, 1]}, False),
    ({"k": [1]}, {"k": [1.0]}, False),
    ({"k": {"a": 1}}, {"k": {"a": 1}}, True),
    ({"k": {"a": 1}}, {"k": {"a": 1.0}}, False),
]


@pytest.mark.parametrize(("arguments", "headers", "expected"), CASES)
def test_a_binding_lets_the_messages_through_that_rabbitmq_does(arguments, headers, expected):
    assert lets_through(arguments, headers) is expected


def transcribed_rule(arguments, headers):
    mode = arguments.get("x-match", "all")
    asked = {name: value for name, value in arguments.items() if name != "x-match"}
    if mode in ("all", "any"):
        asked = {name: value for name, value in asked.items() if not name.startswith("x-")}
    hits = [
        name in headers
        and (
            value is None
            or (
                isinstance(value, bool) == isinstance(headers[name], bool)
                and value == headers[name]
            )
        )
        for name, value in asked.items()
    ]
    return all(hits) if mode.startswith("all") else any(hits)


VALUE = st.sampled_from([None, True, False, 0, 1, 1.0, "1", "v"])
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "x-a", "x-match2"]), VALUE)
MODE = st.sampled_from([{}, *({"x-match": m} for m in ("all", "any", "all-with-x", "any-with-x"))])
ARGUMENTS = st.tuples(MODE, HEADERS).map(lambda parts: {**parts[0], **parts[1]})


@settings(derandomize=True, deadline=None, max_examples=500)
@given(ARGUMENTS, HEADERS)
def test_one_binding_matches_as_the_rule_says(arguments, headers):
    assert lets_through(arguments, headers) == transcribed_rule(arguments, headers)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "k"]), ARGUMENTS), max_size=12),
    st.lists(st.integers(0, 11), unique=True),
    st.lists(HEADERS, min_size=1, max_size=4),
)
def test_bindings_that_come_and_go_leave_exactly_the_rest_matching(bindings, gone, messages):
    table = HeadersTable({})
    queues = [Queue(f"q{i}") for i in range(3)]
    for queue, key, arguments in bindings:
        table.bind(queues[queue], key, arguments)
    for queue, key, arguments in (bindings[i] for i in gone if i < len(bindings)):
        table.unbind(queues[queue], key, arguments)
    left = [binding for i, binding in enumerate(bindings) if i not in gone]
    for headers in messages:
        expected = {queues[q] for q, _, arguments in left if transcribed_rule(arguments, headers)}
        assert set(matched(table, headers=headers)) == expected


def test_nothing_is_left_when_every_binding_is_gone():
    table = HeadersTable({})
    queue = Queue("q")
    bindings = [arguments for arguments, _, _ in CASES]
    for arguments in bindings:
        table.bind(queue, "", arguments)
    for arguments in bindings:
        table.unbind(queue, "", arguments)
    assert not table._by_condition
    assert not table._unconditional


@pytest.mark.parametrize("mode", ["all", "any", "all-with-x", "any-with-x"])
def test_the_four_modes_are_valid_and_so_is_none_at_all(mode):
    validate("", {"x-match": mode})
    validate("", {"a": 1})


def test_an_unknown_mode_is_refused_with_what_was_expected():
    with pytest.raises(ValueError, match="Invalid x-match field value 'some'; expected all, any,"):
        validate("", {"x-match": "some"})


@pytest.mark.parametrize("mode", [1, True, None, b"all"])
def test_a_mode_that_is_no_string_is_refused(mode):
    with pytest.raises(ValueError, match="Invalid x-match field type"):
        validate("", {"x-match": mode})
