"""What the connections of a node share: settings, users, vhosts, timers, the flush of a turn."""

from typing import Protocol

from broker.auth import Users
from broker.config import Config
from broker.timers import Timers
from broker.vhost import VHost


class Flushable(Protocol):
    """A connection with something to send."""

    def flush(self) -> None: ...


class Node:
    """The node's state. Nothing here awaits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.users = Users(config.users, loopback_users=config.loopback_users)
        self.timers = Timers()
        self.vhosts = {name: VHost(name, self.timers) for name in config.vhosts}
        self.dirty: list[Flushable] = []
        self.plain_properties: set[bytes] = set()  # see broker.channel.inspection
        self.stopping = False

    def flush(self) -> None:
        """Send what this turn wrote, to whichever connection; at the end of every turn."""
        dirty = self.dirty
        while dirty:
            dirty.pop().flush()
