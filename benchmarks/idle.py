"""Connections that do nothing: what each costs a broker in memory, and all together in CPU."""

from __future__ import annotations

import resource
import selectors
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.wire import BrokerError, Connection

if TYPE_CHECKING:
    from benchmarks.brokers import Broker
    from benchmarks.scenarios import IdleScenario

# Files that the benchmark and a broker need besides the idle connections.
_OTHER_FILES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleResult:
    """What the connections cost the broker."""

    scenario: str
    broker: str
    connections: int
    kb_per_connection: float
    cpu_percent: float
    broker_rss_mb: float


def raise_file_limit(connections: int) -> None:
    """Let this process and the brokers that it starts open enough sockets."""
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BrokerError(f"{wanted} open files needed, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def measure_idle(broker: Broker, scenario: IdleScenario) -> IdleResult:
    """Open the connections, leave them idle for a while, and see what the broker used."""
    if broker.processes is None:
        raise BrokerError(f"cannot see the process of {broker.name}")
    # Short enough that no heartbeat of ours falls due.
    assert scenario.settle_s + scenario.idle_s < scenario.heartbeat_s
    rss_before = broker.processes.rss_bytes()
    connections: list[Connection] = []
    try:
        connections.extend(
            Connection(broker.url, heartbeat_s=scenario.heartbeat_s)
            for _ in range(scenario.connections)
        )
        _stay_idle(connections, scenario.settle_s)
        cpu_before_s = broker.processes.cpu_s()
        _stay_idle(connections, scenario.idle_s)
        cpu_s = broker.processes.cpu_s() - cpu_before_s
        rss_after = broker.processes.rss_bytes()
    finally:
        for connection in connections:
            connection.close()
    return IdleResult(
        scenario=scenario.name,
        broker=broker.name,
        connections=scenario.connections,
        kb_per_connection=(rss_after - rss_before) / 1000 / scenario.connections,
        cpu_percent=100 * cpu_s / scenario.idle_s,
        broker_rss_mb=rss_after / 1e6,
    )


def _stay_idle(connections: list[Connection], seconds: float) -> None:
    """Read what the broker sends (its heartbeats) for `seconds`; none may be closed."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if not key.data.sock.recv(4096):
                    raise BrokerError("the broker closed an idle connection")
