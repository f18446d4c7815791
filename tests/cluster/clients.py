"""Clients that go on whatever happens to nodes, and note down what they did and saw.

Each is a thread with one connection at a time. When that fails, or nothing moves on it for a while,
it connects to another node. What was under way then is unknown, and is never sent again: so a
message may come out twice only if the cluster makes it so.
"""

from __future__ import annotations

import math
import random
import secrets
import threading
import time
from typing import TYPE_CHECKING, ClassVar

from tests.cluster.histories import (
    Delivery,
    Key,
    Outcome,
    QueueHistory,
    StreamHistory,
    StreamRead,
    body_of,
    key_of,
)
from tests.cluster.linearizable import UNKNOWN, Operation
from tests.support.frames import Basic, Channel, Confirm, Content, Queue, kind_of
from tests.support.wire import (
    ChannelClosedError,
    ConnectionLostError,
    PeerClosedError,
    WireChannel,
    WireConnection,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# A node that is stopped says nothing; longer than any pause that a cluster may make.
PATIENCE_S = 8.0
RECONNECT_PAUSE_S = 0.1
ANSWER_S = 20.0  # for a change: nodes say by themselves when there is no quorum, long before
POLL_S = 0.02
WINDOW = 50
PREFETCH = 20
STREAM_PREFETCH = 100
BODY_BYTES = 200
PAUSE_S = 0.05  # between changes of one client
NOT_FOUND = 404

# What may end a connection's life: a node that stops, or one that sees too few others.
CONNECTION_FORCED, RESOURCE_ERROR = 320, 506


class BrokenPromiseError(Exception):
    """What no fault excuses."""


class Client(threading.Thread):
    """Connects, works, and starts again elsewhere until it is told to stop."""

    excused: ClassVar[set[int]] = {CONNECTION_FORCED, RESOURCE_ERROR}
    """Codes with which a node may close a connection or channel."""

    def __init__(self, name: str, urls: Sequence[str], seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.chance = random.Random(seed)
        self.connections = 0
        self.troubles: list[str] = []
        self.failure: BaseException | None = None
        self._urls = list(urls)
        self._stopping = threading.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            while not self.stopping:
                self._live_once()
        except BaseException as error:  # for whoever joins this thread
            self.failure = error

    def _live_once(self) -> None:
        connection: WireConnection | None = None
        try:
            connection = WireConnection.connect(self.chance.choice(self._urls))
            self.connections += 1
            self.work(connection.open_channel())
        except (OSError, ConnectionLostError, PeerClosedError) as trouble:
            if (
                isinstance(trouble, PeerClosedError)
                and trouble.method.reply_code not in self.excused
            ):
                raise BrokenPromiseError(f"{self.name}: {trouble}") from trouble
            self.troubles.append(f"{type(trouble).__name__}: {trouble}"[:200])
            self._stopping.wait(RECONNECT_PAUSE_S)
        finally:
            if connection is not None:
                connection.abort()

    def work(self, channel: WireChannel) -> None:
        """Use a fresh channel until `stopping`, or until it fails."""
        raise NotImplementedError


def _next(channel: WireChannel, timeout_s: float) -> object | None:
    """The next thing that comes, or None if nothing does."""
    try:
        item = channel.conn.next_item(channel.number, timeout=timeout_s)
    except TimeoutError:
        return None
    if isinstance(item, Channel.Close):
        raise ChannelClosedError(item)
    return item


class Publisher(Client):
    """Publishes numbered messages at a rate, with confirms. A channel's life is a session."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        seed: int,
        history: QueueHistory | StreamHistory,
        queue: str,
        *,
        rate: float,
    ) -> None:
        super().__init__(name, urls, seed)
        self._history = history
        self._queue = queue
        self._interval_s = 1 / rate
        self.confirmed_at: list[float] = []

    def work(self, channel: WireChannel) -> None:
        channel.rpc(Confirm.Select())
        session = secrets.token_hex(8)
        self._number, self._open = 0, set[int]()
        due = moved = time.monotonic()
        while not self.stopping or self._open:
            now = time.monotonic()
            if now >= due and len(self._open) < WINDOW and not self.stopping:
                self._publish(channel, session)
                due = max(due + self._interval_s, now - 1.0)
            if not self._open:
                moved = now
            item = _next(channel, POLL_S if len(self._open) >= WINDOW else max(0.001, due - now))
            if isinstance(item, Basic.Ack | Basic.Nack):
                self._heard(session, item)
                moved = time.monotonic()
            elif now - moved > PATIENCE_S:
                raise TimeoutError(f"{len(self._open)} unconfirmed for {PATIENCE_S} s")

    def _publish(self, channel: WireChannel, session: str) -> None:
        key = Key(session, self._number)
        self._number += 1
        self._history.published([key])
        self._open.add(self._number)  # delivery tags count from 1
        channel.publish("", self._queue, body_of(key, BODY_BYTES), delivery_mode=2)

    def _heard(self, session: str, item: Basic.Ack | Basic.Nack) -> None:
        upto = item.delivery_tag
        tags = {tag for tag in self._open if tag <= upto} if item.multiple else {upto}
        if not tags <= self._open:
            raise BrokenPromiseError(f"confirmed twice, or never published: {tags - self._open}")
        self._open -= tags
        outcome = Outcome.CONFIRMED if isinstance(item, Basic.Ack) else Outcome.REFUSED
        self._history.heard([Key(session, tag - 1) for tag in tags], outcome)
        if outcome is Outcome.CONFIRMED:
            self.confirmed_at.append(time.monotonic())


class Consumer(Client):
    """Acks what it gets, puts some of it back, and looks elsewhere if its node falls silent."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        seed: int,
        history: QueueHistory,
        *,
        requeue_share: float = 0.01,
    ) -> None:
        super().__init__(name, urls, seed)
        self._history = history
        self._requeue_share = requeue_share

    def work(self, channel: WireChannel) -> None:
        channel.qos(PREFETCH)
        channel.consume(self._history.queue)
        me = f"{self.name}/{self.connections}"
        while not self.stopping:
            item = _next(channel, 1.0)
            if item is None:
                channel.rpc(Queue.Declare(queue=self._history.queue, passive=True))
            elif isinstance(item, Basic.Cancel):
                raise ConnectionError("cancelled")
            elif isinstance(item, Content):
                self._take(channel, me, item)

    def _take(self, channel: WireChannel, me: str, item: Content) -> None:
        assert kind_of(item) is Basic.Deliver
        key = key_of(item.body)
        now = time.monotonic()
        self._history.delivered(Delivery(me, key, bool(item.redelivered), now))
        if self.chance.random() < self._requeue_share:
            channel.nack(item.delivery_tag, requeue=True)
        else:
            channel.ack(item.delivery_tag)


class StreamReader(Client):
    """Reads a stream from its beginning, and goes on where it was when it has to reconnect."""

    def __init__(self, name: str, urls: Sequence[str], seed: int, history: StreamHistory) -> None:
        super().__init__(name, urls, seed)
        self._history = history
        self._next_offset = 0

    def work(self, channel: WireChannel) -> None:
        channel.qos(STREAM_PREFETCH)
        arguments = {"x-stream-offset": self._next_offset}
        channel.consume(self._history.stream, arguments=arguments)
        begun = False
        while not self.stopping:
            item = _next(channel, 1.0)
            if item is None:
                channel.rpc(Queue.Declare(queue=self._history.stream, passive=True))
            elif isinstance(item, Basic.Cancel):
                raise ConnectionError("cancelled")
            elif isinstance(item, Content):
                offset = item.headers["x-stream-offset"]
                # A chunk may begin before the offset that was asked for.
                begun = begun or offset >= self._next_offset
                if begun:
                    self._history.read(StreamRead(self.name, offset, key_of(item.body)))
                    self._next_offset = offset + 1
                channel.ack(item.delivery_tag)


class MetadataClient(Client):
    """Declares, deletes, binds and looks at a few queues, and notes when and what it was told."""

    def __init__(
        self, name: str, urls: Sequence[str], seed: int, subjects: Sequence[str], exchange: str
    ) -> None:
        super().__init__(name, urls, seed)
        self.history: list[Operation] = []
        self._subjects = subjects
        self._exchange = exchange

    def work(self, channel: WireChannel) -> None:
        channel.rpc(Confirm.Select())
        while not self.stopping:
            subject = self.chance.choice(self._subjects)
            action = self.chance.choices(
                ["declare", "delete", "look", "bind", "unbind", "probe"], [4, 1, 4, 3, 1, 4]
            )[0]
            key = f"{subject}.{self.chance.randrange(2)}"
            if not self._try(channel, subject, action, key):
                channel = channel.conn.open_channel()
                channel.rpc(Confirm.Select())
            self._stopping.wait(PAUSE_S)

    def _try(self, channel: WireChannel, subject: str, action: str, key: str) -> bool:
        """Do it and note it; False if the answer has closed the channel."""
        argument = key if action in ("bind", "unbind", "probe") else ""
        called = time.monotonic()
        result, returned = UNKNOWN, math.inf
        try:
            result = self._do(channel, subject, action, key)
            returned = time.monotonic()
        except ChannelClosedError as closed:
            channel.send(Channel.CloseOk())
            if closed.method.reply_code == NOT_FOUND:
                result, returned = "absent", time.monotonic()
            elif closed.method.reply_code not in self.excused:
                raise
            return False
        finally:
            self.history.append(
                Operation(subject, action, argument, result, called, returned, self.name)
            )
        return True

    def _do(self, channel: WireChannel, subject: str, action: str, key: str) -> str:
        if action == "probe":
            return self._probe(channel, key)
        binding = {"queue": subject, "exchange": self._exchange, "routing_key": key}
        quorum = {"x-queue-type": "quorum"}
        methods = {
            "declare": Queue.Declare(queue=subject, durable=True, arguments=quorum),
            "delete": Queue.Delete(queue=subject),
            "look": Queue.Declare(queue=subject, passive=True),
            "bind": Queue.Bind(**binding),
            "unbind": Queue.Unbind(**binding),
        }
        channel.rpc(methods[action], timeout=ANSWER_S)
        return "ok"

    def _probe(self, channel: WireChannel, key: str) -> str:
        """Does a message with this key reach the queue? One that does not comes back."""
        channel.publish(self._exchange, key, b"probe", mandatory=True, delivery_mode=2)
        deadline = time.monotonic() + ANSWER_S
        returned = False
        while True:
            item = _next(channel, max(0.0, deadline - time.monotonic()))
            if item is None:
                raise TimeoutError("a probe was not answered")
            if isinstance(item, Basic.Ack):
                return "no" if returned else "yes"
            if isinstance(item, Basic.Nack):
                return UNKNOWN
            returned = isinstance(item, Content)
