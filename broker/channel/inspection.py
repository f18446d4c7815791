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
from broker.protocol.content import join_header, split_properties
from broker.protocol.errors import ConnectionFailure, precondition_failed
from broker.protocol.methods import short_string
from broker.protocol.tables import decode_table, join_table, split_table, text
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

_REPLY_TO_RAW: Final = short_string(REPLY_TO)
_ASKING: Final = FLAG_PRIORITY | FLAG_REPLY_TO | FLAG_EXPIRATION | FLAG_USER_ID
# Properties that a consistent-hash exchange may hash, under the names its table looks for.
_HASHABLE: Final = (
    (FLAG_MESSAGE_ID, "\0message_id"),
    (FLAG_CORRELATION_ID, "\0correlation_id"),
    (FLAG_TIMESTAMP, "\0timestamp"),
)


class Inspector:
    """Checks and obeys properties for one channel."""

    __slots__ = ("_give_back", "_user", "_vhost", "plain", "reply_to")

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
        self.reply_to: str | None = None  # the address of this channel's reply consumer

    def inspect(self, message: "Message", route: "Route") -> "tuple[Target, ...]":
        """Apply what the properties ask for, and answer where the message goes."""
        try:
            values = split_properties(message.flags, message.frames, message.header_bytes)
            raw_headers = values.get(FLAG_HEADERS)
            headers = split_table(raw_headers)[0] if raw_headers is not None else {}
        except ValueError as error:
            text_ = f"malformed content header: {error}"
            raise ConnectionFailure(501, text_, method=BASIC_PUBLISH) from error
        if message.flags & _ASKING:
            self._obey(message, values)
        if route.reply is not None:
            if route.mandatory:  # documented so by RabbitMQ: no queue was involved
                self._give_back(message, route)
            return (route.reply,)
        if b"CC" in headers or b"BCC" in headers:
            return self._route_copies(message, route, values, headers)
        if route.targets is None:
            return self._route_by_headers(route, [route.key], values)
        if not message.flags & _ASKING:
            self._remember_plain(message)
        return route.targets

    def _remember_plain(self, message: "Message") -> None:
        if message.header_bytes <= PLAIN_BYTES_MAX:
            if len(self.plain) >= PLAIN_MAX:
                self.plain.clear()
            self.plain.add(message.frames[19 : 7 + message.header_bytes])

    def _obey(self, message: "Message", values: dict[int, bytes]) -> None:
        flags = message.flags
        if flags & FLAG_USER_ID:
            claimed = text(values[FLAG_USER_ID][1:])
            if claimed != self._user.name:
                raise precondition_failed(
                    f"user_id property set to '{claimed}' but authenticated user was "
                    f"'{self._user.name}'"
                )
        if flags & FLAG_EXPIRATION:
            ttl_ms = parse_expiration(text(values[FLAG_EXPIRATION][1:]))
            message.expires_at = self._vhost.now_ms() + ttl_ms
        if flags & FLAG_PRIORITY:
            message.priority = values[FLAG_PRIORITY][0]
        if flags & FLAG_REPLY_TO and values[FLAG_REPLY_TO] == _REPLY_TO_RAW:
            if self.reply_to is None:
                raise precondition_failed("fast reply consumer does not exist")
            values[FLAG_REPLY_TO] = short_string(self.reply_to)
            _rewrite(message, values)

    def _route_copies(
        self,
        message: "Message",
        route: "Route",
        values: dict[int, bytes],
        headers: dict[bytes, bytes],
    ) -> "tuple[Target, ...]":
        keys = [route.key]
        for name in (b"CC", b"BCC"):
            if name in headers:
                keys += _carbon_copies(name.decode(), headers[name])
        if headers.pop(b"BCC", None) is not None:
            values[FLAG_HEADERS] = join_table(headers)
            _rewrite(message, values)
        return self._route_by_headers(route, keys, values)

    def _route_by_headers(
        self, route: "Route", keys: list[str], values: dict[int, bytes]
    ) -> "tuple[Target, ...]":
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
    value = decode_table(join_table({b"k": raw}))[0]["k"]
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
