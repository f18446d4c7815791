"""Which policy counts for a queue or an exchange."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policies import APPLY_TO, Policy, PolicySet

TARGETS = ("classic", "quorum", "stream", "exchange")


def policy(name, pattern="", apply_to="all", priority=0, **definition):
    return Policy.make(name, pattern, apply_to, priority, definition)


def set_of(*policies):
    found = PolicySet()
    for one in policies:
        found.put(one)
    return found


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", ["", "anything"], []),
        ("^q", ["q", "queue"], ["aq", "Q"]),
        ("q", ["q", "a-q-b"], ["a"]),
        (r"^orders\.[0-9]+$", ["orders.1", "orders.22"], ["orders.", "orders.1x", "xorders.1"]),
        ("^(?!amq\\.)", ["q", "amq"], ["amq.gen-1"]),
        ("^$", [""], ["q"]),
        ("ü", ["brücke"], ["bruecke"]),
    ],
)
def test_a_pattern_is_searched_for_in_the_name(pattern, matching, others):
    one = policy("p", pattern)
    assert [name for name in matching + others if one.fits("classic", name)] == matching


@pytest.mark.parametrize(
    ("apply_to", "targets"),
    [
        ("queues", {"classic", "quorum", "stream"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", {"stream"}),
        ("exchanges", {"exchange"}),
        ("all", set(TARGETS)),
    ],
)
def test_apply_to_says_what_it_is_for(apply_to, targets):
    one = policy("p", apply_to=apply_to)
    assert {target for target in TARGETS if one.fits(target, "x")} == targets


def test_the_highest_priority_counts_and_then_the_first_name():
    low, b, a = policy("0", priority=-1), policy("b"), policy("a")
    policies = set_of(low, b, a)
    assert policies.match("classic", "q") is a
    policies.put(policy("0", priority=1))
    assert policies.match("classic", "q").name == "0"
    policies.remove("0")
    policies.remove("a")
    assert policies.match("classic", "q") is b
    policies.remove("b")
    assert policies.match("classic", "q") is None


def test_a_policy_put_again_takes_the_place_of_the_one_before():
    policies = set_of(policy("p", "^a"), policy("p", "^b"))
    assert len(policies) == 1
    assert policies.match("classic", "a") is None
    assert policies.match("classic", "b") is policies.get("p")


def test_policies_are_listed_by_name():
    assert [one.name for one in set_of(policy("c"), policy("a", priority=9), policy("b"))] == [
        *("a", "b", "c")
    ]


def test_removing_what_is_not_there_changes_nothing():
    policies = set_of(policy("p"))
    policies.remove("q")
    assert [one.name for one in policies] == ["p"]


POLICIES = st.builds(
    policy,
    st.sampled_from("abcdef"),
    st.sampled_from(["", "^q", "1$", "[12]", "x"]),
    st.sampled_from(sorted(APPLY_TO)),
    st.integers(-2, 2),
)


@given(
    puts=st.lists(POLICIES, max_size=12),
    removed=st.sets(st.sampled_from("abcdef")),
    target=st.sampled_from(TARGETS),
    name=st.sampled_from(["q1", "q2", "x1", "x3", ""]),
)
def test_no_policy_that_fits_outranks_the_one_that_counts(puts, removed, target, name):
    policies = set_of(*puts)
    for gone in removed:
        policies.remove(gone)
    newest = {one.name: one for one in puts if one.name not in removed}
    fitting = [one for one in newest.values() if one.fits(target, name)]
    found = policies.match(target, name)
    if found is None:
        assert not fitting
    else:
        assert found in fitting
        assert all(one.priority < found.priority or one.name >= found.name for one in fitting)
        assert all(one.priority <= found.priority for one in fitting)


def test_a_stored_pattern_that_cannot_be_matched_fits_nothing() -> None:
    """A version that knew such patterns may have taken it: it must not stop a start."""
    policy = Policy.make("p", "a(?=b)", "all", 0, {"max-length": 1})
    assert not policy.fits("classic", "ab")
