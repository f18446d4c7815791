"""Frames as pamqp makes them: strategies for tables, methods and contents, and plain helpers."""

import random
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st
from pamqp import body, commands, frame, header, heartbeat

from broker.protocol.constants import CONTENT_METHODS, SETTLE_METHODS

HEARTBEAT = heartbeat.Heartbeat().marshal()

TEXT = st.text(max_size=12)
NAME = st.text(alphabet="abcXYZ019-_.:@#,/+ ", max_size=12)
SECONDS = st.integers(0, 0xFFFFFFFF)  # above that pamqp takes a timestamp for milliseconds
TIMESTAMP = SECONDS.map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
FLOAT = st.floats(width=32, allow_nan=False)  # pamqp writes 32 bits, whatever it is given
DECIMAL = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
INTEGER = st.integers(-(2**63), 2**63 - 1)


def tables(integers=INTEGER, floats=FLOAT, decimals=DECIMAL):
    scalars = st.one_of(
        st.none(), st.booleans(), integers, floats, decimals, TEXT, TIMESTAMP, st.builds(bytearray)
    )
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(TEXT, values, max_size=4)


TABLE = tables()
# pamqp prefers the smallest integer type, this codec the two that RabbitMQ itself writes; where
# both choose `I` or `l`, and with names in order, the bytes are the same.
_COMMON_INTEGER = st.integers(2**16, 2**31 - 1) | st.integers(2**32, 2**63 - 1)
COMMON_TABLE = tables(integers=_COMMON_INTEGER, floats=st.nothing())

_BY_TYPE = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": NAME,
    "longstr": TEXT,
}
# What pamqp insists on.
_FIXED = {
    "ticket": 0,
    "capabilities": "",
    "insist": False,
    "known_hosts": "",
    "out_of_band": "0",
    "channel_id": "0",
    "cluster_id": "",
}


@st.composite
def arguments(draw, kind, table=TABLE):
    by_type = {**_BY_TYPE, "table": table}
    return {
        name: _FIXED[name] if name in _FIXED else draw(by_type[kind.amqp_type(name)])
        for name in kind.attributes()
    }


METHOD_KINDS = sorted(commands.INDEX_MAPPING.values(), key=lambda kind: kind.index)
_BARE_KINDS = [kind for kind in METHOD_KINDS if kind.index not in CONTENT_METHODS]
_CONTENT_KINDS = [kind for kind in METHOD_KINDS if kind.index in CONTENT_METHODS]

PROPERTIES = st.builds(
    commands.Basic.Properties,
    content_type=st.none() | TEXT,
    content_encoding=st.none() | TEXT,
    headers=st.none() | TABLE,
    delivery_mode=st.none() | st.integers(1, 2),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    expiration=st.none() | TEXT,
    message_id=st.none() | TEXT,
    timestamp=st.none() | TIMESTAMP,
    message_type=st.none() | TEXT,
    user_id=st.none() | TEXT,
    app_id=st.none() | TEXT,
)
BODY = st.binary(max_size=60)


def method_frame(channel, kind, **values):
    return frame.marshal(kind(**values), channel)


def header_frame(channel, body_bytes, properties=None):
    return frame.marshal(header.ContentHeader(0, body_bytes, properties), channel)


def body_frame(channel, payload):
    return frame.marshal(body.ContentBody(payload), channel)


def content_frames(channel, payload, properties=None):
    """A content as this broker keeps it: the body in one frame, none if it is empty."""
    head = header_frame(channel, len(payload), properties)
    return head + body_frame(channel, payload) if payload else head


def publish_frames(channel, payload=b"body", properties=None, **values):
    """The three frames of a publish (two for an empty body), apart."""
    values = {"exchange": "", "routing_key": "q", **values}
    return [
        method_frame(channel, commands.Basic.Publish, **values),
        header_frame(channel, len(payload), properties),
        *([body_frame(channel, payload)] if payload else []),
    ]


def unmarshal_all(data):
    """Every frame in `data` as (channel, pamqp's object)."""
    frames = []
    while data:
        consumed, channel, value = frame.unmarshal(data)
        frames.append((channel, value))
        data = data[consumed:]
    return frames


@st.composite
def _unit(draw):
    """What a peer sends as one: its frames, and what a reader should make of them."""
    channel = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(_BARE_KINDS) | st.sampled_from(_CONTENT_KINDS))
    method = frame.marshal(kind(**draw(arguments(kind))), channel)
    args = method[11:-1]
    if kind.index in SETTLE_METHODS:
        return channel, [method], (int.from_bytes(args[:8], "big"), args[8])
    if kind.index not in CONTENT_METHODS:
        return channel, [method], args
    payload, properties = draw(BODY), draw(PROPERTIES)
    head = header_frame(channel, len(payload), properties)
    most = draw(st.integers(1, 60))
    pieces = [body_frame(channel, payload[at : at + most]) for at in range(0, len(payload), most)]
    flags = int.from_bytes(head[19:21], "big")
    whole = content_frames(channel, payload, properties)
    return channel, [method, head, *pieces], (args, whole, len(head) - 8, flags, len(payload))


@st.composite
def streams(draw):
    """A stream of frames on several channels, and the methods in it in order of completion."""
    units = draw(st.lists(_unit(), max_size=6))
    waiting = {}
    for channel, frames, item in units:
        key = int.from_bytes(frames[0][7:11], "big")
        last = len(frames) - 1
        waiting.setdefault(channel, []).extend(
            (piece, (channel, key, item) if at == last else None) for at, piece in enumerate(frames)
        )
    turns = [channel for channel, frames, _ in units for _ in frames]
    if draw(st.booleans()):
        random.Random(draw(st.integers(0, 2**16))).shuffle(turns)
    pieces, completed = [], []
    for channel in turns:
        piece, done = waiting[channel].pop(0)
        pieces.append(piece)
        if done is not None:
            completed.append(done)
        if draw(st.integers(0, 9)) == 0:
            pieces.append(HEARTBEAT)
    return b"".join(pieces), completed


CHUNK_SIZES = st.just([1]) | st.lists(st.integers(1, 40), min_size=1, max_size=8)


def cut(data, sizes):
    """Pieces of the given sizes, over and over, until all of `data` is used up."""
    pieces = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
        turn += 1
    return pieces


def read_all(reader, pieces):
    """Every method that comes out until the pieces or the reader's patience end."""
    found = []
    for piece in pieces:
        found += [
            (channel, key, item) for channel, key, items in reader.feed(piece) for item in items
        ]
        if reader.failure is not None:
            break
    return found
