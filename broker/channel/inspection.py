"""What a published message's properties ask for: more keys, expiry, priority, a reply address."""

from typing import TYPE_CHECKING, Final

from broker.protocol.constants import (
    BASIC_PUBLISH,
    FLAG_CORRELATION_ID,
    FLAG_EXPIRATION,
    FLAG_HEADERS,
    FLAG_MESSAGE_ID,
    FLAG_PRIORITY,
    FLAG_REPLY_TO,
    FLAG_TIMESTAMP,
    FLAG_USER_ID,
)
from broker.protocol.content import join_header, layout_of, property_bounds
from broker.protocol.errors import ConnectionFailure, precondition_failed
from broker.protocol.methods import short_string
from broker.protocol.tables import check_table, decode_table, join_table, split_table, text
from broker.routes import REPLY_TO
from broker.vhost import VHost
from queues.options import EXPIRES_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.auth import User
    from broker.routes import Route, Target
    from queues.message import Message

# Distinct property blocks that are known to ask for nothing, a few dozen bytes each.
PLAIN_MAX: Final = 4096
PLAIN_BYTES_MAX: Final = 512  # longer ones carry something unique and would never be met again

_REPLY_TO_RAW: Final = REPLY_TO.encode()
_RARE: Final = FLAG_EXPIRATION | FLAG_USER_ID
_ASKING: Final = FLAG_PRIORITY | FLAG_REPLY_TO | _RARE
# Properties with a new value each time: such a block is not worth remembering.
PASSING: Final = FLAG_CORRELATION_ID | FLAG_MESSAGE_ID | FLAG_TIMESTAMP
_PASSING: Final = PASSING | _ASKING
# Properties that a consistent-hash exchange may hash, under the names its table looks for.
_HASHABLE: Final = (
    (FLAG_MESSAGE_ID, "\0message_id"),
    (FLAG_CORRELATION_ID, "\0correlation_id"),
    (FLAG_TIMESTAMP, "\0timestamp"),
)


