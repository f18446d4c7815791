"""What the configuration brings in when a name is seen for the first time: users and vhosts."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.security.passwords import SCRYPT_SALT_BYTES, PasswordHash, hash_password
from broker.security.registry import Registry

if TYPE_CHECKING:
    from broker.config import Config
    from broker.user_settings import UserConfig


def seeds(config: "Config", registry: Registry) -> Iterator[list[Any]]:
    """Changes (see `Registry`) for names that were never seeded. Takes a moment for each password.

    Vhosts come first: permissions are for vhosts that there are.
    """
    for vhost in config.vhosts:
        if ("vhost", vhost) not in registry.seeded:
            yield ["seed", "vhost", vhost, [["vhost", vhost, b"", [], {}]]]
    for user in config.users:
        if ("user", user.name) not in registry.seeded:
            yield ["seed", "user", user.name, list(_user_changes(user))]


def _user_changes(user: "UserConfig") -> Iterator[list[Any]]:
    stored = _stored_password(user)
    yield ["user", user.name, stored.text, stored.algorithm, list(user.tags)]
    for one in user.permissions:
        yield ["permission", one.vhost, user.name, one.configure, one.write, one.read]


def _stored_password(user: "UserConfig") -> PasswordHash:
    if user.password_hash is not None:
        return user.password_hash
    assert user.password is not None, "a user has a password or a hash"
    return hash_password(user.password.encode(), os.urandom(SCRYPT_SALT_BYTES))
