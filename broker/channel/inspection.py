"""What a published message's properties ask for: more keys, expiry, priority, a reply address."""

from decimal import Decimal
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Final

from broker.dead_letter import claim
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
from broker.protocol.tables import (
    check_table,
    decode_table,
    join_table,
    raw_text,
    split_table,
    text,
)
from broker.routes import REPLY_TO
from broker.security.checks import check_keys
from broker.vhost import VHost
from queues.dedup import digest_of_id
from queues.message import Wishes
from queues.options import DELAY_MS_MAX, EXPIRES_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.routes import Route, Target
    from broker.security.user import User
    from queues.consumers import Later
    from queues.message import Message
    from queues.seams import Receipt

# Distinct property blocks that are known to ask for nothing, a few dozen bytes each.
PLAIN_MAX: Final = 4096
PLAIN_BYTES_MAX: Final = 512  # longer ones carry something unique and would never be met again

# Keys of CC and BCC together. Each is routed by itself; real messages have a handful.
COPIES_MAX: Final = 100
IMPERSONATOR: Final = "impersonator"  # whose user-id may be anybody's, as in RabbitMQ
_REPLY_TO_RAW: Final = REPLY_TO.encode()
_RARE: Final = FLAG_EXPIRATION | FLAG_USER_ID
_ASKING: Final = FLAG_PRIORITY | FLAG_REPLY_TO | _RARE
_DIGITS_MAX: Final = 20  # of a number in a text: as many as 64 bits can have
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

    __slots__ = (
        "_extend_lease",
        "_give_back",
        "_user",
        "_vhost",
        "extensions",
        "plain",
        "reply_to",
        "tables",
    )

    def __init__(
        self,
        vhost: VHost,
        user: "User",
        plain: set[bytes],
        give_back: "Callable[[Message, Route], None]",
        extend_lease: "Callable[[int, int | None], bool | Later]",
    ) -> None:
        self._vhost = vhost
        self._user = user
        self._give_back = give_back  # sends basic.return
        self._extend_lease = extend_lease  # of a delivery tag of this channel
        self.plain = plain  # property blocks (flags and values) that need no second look
        self.tables: set[bytes] = set()  # headers that are known to be well-formed
        self.extensions = Extensions()
        self.reply_to: str | None = None  # the address of this channel's reply consumer

    def inspect(  # noqa: C901 - nearly hot: real clients' messages all come through here
        self, message: "Message", route: "Route"
    ) -> "tuple[Target, ...]":
        """Check the properties, apply what they ask for, and answer where the message goes."""
        flags, frames = message.flags, message.frames
        copies = wishes = False
        try:
            layout = layout_of(flags)
            bounds = property_bounds(layout, frames, message.header_bytes)
            if flags & FLAG_HEADERS:
                at = layout.where[FLAG_HEADERS]
                table = frames[bounds[at] : bounds[at + 1]]
                if table not in self.tables:
                    self._check_table(table)
                copies = b"CC" in table  # maybe; looked at closely below
                wishes = b"x-de" in table  # x-delay or x-dedup-id; or x-death, perhaps
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
        if wishes:
            message.wishes = read_wishes(table)
            if b"x-death" in table:
                _mark_claimed(message, table)
        if route.extends:
            return self._extend(message, route)
        if route.reply is not None:
            if route.mandatory:  # documented so by RabbitMQ: no queue was involved
                self._give_back(message, route)
            return (route.reply,)
        if copies:
            return self._route_copies(message, route)
        if route.targets is None:
            return self._route_by_headers(message, route, [route.key])
        if not flags & _PASSING and message.wishes is None:
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

    def _extend(self, message: "Message", route: "Route") -> "tuple[Target, ...]":
        """A publish that extends a lease; mandatory ones come back where there is none."""
        tag = _whole(route.key)
        if tag is None:
            raise precondition_failed(f"invalid delivery tag '{route.key}' as routing key")
        lease_ms = None
        if message.flags & FLAG_HEADERS:
            headers = decode_table(message.properties()[FLAG_HEADERS])[0]
            lease_ms = _milliseconds("x-lease-ms", headers.get("x-lease-ms"), least=1)
        extended = self._extend_lease(tag, lease_ms)
        if isinstance(extended, bool):
            return (Nowhere(),) if extended else ()
        give_back = partial(self._give_back, message, route) if route.mandatory else None
        return (Extension(extended, give_back, self.extensions),)

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
        if claimed != self._user.name and IMPERSONATOR not in self._user.tags:
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
        if len(keys) > COPIES_MAX + 1:
            raise precondition_failed(f"invalid message: more than {COPIES_MAX} CC and BCC keys")
        check_keys(self._user, self._vhost.name, route.exchange, "write", keys[1:])
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


