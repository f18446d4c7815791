"""Routes of publishes, remembered by the bytes of the publish method."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker.protocol.constants import BASIC_PUBLISH
from broker.protocol.errors import ConnectionFailure, access_refused, not_implemented
from broker.protocol.methods import short_text
from broker.security.checks import check, check_keys
from broker.security.user import User

if TYPE_CHECKING:
    from exchanges.exchange import Exchange
    from queues.message import Message
    from queues.seams import Receipt

# Room for the keys of a busy node at some 300 bytes each; a publisher of ever new keys refills it.
CACHED_ROUTES_MAX: Final = 16_384
REPLY_TO: Final = "amq.rabbitmq.reply-to"
# What is published here, on the channel that holds a message, extends the lease on it.
LEASE_EXCHANGE: Final = "amq.leveret.lease"

_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


class Target(Protocol):
    """Whatever takes published messages: a queue, or a channel's direct reply-to."""

    def publish(self, messages: "list[Message]", receipt: "Receipt | None") -> None: ...


class Route:
    """Where publishes with the same exchange, key and flags go."""

    __slots__ = ("address", "exchange", "extends", "key", "mandatory", "reply", "targets")

    def __init__(
        self,
        exchange: "Exchange",
        key: str,
        address: bytes,
        targets: tuple[Target, ...] | None,
        *,
        mandatory: bool,
    ) -> None:
        self.exchange = exchange
        self.key = key
        self.address = address  # exchange and key as on the wire: a delivery repeats them
        self.targets = targets  # None: they depend on each message's headers
        self.mandatory = mandatory
        self.extends = False  # the key is a delivery tag, whose lease is extended
        self.reply: Target | None = None  # a direct reply-to: delivered, yet not routed to a queue


def parse_publish(args: bytes) -> tuple[str, str, bytes, int]:
    """Exchange, routing key, both as raw bytes, flags. What is malformed closes the connection."""
    try:
        key_at = 3 + args[2]
        end = key_at + 1 + args[key_at]
        if end + 1 != len(args):
            raise ValueError("arguments do not fill the frame")
        exchange = short_text(args[3:key_at])
        key = short_text(args[key_at + 1 : end])
    except (ValueError, IndexError) as error:
        text = f"cannot decode Basic.Publish: {error}"
        raise ConnectionFailure(501, text, method=BASIC_PUBLISH) from error
    return exchange, key, args[2:end], args[end]


class RouteCache:
    """Routes of one user in one vhost, so that a hit has passed the permission check as well."""

    __slots__ = (
        "_find_exchange",
        "_find_reply",
        "_find_targets",
        "_user",
        "_vhost",
        "routes",
    )

    def __init__(
        self,
        vhost: str,
        user: User,
        find_exchange: "Callable[[str], Exchange]",
        find_targets: "Callable[[Exchange, str], tuple[Target, ...] | None]",
        find_reply: Callable[[str], Target | None],
    ) -> None:
        self._vhost = vhost
        self._user = user
        self._find_exchange = find_exchange
        self._find_targets = find_targets
        self._find_reply = find_reply
        # Emptied in place whenever a binding changes, or what the user may do.
        self.routes: dict[bytes, Route] = {}

    def resolve(self, args: bytes) -> Route:
        """The route for a publish method's arguments, remembered where that is sound."""
        name, key, address, flags = parse_publish(args)
        if flags & _IMMEDIATE:
            raise not_implemented("immediate=true")
        mandatory = bool(flags & _MANDATORY)
        if name == LEASE_EXCHANGE:  # needs no permission: it is about what the channel holds
            exchange = self._find_exchange(name)
            route = Route(exchange, key, address, None, mandatory=mandatory)
            route.extends = True
            return route
        exchange = self._permitted(name, key)
        if not name and key.startswith(REPLY_TO):  # comes and goes too fast to be remembered
            route = Route(exchange, key, address, None, mandatory=mandatory)
            route.reply = self._find_reply(key)
            return route
        route = Route(
            exchange, key, address, self._find_targets(exchange, key), mandatory=mandatory
        )
        if len(self.routes) >= CACHED_ROUTES_MAX:
            self.routes.clear()
        self.routes[args] = route
        return route

    def _permitted(self, name: str, key: str) -> "Exchange":
        """The exchange, if the user may publish there with that key."""
        check(self._user, self._vhost, "write", "exchange", name)
        exchange = self._find_exchange(name)
        if exchange.internal:
            raise access_refused(
                f"cannot publish to internal exchange '{name}' in vhost '{self._vhost}'"
            )
        check_keys(self._user, self._vhost, exchange, "write", (key,))
        return exchange
