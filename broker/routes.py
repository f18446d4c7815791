"""Routes of publishes, remembered by the bytes of the publish method."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker.protocol.constants import BASIC_PUBLISH
from broker.protocol.errors import ConnectionFailure, access_refused, not_implemented
from broker.protocol.methods import short_text

if TYPE_CHECKING:
    from exchanges.exchange import Exchange
    from queues.message import Message
    from queues.queue import Receipt

# Room for the keys of a busy node at some 300 bytes each; a publisher of ever new keys refills it.
CACHED_ROUTES_MAX: Final = 16_384
REPLY_TO: Final = "amq.rabbitmq.reply-to"

_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


class Target(Protocol):
    """Whatever takes published messages: a queue, or a channel's direct reply-to."""

    def publish(self, messages: "list[Message]", receipt: "Receipt | None") -> None: ...


class Route:
    """Where publishes with the same exchange, key and flags go."""

    __slots__ = ("address", "exchange", "key", "mandatory", "reply", "targets")

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
        "_may_write",
        "_vhost",
        "routes",
    )

    def __init__(
        self,
        vhost: str,
        find_exchange: "Callable[[str], Exchange]",
        find_targets: "Callable[[Exchange, str], tuple[Target, ...] | None]",
        find_reply: Callable[[str], Target | None],
        may_write: Callable[[str], bool],
    ) -> None:
        self._vhost = vhost
        self._find_exchange = find_exchange
        self._find_targets = find_targets
        self._find_reply = find_reply
        self._may_write = may_write
        self.routes: dict[bytes, Route] = {}  # emptied in place whenever a binding changes

    def resolve(self, args: bytes) -> Route:
        """The route for a publish method's arguments, remembered where that is sound."""
        name, key, address, flags = parse_publish(args)
        if flags & _IMMEDIATE:
            raise not_implemented("immediate=true")
        exchange = self._find_exchange(name)
        if not self._may_write(name):
            raise access_refused(
                f"write access to exchange '{name}' in vhost '{self._vhost}' refused"
            )
        if exchange.internal:
            raise access_refused(
                f"cannot publish to internal exchange '{name}' in vhost '{self._vhost}'"
            )
        mandatory = bool(flags & _MANDATORY)
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
