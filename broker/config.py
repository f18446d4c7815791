"""What a node can be told at start: every setting with its limits, and where its value comes from.

A value comes from the TOML file, is overridden by a `LEVERET_*` variable and that by a flag. Both
names are made from the field's name, so a setting is added in one place: as a field of Config.
"""

from __future__ import annotations

import dataclasses
import re
import socket
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.auth import compile_pattern, decode_password_hash
from broker.settings import Choice, Directory, Memory, Names, Seconds, Setting, Text, WholeNumber

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.settings import Kind

VARIABLE_PREFIX = "LEVERET_"
CONFIG_VARIABLE = "LEVERET_CONFIG"

# Kubernetes tells every pod about a service called "leveret" in variables of these names.
_INJECTED_VARIABLE = re.compile(r"LEVERET_(SERVICE_HOST|SERVICE_PORT.*|PORT(_\d+_(TCP|UDP).*)?)")

_PORT = WholeNumber(0, 65535)


class ConfigError(ValueError):
    """A setting that cannot be used, told in one sentence."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class FlagError(ConfigError):
    """The same, of a flag: a mistake in how the command was called."""


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
    password_hash: str | None = dataclasses.field(default=None, repr=False)
    tags: tuple[str, ...] = ()
    permissions: tuple[PermissionConfig, ...] = ()


def guest(vhosts: tuple[str, ...]) -> UserConfig:
    """The user there is when none is configured: guest/guest, who may do everything."""
    return UserConfig(
        name="guest",
        password="guest",  # noqa: S106 - well known; loopback_users keeps it on this machine
        tags=("administrator",),
        permissions=tuple(
            PermissionConfig(vhost=vhost, configure=".*", write=".*", read=".*") for vhost in vhosts
        ),
    )


def _setting(kind: Kind, default: object, summary: str) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "summary": summary})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node's settings. `load` checks them; made directly, they are taken as they are."""

    # Loopback, because the default user's password is public.
    host: str = _setting(Text(), "127.0.0.1", "Address to listen on.")
    amqp_port: int = _setting(_PORT, 5672, "Port for AMQP; 0 picks a free one.")
    http_port: int = _setting(_PORT, 15672, "Port for HTTP; 0 picks a free one.")
    data_dir: Path = _setting(  # noqa: RUF009 - it returns a field
        Directory(), Path("leveret-data"), "Directory for what must survive a restart."
    )
    node_name: str = dataclasses.field(
        default_factory=lambda: f"leveret@{socket.gethostname()}",
        metadata={
            "kind": Text(pattern=r"[\w.-]+@[\w.-]+", described="of the form name@host"),
            "summary": "Name of this node, unlike any other in its cluster.",
            "default_text": "leveret@<hostname>",
        },
    )
    vhosts: tuple[str, ...] = _setting(Names(at_least=1), ("/",), "Virtual hosts.")
    loopback_users: tuple[str, ...] = _setting(
        Names(at_least=0), ("guest",), "Users who may only log in from this machine."
    )
    # 128 KiB is what RabbitMQ offers and clients' buffers are made for. 4 KiB is AMQP's own least;
    # over 16 MiB one channel's frame holds up every other channel of its connection.
    frame_max_bytes: int = _setting(
        WholeNumber(4096, 16 * 2**20), 131072, "Largest frame offered to clients."
    )
    # RabbitMQ's default: more channels on one connection is nearly always a leak in the client.
    channel_max: int = _setting(
        WholeNumber(1, 65535), 2047, "Most channels open on one connection."
    )
    # Under the idle time-outs of common load balancers and NATs, and RabbitMQ's default.
    heartbeat_s: int = _setting(
        WholeNumber(0, 65535), 60, "Heartbeat interval suggested to clients; 0 turns it off."
    )
    # Many round trips on a bad link; a socket that says nothing must not hold a slot for longer.
    handshake_timeout_s: float = _setting(
        Seconds(0.01, 600.0), 10.0, "Time a client has from connecting to an open connection."
    )
    # A message is gathered in memory before it is routed. RabbitMQ 3's default, and its most.
    message_bytes_max: int = _setting(
        WholeNumber(1, 512 * 2**20), 128 * 2**20, "Largest message body accepted."
    )
    # An idle connection costs up to 60 KB, so this many take about 1 GB and no more.
    connections_max: int = _setting(
        WholeNumber(1, 1_000_000), 16384, "Most AMQP connections open at once."
    )
    # Leaves room for what publishers have under way, and for the operating system's page cache.
    memory_limit: float | int = _setting(
        Memory(), 0.4, "Memory in use above which publishers have to wait."
    )
    # What settles need while publishers wait, and a place for files to be compacted to.
    disk_free_bytes_min: int = _setting(
        WholeNumber(0, 2**50), 256 * 2**20, "Free disk space under which publishers have to wait."
    )
    # Long enough for clients to answer connection.close, short enough for any service manager.
    shutdown_grace_s: float = _setting(
        Seconds(0.0, 3600.0), 5.0, "Time clients have to close when the node stops."
    )
    # Slows guessing to one password a second on a connection; a human's typo does not notice.
    auth_failure_delay_s: float = _setting(
        Seconds(0.0, 60.0), 1.0, "Time before a failed login is answered."
    )
    log_level: str = _setting(
        Choice("debug", "info", "warning", "error"), "info", "Least severe event to log."
    )
    log_format: str = _setting(Choice("text", "json"), "text", "Form of the log on standard error.")
    users: tuple[UserConfig, ...] = dataclasses.field(default_factory=lambda: (guest(("/",)),))

    @classmethod
    def load(
        cls, path: Path | None, env: Mapping[str, str], overrides: Mapping[str, object]
    ) -> Config:
        """Read the settings from file, environment and flags; ConfigError if one is wrong.

        A text in `overrides` is parsed as a flag's; any other value is checked as it is.
        """
        values: dict[str, Any] = {}
        if path is not None:
            values.update(_from_file(path))
        values.update(_from_environment(env))
        values.update(_from_flags(overrides))
        values.setdefault("users", (guest(values.get("vhosts", ("/",))),))
        config = cls(**values)
        _check_permissions_fit(config, str(path))
        return config