class Nowhere:
    """Where a message goes that has done its work."""

    def publish(self, _messages: "list[Message]", receipt: "Receipt | None") -> None:
        if receipt is not None:
            receipt.stored([])


class Extensions:
    """Those of a channel that wait for the answer of another node."""

    __slots__ = ("_then", "open")

    def __init__(self) -> None:
        self.open = 0
        self._then: Callable[[], None] | None = None

    def when_answered(self, then: "Callable[[], None]") -> None:
        self._then = then

    def answered(self) -> None:
        self.open -= 1
        if not self.open and self._then is not None:
            then, self._then = self._then, None
            then()


class Extension:
    """The same for the extension of a lease that another node knows of."""

    def __init__(
        self, ask: "Later", give_back: "Callable[[], None] | None", extensions: Extensions
    ) -> None:
        self._ask = ask
        self._give_back = give_back  # where there is no lease, and the publisher wants to know
        self._extensions = extensions

    def publish(self, _messages: "list[Message]", receipt: "Receipt | None") -> None:
        def answered(extended: bool) -> None:  # noqa: FBT001 - it is an answer
            if not extended and self._give_back is not None:
                self._give_back()
            if receipt is not None:
                receipt.stored([])
            self._extensions.answered()

        self._extensions.open += 1
        self._ask(answered)


def read_wishes(table: bytes) -> Wishes | None:
    """What headers ask of the queues that a message comes to."""
    headers = decode_table(table)[0]
    delay_ms = _milliseconds("x-delay", headers.get("x-delay"))
    dedup_id = _raw_id(headers.get("x-dedup-id"))
    digest = digest_of_id(dedup_id) if dedup_id else None
    return Wishes(delay_ms, digest) if delay_ms is not None or digest is not None else None


def _raw_id(value: object) -> bytes:
    """The header x-dedup-id as bytes, empty for none."""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise precondition_failed(f"invalid header 'x-dedup-id': {value!r:.40} is not a text")
    return raw_text(str(value))


def _milliseconds(name: str, value: object, *, least: int = -(2**63)) -> int | None:
    """A header that holds a time. Republished messages may have a negative delay, which is none."""
    if value is None:
        return None
    number = _whole(value)
    if number is None:
        raise precondition_failed(f"invalid header '{name}': {value!r:.40} is not a whole number")
    if not least <= number <= DELAY_MS_MAX:
        raise precondition_failed(
            f"invalid header '{name}': {number} ms is not from {max(least, 0)} to {DELAY_MS_MAX}"
        )
    return max(number, 0)


def _whole(value: object) -> int | None:
    """A number as clients write them, who know few types; None for anything else."""
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
        return int(value) if is_number else None
    if isinstance(value, float | Decimal):
        return int(value) if isfinite(value) and value == int(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mark_claimed(message: "Message", table: bytes) -> None:
    """Deaths that a client tells of are no deaths of ours."""
    marked = claim(table)
    if marked is not None:
        values = message.properties()
        values[FLAG_HEADERS] = marked
        _rewrite(message, values)


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
