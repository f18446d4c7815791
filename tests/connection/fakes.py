"""A client at the other end of a transport that only exists in memory."""

import trio
import trio.testing
from pamqp import commands, frame

from broker.config import Config
from broker.connection.connection import Connection
from broker.node import Node
from broker.security.sasl import Origin
from flow_control.outbox import Outbox
from tests.protocol.pamqp_frames import unmarshal_all
from tests.support.frames import PROTOCOL_HEADER, Basic, Channel, Confirm, Properties, content_bytes


class MemoryTransport:
    """Bytes from the client wait in `unread`; it takes all there is or, while deaf, nothing."""

    def __init__(self):
        self.outbox = Outbox()
        self.unread = bytearray()
        self.sent = bytearray()
        self.reads = []
        self.broken = False
        self.deaf = False
        self.gone = False
        self._hears = trio.Event()
        self._came = trio.Event()

    async def receive(self, bytes_max=lambda: 1 << 20):
        await trio.lowlevel.checkpoint()
        while not self.unread:
            if self.gone:
                return b""
            self._came = trio.Event()
            await self._came.wait()
        data = bytes(self.unread[: bytes_max()])
        del self.unread[: len(data)]
        self.reads.append(len(data))
        return data

    def write(self, data):
        self.unread += data
        self._came.set()

    @property
    def idle(self):
        return not self.outbox.pieces

    def flush_nowait(self):
        if self.gone:
            self.outbox.pieces.clear()
        elif self.outbox.pieces and not self.deaf:
            data = self.outbox.take()
            self.sent += data
            self.outbox.sent(len(data))

    async def wait_writable(self):
        await trio.lowlevel.checkpoint()
        if self.deaf and not self.gone:
            await self._hears.wait()

    def vanish(self):
        """As a process that is killed does."""
        self.gone = self.broken = True
        self.outbox.pieces.clear()
        self.outbox.size = 0
        self._hears.set()
        self._came.set()

    def hear(self):
        self.deaf = False
        self._hears.set()

    def send_eof(self):
        self.broken = True

    def reset(self):
        self.broken = True

    async def aclose(self):
        await trio.lowlevel.checkpoint()


class Place:
    """A node, and clients who connect to it."""

    def __init__(self, nursery, **settings):
        self.node = Node(Config(**settings))
        self.node.seed()
        self._nursery = nursery
        nursery.start_soon(self.node.timers.run, self.node.flush)

    async def client(self, *, channels=1, heartbeat_s=0):
        client = Client(self.node)
        self._nursery.start_soon(client.run)
        client.write(PROTOCOL_HEADER)
        announced = {"capabilities": {"connection.blocked": True}}
        client.send(commands.Connection.StartOk(announced, "PLAIN", "\0guest\0guest", "en_US"), 0)
        client.send(commands.Connection.TuneOk(2047, 131072, heartbeat_s), 0)
        client.send(commands.Connection.Open(), 0)
        for number in range(1, channels + 1):
            client.send(Channel.Open(), number)
        await client.rest()
        client.received()
        return client


class Client:
    """Writes without waiting; `rest` lets the broker do all that it can do now."""

    def __init__(self, node):
        self.transport = MemoryTransport()
        self.node = node
        self.connection = Connection(self.transport, node, Origin("127.0.0.1", 5000))

    async def run(self):
        self.node.connections.add(self.connection)
        await self.connection.run(full=False)
        self.node.connections.discard(self.connection)

    def write(self, data):
        self.transport.write(data)

    def send(self, method, channel=1):
        self.write(frame.marshal(method, channel))

    def confirm(self, channel=1):
        self.send(Confirm.Select(), channel)

    def declare(self, queue, **options):
        self.send(commands.Queue.Declare(queue=queue, **options))

    def consume(self, queue, tag="c", *, prefetch=0, channel=1, **options):
        self.send(Basic.Qos(prefetch_count=prefetch), channel)
        self.send(Basic.Consume(queue=queue, consumer_tag=tag, **options), channel)

    def ack(self, tag, *, multiple=False, channel=1):
        self.send(Basic.Ack(delivery_tag=tag, multiple=multiple), channel)

    def publish(self, queue, *bodies, channel=1):
        for body in bodies:
            self.write(published(queue, body, channel))

    async def rest(self):
        await trio.testing.wait_all_tasks_blocked()

    def received(self):
        """What came since the last time, as (channel, name, frame)."""
        data = bytes(self.transport.sent)
        self.transport.sent.clear()
        return [(number, value.name, value) for number, value in unmarshal_all(data)]

    def names(self):
        return [name for _, name, _ in self.received()]

    def delivered(self):
        """Delivery tags and bodies that came since the last time."""
        tags, bodies = [], []
        for _, name, value in self.received():
            if name == "Basic.Deliver":
                tags.append(value.delivery_tag)
            elif name == "ContentBody":
                bodies.append(value.value)
        return list(zip(tags, bodies, strict=True))

    def confirmed(self):
        """The highest delivery tag among acks that came since the last time."""
        tags = [value.delivery_tag for _, name, value in self.received() if name == "Basic.Ack"]
        return max(tags, default=0)


def published(queue, body, channel=1):
    method = Basic.Publish(exchange="", routing_key=queue)
    return content_bytes(channel, method, Properties(), body, 131072)


def ready(node, queue):
    return node.vhosts["/"].queues[queue].ready
