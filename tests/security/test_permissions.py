"""What a user may do, by pattern, with RabbitMQ's meaning."""

from __future__ import annotations

import re

import pytest

from broker.security.permissions import (
    PATTERN_CHARS_MAX,
    Permission,
    TopicPermission,
    check_patterns,
)
from broker.security.user import CACHED_DECISIONS_MAX, User

# What only an engine that tries again could match.
BACKTRACKING = ["(?!x)", "a(?=b)", "(?<=x)a", r"(a)\1", "a++", "(?>a)", "a{1001}"]


def user_who_may(configure: str = "", write: str = "", read: str = "", vhost: str = "/") -> User:
    return User("u", permissions={vhost: Permission(configure, write, read)})


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("^orders", "orders.new", True),
        ("^orders", "my-orders", False),
        ("orders", "my-orders.new", True),  # searched for, not anchored
        ("^orders$", "orders.new", False),
        ("^(a|b)$", "b", True),
        ("", "orders", False),  # the empty pattern is ^$ …
        ("", "", False),  # … and the default exchange's name is amq.default
        ("^$", "orders", False),
        ("^amq\\.default$", "", True),
        ("^amq\\.gen", "amq.gen-x", True),
        ("ORDERS", "orders", False),
        ("^a.b$", "a\nb", False),
    ],
)
def test_a_permission_is_a_regular_expression_searched_for_in_the_name(
    pattern: str, name: str, *, allowed: bool
) -> None:
    user = user_who_may(write=pattern)
    assert user.may("/", "write", name) is allowed
    assert user.may("/", "write", name) is allowed, "asked again, out of the cache"


def test_each_action_has_its_own_pattern() -> None:
    user = user_who_may(configure="^c$", write="^w$", read="^r$")
    granted = {
        (action, name)
        for action in ("configure", "write", "read")
        for name in "cwr"
        if user.may("/", action, name)  # type: ignore[arg-type]
    }
    assert granted == {("configure", "c"), ("write", "w"), ("read", "r")}


def test_permissions_hold_in_their_own_vhost_only() -> None:
    user = user_who_may(".*", ".*", ".*", vhost="shop")
    assert user.may_enter("shop")
    assert not user.may_enter("/")
    assert user.may("shop", "read", "q")
    assert not user.may("/", "read", "q")


def test_a_permission_that_grants_nothing_still_opens_the_vhost() -> None:
    assert user_who_may().may_enter("/")


def test_remembered_decisions_are_bounded_and_stay_right() -> None:
    user = user_who_may(write="7$")
    for number in range(3 * CACHED_DECISIONS_MAX):
        assert user.may("/", "write", str(number)) is (number % 10 == 7)
        assert len(user._decisions) <= CACHED_DECISIONS_MAX


@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?P<a>", "a{2,1}", *BACKTRACKING, "\ud800"])
def test_what_cannot_be_matched_in_linear_time_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_patterns(pattern)


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_a_stored_pattern_that_is_none_any_more_grants_nothing(pattern: str) -> None:
    user = user_who_may(pattern, ".*", pattern)
    assert user.may_enter("/")
    assert not user.may("/", "configure", "q")
    assert user.may("/", "write", "q")
    topics = TopicPermission(pattern, ".*")
    assert not topics.allows("write", "k", user="u", vhost="/")
    assert topics.allows("read", "k", user="u", vhost="/")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("^(a+)+$x", "a" * 255),
        ("^" + "a?" * 120 + "a" * 120 + "b", "a" * 255),
        ("(a|aa)*b", "a" * 255),
        ("(.*)(.*)(.*)(.*)(.*)x", "y" * 255),
    ],
)
def test_no_pattern_takes_long(pattern: str, name: str) -> None:
    """With an engine that tries again each of these would take longer than the test may."""
    check_patterns(pattern)
    assert not Permission(pattern, "", "").allows("configure", name)


def test_names_that_are_no_utf_8_are_matched_too() -> None:
    assert user_who_may(read="^q").may("/", "read", "q\udcff")
    assert not user_who_may(read="^x").may("/", "read", "q\udcff")
    assert user_who_may(read="^q").may("/", "read", "q\ud800")


def test_a_pattern_has_a_length_that_can_be_looked_over() -> None:
    check_patterns("a" * PATTERN_CHARS_MAX, "", "")
    with pytest.raises(ValueError, match="longer than"):
        check_patterns("", "", "a" * (PATTERN_CHARS_MAX + 1))


