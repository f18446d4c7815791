"""Dead letters in an operator's hands: what died where, sent back there, or dropped."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.dead_letter import CLAIMED, cc_keys, headers_of, split_address
from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.content import join_header
from broker.protocol.methods import short_string
from broker.protocol.tables import encode_long, join_table, raw_text, split_table
from broker.vhost import VHost
from queues.arguments import SHORT_BYTES_MAX
from queues.message import Message
from queues.queue import Queue
from queues.seams import AnyQueue
from queues.stream.arguments import StreamQueueOptions
from queues.stream.names import INTERNAL

REPLAY_COUNT: Final = "x-replay-count"
REPLAYS_MAX: Final = 2**31  # a client may have sent any count
_EMPTY_TABLE: Final = b"\x00\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class Death:
    """Where and why a message died last, by its x-death header."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    count: int
    replays: int


def death_of(message: Message) -> Death | None:
    """None for a message that is not a dead letter, though a client may have said it was."""
    headers = headers_of(message)
    if CLAIMED in headers:
        return None
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], dict):
        return None
    last = deaths[0]
    keys = last.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else ""
    count, replays = last.get("count"), headers.get(REPLAY_COUNT)
    texts = [str(last.get("exchange", "")), str(key)]
    if any(len(raw_text(text)) > SHORT_BYTES_MAX for text in texts):
        return None  # made up by a client: no message ever had such an address
    return Death(
        queue=str(last.get("queue", "")),
        reason=str(last.get("reason", "")),
        exchange=texts[0],
        routing_key=texts[1],
        count=count if isinstance(count, int) else 1,
        replays=replays if isinstance(replays, int) and 0 <= replays < REPLAYS_MAX else 0,
    )


def dead_letter_queues(vhost: VHost) -> dict[AnyQueue, list[str]]:
    """Queues that dead letters of other queues go to, with the names of those."""
    found: dict[AnyQueue, list[str]] = {}
    for queue in vhost.queues.values():
        options = queue.options
        if isinstance(options, StreamQueueOptions):
            continue
        if options.dead_letter_exchange is None:
            continue
        exchange = vhost.exchanges.get(options.dead_letter_exchange)
        if exchange is None:
            continue
        key = options.dead_letter_routing_key
        for target in vhost.route(exchange, (queue.name if key is None else key,), {}):
            found.setdefault(target, []).append(queue.name)
    return found


def sends_here(vhost: VHost, source: AnyQueue, letter: Message, queue: str) -> bool:
    """Whether dead letters of `source` really go to `queue` by the way that this one came."""
    options = source.options
    if isinstance(options, StreamQueueOptions) or options.dead_letter_exchange is None:
        return False
    exchange = vhost.exchanges.get(options.dead_letter_exchange)
    if exchange is None:
        return False
    keys = [options.dead_letter_routing_key]
    if keys[0] is None:
        raw = split_table(letter.properties().get(FLAG_HEADERS, _EMPTY_TABLE))[0]
        keys = [split_address(letter.address)[1], *cc_keys(raw)]
    targets = vhost.route(exchange, [key for key in keys if key is not None], headers_of(letter))
    return any(target.name == queue for target in targets)


def revived(message: Message, death: Death) -> Message:
    """The message to be published again: as it came to the queue that it died in, and counted."""
    properties = message.properties()
    headers = split_table(properties.get(FLAG_HEADERS, _EMPTY_TABLE))[0]
    headers[REPLAY_COUNT.encode()] = encode_long(death.replays + 1)
    properties[FLAG_HEADERS] = join_table(headers)
    header, header_bytes, flags = join_header(message.channel, message.body_bytes, properties)
    frames = header + message.frames[message.header_bytes + 8 :]
    address = short_string(death.exchange) + short_string(death.routing_key)
    again = Message(address, frames, header_bytes, flags, message.body_bytes, message.channel)
    again.priority = message.priority
    return again


def fresh(message: Message) -> Message:
    """The same message as if it had just come."""
    again = message.copy()
    again.expires_at = again.wishes = None
    return again


