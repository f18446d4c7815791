"""How a node reaches the others: addresses, secret, times and limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersOptions:
    """Times in seconds. All nodes of a cluster should have the same."""

    secret: bytes = field(repr=False)
    address: str  # host:port under which the others reach this node
    # All nodes of the cluster by name, this one too, as configured. Their addresses win over those
    # in the table, so that a node can move.
    listed: Mapping[str, str]

    heartbeat_s: float = 0.15
    timeout_s: float = 1.0  # without an answer: down
    # The bulk lane may have megabytes in front of a heartbeat; it must move within this.
    bulk_timeout_s: float = 4.0
    hello_timeout_s: float = 3.0  # TLS and hello together
    backoff_min_s: float = 0.05
    backoff_max_s: float = 1.0
    forming_interval_s: float = 0.2  # between rounds of asking all that are listed

    # What waits for one node. Eight megabytes are some milliseconds of a fast network. A message
    # of any size may wait beside that, in pieces: it counts only for what belongs to it.
    high_bytes: int = 8 * 1024 * 1024
    low_bytes: int = 2 * 1024 * 1024
    # So many logs and queues may have something large in line at a time; the others wait.
    large_keys_max: int = 8
    # Where more than this waits, a node that takes less than `low_bytes` in `bulk_timeout_s` is
    # given up, before its slowness is this node's memory.
    brim_bytes: int = 64 * 1024 * 1024
    # Connections that have not proven who they are; beyond that the oldest give way. A member that
    # links anew, forms the cluster or is asked by many has a few at a time.
    strangers_max: int = 64
    strangers_per_address: int = 16
