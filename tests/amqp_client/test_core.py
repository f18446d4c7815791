"""The core without a socket, against a peer that says anything at all."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic, Channel, Connection, Queue

from broker.protocol.constants import PROTOCOL_HEADER
from broker.protocol.methods import METHODS, encode
from clients.amqp_channel import ChannelCore
from clients.amqp_core import ConnectionCore
from clients.amqp_errors import ChannelClosedError, ConnectionClosedError, ConnectionLostError
from clients.amqp_inbox import Inbox
from clients.amqp_properties import Properties
from clients.amqp_publishing import Publish
from clients.amqp_url import Endpoint, Target

TARGET = Target((Endpoint("h", 1),), heartbeat_s=10)
TUNE = {"channel_max": 10, "frame_max": 8192, "heartbeat": 60}


def opened() -> tuple[ConnectionCore, ChannelCore]:
    core = ConnectionCore(TARGET)
    assert core.data_to_send() == PROTOCOL_HEADER
    core.feed(encode(0, Connection.Start, version_minor=9, mechanisms=b"PLAIN AMQPLAIN"))
    core.feed(encode(0, Connection.Tune, **TUNE))
    core.feed(encode(0, Connection.OpenOk))
    core.opened.result()
    channel, promise = core.open_channel()
    core.feed(encode(channel.number, Channel.OpenOk))
    promise.result()
    core.data_to_send()
    return core, channel


def test_a_handshake_takes_the_lesser_of_both_wishes() -> None:
    core, _ = opened()
    assert (core.frame_max, core.heartbeat_s) == (8192, 10)
    for _ in range(9):
        core.open_channel()
    with pytest.raises(Exception, match="all 10 channels"):
        core.open_channel()


def test_a_number_is_free_again_when_the_broker_has_closed_it() -> None:
    core, channel = opened()
    closed = channel.close()
    core.feed(encode(channel.number, Basic.Cancel, consumer_tag="late"))  # means nothing any more
    core.feed(encode(channel.number, Queue.PurgeOk))
    assert core.error is None
    assert not closed.done
    assert channel.number in core.channels
    core.feed(encode(channel.number, Channel.CloseOk))
    assert closed.done
    assert core.channels == {}


def test_both_close_a_channel_at_once() -> None:
    core, channel = opened()
    closed = channel.close()
    core.feed(encode(channel.number, Channel.Close, reply_code=406, reply_text="oh"))
    core.feed(encode(channel.number, Channel.CloseOk))
    assert closed.done
    assert core.error is None
    assert core.channels == {}


def test_everybody_who_waits_hears_of_the_end() -> None:
    core, channel = opened()
    asked = channel.request(Queue.Declare, Queue.DeclareOk)
    inbox = Inbox("c", no_ack=False, bounded=True)
    consuming = channel.consume("q", inbox)
    core.feed(encode(0, Connection.Close, reply_code=320, reply_text="bye"))
    for promise in (asked, consuming):
        with pytest.raises(ConnectionClosedError, match="320"):
            promise.result()
    assert isinstance(inbox.error, ConnectionClosedError)
    assert encode(0, Connection.CloseOk) in core.data_to_send()


def test_what_is_about_consumers_may_be_answered_out_of_order() -> None:
    """As by RabbitMQ, when their queue has said so."""
    core, channel = opened()
    inboxes = [Inbox(tag, no_ack=False, bounded=True) for tag in ("a", "b")]
    consuming = [channel.consume("q", inbox) for inbox in inboxes]
    asked = channel.request(Basic.Qos, Basic.QosOk)
    core.feed(encode(channel.number, Basic.QosOk))
    assert asked.done
    for place in (1, 0):
        assert not consuming[place].done
        core.feed(encode(channel.number, Basic.ConsumeOk, consumer_tag=inboxes[place].tag))
        assert consuming[place].result().consumer_tag == inboxes[place].tag
    cancelling = [channel.cancel(inbox) for inbox in inboxes]
    for place in (1, 0):
        core.feed(encode(channel.number, Basic.CancelOk, consumer_tag=inboxes[place].tag))
        promise = cancelling[place]
        assert promise is not None
        assert promise.done
        assert inboxes[place].error is not None
    core.feed(encode(channel.number, Basic.CancelOk, consumer_tag="a"))
    assert isinstance(core.error, ConnectionLostError), "nobody asked for that"


def test_a_consumer_that_has_not_begun_is_cancelled_when_it_has() -> None:
    core, channel = opened()
    inbox = Inbox("c", no_ack=False, bounded=True)
    channel.consume("q", inbox)
    core.data_to_send()
    assert channel.cancel(inbox) is None
    assert core.data_to_send() == b""
    core.feed(encode(channel.number, Basic.ConsumeOk, consumer_tag="c"))
    assert core.data_to_send() == encode(channel.number, Basic.Cancel, consumer_tag="c")
    core.feed(encode(channel.number, Basic.CancelOk, consumer_tag="c"))
    assert channel.consumers == {}
    assert core.error is None


def test_publishes_of_a_lost_connection_can_be_sent_again_and_those_of_a_closed_channel_not() -> (
    None
):
    class Told:
        error: Exception | None = None

        def resolve(self) -> None:
            raise AssertionError

        def fail(self, error: Exception) -> None:
            self.error = error

    publish = Publish(b"", "", "", Properties(), mandatory=False, resend=True)
    core, channel = opened()
    first = Told()
    channel.publish(publish, first)
    core.lost(ConnectionLostError("cut"))
    assert first.error is None
    assert channel.unconfirmed == [(first, publish)]

    core, channel = opened()
    second = Told()
    channel.publish(publish, second)
    core.feed(encode(channel.number, Channel.Close, reply_code=404, reply_text="no exchange"))
    assert isinstance(second.error, ChannelClosedError)
    assert channel.unconfirmed == []


frames = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda kind, channel, body: struct.pack(">BHI", kind, channel, len(body)) + body + b"\xce",
        st.integers(1, 8),
        st.integers(0, 2),
        st.binary(max_size=40),
    ),
    st.builds(
        lambda channel, key, body: (
            struct.pack(">BHII", 1, channel, len(body) + 4, key) + body + b"\xce"
        ),
        st.integers(0, 2),
        st.sampled_from(sorted(METHODS)),
        st.binary(max_size=40),
    ),
    st.builds(
        lambda args, header, body: (
            struct.pack(">BHII", 1, 1, len(args) + 4, Basic.Deliver.index)
            + args
            + b"\xce"
            + struct.pack(">BHIHHQH", 2, 1, len(header) + 14, 60, 0, len(body), 0)
            + header
            + b"\xce"
            + struct.pack(">BHI", 3, 1, len(body))
            + body
            + b"\xce"
        ),
        st.binary(max_size=30),
        st.binary(max_size=3),
        st.binary(min_size=1, max_size=9),
    ),
)


@given(st.lists(frames, max_size=8), st.booleans())
def test_nonsense_ends_the_connection_and_nothing_else(said: list[Any], shaken: bool) -> None:
    core = opened()[0] if shaken else ConnectionCore(TARGET)
    for data in said:
        core.feed(data)
        core.data_to_send()
    core.lost(ConnectionLostError("over"))
    assert core.error is not None
    assert core.opened.done
