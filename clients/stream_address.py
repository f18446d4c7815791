"""Where the clients of the stream protocol connect, and as whom."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from clients.amqp_url import PORTS, endpoint_of, split_url
from clients.tls import Tls, take_tls

DEFAULT_PORT: Final = PORTS["amqp"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect, and as whom."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    others: tuple[tuple[str, int], ...] = ()  # hosts and ports of other nodes of the same cluster
    tls: Tls | None = None

    @classmethod
    def of_url(cls, url: str) -> "Address":
        """amqp://user:password@host:port/vhost, every part of which has AMQP's default.

        Of a cluster, several nodes: amqp://user:password@host:port,host:port/vhost. amqps is TLS
        (clients.tls). Raises ValueError.
        """
        parts = split_url(url)
        if parts.scheme not in PORTS:
            raise ValueError(f"{parts.scheme!r} is not a scheme for streams; amqp and amqps are")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        tls = take_tls(parts.scheme, options)
        if options:
            raise ValueError(f"unknown option in the URL: {', '.join(sorted(options))}")
        login, _, places = parts.authority.rpartition("@")
        user, _, password = login.partition(":")
        nodes = [_node(place, PORTS[parts.scheme]) for place in places.split(",")]
        return cls(
            *nodes[0],
            unquote(user or "guest"),
            unquote(password or "guest"),
            unquote(parts.path[1:]) or "/",
            tuple(nodes[1:]),
            tls,
        )

    @property
    def nodes(self) -> list[tuple[str, int]]:
        return [(self.host, self.port), *self.others]


def _node(place: str, default_port: int) -> tuple[str, int]:
    endpoint = endpoint_of(place, default_port)
    return endpoint.host, endpoint.port
