"""What a node can say of the place where it stands: addresses, names, versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.version import VERSION

if TYPE_CHECKING:
    from broker.management.whereabouts import Whereabouts
    from broker.node import Node

Addresses = dict[str, tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class Site:
    """`addresses` are those that it listens at, by protocol."""

    node: Node
    where: Whereabouts
    addresses: Addresses = field(default_factory=dict)
    started_ms: int = 0
    version: str = VERSION

    @property
    def node_name(self) -> str:
        return self.node.config.node_name

    def cluster_name(self) -> str:
        name = self.node.global_parameters.get("cluster_name")
        return name if isinstance(name, str) else self.node_name

    def listeners(self) -> list[dict[str, Any]]:
        return [
            {
                "node": self.node_name,
                "protocol": protocol,
                "ip_address": host,
                "port": port,
                "socket_opts": {"nodelay": True},
            }
            for protocol, (host, port) in self.addresses.items()
        ]

    def contexts(self) -> list[dict[str, Any]]:
        host, port = self.addresses.get("http", ("", 0))
        return [
            {
                "ssl_opts": [],
                "node": self.node_name,
                "description": "Leveret management",
                "path": "/",
                "cowboy_opts": "[]",
                "ip": host,
                "port": str(port),
            }
        ]
