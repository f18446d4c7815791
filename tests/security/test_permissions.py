"""What a user may do, by pattern, with RabbitMQ's meaning."""

from __future__ import annotations

import pytest

from broker.security.permissions import (
    PATTERN_CHARS_MAX,
    Permission,
    TopicPermission,
    compile_pattern,
)
from broker.security.user import CACHED_DECISIONS_MAX, User


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


@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?P<a>", "[[:alpha:]]", "a{2,1}"])
def test_what_python_and_rabbitmq_would_read_differently_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_pattern(pattern)


def test_a_pattern_has_a_length_that_can_be_looked_over() -> None:
    assert Permission("a" * PATTERN_CHARS_MAX, "", "")
    with pytest.raises(ValueError, match="longer than"):
        Permission("", "", "a" * (PATTERN_CHARS_MAX + 1))
    with pytest.raises(ValueError, match="longer than"):
        TopicPermission("a" * (PATTERN_CHARS_MAX + 1), "")


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


@pytest.mark.parametrize("pattern", ["(", "[[:alpha:]]", "{username", "({username}"])
def test_a_topic_permission_that_is_no_pattern_is_refused(pattern: str) -> None:
    if pattern == "{username":  # a brace that opens nothing is a brace
        assert TopicPermission(pattern, "").write == pattern
        return
    with pytest.raises(ValueError, match=r"."):
        TopicPermission("", pattern)
