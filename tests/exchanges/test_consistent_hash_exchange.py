"""The consistent-hash exchange: shares by weight, and few keys moved by a change."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from exchanges import consistent_hash
from exchanges.consistent_hash import PROPERTY_HEADERS, ConsistentHashTable, validate
from tests.exchanges.fake_queue import Queue, matched

KEYS = [f"customer-{n}" for n in range(20_000)]


def choose(table, key, headers=None):
    (chosen,) = matched(table, key, headers)
    return chosen


def table_of(weights, arguments=None):
    table = ConsistentHashTable(arguments or {})
    queues = {name: Queue(name) for name in weights}
    for name, weight in weights.items():
        table.bind(queues[name], str(weight), {})
    return table, queues


def placement(table):
    return {key: choose(table, key).name for key in KEYS}


def test_no_binding_means_no_destination():
    assert matched(ConsistentHashTable({}), "k") == []


@pytest.mark.parametrize(
    "weights",
    [
        {"a": 1, "b": 1},
        {"a": 1, "b": 2, "c": 3, "d": 4},
        {"a": 10**200, "b": 10**200},
        {f"q{n}": 5 for n in range(10)},
    ],
)
def test_keys_are_shared_out_by_weight(weights):
    table, _ = table_of(weights)
    shares = Counter(placement(table).values())
    for name, weight in weights.items():
        expected = len(KEYS) * weight / sum(weights.values())
        assert shares[name] == pytest.approx(expected, rel=0.1)


def test_a_destination_that_comes_takes_only_its_share():
    table, _ = table_of({"a": 1, "b": 1, "c": 1, "d": 1})
    before = placement(table)
    table.bind(Queue("e"), "1", {})
    after = placement(table)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {"e"}
    assert len(moved) == pytest.approx(len(KEYS) / 5, rel=0.1)


@pytest.mark.parametrize("gone", ["a", "b", "d"])
def test_a_destination_that_goes_moves_only_its_own_keys(gone):
    table, queues = table_of({"a": 1, "b": 2, "c": 1, "d": 3})
    before = placement(table)
    table.unbind(queues[gone], {"a": "1", "b": "2", "d": "3"}[gone], {})
    after = placement(table)
    assert gone not in after.values()
    assert all(before[key] in (after[key], gone) for key in KEYS)


def test_a_destination_that_returns_gets_its_old_keys_back():
    table, queues = table_of({"a": 1, "b": 2, "c": 3})
    before = placement(table)
    table.unbind(queues["a"], "1", {})
    table.bind(Queue("a"), "1", {})
    assert placement(table) == before


def test_the_choice_does_not_depend_on_the_process_or_the_order_of_binding():
    program = (
        "from exchanges.consistent_hash import ConsistentHashTable as T\n"
        "class Q:\n"
        "    def __init__(self, name): self.name = name\n"
        "t = T({'hash-header': 'h'})\n"
        "for name in 'dcba': t.bind(Q(name), '1', {})\n"
        "for n in range(64):\n"
        "    found = {}\n"
        "    t.match('', {'h': {'n': n, 'b': [True], 'c': 'x'}}, found)\n"
        "    print(*(q.name for q in found), end='')\n"
    )
    root = Path(consistent_hash.__file__).parents[1]
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    table, _ = table_of(dict.fromkeys("abcd", 1), {"hash-header": "h"})
    headers = [{"h": {"c": "x", "n": n, "b": [True]}} for n in range(64)]
    assert done.stdout.decode() == "".join(choose(table, "", h).name for h in headers)


def test_a_second_binding_of_a_destination_does_not_count_while_the_first_is_there():
    table, queues = table_of({"a": 1, "b": 1})
    before = placement(table)
    table.bind(queues["a"], "50", {})
    assert placement(table) == before
    table.unbind(queues["a"], "50", {})
    assert placement(table) == before


def test_the_second_binding_takes_over_when_the_first_goes():
    table, queues = table_of({"a": 1, "b": 1})
    table.bind(queues["a"], "3", {})
    table.unbind(queues["a"], "1", {})
    assert Counter(placement(table).values())["a"] == pytest.approx(len(KEYS) * 3 / 4, rel=0.1)


def test_two_destinations_of_one_name_share_the_keys():
    table = ConsistentHashTable({})
    queue, exchange = Queue("twin"), Queue("twin")
    table.bind(queue, "1", {})
    table.bind(exchange, "1", {})
    shares = Counter(choose(table, key) for key in KEYS)
    assert shares[queue] == pytest.approx(len(KEYS) / 2, rel=0.1)


def test_without_arguments_only_the_routing_key_counts():
    table, _ = table_of({"a": 1, "b": 1})
    assert not table.reads_headers
    assert len({choose(table, "same", {"h": n}) for n in range(50)}) == 1


def test_hash_header_looks_at_that_header_and_not_at_the_key():
    table, queues = table_of({"a": 1, "b": 1}, {"hash-header": "h"})
    assert table.reads_headers
    assert len({choose(table, key, {"h": "same", "other": key}) for key in KEYS[:50]}) == 1
    assert {choose(table, "same", {"h": n}) for n in range(50)} == set(queues.values())


@pytest.mark.parametrize("prop", ["message_id", "correlation_id", "timestamp"])
def test_hash_property_looks_at_that_property_and_not_at_a_header_of_its_name(prop):
    table, queues = table_of({"a": 1, "b": 1}, {"hash-property": prop})
    reserved = PROPERTY_HEADERS[prop]
    assert table.reads_headers
    assert {choose(table, "", {reserved: n}) for n in range(50)} == set(queues.values())
    assert len({choose(table, "", {prop: n}) for n in range(50)}) == 1


def test_messages_without_the_header_all_go_to_one_destination():
    table, _ = table_of(dict.fromkeys("abcd", 1), {"hash-header": "h"})
    assert len({choose(table, key, {"other": 1}) for key in KEYS[:50]}) == 1


@pytest.mark.parametrize("weight", ["1", "+3", "00002", "1000"])
def test_a_positive_integer_is_a_weight(weight):
    validate(weight, {})
    table = ConsistentHashTable({})
    table.bind(Queue("q"), weight, {})
    assert choose(table, "k").name == "q"


@pytest.mark.parametrize("weight", ["", "x", " 3", "3 ", "3\n", "1.0", "1_0", "\u0663"])
def test_a_weight_that_is_no_integer_is_refused(weight):
    with pytest.raises(ValueError, match="The binding key must be an integer"):
        validate(weight, {})


@pytest.mark.parametrize("weight", ["0", "-1", "-0"])
def test_a_weight_below_one_is_refused(weight):
    with pytest.raises(ValueError, match="The binding key must be greater than 0"):
        validate(weight, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-property": "message_id", "hash-header": "h"}, "mutually exclusive"),
        ({"hash-header": 5}, "hash-header must be a string"),
        ({"hash-property": None}, "hash-property must be a string"),
    ],
)
def test_bad_exchange_arguments_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        ConsistentHashTable(arguments)
