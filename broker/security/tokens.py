"""Tokens that stand for a login for a while, so that a browser need not keep a password.

They are kept by this node alone, in memory, and only as digests. They travel in a header that no
other site can make a browser send.
"""

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.security.passwords import PasswordHash
from broker.security.user import User

TOKEN_MS: Final = 3600 * 1000
SESSION_MS: Final = 12 * 3600 * 1000  # from a password on; then it is to be given again
GRACE_MS: Final = 60 * 1000  # an old token holds on for what is under way with it
TOKENS_MAX: Final = 10_000  # some hundred bytes each
TOKENS_OF_ONE_USER_MAX: Final = 100  # an issued one makes the oldest invalid
TOKEN_BYTES: Final = 32


class _Issued(NamedTuple):
    user: User
    password: PasswordHash  # with another password it is void
    expires_ms: int
    since_ms: int  # the password was given


class Tokens:
    """For the loop's thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._issued: dict[bytes, _Issued] = {}  # the oldest first
        self._of_users: dict[User, dict[bytes, None]] = {}  # in the same order

    def issue(self, user: User) -> str:
        """A new token for a user who has logged in."""
        return self._issue(user, self._now_ms())

    def renew(self, token: str) -> str | None:
        """A new token instead of one; None if that does not hold, or the password is too old."""
        digest, now_ms = _digest(token), self._now_ms()
        issued = self._issued.get(digest)
        if issued is None or not self._is_valid(issued, now_ms):
            return None
        if now_ms - issued.since_ms >= SESSION_MS:
            return None
        expires_ms = min(issued.expires_ms, now_ms + GRACE_MS)
        self._issued[digest] = issued._replace(expires_ms=expires_ms)
        return self._issue(issued.user, issued.since_ms)

    def _issue(self, user: User, since_ms: int) -> str:
        now_ms = self._now_ms()
        while self._issued and not self._is_valid(next(iter(self._issued.values())), now_ms):
            self._forget(next(iter(self._issued)))
        if len(self._of_users.get(user, ())) >= TOKENS_OF_ONE_USER_MAX:
            self._forget(next(iter(self._of_users[user])))
        if len(self._issued) >= TOKENS_MAX:
            self._forget(next(iter(self._issued)))
        token = secrets.token_urlsafe(TOKEN_BYTES)
        digest = _digest(token)
        expires_ms = min(now_ms + TOKEN_MS, since_ms + SESSION_MS)
        self._issued[digest] = _Issued(user, user.password, expires_ms, since_ms)
        self._of_users.setdefault(user, {})[digest] = None
        return token

    def find(self, token: str) -> User | None:
        """Who it stands for, if it still does."""
        issued = self._issued.get(_digest(token))
        if issued is None or not self._is_valid(issued, self._now_ms()):
            return None
        return issued.user

    def revoke(self, token: str) -> None:
        digest = _digest(token)
        if digest in self._issued:
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        user = self._issued.pop(digest).user
        of_user = self._of_users[user]
        del of_user[digest]
        if not of_user:
            del self._of_users[user]

    @staticmethod
    def _is_valid(issued: _Issued, now_ms: int) -> bool:
        return now_ms < issued.expires_ms and issued.user.password is issued.password


def _digest(token: str) -> bytes:
    """What is looked up: how long that takes says nothing about the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
