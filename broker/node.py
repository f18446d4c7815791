"""What the connections of a node share: settings, users, vhosts, timers, the flush of a turn."""

from collections.abc import Awaitable
from typing import Protocol

from broker import logs
from broker.auth import Users
from broker.config import Config
from broker.timers import Timers
from broker.vhost import VHost

_log = logs.get("node")


class Member(Protocol):
    """A connection, as the node sees it."""

    def flush(self) -> None: ...
    def unblocked(self) -> None: ...


class Disk(Protocol):
    """The host of the node's logs."""

    @property
    def overloaded(self) -> bool: ...
    def flush(self) -> None: ...
    def relief(self) -> Awaitable[None]: ...


class Node:
    """The node's state. Nothing here awaits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.users = Users(config.users, loopback_users=config.loopback_users)
        self.timers = Timers()
        self.vhosts = {name: VHost(name, self.timers) for name in config.vhosts}
        self.host: Disk | None = None
        self.connections: set[Member] = set()
        self.dirty: list[Member] = []
        self.plain_properties: set[bytes] = set()  # see broker.channel.inspection
        self.blocked: str | None = None  # why nobody may publish now
        self._alarms: dict[str, str] = {}  # what is short, and the words for it
        self.stopping = False

    def flush(self) -> None:
        """At the end of every turn: start writing what must be durable, send what was written."""
        if self.host is not None:
            self.host.flush()
        dirty = self.dirty
        while dirty:
            dirty.pop().flush()

    def raise_alarm(self, name: str, reason: str) -> None:
        """Keep publishes back, and nothing else, until the last alarm is over."""
        _log.warning("alarm", name=name, reason=reason)
        self._alarms[name] = reason
        self.blocked = reason

    def clear_alarm(self, name: str) -> None:
        _log.info("alarm_over", name=name)
        self._alarms.pop(name, None)
        self.blocked = next(iter(self._alarms.values()), None)
        if self.blocked is None:
            for connection in list(self.connections):
                connection.unblocked()
            self.flush()