# Changes


def test_a_change_counts_for_what_was_decided_before() -> None:
    user = user_who_may(write="^a$")
    assert user.may("/", "write", "a")
    user.permit("/", Permission("", "^b$", ""))
    assert not user.may("/", "write", "a")
    assert user.may("/", "write", "b")
    user.permit("/", None)
    assert not user.may("/", "write", "b")
    assert not user.may_enter("/")


def test_whoever_remembers_what_a_user_may_do_is_told_of_changes() -> None:
    user, told = user_who_may(), []
    user.on_change.append(lambda: told.append(1))
    user.permit("/", Permission("", "", ""))
    user.permit_topics("/", "x", TopicPermission("", ""))
    user.permit_topics("/", "x", None)
    user.forget_vhost("/")
    user.revoke()
    assert len(told) == 5


def test_a_user_who_is_no_more_may_do_nothing() -> None:
    user = user_who_may(".*", ".*", ".*")
    user.tags = frozenset({"administrator"})
    assert user.may("/", "read", "q")
    user.revoke()
    assert not user.may("/", "read", "q")
    assert not user.may_enter("/")
    assert not user.tags


# Topics


@pytest.mark.parametrize(
    ("pattern", "key", "allowed"),
    [
        ("^a", "a.b", True),
        ("^a", "b.a", False),
        ("b", "a.b.c", True),
        ("", "a", False),
        ("", "", True),
        ("^{username}$", "u", True),
        ("^{username}$", "v", False),
        ("^{vhost}-{username}", "shop-u.x", True),
        ("^{vhost}-{username}", "other-u.x", False),
        ("^{client_id}$", "{client_id}", True),
        ("^x{2}$", "xx", True),
    ],
)
def test_a_topic_permission_is_a_pattern_with_variables(
    pattern: str, key: str, *, allowed: bool
) -> None:
    user = user_who_may(vhost="shop")
    user.permit_topics("shop", "x", TopicPermission(write=pattern, read=".*"))
    for _ in range(2):
        assert user.may_use_key("shop", "x", "write", key) is allowed
        assert user.may_use_key("shop", "x", "read", key)


def test_where_nothing_is_said_about_topics_every_key_is_allowed() -> None:
    user = user_who_may()
    user.permit_topics("/", "x", TopicPermission("", ""))
    assert not user.may_use_key("/", "x", "write", "k")
    assert user.may_use_key("/", "y", "write", "k")
    assert user.may_use_key("other", "x", "write", "k")
    user.permit_topics("/", "x", None)
    assert user.may_use_key("/", "x", "write", "k")


@pytest.mark.parametrize("name", [".*", "a|b", "{vhost}", "^", "(", "$"])
def test_a_name_brings_no_pattern_of_its_own_into_a_topic_permission(name: str) -> None:
    user = User(name)
    user.permit_topics("/", "x", TopicPermission("^{username}$", ""))
    assert user.may_use_key("/", "x", "write", name)
    assert not user.may_use_key("/", "x", "write", "b")
    assert not user.may_use_key("/", "x", "write", "")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "({username}"])
def test_a_topic_permission_that_is_no_pattern_is_refused(pattern: str) -> None:
    check_patterns("{username")  # a brace that opens nothing is a brace
    with pytest.raises(ValueError, match=r"."):
        check_patterns("", pattern)


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        (r"^(?!amq\.).*", ["q", "amq", "xamq."], ["amq.gen-x"]),
        (r"^(?!amq\.)", ["q", ""], ["amq."]),
        (r"^(?!(a|b[)]\)))(x|a).*$", ["x", "xa"], ["a", "b"]),
        (r"^(?!a|b)[^]|(]", ["c"], ["a", "b", "|", ""]),
    ],
)
def test_the_exception_that_rabbitmq_documents_is_taken(
    pattern: str, found: list[str], not_found: list[str]
) -> None:
    """As an engine with lookaheads reads it."""
    check_patterns(pattern)
    permission = Permission(pattern, "", "")
    for name in (*found, *not_found):
        assert permission.allows("configure", name) is (re.search(pattern, name) is not None)
        assert permission.allows("configure", name) is (name in found)


@pytest.mark.parametrize("pattern", ["^(?!a)b|c", "(?!a)b", "^(?!(?!a)b)c", "^(?!a", "^(?!(a)"])
def test_other_exceptions_are_not(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_patterns(pattern)
