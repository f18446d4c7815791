"""Routing through exchanges bound to exchanges, alternates and cycles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges.exchange import Exchange
from exchanges.routing import needs_headers, route
from tests.exchanges.fake_queue import Queue


class World:
    """Exchanges and queues by name, made as they are mentioned."""

    def __init__(self):
        self.exchanges = {}
        self.queues = {}

    def exchange(self, name, kind, alternate=None):
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        self.exchanges[name] = Exchange(name, kind, arguments=arguments)

    def bind(self, source, destination, key="", arguments=None):
        target = self.exchanges.get(destination) or self.queues.setdefault(
            destination, Queue(destination)
        )
        self.exchanges[source].bind(target, key, arguments or {})

    def route(self, exchange, *keys, headers=None):
        queues = route(self.exchanges[exchange], keys, headers or {}, self.exchanges.get)
        return [queue.name for queue in queues]


@pytest.fixture
def world():
    return World()


def test_a_queue_matched_by_several_bindings_and_keys_comes_once(world):
    world.exchange("t", "topic")
    for pattern in ("#", "a", "*"):
        world.bind("t", "q", pattern)
    assert world.route("t", "a", "a", "b") == ["q"]


def test_every_key_of_cc_and_bcc_counts_in_direct_and_topic_exchanges(world):
    for kind in ("direct", "topic"):
        world.exchange(kind, kind)
        for key in "abc":
            world.bind(kind, f"q{key}", key)
        assert world.route(kind, "c", "a", "nothing") == ["qc", "qa"]


def test_a_consistent_hash_exchange_picks_one_queue_however_many_keys(world):
    world.exchange("h", "x-consistent-hash")
    for queue in "abcd":
        world.bind("h", queue, "1")
    copied = [f"cc{n}" for n in range(20)]
    for n in range(20):
        assert world.route("h", f"k{n}", *copied) == world.route("h", f"k{n}")


def test_the_alternate_gets_what_no_key_matched(world):
    world.exchange("ae", "fanout")
    world.bind("ae", "rest")
    world.exchange("e", "direct", "ae")
    world.bind("e", "q", "k")
    assert world.route("e", "k") == ["q"]
    assert world.route("e", "other") == ["rest"]
    assert world.route("e", "other", "k") == ["q"]


def test_a_match_that_ends_in_nothing_is_still_a_match(world):
    world.exchange("ae", "fanout")
    world.bind("ae", "rest")
    world.exchange("dead end", "direct")
    world.exchange("e", "direct", "ae")
    world.bind("e", "dead end", "k")
    world.bind("e", "e", "self")
    assert world.route("e", "k") == []
    assert world.route("e", "self") == []


def test_an_exchange_reached_through_another_uses_its_own_alternate(world):
    world.exchange("ae", "fanout")
    world.bind("ae", "rest")
    world.exchange("inner", "direct", "ae")
    world.exchange("outer", "fanout")
    world.bind("outer", "inner")
    world.bind("outer", "q")
    assert world.route("outer", "unknown") == ["q", "rest"]


def test_a_missing_alternate_is_ignored(world):
    world.exchange("e", "direct", "gone")
    assert world.route("e", "k") == []


def test_alternates_in_a_circle_end(world):
    world.exchange("a1", "direct", "a2")
    world.exchange("a2", "direct", "a1")
    world.bind("a1", "q", "k")
    assert world.route("a2", "k") == ["q"]
    assert world.route("a2", "other") == []
    assert world.route("a1", "other") == []


def test_exchanges_in_a_circle_give_each_queue_one_copy(world):
    world.exchange("x", "fanout")
    world.exchange("y", "fanout")
    for source, destination in ("xy", "yx", "xx", "xp", "yp", "yq"):
        world.bind(source, destination)
    world.bind("y", "q", "again")
    assert world.route("x", "") == ["p", "q"]


def test_an_internal_exchange_may_be_an_alternate_and_a_destination(world):
    world.exchanges["i"] = Exchange("i", "fanout", internal=True)
    world.bind("i", "q")
    world.exchange("e", "direct", "i")
    world.bind("e", "i", "k")
    assert world.route("e", "k") == world.route("e", "other") == ["q"]


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        ("direct", {}, False),
        ("fanout", {}, False),
        ("topic", {}, False),
        ("headers", {}, True),
        ("x-consistent-hash", {}, False),
        ("x-consistent-hash", {"hash-header": "h"}, True),
        ("x-consistent-hash", {"hash-property": "message_id"}, True),
    ],
)
def test_headers_are_needed_if_the_exchange_reads_them(kind, arguments, expected):
    assert needs_headers(Exchange("e", kind, arguments=arguments), {}.get) is expected


def test_headers_are_needed_if_an_exchange_further_on_reads_them(world):
    world.exchange("h", "headers")
    world.exchange("middle", "topic", "h")
    world.exchange("e", "direct")
    assert not needs_headers(world.exchanges["e"], world.exchanges.get)
    world.bind("e", "middle", "k")
    assert needs_headers(world.exchanges["e"], world.exchanges.get)
    world.exchanges["e"].unbind_all(world.exchanges["middle"])
    assert not needs_headers(world.exchanges["e"], world.exchanges.get)


# Random worlds: five exchanges, bound to each other and to queues any way at all.
NAMES = [f"e{n}" for n in range(5)]
KINDS = st.lists(st.sampled_from(["direct", "fanout", "topic", "headers"]), min_size=5, max_size=5)
ALTERNATES = st.lists(st.sampled_from([None, "gone", *NAMES]), min_size=5, max_size=5)
KEY = st.sampled_from(["a", "b", "#"])
BINDINGS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([*NAMES, "p", "q", "r"]),
        KEY,
        st.sampled_from([{}, {"h": 1}]),
    ),
    max_size=20,
)


def fits(kind, key, arguments, keys, headers):
    match kind:
        case "direct":
            return key in keys
        case "topic":
            return key == "#" or key in keys
        case "headers":
            return arguments.items() <= headers.items()
    return True


def reachable(kinds, alternates, bindings, keys, headers):
    """Everything that the message gets to, by walking on until nothing new turns up."""
    places, done = {"e0"}, set()
    while places - done:
        name = min(places - done)
        done.add(name)
        if name not in NAMES:
            continue
        number = NAMES.index(name)
        matched = {
            destination
            for source, destination, key, arguments in bindings
            if source == name and fits(kinds[number], key, arguments, keys, headers)
        }
        places |= matched or {alternates[number]} - {None, "gone"}
    return places


def make_world(kinds, alternates, bindings):
    world = World()
    for name, kind, alternate in zip(NAMES, kinds, alternates, strict=True):
        world.exchange(name, kind, alternate)
    for binding in bindings:
        world.bind(*binding)
    return world


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    KINDS,
    ALTERNATES,
    BINDINGS,
    st.lists(KEY, min_size=1, max_size=2),
    st.sampled_from([{}, {"h": 1}]),
)
def test_a_message_gets_to_what_is_reachable_and_nowhere_else(
    kinds, alternates, bindings, keys, headers
):
    routed = make_world(kinds, alternates, bindings).route("e0", *keys, headers=headers)
    expected = reachable(kinds, alternates, bindings, keys, headers) - set(NAMES)
    assert sorted(routed) == sorted(expected)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(KINDS, ALTERNATES, BINDINGS)
def test_headers_that_are_not_needed_change_no_route(kinds, alternates, bindings):
    world = make_world(kinds, alternates, bindings)
    if not needs_headers(world.exchanges["e0"], world.exchanges.get):
        for key in ("a", "b"):
            with_header = world.route("e0", key, headers={"h": 1})
            assert world.route("e0", key, headers={}) == with_header
