"""The register of an exchange's bindings, against a list of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges.exchange import Binding, Exchange
from exchanges.kinds import KINDS, make_table, validate_binding
from exchanges.routing import route
from tests.exchanges.fake_queue import Queue


def nowhere(name):
    return None


def test_an_exchange_keeps_what_it_was_declared_with():
    exchange = Exchange(
        "e",
        "topic",
        durable=True,
        auto_delete=True,
        internal=True,
        arguments={"alternate-exchange": "ae", "x": 1},
    )
    assert (exchange.name, exchange.type, exchange.alternate) == ("e", "topic", "ae")
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, True)
    assert exchange.arguments == {"alternate-exchange": "ae", "x": 1}


def test_an_exchange_has_no_alternate_unless_told():
    assert Exchange("e", "direct").alternate is None


@pytest.mark.parametrize("name", [5, None, b"ae"])
def test_an_alternate_exchange_that_is_no_string_is_refused(name):
    with pytest.raises(ValueError, match="invalid type for arg 'alternate-exchange'"):
        Exchange("e", "direct", arguments={"alternate-exchange": name})


def test_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="unknown exchange type 'x-unheard-of'"):
        make_table("x-unheard-of", {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_binding_is_validated_by_its_exchange_type(kind):
    refused = {"headers", "x-consistent-hash"}
    if kind in refused:
        with pytest.raises(ValueError, match=r"x-match|binding key"):
            validate_binding(kind, "k", {"x-match": "some"})
    else:
        validate_binding(kind, "k", {"x-match": "some"})


def test_the_same_binding_again_changes_nothing():
    exchange, queue = Exchange("e", "direct"), Queue("q")
    assert exchange.bind(queue, "k", {"a": 1, "b": 2})
    assert not exchange.bind(queue, "k", {"b": 2, "a": 1})
    assert exchange.unbind(queue, "k", {"b": 2, "a": 1})
    assert not exchange.has_bindings
    assert route(exchange, ["k"], {}, nowhere) == []


@pytest.mark.parametrize(
    ("key", "arguments"), [("K", {"a": 1}), ("k", {}), ("k", {"a": True}), ("k", {"a": 1.0})]
)
def test_unbinding_needs_the_same_key_and_the_same_arguments(key, arguments):
    exchange, queue = Exchange("e", "direct"), Queue("q")
    exchange.bind(queue, "k", {"a": 1})
    assert not exchange.unbind(queue, key, arguments)
    assert not exchange.unbind(Queue("q"), "k", {"a": 1})
    assert route(exchange, ["k"], {}, nowhere) == [queue]


def test_a_binding_that_the_table_refuses_leaves_no_trace():
    exchange, queue = Exchange("e", "x-consistent-hash"), Queue("q")
    with pytest.raises(ValueError, match="invalid literal"):
        exchange.bind(queue, "heavy", {})
    assert not exchange.has_bindings
    assert exchange.unbind_all(queue) == 0


def test_exchanges_among_the_destinations_are_known_as_long_as_they_are_bound():
    exchange, following, queue = Exchange("e", "direct"), Exchange("f", "direct"), Queue("q")
    exchange.bind(queue, "k", {})
    exchange.bind(following, "k", {})
    exchange.bind(following, "l", {})
    assert list(exchange.downstream) == [following]
    exchange.unbind(following, "k", {})
    assert list(exchange.downstream) == [following]
    exchange.unbind(following, "l", {})
    assert list(exchange.downstream) == []
    exchange.bind(following, "k", {})
    exchange.unbind_all(following)
    assert list(exchange.downstream) == []
    assert list(exchange.bindings()) == [Binding(queue, "k", {})]


KEYS = ["1", "2"]
ARGUMENTS = [{}, {"a": 1}, {"a": True}, {"x-match": "any", "a": 1}]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["bind", "bind", "unbind", "unbind_all"]),
        st.integers(0, 2),
        st.sampled_from(KEYS),
        st.sampled_from(ARGUMENTS),
    ),
    max_size=30,
)


def same(one, other):
    return one[:2] == other[:2] and repr(one[2]) == repr(other[2])


@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_moves_leaves_the_bindings_that_a_list_would(kind):
    @settings(derandomize=True, deadline=None, max_examples=150)
    @given(MOVES)
    def check(moves):
        exchange, model = Exchange("e", kind), []
        queues = [Queue(f"q{i}") for i in range(3)]
        for move, number, key, arguments in moves:
            binding = (queues[number], key, arguments)
            there = any(same(binding, other) for other in model)
            if move == "bind":
                assert exchange.bind(*binding) is not there
                model += [] if there else [binding]
            elif move == "unbind":
                assert exchange.unbind(*binding) is there
                model = [other for other in model if not same(binding, other)]
            else:
                left = [other for other in model if other[0] is not queues[number]]
                assert exchange.unbind_all(queues[number]) == len(model) - len(left)
                model = left
            assert exchange.has_bindings is bool(model)
        in_model_order = {queue: n for n, queue in enumerate(dict.fromkeys(q for q, _, _ in model))}
        model.sort(key=lambda binding: in_model_order[binding[0]])
        bound = sorted(exchange.bindings(), key=lambda binding: in_model_order[binding[0]])
        assert [repr(binding) for binding in bound] == [repr(Binding(*b)) for b in model]
        assert_matches_like_a_fresh_one(exchange, kind, model)

    check()


def assert_matches_like_a_fresh_one(exchange, kind, model):
    fresh = Exchange("fresh", kind)
    for binding in model:
        fresh.bind(*binding)
    for key in KEYS:
        for headers in ({}, {"a": 1}, {"a": True}):
            expected = set(route(fresh, [key], headers, nowhere))
            assert set(route(exchange, [key], headers, nowhere)) == expected