SETTINGS: tuple[Setting, ...] = tuple(
    Setting.from_field(field, VARIABLE_PREFIX)
    for field in dataclasses.fields(Config)
    if "kind" in field.metadata
)
_SETTING_BY_NAME = {setting.name: setting for setting in SETTINGS}
_SETTING_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for variable in sorted(env):
        if not variable.startswith(VARIABLE_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        setting = _SETTING_BY_VARIABLE.get(variable)
        if setting is not None:
            yield setting.name, _parse_text(setting, env[variable], f"variable {variable}")
        elif not _INJECTED_VARIABLE.fullmatch(variable):
            known = ", ".join(_SETTING_BY_VARIABLE)
            raise ConfigError(f"variable {variable}", f"there is no such setting (known: {known})")


def _from_flags(overrides: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in overrides.items():
        setting = _SETTING_BY_NAME.get(name)
        if setting is None:
            raise FlagError(f"flag --{name.replace('_', '-')}", "there is no such setting")
        parse = _parse_text if isinstance(value, str) else _check
        try:
            yield name, parse(setting, value, f"flag {setting.flag}")
        except ConfigError as error:
            raise FlagError(error.source, error.problem) from None


def _parse_text(setting: Setting, text: Any, source: str) -> object:
    try:
        return setting.kind.from_text(text)
    except ValueError:
        raise _not_allowed(source, text, setting.kind.allowed) from None


def _check(setting: Setting, value: object, source: str) -> object:
    try:
        return setting.kind.check(value)
    except ValueError:
        raise _not_allowed(source, value, setting.kind.allowed) from None


def _not_allowed(source: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(source, f"{value!r} is not allowed; it must be {allowed}")


def _from_file(path: Path) -> Iterator[tuple[str, object]]:
    for key, value in _read_toml(path).items():
        if key == "users":
            yield key, _users(value, str(path))
            continue
        setting = _SETTING_BY_NAME.get(key)
        if setting is None:
            known = ", ".join([*_SETTING_BY_NAME, "users"])
            raise ConfigError(f"{path}, key {key}", f"there is no such setting (known: {known})")
        yield key, _check(setting, value, f"{path}, key {key}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error


def _users(value: object, path: str) -> tuple[UserConfig, ...]:
    users = tuple(_user(*item) for item in _tables(value, f"{path}, key users"))
    names = [user.name for user in users]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}, key users", f"there are two users called {name!r}")
    return users


def _user(table: Mapping[str, object], source: str) -> UserConfig:
    fields = {"name", "password", "password_hash", "tags", "permissions"}
    _check_keys(table, fields, source)
    name = _text(table, "name", source)
    if not name:
        raise ConfigError(source, "a user needs a name")
    source = f"{source} ({name!r})"
    if ("password" in table) == ("password_hash" in table):
        raise ConfigError(source, "a user needs either password or password_hash")
    tags = table.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _not_allowed(f"{source}.tags", tags, "a list of texts")
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


def _password_hash(table: Mapping[str, object], source: str) -> str | None:
    if "password_hash" not in table:
        return None
    stored = _text(table, "password_hash", source)
    try:
        decode_password_hash(stored)
    except ValueError as error:
        raise ConfigError(
            f"{source}.password_hash",
            f"it must be base64 of a 4-byte salt and a SHA-256 digest, but is {error}",
        ) from None
    return stored


def _permission(table: Mapping[str, object], source: str) -> PermissionConfig:
    _check_keys(table, {"vhost", "configure", "write", "read"}, source)
    if "vhost" not in table:
        raise ConfigError(source, "a permission needs a vhost")
    texts = {key: _text(table, key, source) for key in table}
    for key in texts.keys() - {"vhost"}:
        try:
            compile_pattern(texts[key])
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
        raise _not_allowed(f"{source}.{key}", value, "a text")
    return value


def _check_permissions_fit(config: Config, path: str) -> None:
    for user in config.users:
        for permission in user.permissions:
            if permission.vhost not in config.vhosts:
                known = ", ".join(map(repr, config.vhosts))
                raise ConfigError(
                    f"{path}, key users",
                    f"{user.name!r} has permissions in vhost {permission.vhost!r}, "
                    f"which is not one of the configured vhosts ({known})",
                )
