"""How many connections and channels users and vhosts may have, and how many they have.

In a cluster all nodes count: each tells the others, for those that have a limit, how many it has.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.protocol.errors import ConnectionFailure
from broker.security.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

NO_LIMIT: Final = -1


class Crowded(Protocol):
    """A vhost, as far as this goes."""

    name: str
    limits: dict[str, int]
    connections: int


class Count(NamedTuple):
    connections: int = 0
    channels: int = 0


class Headcount:
    """The connections and channels that are open, here and on other nodes."""

    def __init__(self) -> None:
        self.elsewhere: dict[int, dict[tuple[str, str], Count]] = {}  # by node, then what and name
        self.changed: Callable[[], None] = lambda: None  # tells other nodes, if there are any

    def check_connection(self, user: User, vhost: Crowded) -> None:
        """Raise 530 if the user, or the vhost, has all the connections that it may have."""
        limit = vhost.limits.get("max-connections", NO_LIMIT)
        if 0 <= limit <= vhost.connections + self._elsewhere("vhost", vhost.name).connections:
            raise ConnectionFailure(
                530,
                f"access to vhost '{vhost.name}' refused for user '{user.name}': "
                f"connection limit ({limit}) is reached",
            )
        limit = user.limits.get("max-connections", NO_LIMIT)
        if 0 <= limit <= user.connections + self._elsewhere("user", user.name).connections:
            raise ConnectionFailure(
                530,
                f"Connection refused for user '{user.name}': "
                f"user connection limit ({limit}) is reached",
            )

    def check_channel(self, user: User) -> None:
        """The same for a channel."""
        limit = user.limits.get("max-channels", NO_LIMIT)
        if 0 <= limit <= user.channels + self._elsewhere("user", user.name).channels:
            raise ConnectionFailure(
                530,
                f"number of channels opened for user '{user.name}' has reached the maximum "
                f"allowed user limit of ({limit})",
            )

    def entered(self, user: User, vhost: Crowded) -> None:
        user.connections += 1
        vhost.connections += 1
        self._tell(user, vhost)

    def left(self, user: User, vhost: Crowded) -> None:
        user.connections -= 1
        vhost.connections -= 1
        self._tell(user, vhost)

    def channels(self, user: User, by: int) -> None:
        """So many were opened, or, if negative, closed."""
        user.channels += by
        if user.limits:
            self.changed()

    def _tell(self, user: User, vhost: Crowded) -> None:
        if user.limits or vhost.limits:
            self.changed()

    def _elsewhere(self, what: str, name: str) -> Count:
        found = [counts.get((what, name), Count()) for counts in self.elsewhere.values()]
        return Count(sum(each.connections for each in found), sum(each.channels for each in found))
