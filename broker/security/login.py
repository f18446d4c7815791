"""Logging in: passwords compared away from the loop, failures delayed, guessing bounded."""

import hashlib
import hmac
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from broker import logs
from broker.off_loop import OffLoop, Threads
from broker.security.fair_hashing import HASHING_MAX, FairHashing, neighbourhood
from broker.security.passwords import (
    SCRYPT_SALT_BYTES,
    PasswordHash,
    hash_password,
)
from broker.security.sasl import is_loopback
from broker.security.user import User

# Logins that are being compared or wait to hear that they failed. Beyond that only those are let in
# whose password was right before: others are refused unseen, so that flooding tells nothing.
OPEN_MAX: Final = 1024
OPEN_FROM_ONE_ADDRESS_MAX: Final = 128

_log = logs.get("login")


class _Verified(NamedTuple):
    """A password that was right, under a key that only this process has."""

    stored: PasswordHash
    digest: bytes


class Doorkeeper:
    """Tells who is who. A password that was right once is known again in a microsecond.

    A failure costs one hash and is told when `failure_delay_s` have passed since it was asked for,
    whatever was wrong: how long it takes says nothing about which users there are.
    """

    def __init__(
        self,
        users: Mapping[str, User],
        *,
        loopback_users: Collection[str],
        failure_delay_s: float,
        off_loop: OffLoop | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._users = users
        self._loopback_users = frozenset(loopback_users)
        self._failure_delay_s = failure_delay_s
        self._hashing = FairHashing(off_loop or Threads(HASHING_MAX))
        self._random_bytes = random_bytes
        self._key = random_bytes(32)
        self._verified: dict[str, _Verified] = {}
        self._open: Counter[str] = Counter()  # by neighbourhood
        # What an unknown user's password is compared with, so that it costs as much as a known's.
        self._nobody: PasswordHash | None = None

    async def log_in(self, name: str, password: bytes, host: str) -> User | None:
        """The user, if the password is right and may be used from there; `host` is the peer's."""
        user = self._recognise(name, password)
        if user is None:
            if self.crowded(host):
                _log.warning("refused_unseen", user=name, peer=host, reason="too many failures")
                return None
            started, where = trio.current_time(), neighbourhood(host)
            self._open[where] += 1
            try:
                user = await self._compare(name, password, where)
                if user is None or not self.may_call_from(name, host):
                    await self._fail(name, host, started)
                    return None
            finally:
                self._close(where)
        elif not self.may_call_from(name, host):
            await self.refuse(name, host)
            return None
        return user

    def knows(self, name: str) -> bool:
        """Whether there is such a user."""
        return name in self._users

    async def admit(self, name: str, host: str) -> User | None:
        """A user whom a certificate names."""
        user = self._users.get(name)
        if user is None or not self.may_call_from(name, host):
            await self.refuse(name, host)
            return None
        return user

    async def hash(self, password: str) -> PasswordHash:
        """What is to be kept of a new password."""
        salt = self._random_bytes(SCRYPT_SALT_BYTES)
        return await self._hashing("", partial(hash_password, password.encode(), salt))

    def may_call_from(self, name: str, host: str) -> bool:
        """Whether the user may log in from there at all."""
        return name not in self._loopback_users or is_loopback(host)

    def _recognise(self, name: str, password: bytes) -> User | None:
        user, known = self._users.get(name), self._verified.get(name)
        if user is None or known is None or known.stored is not user.password:
            return None
        return user if hmac.compare_digest(self._digest(password), known.digest) else None

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self._key, digest_size=32).digest()

    async def _compare(self, name: str, password: bytes, where: str) -> User | None:
        user = self._users.get(name)
        stored = user.password if user is not None else await self._hash_of_nobody()
        matches = await self._matches(stored, password, where)
        if not matches and not stored.is_costly:  # to take as long as where there is a costly one
            await self._matches(await self._hash_of_nobody(), password, where)
        if not matches or user is None or self._users.get(name) is not user:
            return None
        if user.password is not stored:  # changed meanwhile
            return None
        if len(self._verified) > len(self._users):  # of some who are no more
            self._verified = {n: one for n, one in self._verified.items() if n in self._users}
        self._verified[name] = _Verified(stored, self._digest(password))
        return user

    async def _matches(self, stored: PasswordHash, password: bytes, where: str) -> bool:
        if stored.is_costly:
            return await self._hashing(where, partial(stored.matches, password))
        return stored.matches(password)

    async def _hash_of_nobody(self) -> PasswordHash:
        if self._nobody is None:
            self._nobody = await self.hash(self._random_bytes(16).hex())
        return self._nobody

    # Failures

    def crowded(self, host: str) -> bool:
        """Whether so many fail there that others are refused unseen."""
        open_there = self._open[neighbourhood(host)]
        return open_there >= OPEN_FROM_ONE_ADDRESS_MAX or self._open.total() >= OPEN_MAX

    def _close(self, where: str) -> None:
        self._open[where] -= 1
        if not self._open[where]:
            del self._open[where]

    async def refuse(self, name: str, host: str) -> None:
        """Somebody claimed to be a user, by whatever means, and is not: they wait to hear that."""
        if self.crowded(host):
            return
        where = neighbourhood(host)
        self._open[where] += 1
        try:
            await self._fail(name, host, trio.current_time())
        finally:
            self._close(where)

    async def _fail(self, name: str, host: str, started: float) -> None:
        _log.warning("refused", user=name, peer=host)
        await trio.sleep_until(started + self._failure_delay_s)
