"""Where to connect, and as whom: amqp://user:password@host:port,host:port/vhost?heartbeat=30."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from clients.tls import Tls, take_tls

PORTS: Final = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_S: Final = 30  # a dead peer is noticed within a minute
HEARTBEAT_S_MAX: Final = 0xFFFF  # a short on the wire


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UrlParts:
    scheme: str
    authority: str  # user, password and hosts, not decoded
    path: str
    query: str


def split_url(url: str) -> UrlParts:
    """As urllib's urlsplit, which takes a list of hosts or not by its version.

    Raises ValueError.
    """
    if not url.isprintable() or " " in url:
        raise ValueError("a URL has no spaces nor control characters: encode them, as in %20")
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise ValueError("a URL begins with amqp:// or amqps://")
    rest = rest.partition("#")[0]
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    return UrlParts(scheme.lower(), authority, slash + path, query)


@dataclass(frozen=True, slots=True)
class Target:
    """One broker, or the nodes of one cluster: any of the endpoints will do."""

    endpoints: tuple[Endpoint, ...]
    user: str = "guest"
    password: str = "guest"  # noqa: S105 - AMQP's well-known default
    vhost: str = "/"
    tls: Tls | None = None
    heartbeat_s: int = HEARTBEAT_S

    def __repr__(self) -> str:
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{self.user}@{','.join(map(str, self.endpoints))}/{self.vhost}"

    @classmethod
    def of_url(cls, url: str) -> "Target":
        """Every part has AMQP's default. Raises ValueError with what is wrong."""
        parts = split_url(url)
        if parts.scheme not in PORTS:
            raise ValueError(f"{parts.scheme!r} is not a scheme for AMQP; amqp and amqps are")
        login, _, hosts = parts.authority.rpartition("@")
        user, colon, password = login.partition(":")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        heartbeat_s = _heartbeat(options.pop("heartbeat", str(HEARTBEAT_S)))
        tls = take_tls(parts.scheme, options)
        if options:
            raise ValueError(f"unknown option in the URL: {', '.join(sorted(options))}")
        return cls(
            tuple(endpoint_of(host, PORTS[parts.scheme]) for host in hosts.split(",")),
            unquote(user) if login else "guest",
            unquote(password) if colon else "guest",
            unquote(parts.path[1:]) or "/",
            tls,
            heartbeat_s,
        )


def _heartbeat(text: str) -> int:
    if not text.isdecimal() or int(text) > HEARTBEAT_S_MAX:
        raise ValueError(f"heartbeat is a number of seconds up to {HEARTBEAT_S_MAX}, not {text!r}")
    return int(text)


def endpoint_of(text: str, default_port: int) -> Endpoint:
    """host, host:port, [address] or [address]:port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):  # no port; the colon is one of an IPv6 address
        host, port = text, ""
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address is written in brackets, unlike {text!r}")
    if any(char in host for char in "[]"):
        raise ValueError(f"{text!r} is not a host")
    return Endpoint(host or "127.0.0.1", int(port) if port else default_port)
