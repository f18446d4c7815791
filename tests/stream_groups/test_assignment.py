"""Assignment is balanced, moves the least that it can, and is the same every time."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.stream.assignment import assign
from queues.stream.names import PartitionId

STREAMS = "abc"
MEMBERS = ["m0", "m1", "m2", "m3"]


def partitions_of(counts):
    return [PartitionId(stream, n) for stream, count in counts.items() for n in range(count)]


def cost(found, subscriptions, owners):
    """Balance first, then the moves from members that could have kept what they had."""
    loads = Counter(found.values())
    moves = sum(
        1
        for partition, member in found.items()
        if (owner := owners.get(partition)) in subscriptions
        and partition.stream in subscriptions[owner]
        and owner != member
    )
    return sum(load * load for load in loads.values()), moves


def least_cost(partitions, subscriptions, owners):
    takers = [[m for m in subscriptions if p.stream in subscriptions[m]] for p in partitions]
    wanted = [(p, t) for p, t in zip(partitions, takers, strict=True) if t]
    names = [p for p, _ in wanted]
    return min(
        cost(dict(zip(names, choice, strict=True)), subscriptions, owners)
        for choice in product(*[t for _, t in wanted])
    )


COUNTS = st.dictionaries(st.sampled_from(STREAMS), st.integers(1, 4), max_size=3).filter(
    lambda counts: sum(counts.values()) <= 6
)
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(STREAMS)), min_size=1, max_size=3
)


@st.composite
def questions(draw):
    partitions = partitions_of(draw(COUNTS))
    subscriptions = draw(SUBSCRIPTIONS)
    owners = {p: draw(st.sampled_from([*MEMBERS, "gone"])) for p in partitions}
    kept = draw(st.lists(st.booleans(), min_size=len(partitions), max_size=len(partitions)))
    return (
        partitions,
        subscriptions,
        {p: owners[p] for p, k in zip(partitions, kept, strict=True) if k},
    )


@settings(max_examples=400)
@given(questions())
def test_no_assignment_is_better_balanced_and_none_as_balanced_moves_less(question):
    partitions, subscriptions, owners = question
    found = assign(partitions, subscriptions, owners)
    assert all(p.stream in subscriptions[m] for p, m in found.items())
    assert set(found) == {
        p for p in partitions if any(p.stream in s for s in subscriptions.values())
    }
    assert cost(found, subscriptions, owners) == least_cost(partitions, subscriptions, owners)


@settings(max_examples=150)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=12, unique=True),
    st.randoms(use_true_random=False),
)
def test_with_equal_subscriptions_sizes_differ_by_at_most_one(counts, numbers, random):
    partitions = partitions_of(dict(zip(STREAMS, counts, strict=False)))
    subscriptions = {f"m{n}": set(STREAMS) for n in numbers}
    owners = {p: f"m{random.randrange(12)}" for p in partitions}
    found = assign(partitions, subscriptions, owners)
    loads = Counter(found.values())
    sizes = [loads[member] for member in subscriptions]
    assert max(sizes) - min(sizes) <= 1
    had = Counter(owner for owner in owners.values() if owner in subscriptions)
    # Those who had most may keep one more than the others.
    even, more = divmod(len(partitions), len(numbers))
    by_size = sorted((had[m] for m in subscriptions), reverse=True)
    kept = sum(min(size, even + (place < more)) for place, size in enumerate(by_size))
    assert sum(owners[p] == m for p, m in found.items()) == kept


@settings(max_examples=60)
@given(questions())
def test_the_same_question_in_another_order_has_the_same_answer(question):
    partitions, subscriptions, owners = question
    found = assign(partitions, subscriptions, owners)
    assert found == assign(
        reversed(partitions),
        dict(reversed(subscriptions.items())),
        dict(reversed(owners.items())),
    )


@settings(max_examples=60)
@given(questions())
def test_asking_again_moves_nothing(question):
    partitions, subscriptions, owners = question
    found = assign(partitions, subscriptions, owners)
    assert assign(partitions, subscriptions, found) == found


def test_a_chain_of_hand_overs_balances_what_no_single_one_can():
    # m0 is too full and shares a stream with m1 only, m1 shares another with m2, which has nothing.
    partitions = partitions_of({"a": 3, "b": 2})
    subscriptions = {"m0": {"a"}, "m1": {"a", "b"}, "m2": {"b"}}
    owners = {p: "m0" if p.stream == "a" else "m1" for p in partitions}
    found = assign(partitions, subscriptions, owners)
    assert sorted(Counter(found.values()).values()) == [1, 2, 2]


def test_a_newcomer_takes_its_share_and_nothing_else_moves():
    partitions = partitions_of({"a": 64})
    before = assign(partitions, {f"m{n}": {"a"} for n in range(7)}, {})
    after = assign(partitions, {f"m{n}": {"a"} for n in range(8)}, before)
    moved = {p for p in partitions if before[p] != after[p]}
    assert {after[p] for p in moved} == {"m7"}
    assert len(moved) == 8


@pytest.mark.parametrize("mixed", [False, True], ids=["equal subscriptions", "mixed ones"])
def test_a_large_group_is_assigned_evenly(mixed):
    partitions = partitions_of({"a": 300, "b": 300})
    subscriptions = {f"m{n:02}": {"a", "b"} for n in range(60)}
    if mixed:
        subscriptions["m00"] = {"a"}
        subscriptions["m01"] = {"b"}
    before = assign(partitions, subscriptions, {})
    assert set(Counter(before.values()).values()) == {10}
    subscriptions.pop("m59")
    after = assign(partitions, subscriptions, before)
    assert set(Counter(after.values()).values()) == {10, 11}
    assert sum(before[p] != after[p] for p in partitions) == 10