class Inspector:
    """Checks and obeys properties for one channel."""

    __slots__ = ("_give_back", "_user", "_vhost", "plain", "reply_to", "tables")

    def __init__(
        self,
        vhost: VHost,
        user: "User",
        plain: set[bytes],
        give_back: "Callable[[Message, Route], None]",
    ) -> None:
        self._vhost = vhost
        self._user = user
        self._give_back = give_back  # sends basic.return
        self.plain = plain  # property blocks (flags and values) that need no second look
        self.tables: set[bytes] = set()  # headers that are known to be well-formed
        self.reply_to: str | None = None  # the address of this channel's reply consumer

    def inspect(  # noqa: C901 - nearly hot: real clients' messages all come through here
        self, message: "Message", route: "Route"
    ) -> "tuple[Target, ...]":
        """Check the properties, apply what they ask for, and answer where the message goes."""
        flags, frames = message.flags, message.frames
        copies = False
        try:
            layout = layout_of(flags)
            bounds = property_bounds(layout, frames, message.header_bytes)
            if flags & FLAG_HEADERS:
                at = layout.where[FLAG_HEADERS]
                table = frames[bounds[at] : bounds[at + 1]]
                if table not in self.tables:
                    self._check_table(table)
                copies = b"CC" in table  # maybe; looked at closely below
        except ValueError as error:
            text_ = f"malformed content header: {error}"
            raise ConnectionFailure(501, text_, method=BASIC_PUBLISH) from error
        if flags & _ASKING:
            if flags & FLAG_PRIORITY:
                message.priority = frames[bounds[layout.where[FLAG_PRIORITY]]]
            if flags & FLAG_REPLY_TO:
                at = layout.where[FLAG_REPLY_TO]
                if frames[bounds[at] + 1 : bounds[at + 1]] == _REPLY_TO_RAW:
                    self._address_reply(message)
            if flags & _RARE:
                self._obey(message)
        if route.reply is not None:
            if route.mandatory:  # documented so by RabbitMQ: no queue was involved
                self._give_back(message, route)
            return (route.reply,)
        if copies:
            return self._route_copies(message, route)
        if route.targets is None:
            return self._route_by_headers(message, route, [route.key])
        if not flags & _PASSING:
            self._remember_plain(message)
        return route.targets

    def _check_table(self, table: bytes) -> None:
        """Raise ValueError for malformed headers; remember short sound ones, which come again."""
        check_table(table, 0, len(table))
        if len(table) <= PLAIN_BYTES_MAX:
            if len(self.tables) >= PLAIN_MAX:
                self.tables.clear()
            self.tables.add(table)

    def _remember_plain(self, message: "Message") -> None:
        if message.header_bytes <= PLAIN_BYTES_MAX:
            if len(self.plain) >= PLAIN_MAX:
                self.plain.clear()
            self.plain.add(message.frames[19 : 7 + message.header_bytes])

    def _address_reply(self, message: "Message") -> None:
        """Direct reply-to: put in the address at which this channel takes replies."""
        if self.reply_to is None:
            raise precondition_failed("fast reply consumer does not exist")
        values = message.properties()
        values[FLAG_REPLY_TO] = short_string(self.reply_to)
        _rewrite(message, values)

    def _obey(self, message: "Message") -> None:
        values = message.properties()
        if FLAG_EXPIRATION in values:
            ttl_ms = parse_expiration(text(values[FLAG_EXPIRATION][1:]))
            message.expires_at = self._vhost.now_ms() + ttl_ms
        if FLAG_USER_ID in values:
            self._check_user(text(values[FLAG_USER_ID][1:]))

    def _check_user(self, claimed: str) -> None:
        if claimed != self._user.name:
            raise precondition_failed(
                f"user_id property set to '{claimed}' but authenticated user was "
                f"'{self._user.name}'"
            )

    def _route_copies(self, message: "Message", route: "Route") -> "tuple[Target, ...]":
        """Where the headers CC and BCC, if they are there, send it too. BCC is taken out."""
        values = message.properties()
        headers = split_table(values[FLAG_HEADERS])[0]
        keys = [route.key]
        for name in (b"CC", b"BCC"):
            if name in headers:
                keys += _carbon_copies(name.decode(), headers[name])
        if headers.pop(b"BCC", None) is not None:
            values[FLAG_HEADERS] = join_table(headers)
            _rewrite(message, values)
        if len(keys) == 1 and route.targets is not None:
            return route.targets
        return self._route_by_headers(message, route, keys)

    def _route_by_headers(
        self, message: "Message", route: "Route", keys: list[str]
    ) -> "tuple[Target, ...]":
        values = message.properties()
        table: dict[str, object] = {}
        raw = values.get(FLAG_HEADERS)
        if raw is not None:
            try:
                table.update(decode_table(raw)[0])
            except ValueError as error:
                text_ = f"malformed headers: {error}"
                raise ConnectionFailure(501, text_, method=BASIC_PUBLISH) from error
        for flag, name in _HASHABLE:
            if flag in values:
                value = values[flag]
                table[name] = (
                    int.from_bytes(value, "big") if flag == FLAG_TIMESTAMP else text(value[1:])
                )
        return tuple(self._vhost.route(route.exchange, keys, table))


def _carbon_copies(name: str, raw: bytes) -> list[str]:
    try:
        value = decode_table(join_table({b"k": raw}))[0]["k"]
    except ValueError as error:
        text_ = f"malformed headers: {error}"
        raise ConnectionFailure(501, text_, method=BASIC_PUBLISH) from error
    if not isinstance(value, list):
        raise precondition_failed(f"invalid message: header '{name}' is not an array")
    if not all(isinstance(key, str) for key in value):
        raise precondition_failed(f"invalid message: header '{name}' holds other than strings")
    return value


def _rewrite(message: "Message", values: dict[int, bytes]) -> None:
    """Put changed properties into the message's frames."""
    body = message.frames[message.header_bytes + 8 :]
    header, message.header_bytes, message.flags = join_header(
        message.channel, message.body_bytes, values
    )
    message.frames = header + body


def parse_expiration(value: str) -> int:
    """Milliseconds from the `expiration` property, a decimal number in a string."""
    if not value.isascii() or not value.isdigit():
        raise precondition_failed(
            f"invalid expiration '{value}': expected a number of milliseconds"
        )
    ttl_ms = int(value[:20])
    if ttl_ms > EXPIRES_MS_MAX:
        raise precondition_failed(f"invalid expiration '{value}': more than {EXPIRES_MS_MAX}")
    return ttl_ms
