"""A connection without a socket: what channels write is kept, time stands still."""

from broker.channel.channel import Channel
from broker.protocol import methods
from broker.protocol.constants import BASIC_PUBLISH
from broker.protocol.frames import FrameReader
from broker.security.permissions import Permission
from broker.security.user import User
from broker.vhost import VHost
from flow_control.outbox import Outbox
from queues.consumers import Consumer
from queues.message import Message
from tests.protocol.pamqp_frames import publish_frames, unmarshal_all


def user_who_may_write(pattern=".*", name="guest"):
    permission = Permission(configure=".*", write=pattern, read=".*")
    return User(name, tags=(), permissions={"/": permission})


class FakeTimer:
    """One that never rings."""

    def cancel(self):
        pass


class FakeTimers:
    """A clock that is set by hand and never rings."""

    def __init__(self):
        self.now = 1_700_000_000_000

    def now_ms(self):
        return self.now

    def call_at(self, when_ms, callback):
        return FakeTimer()


class FakeLink:
    """A connection to a vhost of its own, unless it is given one."""

    name = "fake"

    def __init__(
        self, *, vhost=None, user=None, frame_max=131072, unacked_max=1000, capabilities=()
    ):
        self.timers = FakeTimers()
        self.vhost = vhost or VHost("/", self.timers)
        self.user = user or user_who_may_write()
        self.outbox = Outbox()
        self.frame_max = frame_max
        self.unacked_max = unacked_max
        self.capabilities = frozenset(capabilities)
        self.dirty = 0

    def mark_dirty(self):
        self.dirty += 1

    def resume(self, channel, action):
        action()

    def keep_first(self, channel, batch):
        channel.backlog.appendleft(batch)

    def take_raw(self):
        return self.outbox.take()

    def take(self):
        """What was written since the last time, as (channel, pamqp's frame)."""
        return unmarshal_all(self.outbox.take())

    def take_names(self):
        return [value.name for _, value in self.take()]


def declare(link, name, **arguments):
    """A queue, with arguments such as x_max_length."""
    return link.vhost.declare_queue(
        name,
        durable=True,
        auto_delete=False,
        owner=None,
        arguments={key.replace("_", "-"): value for key, value in arguments.items()},
        user_of=link,
    )


def declare_exchange(link, name, kind="direct", *, internal=False, **arguments):
    link.vhost.declare_exchange(
        name, kind, durable=True, auto_delete=False, internal=internal, arguments=arguments
    )
    return link.vhost.exchange(name)


def contents(*publishes, channel=1):
    """Publishes, each given as arguments of `publish_frames`, as a frame reader hands them out."""
    return [item for items in batches(*publishes, channel=channel) for item in items]


def batches(*publishes, channel=1):
    """The same in batches, as they come in one read: what is all alike is a run."""
    reader = FrameReader(frame_max=1 << 20, message_bytes_max=1 << 24)
    data = b"".join(b"".join(publish_frames(channel, **publish)) for publish in publishes)
    return [items for _, _, items in reader.feed(data)]


def to(queue, payload=b"x", properties=None, **more):
    """A publish to a queue by its name."""
    return {"routing_key": queue, "payload": payload, "properties": properties, **more}


def stored_message(payload=b"x", properties=None, *, exchange="", key="q", channel=1):
    """A message as a queue holds it."""
    ((_, frames, header_bytes, flags, body_bytes),) = contents(
        {"payload": payload, "properties": properties}, channel=channel
    )
    address = methods.short_string(exchange) + methods.short_string(key)
    return Message(address, frames, header_bytes, flags, body_bytes, channel)


def properties_of(message):
    """The properties of a stored message, as pamqp reads them."""
    return unmarshal_all(message.frames)[0][1].properties


def body_of(message):
    return b"".join(value.value for _, value in unmarshal_all(message.frames)[1:])


def fetch(queue):
    """All that is ready, taken out."""
    holder = Consumer("", queue, None, no_ack=True, fetching=True)
    messages = []
    while (message := queue.get(holder)) is not None:
        messages.append(message)
    return messages


class Client:
    """A channel, and the methods that a client would send on it."""

    def __init__(self, link, number=1):
        self.link = link
        self.number = number
        self.channel = Channel(number, link, set())

    def call(self, kind, **arguments):
        args = methods.encode(self.number, kind, **arguments)[11:-1]
        self.channel.handle(kind.index, [args])

    def publish(self, *publishes):
        self.channel.handle(BASIC_PUBLISH, contents(*publishes, channel=self.number))

    def publish_read(self, *publishes):
        """As they come in one read."""
        for items in batches(*publishes, channel=self.number):
            self.channel.handle(BASIC_PUBLISH, items)

    def settle(self, key, *items):
        self.channel.handle(key, list(items))
