"""What a node can be told at start: every setting with its limits, and where its value comes from.

A value comes from the TOML file, is overridden by a `LEVERET_*` variable and that by a flag. Both
names are made from the field's name, so a setting is added in one place: as a field of Config.
"""

# ruff: noqa: RUF009 - `_setting` returns a field

from __future__ import annotations

import dataclasses
import re
import socket
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cluster_settings import (
    NODE_NAME,
    Address,
    ClusterMember,
    ListenAddress,
    Members,
    Secret,
    read_secret,
    require_readable,
)
from broker.security.sasl import MECHANISMS
from broker.security.tls import COMMON_NAME, LOGIN_FROM, VERIFY
from broker.settings import (
    Choice,
    Choices,
    ConfigError,
    Directory,
    File,
    FlagError,
    Memory,
    Names,
    OptionalText,
    Seconds,
    Setting,
    Text,
    WholeNumber,
    WrongValueError,
    not_allowed,
)
from broker.user_settings import UserConfig, check_permissions_fit, guest, parse_users

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.settings import Kind

VARIABLE_PREFIX = "LEVERET_"
CONFIG_VARIABLE = "LEVERET_CONFIG"
# What commands read, most of them to talk to a running node; to a node they mean nothing.
URL_VARIABLE = "LEVERET_URL"
AMQP_URL_VARIABLE = "LEVERET_AMQP_URL"
USER_VARIABLE = "LEVERET_USER"
PASSWORD_VARIABLE = "LEVERET_PASSWORD"  # noqa: S105 - the name of one
SPARK_CACHE_VARIABLE = "LEVERET_SPARK_CACHE"
_NO_SETTINGS = {
    CONFIG_VARIABLE,
    URL_VARIABLE,
    AMQP_URL_VARIABLE,
    USER_VARIABLE,
    PASSWORD_VARIABLE,
    SPARK_CACHE_VARIABLE,
}

# Kubernetes tells every pod about a service called "leveret" in variables of these names.
_INJECTED_VARIABLE = re.compile(r"LEVERET_(SERVICE_HOST|SERVICE_PORT.*|PORT(_\d+_(TCP|UDP).*)?)")

_PORT = WholeNumber(0, 65535)
_ALL_INTERFACES = {"0.0.0.0", "::", "*"}  # noqa: S104 - to be recognised, not to be listened on


