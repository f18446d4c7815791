"""Dead letters: the message that is published instead of one that died, with its x-death header."""

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.protocol.constants import FLAG_EXPIRATION, FLAG_HEADERS
from broker.protocol.content import join_header
from broker.protocol.methods import short_string
from broker.protocol.tables import (
    Table,
    decode_table,
    encode_long,
    encode_value,
    join_table,
    raw_text,
    split_table,
    text,
)
from queues.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exchanges.exchange import Exchange
    from queues.queue import Queue
    from queues.seams import AnyQueue

_U64 = struct.Struct(">Q")
_COUNT_MAX: Final = 2**63 - 1  # a client may have sent such a count
_EMPTY_TABLE: Final = b"\x00\x00\x00\x00"
# Marks a message whose x-death header came from a client. Clients may keep counts in it, as with
# RabbitMQ, but nothing is sent anywhere because of it (see broker.replay).
CLAIMED: Final = "x-death-claimed"
_CLAIMED_RAW: Final = CLAIMED.encode()
# Rejection is a consumer's decision; a loop without one would go on for ever by itself.
_DECIDED: Final = "rejected"


class Receipt:
    """Calls back when every queue that a dead letter went to has it, or refused it."""

    __slots__ = ("_open", "_then")

    def __init__(self, queues: int, then: Callable[[], None]) -> None:
        self._open = queues
        self._then = then
        if not queues:
            then()

    def stored(self, refused: list[Message]) -> None:  # noqa: ARG002 - it is dead all the same
        self._open -= 1
        if not self._open:
            self._then()


def split_address(address: bytes) -> tuple[str, str]:
    """Exchange and routing key out of a message's address."""
    key_at = 1 + address[0]
    return text(address[1:key_at]), text(address[key_at + 1 :])


def headers_of(message: Message) -> Table:
    """The headers property, decoded; empty if there is none."""
    raw = message.properties().get(FLAG_HEADERS)
    return decode_table(raw)[0] if raw is not None else {}


def is_cycle(message: Message, queue: str) -> bool:
    """Whether a dead letter went full circle to `queue` with no consumer having rejected it."""
    deaths = headers_of(message).get("x-death")
    if not isinstance(deaths, list):
        return False
    for death in deaths:  # newest first: the cycle is what happened since the death in `queue`
        if not isinstance(death, dict):
            return False
        if death.get("reason") == _DECIDED:
            return False
        if death.get("queue") == queue:
            return True
    return False


def bury(message: Message, queue: "Queue", reason: str, now_ms: int) -> Message:
    """The dead letter: same body, x-death updated, expiration taken off, new address."""
    exchange, key = split_address(message.address)
    properties = message.properties()
    headers = split_table(properties.get(FLAG_HEADERS, _EMPTY_TABLE))[0]
    headers.pop(b"BCC", None)
    claimed = headers.pop(_CLAIMED_RAW, None) is not None
    expiration = properties.pop(FLAG_EXPIRATION, None)
    keys = [key, *cc_keys(headers)]
    earlier = _raw_entries(headers.get(b"x-death"))
    if claimed:
        for entry in earlier:  # only counts are a client's to say
            entry[b"exchange"], entry[b"routing-keys"] = encode_value(exchange), encode_value(keys)
    headers[b"x-death"] = _deaths(earlier, queue.name, reason, exchange, keys, expiration, now_ms)
    for name, value in (("queue", queue.name), ("reason", reason), ("exchange", exchange)):
        headers.setdefault(raw_text(f"x-first-death-{name}"), encode_value(value))
        headers[raw_text(f"x-last-death-{name}")] = encode_value(value)
    dead_key = queue.options.dead_letter_routing_key
    if dead_key is not None:
        headers.pop(b"CC", None)
    properties[FLAG_HEADERS] = join_table(headers)
    header, header_bytes, flags = join_header(message.channel, message.body_bytes, properties)
    frames = header + message.frames[message.header_bytes + 8 :]
    address = short_string(queue.options.dead_letter_exchange) + short_string(
        key if dead_key is None else dead_key
    )
    letter = Message(address, frames, header_bytes, flags, message.body_bytes, message.channel)
    letter.priority = message.priority
    return letter


