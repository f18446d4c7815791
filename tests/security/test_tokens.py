"""Tokens that stand for a login."""

from __future__ import annotations

import pytest

from broker.security.passwords import rabbitmq_hash
from broker.security.tokens import (
    GRACE_MS,
    SESSION_MS,
    TOKEN_MS,
    TOKENS_MAX,
    TOKENS_OF_ONE_USER_MAX,
    Tokens,
)
from broker.security.user import User


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> Tokens:
    return Tokens(clock.now_ms)


def make_user(name: str = "ada") -> User:
    return User(name, password=rabbitmq_hash(b"pw", b"salt"))


def test_a_token_stands_for_its_user_until_it_expires(tokens: Tokens, clock: Clock) -> None:
    user = make_user()
    token = tokens.issue(user)
    assert len(token) >= 43, "256 bits"
    clock.ms += TOKEN_MS - 1
    assert tokens.find(token) is user
    clock.ms += 1
    assert tokens.find(token) is None


@pytest.mark.parametrize("token", ["", "x", "é", "\udcff"])
def test_what_was_never_issued_stands_for_nobody(tokens: Tokens, token: str) -> None:
    tokens.issue(make_user())
    assert tokens.find(token) is None
    tokens.revoke(token)


def test_a_renewed_token_takes_the_place_of_the_old_one(tokens: Tokens, clock: Clock) -> None:
    user = make_user()
    old = tokens.issue(user)
    new = tokens.renew(old)
    assert new is not None
    clock.ms += GRACE_MS - 1
    assert tokens.find(old) is tokens.find(new) is user, "what is under way goes on"
    clock.ms += 1
    assert (tokens.find(old), tokens.renew(old)) == (None, None)
    assert tokens.find(new) is user


def test_a_token_is_not_renewed_for_ever(tokens: Tokens, clock: Clock) -> None:
    began, token = clock.ms, tokens.issue(make_user())
    while (renewed := tokens.renew(token)) is not None:
        token = renewed
        clock.ms += TOKEN_MS // 2
    assert clock.ms - began == SESSION_MS
    assert tokens.find(token) is None


def test_a_revoked_token_is_void_and_others_are_not(tokens: Tokens) -> None:
    user = make_user()
    one, other = tokens.issue(user), tokens.issue(user)
    tokens.revoke(one)
    assert tokens.find(one) is None
    assert tokens.find(other) is user


def test_another_password_voids_tokens(tokens: Tokens) -> None:
    user = make_user()
    token = tokens.issue(user)
    user.password = rabbitmq_hash(b"new", b"salt")
    assert tokens.find(token) is None


def test_the_tokens_of_a_user_who_is_no_more_are_void(tokens: Tokens) -> None:
    user = make_user()
    token = tokens.issue(user)
    user.revoke()
    assert tokens.find(token) is None


def test_a_user_has_so_many_tokens_and_the_oldest_go_first(tokens: Tokens) -> None:
    user = make_user()
    issued = [tokens.issue(user) for _ in range(TOKENS_OF_ONE_USER_MAX + 1)]
    assert tokens.find(issued[0]) is None
    assert all(tokens.find(token) is user for token in issued[1:])


def test_all_users_together_have_so_many(tokens: Tokens) -> None:
    first = tokens.issue(make_user("first"))
    users = [make_user(str(number)) for number in range(TOKENS_MAX // TOKENS_OF_ONE_USER_MAX)]
    for user in users:
        for _ in range(TOKENS_OF_ONE_USER_MAX):
            tokens.issue(user)
    assert len(tokens._issued) == TOKENS_MAX
    assert tokens.find(first) is None


def test_tokens_are_not_kept_as_they_are(tokens: Tokens) -> None:
    token = tokens.issue(make_user())
    assert token.encode() not in tokens._issued
    assert token not in repr(tokens._issued)
