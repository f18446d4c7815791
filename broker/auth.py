"""Who may log in, and what they may do: users, password hashes, permissions, SASL responses.

A stored password is what RabbitMQ stores, so that definitions can move between the two:

    base64( salt: 4 bytes | SHA-256(salt + password): 32 bytes )
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from broker.protocol.tables import decode_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from broker.config import PermissionConfig, UserConfig

Action = Literal["configure", "write", "read"]

SALT_BYTES = 4
HASH_BYTES = SALT_BYTES + hashlib.sha256().digest_size

# RabbitMQ checks permissions on the default exchange, whose name is empty, under this name.
DEFAULT_EXCHANGE_ALIAS = "amq.default"

# A worker touches a handful of names; this keeps even a large application's names hot while a
# client that invents names all day costs at most about a megabyte per user.
CACHED_DECISIONS_MAX = 4096


def hash_password(password: bytes, salt: bytes) -> str:
    """Return what is stored for a password."""
    assert len(salt) == SALT_BYTES
    return base64.b64encode(salt + hashlib.sha256(salt + password).digest()).decode("ascii")


def decode_password_hash(stored: str) -> bytes:
    """Return salt and digest of a stored password; ValueError if it is not one."""
    try:
        raw = base64.b64decode(stored, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error
    if len(raw) != HASH_BYTES:
        raise ValueError(f"{len(raw)} bytes long instead of {HASH_BYTES}")
    return raw


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a permission pattern with RabbitMQ's meaning; ValueError if it is not a regex.

    Patterns are searched for, not anchored, except that the empty one grants nothing but the
    empty name. What Python would read differently from PCRE (such as `[[:alpha:]]`) only earns a
    warning from `re`; a permission must not be guessed at, so that is an error here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(pattern or "^$")
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in one vhost: names of queues and exchanges, by action."""

    configure: re.Pattern[str]
    write: re.Pattern[str]
    read: re.Pattern[str]

    @classmethod
    def from_config(cls, config: PermissionConfig) -> Permission:
        return cls(
            configure=compile_pattern(config.configure),
            write=compile_pattern(config.write),
            read=compile_pattern(config.read),
        )

    def pattern(self, action: Action) -> re.Pattern[str]:
        if action == "configure":
            return self.configure
        return self.write if action == "write" else self.read


class User:
    """A user who has logged in."""

    __slots__ = ("_decisions", "name", "permissions", "tags")

    def __init__(
        self, name: str, *, tags: Collection[str], permissions: Mapping[str, Permission]
    ) -> None:
        self.name = name
        self.tags = frozenset(tags)
        self.permissions = dict(permissions)
        self._decisions: dict[tuple[str, Action, str], bool] = {}

    def __repr__(self) -> str:
        return f"User({self.name!r})"

    def may_enter(self, vhost: str) -> bool:
        return vhost in self.permissions

    def may(self, vhost: str, action: Action, resource_name: str) -> bool:
        """Whether the user may do this to the queue or exchange of that name."""
        key = (vhost, action, resource_name)
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= CACHED_DECISIONS_MAX:
                self._decisions.clear()
            allowed = self._decisions[key] = self._decide(vhost, action, resource_name)
        return allowed

    def _decide(self, vhost: str, action: Action, resource_name: str) -> bool:
        permission = self.permissions.get(vhost)
        if permission is None:
            return False
        name = resource_name or DEFAULT_EXCHANGE_ALIAS
        return permission.pattern(action).search(name) is not None


class Users:
    """The users a node knows."""

    def __init__(self, users: Iterable[UserConfig], *, loopback_users: Collection[str]) -> None:
        self._loopback_users = frozenset(loopback_users)
        self._users: dict[str, User] = {}
        self._hashes: dict[str, bytes] = {}
        # What an unknown user's password is compared with, so that it takes as long as a known's.
        self._nobody = os.urandom(HASH_BYTES)
        for config in users:
            self._add(config)

    def _add(self, config: UserConfig) -> None:
        self._users[config.name] = User(
            config.name,
            tags=config.tags,
            permissions={p.vhost: Permission.from_config(p) for p in config.permissions},
        )
        stored = config.password_hash
        if stored is None:
            assert config.password is not None, "a user has a password or a hash"
            stored = hash_password(config.password.encode(), os.urandom(SALT_BYTES))
        self._hashes[config.name] = decode_password_hash(stored)

    def authenticate(self, name: str, password: bytes, *, peer_is_loopback: bool) -> User | None:
        """Return the user if the password is right and may be used from there.

        As in RabbitMQ an empty password is never right, even if a stored hash is of one.
        """
        stored = self._hashes.get(name, self._nobody)
        digest = hashlib.sha256(stored[:SALT_BYTES] + password).digest()
        matches = hmac.compare_digest(digest, stored[SALT_BYTES:])
        if not matches or not password:
            return None
        if name in self._loopback_users and not peer_is_loopback:
            return None
        return self._users.get(name)


def parse_plain(response: bytes) -> tuple[str, str, bytes]:
    """Split a SASL PLAIN response into (authorization id, user, password)."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise ValueError("a PLAIN response is authzid NUL user NUL password")
    authzid, user, password = parts
    return authzid.decode(), user.decode(), password


def parse_amqplain(response: bytes) -> tuple[str, bytes]:
    """Return (user, password) of an AMQPLAIN response: a field table without its length."""
    table, _ = decode_table(struct.pack(">I", len(response)) + response)
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if isinstance(user, bytes):
        user = user.decode()
    if isinstance(password, str):
        password = password.encode()
    if not isinstance(user, str) or not isinstance(password, bytes):
        raise ValueError("an AMQPLAIN response has LOGIN and PASSWORD strings")
    return user, password