def claim(table: bytes) -> bytes | None:
    """Headers that a client sent, marked if they tell of deaths; None if they do not."""
    headers = split_table(table)[0]
    if b"x-death" not in headers or _CLAIMED_RAW in headers:
        return None
    headers[_CLAIMED_RAW] = encode_value(value=True)
    return join_table(headers)


def cc_keys(headers: dict[bytes, bytes]) -> list[str]:
    """The routing keys of the CC header; empty where it is absent or malformed."""
    raw = headers.get(b"CC")
    if raw is None:
        return []
    value = decode_table(join_table({b"CC": raw}))[0]["CC"]
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []


def _deaths(
    earlier: list[dict[bytes, bytes]],
    queue: str,
    reason: str,
    exchange: str,
    keys: list[str],
    expiration: bytes | None,
    now_ms: int,
) -> bytes:
    """The x-death array: one entry per queue and reason, the latest death first."""
    name, why = encode_value(queue), encode_value(reason)
    same = next((e for e in earlier if (e.get(b"queue"), e.get(b"reason")) == (name, why)), None)
    if same is not None:
        earlier.remove(same)
        same[b"count"] = encode_long(min(_count(same) + 1, _COUNT_MAX))
        entry = same
    else:
        entry = {
            b"count": encode_long(1),
            b"reason": why,
            b"queue": name,
            b"time": b"T" + _U64.pack(now_ms // 1000),
            b"exchange": encode_value(exchange),
            b"routing-keys": encode_value(keys),
        }
        if expiration is not None:
            entry[b"original-expiration"] = encode_value(text(expiration[1:]))
    body = b"".join([b"F" + join_table(e) for e in [entry, *earlier]])
    return b"A" + struct.pack(">I", len(body)) + body


def _count(entry: dict[bytes, bytes]) -> int:
    value = decode_table(join_table({b"n": entry.get(b"count", encode_long(0))}))[0]["n"]
    return value if isinstance(value, int) else 0


def _raw_entries(raw: bytes | None) -> list[dict[bytes, bytes]]:
    """The tables of an x-death array as raw entries; none where a client made up something else."""
    if raw is None or raw[:1] != b"A":
        return []
    entries = []
    pos = 5
    while pos < len(raw):
        if raw[pos : pos + 1] != b"F":
            return []
        entry, pos = split_table(raw, pos + 1)
        entries.append(entry)
    return entries


class DeadLetters:
    """Sends dead letters on their way. Deaths that this causes wait their turn."""

    def __init__(
        self,
        find_exchange: "Callable[[str], Exchange | None]",
        route: "Callable[[Exchange, Sequence[str], Table], list[AnyQueue]]",
        now_ms: Callable[[], int],
    ) -> None:
        self._find_exchange = find_exchange
        self._route = route
        self._now_ms = now_ms
        self._waiting: deque[tuple[Queue, list[Message], str, Callable[[], None]]] = deque()
        self._sending = False

    def send(
        self, queue: "Queue", messages: list[Message], reason: str, then: Callable[[], None]
    ) -> None:
        """Publish to the queue's dead-letter exchange; `then` is called when they are safe."""
        if queue.options.dead_letter_exchange is None:
            then()
            return
        self._waiting.append((queue, messages, reason, then))
        if self._sending:
            return
        self._sending = True
        try:
            while self._waiting:
                self._send(*self._waiting.popleft())
        finally:
            self._sending = False

    def _send(
        self, queue: "Queue", messages: list[Message], reason: str, then: Callable[[], None]
    ) -> None:
        exchange = self._find_exchange(queue.options.dead_letter_exchange or "")
        if exchange is None:
            then()
            return
        now_ms = self._now_ms()
        arrivals: dict[AnyQueue, list[Message]] = {}
        for message in messages:
            letter = bury(message, queue, reason, now_ms)
            headers = headers_of(letter)
            keys = [split_address(letter.address)[1]]
            copies = headers.get("CC")
            if isinstance(copies, list):
                keys += [key for key in copies if isinstance(key, str)]
            for target in self._route(exchange, keys, headers):
                if not is_cycle(letter, target.name):
                    arrivals.setdefault(target, []).append(letter.copy())
        receipt = Receipt(len(arrivals), then)
        for target, letters in arrivals.items():
            target.publish(letters, receipt)
