"""Mistakes that close the whole connection: code, text and the method they are blamed on."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pamqp import base

from tests.support.frames import (
    Basic,
    Channel,
    Connection,
    Queue,
    raw_body,
    raw_frame,
    raw_header,
    raw_method,
)
from tests.support.scene import Scene
from tests.support.wire import WireChannel, WireConnection

Provoke = Callable[[WireConnection, WireChannel, str], None]


@dataclass(frozen=True)
class Mistake:
    """What a client does wrong on an open connection, and how it hears of it."""

    sentence: str
    provoke: Provoke
    code: int
    text: str
    at: type[base.Frame] | None
    leveret_only: bool


MISTAKES: list[Mistake] = []


def mistake(
    sentence: str,
    code: int,
    text: str,
    at: type[base.Frame] | None = None,
    *,
    leveret_only: bool = False,
) -> Callable[[Provoke], Provoke]:
    def register(provoke: Provoke) -> Provoke:
        MISTAKES.append(Mistake(sentence, provoke, code, text, at, leveret_only))
        return provoke

    return register


# -- what AMQP has and the broker has not


@mistake("publish with immediate", 540, "immediate=true", Basic.Publish)
def _(conn, ch, q):
    ch.publish("", q, immediate=True)


@mistake("qos with a prefetch size", 540, "prefetch_size!=0 (512)", Basic.Qos)
def _(conn, ch, q):
    ch.send(Basic.Qos(prefetch_size=512, prefetch_count=1))


@mistake("channel.flow that stops the broker", 540, "active=false", Channel.Flow)
def _(conn, ch, q):
    ch.send(Channel.Flow(active=False))


@mistake("recover without requeue", 540, "requeue=false", Basic.Recover)
def _(conn, ch, q):
    ch.send(Basic.Recover(requeue=False))


@mistake("recover-async without requeue", 540, "requeue=false", Basic.RecoverAsync)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 60, 100, b"\0"))


# -- consumers


@mistake(
    "consumer tag used twice on a channel",
    530,
    "reuse consumer tag 'twin'",
    Basic.Consume,
)
def _(conn, ch, q):
    ch.declare_queue(q, exclusive=True)
    ch.consume(q, "twin")
    ch.send(Basic.Consume(queue=q, consumer_tag="twin"))


# -- channels


@mistake("second channel.open", 504, "second 'channel.open' seen", Channel.Open)
def _(conn, ch, q):
    ch.send(Channel.Open())


@mistake("method on a channel never opened", 504, "expected 'channel.open'", Basic.Qos)
def _(conn, ch, q):
    conn.send(Basic.Qos(prefetch_count=1), 9)


@mistake("method on a channel already closed", 504, "expected 'channel.open'", Basic.Qos)
def _(conn, ch, q):
    ch.close()
    ch.send(Basic.Qos(prefetch_count=1))


@mistake("one channel too many", 530, "number of channels opened (100) has reached")
def _(conn, ch, q):
    for number in range(2, 101):
        conn.open_channel(number)
    conn.send(Channel.Open(), 101)


@mistake("connection method on a channel", 503, "COMMAND_INVALID", Connection.TuneOk)
def _(conn, ch, q):
    conn.send(Connection.TuneOk(0, 0, 0), 1)


@mistake("channel method on channel zero", 504, "unexpected method", Channel.Open)
def _(conn, ch, q):
    conn.send(Channel.Open(), 0)


@mistake("tune-ok on a running connection", 504, "unexpected method", Connection.TuneOk)
def _(conn, ch, q):
    conn.send(Connection.TuneOk(0, 0, 0), 0)


# -- frames out of place


@mistake("body without a method", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send_raw(raw_body(1, b"lost"))


@mistake("header without a method", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send_raw(raw_header(1, 4))


@mistake("header of another class", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_header(1, 0, class_id=50))


@mistake("method where the header belongs", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send(Basic.Qos(prefetch_count=1), 1)


@mistake("body where the header belongs", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_body(1, b"early"))


@mistake("method in the middle of a body", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_header(1, 10) + raw_body(1, b"half!"))
    conn.send(Basic.Qos(prefetch_count=1), 1)


@mistake("header in the middle of a body", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_header(1, 10) + raw_body(1, b"half!") + raw_header(1, 10))


@mistake("heartbeat on a channel", 505, "UNEXPECTED_FRAME")
def _(conn, ch, q):
    conn.send_raw(raw_frame(8, 1, b""))


# -- broken frames and methods


@mistake("unknown frame type", 501, "FRAME_ERROR")
def _(conn, ch, q):
    conn.send_raw(raw_frame(5, 1, b"what?"))


@mistake("wrong frame end", 501, "FRAME_ERROR")
def _(conn, ch, q):
    conn.send_raw(raw_frame(1, 1, struct.pack(">HHB", 20, 20, 1), end=0xCD))


@mistake("frame above frame_max", 501, "FRAME_ERROR")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_header(1, 4097) + raw_body(1, bytes(4097)))


@mistake("body longer than announced", 501, "FRAME_ERROR", leveret_only=True)
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_header(1, 3) + raw_body(1, b"four"))


@mistake("unknown class", 540, "NOT_IMPLEMENTED", leveret_only=True)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 61, 10))


@mistake("unknown method", 540, "NOT_IMPLEMENTED", leveret_only=True)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 60, 99))


@mistake("method cut short", 501, "cannot decode", Basic.Qos)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 60, 10, b"\0\0"))


@mistake("method that only brokers send", 503, "COMMAND_INVALID", Basic.CancelOk)
def _(conn, ch, q):
    conn.send(Basic.CancelOk(consumer_tag="mine"), 1)


@mistake("content header cut short", 501, "FRAME_ERROR")
def _(conn, ch, q):
    conn.send(Basic.Publish(routing_key=q), 1)
    conn.send_raw(raw_frame(2, 1, b"\x00\x3c\x00\x00\x00"))


DECLARE_Q = b"\0\0\x01q\x04"


@mistake("table longer than its method", 501, "cannot decode", Queue.Declare)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 50, 10, DECLARE_Q + struct.pack(">I", 600) + b"\x01aI\0\0\0\0"))


@mistake("bytes after the last argument", 501, "cannot decode", Queue.Declare)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 50, 10, DECLARE_Q + struct.pack(">I", 0) + b"more"))


@mistake("name that is not UTF-8", 501, "FRAME_ERROR")
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 50, 10, b"\0\0\x02\xff\xfe\x04" + struct.pack(">I", 0)))


@mistake("table with a value of no known type", 501, "FRAME_ERROR", leveret_only=True)
def _(conn, ch, q):
    conn.send_raw(raw_method(1, 50, 10, DECLARE_Q + struct.pack(">I", 6) + b"\x01aZ\0\0\0"))


def cases() -> list[Any]:
    return [
        pytest.param(
            case,
            id=case.sentence,
            marks=[pytest.mark.leveret_only] if case.leveret_only else [],
        )
        for case in MISTAKES
    ]


@pytest.mark.parametrize("case", cases())
def test_closes_the_connection(scene: Scene, case: Mistake) -> None:
    bystander = scene.channel()
    conn = scene.connect(frame_max=4096, channel_max=100)
    case.provoke(conn, conn.open_channel(1), scene.queue_name())
    close = conn.expect_close(case.code, case.text)
    if case.at is not None:
        assert (close.class_id << 16) + close.method_id == case.at.index
    assert bystander.rpc(Channel.Flow(active=True)).active is True
