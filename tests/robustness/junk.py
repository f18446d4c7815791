"""Bytes a broker should survive, all drawn from a seeded generator."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pamqp import commands, frame, header

from tests.support.frames import (
    PROTOCOL_HEADER,
    Basic,
    Channel,
    Confirm,
    Connection,
    Exchange,
    Properties,
    Queue,
    Tx,
    content_bytes,
    raw_frame,
    unvalidated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pamqp import base

NAMES = ["", "f0", "f1", "f2", "amq.direct", "amq.topic", "amq.rabbitmq.reply-to", "é🐇", "x" * 255]
KINDS = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "nonsense"]
INTEGERS = {
    "octet": [0, 1, 255],
    "short": [0, 1, 2, 65535],
    "long": [0, 1, 7, 2**32 - 1],
    "longlong": [0, 1, 2, 3, 2**63 - 1],
}
ARGUMENTS: list[tuple[str, list[Any]]] = [
    ("x-message-ttl", [0, 50, -1, "soon"]),
    ("x-max-length", [0, 3, "many"]),
    ("x-max-priority", [3, 300]),
    ("x-dead-letter-exchange", ["", "amq.fanout", 5]),
    ("x-overflow", ["reject-publish", "drop-head", "burst"]),
    ("x-expires", [0, 40]),
    ("x-queue-type", ["classic", "quorum", "stream", "none"]),
    ("x-single-active-consumer", [True, 1]),
    ("x-match", ["any", "all", "most"]),
    ("x-priority", [-5, 10, "top"]),
    ("alternate-exchange", ["amq.fanout", 3]),
    ("deep", [{"a": [{"b": [None, True, 1.5, bytearray(b"bytes")]}]}]),
]
# A client that sends these ends its own conversation, so they come seldom.
ENDING = (Connection.Close, Connection.CloseOk, Channel.Close, Channel.CloseOk)
METHODS = [method for method in commands.INDEX_MAPPING.values() if method not in ENDING]


def greeting() -> bytes:
    """The handshake, all at once."""
    methods = [
        Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"),
        Connection.TuneOk(2047, 131072, 0),
        Connection.Open(),
    ]
    return PROTOCOL_HEADER + b"".join(frame.marshal(method, 0) for method in methods)


def conversation() -> bytes:
    """A whole valid session that uses most of the protocol, without waiting for answers."""
    methods: list[base.Frame] = [
        Channel.Open(),
        Exchange.Declare(exchange="f-x", exchange_type="topic"),
        Queue.Declare(queue="f0", auto_delete=True),
        Queue.Bind(queue="f0", exchange="f-x", routing_key="a.#"),
        Confirm.Select(),
        Basic.Qos(prefetch_count=10),
        Basic.Consume(queue="f0", consumer_tag="c"),
    ]
    pieces = [frame.marshal(method, 1) for method in methods]
    for size in (0, 10, 5000):
        publish = Basic.Publish(exchange="f-x", routing_key="a.b", mandatory=True)
        properties = Properties(headers={"k": [1, {"n": "v"}]}, expiration="1000", priority=3)
        pieces.append(content_bytes(1, publish, properties, bytes(size), 4096))
    methods = [
        Basic.Ack(delivery_tag=1),
        Basic.Get(queue="f0"),
        Basic.Cancel(consumer_tag="c"),
        Queue.Purge(queue="f0"),
        Queue.Unbind(queue="f0", exchange="f-x", routing_key="a.#"),
        Exchange.Delete(exchange="f-x"),
        Queue.Delete(queue="f0"),
        Channel.Close(200, "", 0, 0),
    ]
    pieces += [frame.marshal(method, 1) for method in methods]
    pieces += [frame.marshal(method, 2) for method in (Channel.Open(), Tx.Select(), Tx.Commit())]
    pieces.append(frame.marshal(Connection.Close(200, "", 0, 0), 0))
    return greeting() + b"".join(pieces)


def random_bytes(rng: Random) -> bytes:
    """Noise, sometimes after a beginning that makes the broker listen."""
    opening = rng.choice([b"", PROTOCOL_HEADER, greeting(), b"AMQP"])
    return opening + rng.randbytes(rng.randrange(1, 3000))


def mutated(rng: Random, original: bytes) -> bytes:
    """The original with a few bytes changed, lost, doubled or moved."""
    data = bytearray(original)
    # Mostly after the handshake: junk before it is refused early and teaches little.
    lowest = rng.choice([0, 8, len(greeting()), len(greeting())])
    for _ in range(rng.randrange(1, 6)):
        position = rng.randrange(lowest, len(data))
        length = rng.choice([1, 1, 2, 8, 40])
        match rng.randrange(6):
            case 0:
                data[position] = rng.randrange(256)
            case 1:
                data[position] ^= 1 << rng.randrange(8)
            case 2:
                del data[position : position + length]
            case 3:
                data[position:position] = rng.randbytes(length)
            case 4:
                data[position:position] = data[lowest : lowest + length * 4]
            case 5:
                data[position : position + 4] = struct.pack(
                    ">I", rng.choice([0, 1, 2**31, 2**32 - 1])
                )
    return bytes(data)


def random_frames(rng: Random) -> bytes:
    """Well-formed frames that make no sense together."""
    pieces = [greeting()]
    pieces += [frame.marshal(Channel.Open(), number) for number in (1, 2)]
    pieces += [_random_frame(rng) for _ in range(rng.randrange(5, 60))]
    return b"".join(pieces)


def _random_frame(rng: Random) -> bytes:
    channel = rng.choice([1, 1, 1, 2, 2, 3, 0])
    draw = rng.random()
    if draw < 0.02:
        return frame.marshal(random_method(rng, ENDING), channel)
    if draw < 0.06:
        return raw_frame(rng.choice([2, 3, 8]), channel, rng.randbytes(rng.choice([0, 4, 14])))
    if draw < 0.5:
        publish = unvalidated(
            Basic.Publish, exchange=rng.choice(NAMES), routing_key=rng.choice(NAMES)
        )
        publish.mandatory = rng.random() < 0.5
        return content_bytes(
            channel, publish, _properties(rng), bytes(rng.choice([0, 9, 9000])), 4096
        )
    method = random_method(rng)
    data = frame.marshal(method, channel)
    if isinstance(method, (Basic.Deliver, Basic.GetOk, Basic.Return)):
        data += frame.marshal(header.ContentHeader(0, 0, Properties()), channel)
    return data


def random_method(rng: Random, kinds: Sequence[type[base.Frame]] = METHODS) -> base.Frame:
    """Any method of the protocol with any arguments."""
    kind = rng.choice(kinds)
    lax = unvalidated(kind)
    for name in kind.attributes():
        setattr(lax, name, _value(rng, name, kind.amqp_type(name)))
    return lax


def _value(rng: Random, name: str, amqp_type: str) -> Any:
    if name == "exchange_type":
        return rng.choice(KINDS)
    match amqp_type:
        case "bit":
            return rng.random() < 0.25
        case "shortstr":
            return rng.choice(NAMES)
        case "longstr":
            return "text"
        case "table":
            return {
                key: rng.choice(values) for key, values in rng.sample(ARGUMENTS, rng.randrange(3))
            }
    return rng.choice(INTEGERS[amqp_type])


def _properties(rng: Random) -> Properties:
    return Properties(
        headers=rng.choice([None, {}, {"CC": ["f1"]}, {"CC": 1}, {"x-death": "no"}, {"BCC": [1]}]),
        expiration=rng.choice([None, "0", "30", "soon"]),
        priority=rng.choice([None, 0, 9, 255]),
        reply_to=rng.choice([None, "amq.rabbitmq.reply-to", "f0"]),
        user_id=rng.choice([None, None, "guest", "mallory"]),
        delivery_mode=rng.choice([None, 1, 2]),
    )


def nested_table(depth: int) -> bytes:
    """A field table in a table in a table, with its own length in front."""
    inner = b""
    for _ in range(depth):
        inner = b"\x01kF" + struct.pack(">I", len(inner)) + inner
    return struct.pack(">I", len(inner)) + inner


def nested_array(depth: int) -> bytes:
    """A table with an array of an array of an array."""
    inner = b""
    for _ in range(depth):
        inner = b"A" + struct.pack(">I", len(inner)) + inner
    value = b"\x01k" + inner
    return struct.pack(">I", len(value)) + value
