"""Users as they are configured: names, passwords, tags and permissions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.security.passwords import SHA256, PasswordHash, rabbitmq_hash
from broker.security.permissions import check_patterns
from broker.settings import ConfigError, not_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionConfig:
    """What a user may do in one vhost, as three regular expressions on names."""

    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """A user with either a password or its hash."""

    name: str
    password: str | None = dataclasses.field(default=None, repr=False)
    password_hash: PasswordHash | None = None
    tags: tuple[str, ...] = ()
    permissions: tuple[PermissionConfig, ...] = ()


def guest(vhosts: tuple[str, ...]) -> UserConfig:
    """The user there is when none is configured: guest/guest, who may do everything."""
    return UserConfig(
        name="guest",
        password="guest",  # noqa: S106 - well known; SQS clients sign with it
        # Everybody knows it, so that a hash that is hard to guess from would protect nothing;
        # loopback_users keeps it on this machine.
        password_hash=rabbitmq_hash(b"guest", b"salt"),
        tags=("administrator",),
        permissions=tuple(
            PermissionConfig(vhost=vhost, configure=".*", write=".*", read=".*") for vhost in vhosts
        ),
    )


def parse_users(value: object, path: str) -> tuple[UserConfig, ...]:
    """The key `users` of a file."""
    users = tuple(_user(*item) for item in _tables(value, f"{path}, key users"))
    names = [user.name for user in users]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}, key users", f"there are two users called {name!r}")
    return users


def _user(table: Mapping[str, object], source: str) -> UserConfig:
    fields = {"name", "password", "password_hash", "hashing_algorithm", "tags", "permissions"}
    _check_keys(table, fields, source)
    name = _text(table, "name", source)
    if not name:
        raise ConfigError(source, "a user needs a name")
    source = f"{source} ({name!r})"
    if ("password" in table) == ("password_hash" in table):
        raise ConfigError(source, "a user needs either password or password_hash")
    tags = table.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise not_allowed(f"{source}.tags", tags, "a list of texts")
    permissions = _tables(table.get("permissions", []), f"{source}.permissions")
    return UserConfig(
        name=name,
        password=_password(table, source),
        password_hash=_password_hash(table, source),
        tags=tuple(tags),
        permissions=tuple(_permission(*item) for item in permissions),
    )


def _password(table: Mapping[str, object], source: str) -> str | None:
    password = table.get("password")
    if password is None:
        return None
    if not isinstance(password, str) or not password:
        # The value is left out: a mistyped password is still a secret.
        raise ConfigError(f"{source}.password", "it must be a text that is not empty")
    return password


def _password_hash(table: Mapping[str, object], source: str) -> PasswordHash | None:
    if "password_hash" not in table:
        return None
    text = _text(table, "password_hash", source)
    algorithm = _text(table, "hashing_algorithm", source) or SHA256
    try:
        return PasswordHash.parse(algorithm, text)
    except ValueError as error:
        raise ConfigError(
            f"{source}.password_hash",
            f"it must be what {SHA256} or another hashing_algorithm makes, but is {error}",
        ) from None


def _permission(table: Mapping[str, object], source: str) -> PermissionConfig:
    _check_keys(table, {"vhost", "configure", "write", "read"}, source)
    if "vhost" not in table:
        raise ConfigError(source, "a permission needs a vhost")
    texts = {key: _text(table, key, source) for key in table}
    for key in texts.keys() - {"vhost"}:
        try:
            check_patterns(texts[key])
        except ValueError as error:
            raise ConfigError(
                f"{source}.{key}", f"{texts[key]!r} is not a regular expression: {error}"
            ) from None
    return PermissionConfig(**texts)


def _tables(value: object, source: str) -> Iterator[tuple[Mapping[str, object], str]]:
    if not isinstance(value, list):
        raise ConfigError(source, f"{value!r} is not allowed; it must be a list of tables")
    for position, item in enumerate(value, start=1):
        if not isinstance(item, dict):
            raise ConfigError(f"{source}[{position}]", "it must be a table")
        yield item, f"{source}[{position}]"


def _check_keys(table: Mapping[str, object], known: set[str], source: str) -> None:
    for key in table:
        if key not in known:
            allowed = ", ".join(sorted(known))
            raise ConfigError(f"{source}.{key}", f"there is no such key (known: {allowed})")


def _text(table: Mapping[str, object], key: str, source: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise not_allowed(f"{source}.{key}", value, "a text")
    return value


def check_permissions_fit(
    users: tuple[UserConfig, ...], vhosts: tuple[str, ...], path: str
) -> None:
    """Permissions are for vhosts that there are."""
    for user in users:
        for permission in user.permissions:
            if permission.vhost not in vhosts:
                known = ", ".join(map(repr, vhosts))
                raise ConfigError(
                    f"{path}, key users",
                    f"{user.name!r} has permissions in vhost {permission.vhost!r}, "
                    f"which is not one of the configured vhosts ({known})",
                )
