"""The topic exchange against the table of cases and a matcher too simple to be wrong."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchanges.topic import TopicTable, _Node
from tests.exchanges.fake_queue import Queue, matched


def matches(pattern, words):
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def split(key):
    return key.split(".") if key else []


# What RabbitMQ 3.10.8 answered: each pattern with the keys, out of KEYS, that it lets through.
KEYS = ["", "a", ".", "a.b", "a.b.c", "a..c", "b", "a*", "ab", "A", "a.", "..", "b.a", "a.x.b.y.c"]
CASES = {
    "#": KEYS,
    "#.#": KEYS,
    "*": ["a", "b", "a*", "ab", "A"],
    "*.*": [".", "a.b", "a.", "b.a"],
    "a.#": ["a", "a.b", "a.b.c", "a..c", "a.", "a.x.b.y.c"],
    "#.a": ["a", "b.a"],
    "a*": ["a*"],
    "#a": [],
    "a.*.c": ["a.b.c", "a..c"],
    "#.b.#": ["a.b", "a.b.c", "b", "b.a", "a.x.b.y.c"],
    "*.#": [key for key in KEYS if key],
    "#.*": [key for key in KEYS if key],
    "*.#.*": [".", "a.b", "a.b.c", "a..c", "a.", "..", "b.a", "a.x.b.y.c"],
    "": [""],
    ".": ["."],
    "..": [".."],
    "a.": ["a."],
    "A": ["A"],
    "a.#.b.#.c": ["a.b.c", "a.x.b.y.c"],
}


@pytest.mark.parametrize("pattern", CASES)
def test_a_pattern_lets_the_keys_through_that_rabbitmq_does(pattern):
    table = TopicTable({})
    table.bind(Queue("q"), pattern, {})
    assert [key for key in KEYS if matched(table, key)] == CASES[pattern]


KEY = st.lists(st.sampled_from(["a", "b", "", "a*"]), max_size=5).map(".".join)
PATTERN = st.lists(st.sampled_from(["a", "b", "", "a*", "*", "#", "#"]), max_size=5).map(".".join)


@settings(derandomize=True, deadline=None)
@given(PATTERN, KEY)
def test_one_pattern_matches_as_the_definition_says(pattern, key):
    table = TopicTable({})
    table.bind(Queue("q"), pattern, {})
    assert bool(matched(table, key)) == matches(split(pattern), split(key))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 3), PATTERN, st.integers(0, 1)), max_size=25),
    st.lists(KEY, min_size=1, max_size=5),
)
def test_bindings_that_come_and_go_leave_exactly_the_rest_matching(toggles, keys):
    table = TopicTable({})
    queues = [Queue(f"q{i}") for i in range(4)]
    bound = set()
    for toggle in toggles:
        queue, pattern, argument = toggle
        if toggle in bound:
            bound.remove(toggle)
            table.unbind(queues[queue], pattern, {"n": argument})
        else:
            bound.add(toggle)
            table.bind(queues[queue], pattern, {"n": argument})
    for key in keys:
        expected = {queues[q] for q, pattern, _ in bound if matches(split(pattern), split(key))}
        assert set(matched(table, key)) == expected


@settings(derandomize=True, deadline=None)
@given(st.lists(PATTERN, unique=True, max_size=20))
def test_nothing_is_left_of_the_trie_when_every_binding_is_gone(patterns):
    table = TopicTable({})
    queue = Queue("q")
    for pattern in patterns:
        table.bind(queue, pattern, {})
    for pattern in patterns:
        table.unbind(queue, pattern, {})
    assert not table._root.leads_on()
    assert not table._root.destinations
    wide = table._wide
    assert not any((wide._at, wide._ends, wide._words, wide._starts, wide._finals, wide._bits))
    assert not any((wide._any_word, wide._any_number, wide._free))


def test_unbinding_keeps_the_branch_that_another_pattern_needs():
    table = TopicTable({})
    short, long = Queue("short"), Queue("long")
    table.bind(short, "a.b", {})
    table.bind(long, "a.b.c", {})
    table.unbind(long, "a.b.c", {})
    assert matched(table, "a.b") == [short]
    assert not table._root.words["a"].words["b"].leads_on()


class CountingDict(dict):
    """Counts the look-ups of a node's children: one for each visit of a node."""

    visits = 0

    def get(self, *args):
        CountingDict.visits += 1
        return super().get(*args)


def count_nodes_and_visits(node: _Node) -> int:
    node.words = CountingDict(node.words)
    children = [*node.words.values(), node.any_word, node.any_number]
    return 1 + sum(count_nodes_and_visits(child) for child in children if child is not None)


def visits_and_limit(patterns, key):
    table = TopicTable({})
    for pattern in patterns:
        table.bind(Queue(pattern), pattern, {})
    nodes = count_nodes_and_visits(table._root)
    CountingDict.visits = 0
    matched(table, key)
    return CountingDict.visits, len(split(key)) * nodes


@pytest.mark.parametrize(
    ("patterns", "key"),
    [
        (["#.a.#.a.#.a.#"], ".".join("a" * 120)),
        (["#.a." * 20 + "b"], ".".join("a" * 120)),
        (["#." * 40 + "a"], ".".join("b" * 120)),
        (["#.*." * 20 + "b"], ".".join("a" * 120)),
        (["#.a." * n + "#" for n in range(1, 20)], ".".join("a" * 120)),
        ([".".join(f"#.{w}" for w in f"{n:08b}") for n in range(256)], ".".join("01" * 60)),
    ],
)
def test_many_hashes_cost_at_most_one_visit_per_word_and_node(patterns, key):
    visits, limit = visits_and_limit(patterns, key)
    assert 0 < visits <= limit


@pytest.mark.parametrize("wild", ["*a", "#a", "*#a"])
def test_many_wildcards_do_not_make_a_key_visit_many_nodes(wild):
    """Each prefix of such patterns matches; the trie would be walked in all its branches."""
    choice = random.Random(1).choice
    patterns = [".".join(choice(wild) for _ in range(30)) for _ in range(2000)]
    visits, _ = visits_and_limit(patterns, ".".join("a" * 120))
    assert visits <= 120**2 / 2


@settings(derandomize=True, deadline=None)
@given(st.lists(PATTERN, unique=True, max_size=20), KEY)
def test_no_patterns_cost_more_than_one_visit_per_word_and_node(patterns, key):
    visits, limit = visits_and_limit(patterns, key)
    assert visits <= limit


def test_a_key_visits_only_the_branches_that_fit_it():
    patterns = [f"stock.{exchange}.{n}" for exchange in ("nyse", "lse") for n in range(500)]
    visits, _ = visits_and_limit(patterns, "stock.lse.17")
    assert visits == 3