def _setting(
    kind: Kind, default: object, summary: str, *, default_text: str = "", shown: bool = True
) -> Any:
    """A field that is a setting; `default_text` is what is said of the default."""
    metadata = {"kind": kind, "summary": summary, "default_text": default_text}
    return dataclasses.field(default=default, metadata=metadata, repr=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node's settings. `load` checks them; made directly, they are taken as they are."""

    # Loopback, because the default user's password is public.
    host: str = _setting(
        Text(), "127.0.0.1", "Address to listen on; :: is every address, IPv6 and IPv4."
    )
    amqp_port: int = _setting(_PORT, 5672, "Port for AMQP; 0 picks a free one.")
    http_port: int = _setting(_PORT, 15672, "Port for HTTP; 0 picks a free one.")
    http_hosts: tuple[str, ...] = _setting(
        Names(at_least=0),
        (),
        "Further names under which browsers may call this node.",
        default_text="<none>",
    )
    # As long as there is a certificate. Off, whoever comes must come by TLS.
    plain_ports: str = _setting(
        Choice("on", "off"), "on", "Whether the ports without TLS are opened."
    )
    amqps_port: int = _setting(
        _PORT, 5671, "Port for AMQP over TLS, if there is a certificate; 0 picks a free one."
    )
    https_port: int = _setting(
        _PORT, 15671, "Port for HTTP over TLS, if there is a certificate; 0 picks a free one."
    )
    tls_certificate: Path | None = _setting(
        File(), None, "This node's certificate for clients, with its chain.", default_text="<none>"
    )
    tls_key: Path | None = _setting(
        File(), None, "The key of that certificate.", default_text="<none>"
    )
    tls_ca: Path | None = _setting(
        File(), None, "Certificates that must have signed those of clients.", default_text="<none>"
    )
    tls_verify: str = _setting(
        Choice(*VERIFY), "none", "Whether AMQP clients have to show a certificate."
    )
    tls_login_from: str = _setting(
        Choice(*LOGIN_FROM),
        COMMON_NAME,
        "Where in its certificate the name of a user is who logs in with it.",
    )
    # EXTERNAL among them, as clients that log in with their certificate rely on it; those whose
    # certificate names no user are not offered it.
    auth_mechanisms: tuple[str, ...] = _setting(
        Choices(*MECHANISMS),
        MECHANISMS,
        "SASL mechanisms, in the order in which they are offered to clients; EXTERNAL only to those"
        " whose certificate names a user.",
    )
    data_dir: Path = _setting(
        Directory(), Path("leveret-data"), "Directory for what must survive a restart."
    )
    node_name: str = dataclasses.field(
        default_factory=lambda: f"leveret@{socket.gethostname()}",
        metadata={
            "kind": Text(pattern=NODE_NAME, described="of the form name or name@host"),
            "summary": "Name of this node, unlike any other in its cluster.",
            "default_text": "leveret@<hostname>",
        },
    )
    cluster: tuple[ClusterMember, ...] = _setting(
        Members(), (), "All nodes of this node's cluster, itself too.", default_text="<none>"
    )
    cluster_listen: Address | None = _setting(
        ListenAddress(),
        None,
        "Address to listen on for other nodes.",
        default_text="<this node's in cluster>",
    )
    advertised_host: str = _setting(
        OptionalText(),
        "",
        "Host by which clients are told to reach this node.",
        default_text="<host, or that in cluster>",
    )
    advertised_amqp_port: int = _setting(
        _PORT, 0, "Port by which clients are told to reach this node; 0 for that of AMQP."
    )
    # On a command line it is seen by everybody on the machine: the file is the better place.
    cluster_secret: str = _setting(
        Secret(), "", "What the nodes of a cluster know.", default_text="<none>", shown=False
    )
    cluster_secret_file: Path | None = _setting(
        File(), None, "File with the cluster's secret.", default_text="<none>"
    )
    cluster_tls_certificate: Path | None = _setting(
        File(), None, "This node's certificate for links between nodes.", default_text="<none>"
    )
    cluster_tls_key: Path | None = _setting(
        File(), None, "The key of that certificate.", default_text="<none>"
    )
    cluster_tls_ca: Path | None = _setting(
        File(),
        None,
        "Certificates that must have signed those of the nodes.",
        default_text="<none>",
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
    # A browser's or a scraper's pool is far below. Half as many more may be open before a login.
    http_connections_max: int = _setting(
        WholeNumber(2, 1_000_000), 1024, "Most HTTP connections of clients that have logged in."
    )
    # As many as a crowd of clients behind one address has under way when it connects anew.
    strangers_per_address_max: int = _setting(
        WholeNumber(1, 1_000_000),
        1024,
        "Most connections of one address, at each port, that have not logged in.",
    )
    # For files of the log, of streams and of paged messages that are opened while clients come.
    files_reserved: int = _setting(
        WholeNumber(0, 1_000_000),
        256,
        "File descriptors that clients' sockets leave free; at most a quarter of all.",
    )
    # At up to 10 KB each they take 1 GB; more is nearly always a client that forgets to delete.
    queues_max: int = _setting(
        WholeNumber(1, 10_000_000), 100_000, "Most queues in one virtual host."
    )
    # More than any prefetch that a client can ask for (65,535), so that only one with no prefetch
    # meets it: at 1 KB each it draws 150 MB of a backlog into memory and not all of it.
    unacked_max: int = _setting(
        WholeNumber(1, 10_000_000), 100_000, "Most unacked messages on one channel."
    )
    # None: what a connection may need is for the operator to say.
    publish_rate: int = _setting(
        WholeNumber(0, 10_000_000),
        0,
        "Messages that one connection may publish in a second; 0 for any number.",
    )
    # Leaves room for what publishers have under way, and for the operating system's page cache.
    memory_limit: float | int = _setting(
        Memory(), 0.4, "Memory in use above which publishers have to wait."
    )
    # What settles need while publishers wait, and a place for files to be compacted to. RabbitMQ's
    # default; the log's own spare files come on top.
    disk_free_bytes_min: int = _setting(
        WholeNumber(0, 2**50), 50_000_000, "Free disk space under which publishers have to wait."
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
        secret_file = values.get("cluster_secret_file")
        if secret_file is not None:
            if values.get("cluster_secret"):
                raise ConfigError("cluster_secret", "cluster_secret_file is given too")
            values["cluster_secret"] = _read_secret(secret_file)
        config = cls(**values)
        check_permissions_fit(config.users, config.vhosts, str(path))
        _check_cluster(config)
        _check_tls(config)
        return config

    @property
    def clustered(self) -> bool:
        """Whether this node is one of several, or made to become so."""
        return bool(self.cluster)

    @property
    def own_member(self) -> ClusterMember:
        """This node's entry among the members; only where `clustered`."""
        return next(member for member in self.cluster if member.name == self.node_name)

    @property
    def other_members(self) -> tuple[ClusterMember, ...]:
        return tuple(member for member in self.cluster if member.name != self.node_name)

    @property
    def peer_address(self) -> Address:
        """Where this node listens for other nodes; only where `clustered`."""
        return self.cluster_listen or self.own_member.address

    def client_address(self, bound_amqp_port: int) -> Address:
        """Where clients are told to find this node, which listens on that port."""
        host = self.advertised_host or self.host
        if not self.advertised_host and self.clustered and host in _ALL_INTERFACES:
            host = self.own_member.address.host
        return Address(host, self.advertised_amqp_port or bound_amqp_port)


SETTINGS: tuple[Setting, ...] = tuple(
    Setting.from_field(field, VARIABLE_PREFIX)
    for field in dataclasses.fields(Config)
    if "kind" in field.metadata
)
_SETTING_BY_NAME = {setting.name: setting for setting in SETTINGS}
_SETTING_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for variable in sorted(env):
        if not variable.startswith(VARIABLE_PREFIX) or variable in _NO_SETTINGS:
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
    except WrongValueError as error:
        raise ConfigError(source, str(error)) from None
    except ValueError:
        raise not_allowed(source, text, setting.kind.allowed) from None


def _check(setting: Setting, value: object, source: str) -> object:
    try:
        return setting.kind.check(value)
    except WrongValueError as error:
        raise ConfigError(source, str(error)) from None
    except ValueError:
        raise not_allowed(source, value, setting.kind.allowed) from None


def _from_file(path: Path) -> Iterator[tuple[str, object]]:
    for key, value in _read_toml(path).items():
        if key == "users":
            yield key, parse_users(value, str(path))
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


def _read_secret(path: Path) -> str:
    try:
        return read_secret(path)
    except WrongValueError as error:
        raise ConfigError("cluster_secret_file", str(error)) from None


def _check_tls(config: Config) -> None:
    if (config.tls_certificate is None) != (config.tls_key is None):
        missing = "tls_key" if config.tls_key is None else "tls_certificate"
        raise ConfigError(missing, "tls_certificate and tls_key are needed together")
    if config.tls_certificate is None:
        for key, given in (("tls_ca", config.tls_ca), ("tls_verify", config.tls_verify != "none")):
            if given:
                raise ConfigError(key, "it is for where there is a tls_certificate")
        if config.plain_ports == "off":
            raise ConfigError("plain_ports", "without a tls_certificate nobody could come in")
    if config.tls_verify != "none" and config.tls_ca is None:
        raise ConfigError("tls_ca", f"it is needed with tls_verify = {config.tls_verify!r}")


def _check_cluster(config: Config) -> None:
    if config.clustered and config.node_name not in {member.name for member in config.cluster}:
        listed = ", ".join(member.name for member in config.cluster)
        raise ConfigError(
            "cluster", f"this node, {config.node_name!r}, is not among its nodes ({listed})"
        )
    if config.other_members and not config.cluster_secret:
        raise ConfigError(
            "cluster", "more than one node needs a cluster_secret or cluster_secret_file"
        )
    files = {
        key: getattr(config, key)
        for key in ("cluster_tls_certificate", "cluster_tls_key", "cluster_tls_ca")
    }
    missing = [key for key, path in files.items() if path is None]
    if missing and len(missing) < len(files):
        raise ConfigError(missing[0], "it is needed where another of cluster_tls_* is given")
    for key, path in files.items():
        if path is not None:
            try:
                require_readable(path)
            except WrongValueError as error:
                raise ConfigError(key, str(error)) from None