def readdressed(message: Message, queue: str) -> Message:
    """The same content as if it had been published to a queue straight away."""
    again = fresh(message)
    again.address = short_string("") + short_string(queue)
    return again


class _Receipt:
    """Told by the queue that revived messages went to; settles or lets go of the dead ones."""

    def __init__(self, dead: dict[int, Message], then: Callable[[list[Message]], None]) -> None:
        self._dead = dead  # by the number of the message that was published instead
        self._then = then

    def stored(self, refused: list[Message]) -> None:
        for message in refused:
            del self._dead[message.sequence]
        self._then(list(self._dead.values()))


class Undertaker:
    """Does as an operator says with messages of one queue, so many at a time as are asked for.

    They count as unacked meanwhile, so that a crash finds them where they were.
    """

    def __init__(
        self, vhost: VHost, queue: Queue, may_write: Callable[[str], bool] = lambda _name: False
    ) -> None:
        """`may_write`: whether dead letters may go back to the queue of that name."""
        self._vhost = vhost
        self._queue = queue
        self._may_write = may_write
        self.done = 0
        self.refused = 0  # by the queue that they should have gone to

    def replay(self, sequences: Collection[int], then: Callable[[], None]) -> None:
        """Send messages back to where they died; `then` when they are safe there.

        What is no dead letter stays, as does one whose queue is gone, refuses it, sends its dead
        letters elsewhere or is not the operator's.
        """
        self._queue.browse().take(sequences, lambda taken: self._send(taken, then))

    def _send(self, taken: list[Message], then: Callable[[], None]) -> None:
        self._queue.hold(taken)
        shares: dict[AnyQueue, list[tuple[Message, Message]]] = {}
        stay: list[Message] = []
        for message in taken:
            death = death_of(message)
            target = self._home(message, death) if death is not None else None
            if death is None or target is None:
                stay.append(message)
            else:
                shares.setdefault(target, []).append((message, revived(message, death)))
        self._queue.let_go(stay)
        self._publish(shares, then)

    def _home(self, letter: Message, death: Death) -> AnyQueue | None:
        """The queue that it died in, if it may go back there."""
        home = self._vhost.queues.get(death.queue)
        if home is None or home.name in INTERNAL or not self._may_write(home.name):
            return None
        return home if sends_here(self._vhost, home, letter, self._queue.name) else None

    def move(self, sequences: Collection[int], target: AnyQueue, then: Callable[[], None]) -> None:
        """Messages go to another queue, as they were published; `then` when they are safe there."""

        def taken(messages: list[Message]) -> None:
            self._queue.hold(messages)
            pairs = [(message, fresh(message)) for message in messages]
            self._publish({target: pairs} if pairs else {}, then)

        self._queue.browse().take(sequences, taken)

    def _publish(
        self, shares: dict[AnyQueue, list[tuple[Message, Message]]], then: Callable[[], None]
    ) -> None:
        """Held messages and what is published instead of each, by the queue that it goes to."""
        waiting = len(shares)

        def stored(held: list[Message], gone: list[Message]) -> None:
            nonlocal waiting
            settled = set(map(id, gone))
            stay = [message for message in held if id(message) not in settled]
            self.refused += len(stay)
            self._queue.let_go(stay)
            self._drop(gone)
            waiting -= 1
            if not waiting:
                self._queue.when_stored(then)

        for target, pairs in shares.items():
            held = [message for message, _ in pairs]
            for place, (_, again) in enumerate(pairs):
                again.sequence = place
            dead = dict(enumerate(held))
            receipt = _Receipt(dead, partial(stored, held))
            target.publish([again for _, again in pairs], receipt)
        if not shares:
            then()

    def drop(self, sequences: Collection[int], then: Callable[[], None]) -> None:
        """Messages go for good; `then` when that is final."""

        def taken(messages: list[Message]) -> None:
            self._queue.hold(messages)
            self._drop(messages)
            self._queue.when_stored(then)

        self._queue.browse().take(sequences, taken)

    def _drop(self, messages: list[Message]) -> None:
        self._queue.drop(messages)
        self.done += len(messages)
