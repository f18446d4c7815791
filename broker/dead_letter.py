"""Dead letters: the message that is published instead of one that died, with its x-death header."""

import struct
from collections import deque
from functools import partial
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
from queues.dedup import digest_of_letter
from queues.message import Message, Wishes
from queues.options import QueueOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exchanges.exchange import Exchange
    from queues.burials import Burial, Then
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


class _Answer:
    """One target's: which of the letters that it was sent it has."""

    __slots__ = ("_then", "places", "refused", "target")

    def __init__(
        self, target: "AnyQueue", letters: list[Message], then: "Callable[[_Answer], None]"
    ) -> None:
        self.target = target
        self.places = {letter.sequence for letter in letters}  # of their messages in the burial
        self.refused: set[int] = set()
        self._then = then

    def stored(self, refused: list[Message]) -> None:
        if refused and not _is_full(self.target):
            self.refused.update([letter.sequence for letter in refused])
        self._then(self)


class _Round:
    """A burial that was sent to its targets: what is left of it when all of them have answered."""

    __slots__ = ("_answers", "_burial", "_on_refused", "_open", "_then")

    def __init__(
        self, burial: "Burial", then: "Then", on_refused: "Callable[[AnyQueue, int], None]"
    ) -> None:
        self._burial = burial
        self._then = then
        self._on_refused = on_refused
        self._answers: list[_Answer] = []
        self._open = 0

    def send(self, arrivals: "dict[AnyQueue, list[Message]]") -> None:
        self._open = len(arrivals) + 1
        for target, letters in arrivals.items():
            answer = _Answer(target, letters, self._answered)
            self._answers.append(answer)
            target.publish(letters, answer)
        self._close()

    def _answered(self, answer: _Answer) -> None:
        if answer.refused:
            self._on_refused(answer.target, len(answer.refused))
        self._close()

    def _close(self) -> None:
        self._open -= 1
        if self._open:
            return
        left = set[int]().union(*[answer.refused for answer in self._answers])
        if left:
            self._remember(left)
        self._then([self._burial.messages[place] for place in sorted(left)])

    def _remember(self, left: set[int]) -> None:
        """Targets that have letters which others refused do not get them again."""
        burial = self._burial
        for answer in self._answers:
            for place in left & answer.places - answer.refused:
                sequence = burial.messages[place].sequence
                burial.taken.setdefault(sequence, set()).add(answer.target.uid)


def _is_full(target: "AnyQueue") -> bool:
    """Whether its limits refuse messages: such letters are dropped, as its owner wants it."""
    options = target.options
    if not isinstance(options, QueueOptions) or not target.is_reachable:
        return False
    limited = options.max_length is not None or options.max_length_bytes is not None
    return limited and options.overflow != "drop-head"


class DeadLetters:
    """Sends dead letters on their way. Deaths that this causes wait their turn."""

    def __init__(
        self,
        find_exchange: "Callable[[str], Exchange | None]",
        route: "Callable[[Exchange, Sequence[str], Table], list[AnyQueue]]",
        on_refused: "Callable[[Queue, AnyQueue, int], None]",
    ) -> None:
        """`on_refused` is told of letters that wait for a target: whose, for whom, how many."""
        self._find_exchange = find_exchange
        self._route = route
        self._on_refused = on_refused
        self._waiting: deque[tuple[Queue, Burial, Then]] = deque()
        self._sending = False

    def send(self, queue: "Queue", burial: "Burial", then: "Then") -> None:
        """Publish to the queue's dead-letter exchange.

        `then` is called when every target has answered, with the messages that are to be tried
        again. The others are safe; or their letters go nowhere: there is no such exchange, no
        queue for them, they went full circle, or the limits of their target refuse them.
        """
        if queue.options.dead_letter_exchange is None:
            then([])
            return
        self._waiting.append((queue, burial, then))
        if self._sending:
            return
        self._sending = True
        try:
            while self._waiting:
                self._send(*self._waiting.popleft())
        finally:
            self._sending = False

    def _send(self, queue: "Queue", burial: "Burial", then: "Then") -> None:
        exchange = self._find_exchange(queue.options.dead_letter_exchange or "")
        if exchange is None:
            then([])
            return
        arrivals: dict[AnyQueue, list[Message]] = {}
        for place, message in enumerate(burial.messages):
            letter = bury(message, queue, burial.reason, burial.died_ms)
            letter.sequence = place
            if burial.origin is not None:
                identity = digest_of_letter(burial.origin, message.sequence, message.frames)
                letter.wishes = Wishes(dedup_id=identity)
            taken = burial.taken.get(message.sequence, ())
            for target in self._targets(exchange, letter):
                if target.uid not in taken:
                    arrivals.setdefault(target, []).append(letter.copy())
        _Round(burial, then, partial(self._on_refused, queue)).send(arrivals)

    def _targets(self, exchange: "Exchange", letter: Message) -> "list[AnyQueue]":
        headers = headers_of(letter)
        keys = [split_address(letter.address)[1]]
        copies = headers.get("CC")
        if isinstance(copies, list):
            keys += [key for key in copies if isinstance(key, str)]
        found = self._route(exchange, keys, headers)
        return [target for target in found if not is_cycle(letter, target.name)]
