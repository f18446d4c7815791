"""One connection of a simulated client: a real Connection at the other end of memory."""

from collections import deque

import trio
from pamqp import commands, frame

from broker.connection.connection import Connection
from broker.security.sasl import Origin
from tests.cluster_simulation import transactions
from tests.cluster_simulation.ledger import check
from tests.connection.fakes import MemoryTransport
from tests.support.frames import PROTOCOL_HEADER, Basic, Channel, Confirm, Properties, content_bytes

PUBLISHING, CONSUMING, ASKING = 1, 2, 3  # channels
FRAME_BYTES = 131072
SILENT = frozenset({"Channel.OpenOk", "Basic.QosOk", "Tx.SelectOk"})  # nobody waits for these
OVERHEAD_BYTES = 8


class Transport(MemoryTransport):
    """Hands what the broker writes to the session at once; ends when either side does."""

    def __init__(self, session: "Session") -> None:
        super().__init__()
        self._session = session
        self.ended = False

    async def receive(self, bytes_max=lambda: 1 << 20):
        await trio.lowlevel.checkpoint()
        while not self.unread:
            if self.ended:
                return b""
            self._came = trio.Event()
            await self._came.wait()
        data = bytes(self.unread[: bytes_max()])
        del self.unread[: len(data)]
        return data

    def flush_nowait(self) -> None:
        if self.outbox.pieces:
            data = self.outbox.take()
            self.outbox.sent(len(data))
            if not self.ended:
                with self._session.world.turns.aside():
                    self._session.got(data)

    def end(self) -> None:
        self.ended = True
        self._came.set()


class Consuming:
    """A consumer as its client knows it."""

    def __init__(self, session: "Session", tag: str, queue: str, *, no_ack: bool) -> None:
        self.session = session
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.cancelled = False
        self.began = trio.current_time()


class Session:
    """From the protocol header to the end of the connection."""

    def __init__(self, client, life) -> None:
        self.client = client
        self.world = client.world
        self.ledger = client.world.ledger
        self.life = life
        self.open = False
        self.over = False
        self.transport = Transport(self)
        self.connection = Connection(self.transport, life.node, Origin("127.0.0.1", 5000))
        self.unconfirmed: dict[int, int] = {}  # tag → number of a message
        self.next_tag = 1
        self.unacked: dict[int, tuple[str, int]] = {}  # tag → queue, number
        self.since: dict[int, float] = {}  # tag → when it came
        self.consumers: dict[str, Consuming] = {}
        self.asked: dict[int, deque] = {
            CONSUMING: deque(),
            ASKING: deque(),
            transactions.CHANNEL: deque(),
        }
        self.transactions = transactions.Transactions(self)
        self._content: dict[int, list] = {}
        self._rest = b""
        life.clients.append(self)
        life.nursery.start_soon(self._run)
        self._greet()

    async def _run(self) -> None:
        node = self.life.node
        node.connections.add(self.connection)
        try:
            await self.connection.run(full=False)
        finally:
            node.connections.discard(self.connection)
            self.lost()

    def _greet(self) -> None:
        self.transport.write(PROTOCOL_HEADER)
        told = {"capabilities": {"consumer_cancel_notify": True, "basic.nack": True}}
        self.send(commands.Connection.StartOk(told, "PLAIN", "\0guest\0guest", "en_US"), 0)
        self.send(commands.Connection.TuneOk(2047, FRAME_BYTES, 0), 0)
        self.send(commands.Connection.Open(), 0)
        for number in (PUBLISHING, CONSUMING, ASKING, transactions.CHANNEL):
            self._open_channel(number)

    def _open_channel(self, number: int) -> None:
        self.send(Channel.Open(), number)
        if number == PUBLISHING:
            self.next_tag = 1
            self.unconfirmed.clear()
            self.send(Confirm.Select(), number)
        elif number == CONSUMING:
            self.send(Basic.Qos(prefetch_count=self.client.prefetch), number)
        elif number == transactions.CHANNEL:
            self.transactions.open()

    def send(self, method, channel: int) -> None:
        if not self.transport.ended:
            self.transport.write(frame.marshal(method, channel))

    def lost(self) -> None:
        """The connection is over: what was asked may have been done or not."""
        if self.over:
            return
        self.over = True
        self.transport.end()
        self.life.clients.remove(self)
        for waiting in self.asked.values():
            for then in waiting:
                then(None)
            waiting.clear()
        self.client.session_lost(self)

    def close(self) -> None:
        """As a client that goes without a word."""
        self.lost()

    # What the client says

    def publish(self, exchange: str, key: str, body: bytes, number: int, **properties) -> None:
        self.unconfirmed[self.next_tag] = number
        self.next_tag += 1
        self.publish_on(PUBLISHING, exchange, key, body, **properties)

    def publish_on(self, channel: int, exchange: str, key: str, body: bytes, **properties) -> None:
        method = Basic.Publish(exchange=exchange, routing_key=key)
        made = Properties(delivery_mode=2, **properties)
        self.transport.write(content_bytes(channel, method, made, body, FRAME_BYTES))

    def ask(self, method, then, channel: int = ASKING) -> None:
        """`then` gets the answer: a method, or None if there was none."""
        if self.over:
            then(None)
            return
        self.asked[channel].append(then)
        self.send(method, channel)

    def consume(self, consuming: Consuming, **arguments) -> None:
        self.consumers[consuming.tag] = consuming
        method = Basic.Consume(
            queue=consuming.queue, consumer_tag=consuming.tag, no_ack=consuming.no_ack, **arguments
        )
        self.ask(method, lambda _: None, CONSUMING)

    def settle(self, tag: int, how: str) -> None:
        queue, number = self.unacked.pop(tag)
        self.ledger.held.pop((queue, number), None)
        self.world.moment("settled", queue)
        if how == "ack":
            # A channel that waits for an answer hears of nothing else meanwhile.
            heard_at = float("inf") if self.asked[CONSUMING] else trio.current_time()
            self.ledger.acked(number, queue, self.life, heard_at)
            self.send(Basic.Ack(delivery_tag=tag), CONSUMING)
        else:
            if how == "reject":
                self.ledger.discarded(number, queue)
            self.send(Basic.Reject(delivery_tag=tag, requeue=how == "requeue"), CONSUMING)

    # What the broker says

    def got(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= OVERHEAD_BYTES:
            if self._rest[:4] == b"AMQP":
                check(not "fine", "the protocol is refused")
            count, channel, value = frame.unmarshal(self._rest)
            self._rest = self._rest[count:]
            self._handle(channel, value)

    def _handle(self, channel: int, value) -> None:
        name = value.name
        if name in ("Basic.Deliver", "Basic.GetOk", "Basic.Return"):
            self._content[channel] = [value, 0, b""]
        elif name == "ContentHeader":
            self._content[channel][1] = value.body_size
        elif name == "ContentBody":
            self._content[channel][2] += value.value
            method, size_bytes, body = self._content[channel]
            if len(body) >= size_bytes:
                del self._content[channel]
                self._arrived(channel, method, body)
        else:
            self._method(channel, name, value)

    def _arrived(self, channel: int, method, body: bytes) -> None:
        number = int(body[1 : body.index(b">")])
        if method.name == "Basic.Return":
            return
        if method.name == "Basic.GetOk":
            then = self.asked[channel].popleft()
            then((method, number))
            return
        consuming = self.consumers[method.consumer_tag]
        self.delivered(consuming.queue, number, method, consuming, consuming.began)
        if consuming.no_ack:
            self.ledger.acked(number, consuming.queue, self.life, float("inf"))
        else:
            self._hold(method.delivery_tag, consuming.queue, number)

    def delivered(self, queue: str, number: int, method, consumer, began: float) -> None:
        self.world.say(
            self.client, "gets", number, "of", queue, "again" if method.redelivered else ""
        )
        self.ledger.delivered(queue, number, consumer, began, again=method.redelivered)
        self.world.moment("delivered", queue)

    def fetched(self, queue: str, method, number: int, began: float, *, no_ack: bool) -> None:
        """An answer to basic.get, which was asked for then."""
        self.delivered(queue, number, method, None, began)
        if no_ack:
            self.ledger.acked(number, queue, self.life, float("inf"))
        else:
            self._hold(method.delivery_tag, queue, number)

    def _hold(self, tag: int, queue: str, number: int) -> None:
        self.unacked[tag] = (queue, number)
        self.since[tag] = trio.current_time()
        self.ledger.held[queue, number] = self

    def _method(self, channel: int, name: str, value) -> None:
        if name in ("Basic.Ack", "Basic.Nack"):
            self._answered(value, taken=name == "Basic.Ack")
        elif name == "Connection.OpenOk":
            self.open = True
        elif name == "Connection.Close":
            code = value.reply_code
            check(code == 320, self.client, "is thrown out:", code, value.reply_text)
            self.send(commands.Connection.CloseOk(), 0)
            self.lost()
        elif name == "Channel.Close":
            self._channel_closed(channel, value)
        elif name == "Basic.Cancel":
            self.consumers[value.consumer_tag].cancelled = True
        elif channel in self.asked and name not in SILENT:
            check(self.asked[channel], self.client, "did not ask for", name, "on", channel)
            self.asked[channel].popleft()(value)

    def _answered(self, value, *, taken: bool) -> None:
        tags = [value.delivery_tag]
        if value.multiple:
            tags = [tag for tag in self.unconfirmed if tag <= value.delivery_tag]
        for tag in tags:
            check(tag in self.unconfirmed, self.client, "is told of", tag, "out of the blue")
            number = self.unconfirmed.pop(tag)
            self.world.say(self.client, number, "is", "confirmed" if taken else "refused")
            if taken:
                self.ledger.confirmed(number)
                self.world.moment("confirmed", self.ledger.sent[number].queue)
            else:
                self.ledger.refused(number)

    def _channel_closed(self, channel: int, value) -> None:
        code = value.reply_code
        self.world.say(self.client, "channel", channel, "closed:", code, value.reply_text)
        check(code != 541, "internal error")
        self.send(Channel.CloseOk(), channel)
        if channel == CONSUMING:
            for held in self.unacked.values():
                self.ledger.held.pop(held, None)
            self.unacked.clear()
            self.consumers.clear()
        if channel in self.asked:
            waiting, self.asked[channel] = self.asked[channel], deque()
            for place, then in enumerate(waiting):
                then(value if place == 0 else None)
        self._open_channel(channel)
