"""Seeded junk at the socket: the broker lives, ends the connection, and others notice nothing.

A failing case is run again by its id, which names the seed.
"""

import random
import socket
import struct
from collections.abc import Callable

import pytest

from tests.robustness import junk
from tests.support.frames import PROTOCOL_HEADER, Basic, Confirm, raw_frame, raw_method
from tests.support.wire import WireConnection

pytestmark = [
    pytest.mark.leveret_only,
    pytest.mark.filterwarnings("ignore:This command is deprecated"),
]

Nest = Callable[[int], bytes]

SEEDS = range(1, 9)
ROUNDS = 60
END_DEADLINE_S = 8.0
MEMORY_SLACK_BYTES = 40 * 2**20


def send_and_hang_up(url: str, data: bytes, rng: random.Random) -> None:
    """Send in pieces, shut our side, and read to the end: the broker must end it as well."""
    conn = WireConnection.dial(url)
    try:
        try:
            for piece in pieces(data, rng):
                conn.send_raw(piece)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:  # it hung up first
            pass
        conn.read_until_eof(END_DEADLINE_S)
    finally:
        conn.abort()


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """The data whole or cut at random places."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 5])))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


STRATEGIES = {
    "random bytes": junk.random_bytes,
    "mutated sessions": lambda rng: junk.mutated(rng, junk.conversation()),
    "valid frames in any order": junk.random_frames,
    "sessions cut short": lambda rng: junk.conversation()[
        : rng.randrange(len(junk.conversation()))
    ],
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_broker_ends_what_makes_no_sense(url: str, strategy: str, seed: int) -> None:
    rng = random.Random(f"{strategy} {seed}")
    for _ in range(ROUNDS):
        send_and_hang_up(url, STRATEGIES[strategy](rng), rng)


def test_sockets_lost_at_any_point_leave_nothing_behind(
    url: str, resident_bytes: Callable[[], int]
) -> None:
    rng = random.Random(77)
    session = junk.conversation()

    def lose(count: int) -> None:
        for _ in range(count):
            conn = WireConnection.dial(url)
            conn.send_raw(session[: rng.randrange(1, len(session))])
            rng.choice([conn.abort, conn.reset])()

    lose(200)
    settled = resident_bytes()
    lose(400)
    assert resident_bytes() - settled < MEMORY_SLACK_BYTES


DECLARE = b"\0\0\x01q\x00"


@pytest.mark.parametrize("depth", [10, 100, 1000, 18_000])
@pytest.mark.parametrize("nest", [junk.nested_table, junk.nested_array])
@pytest.mark.parametrize("place", ["arguments", "headers", "client properties"])
def test_deeply_nested_tables_are_survived(url: str, depth: int, nest: Nest, place: str) -> None:
    table = nest(depth)
    if place == "client properties":
        arguments = table + b"\x05PLAIN" + struct.pack(">I", 12) + b"\0guest\0guest\x05en_US"
        data = PROTOCOL_HEADER + raw_method(0, 10, 11, arguments)
    elif place == "arguments":
        data = (
            junk.greeting() + raw_method(1, 20, 10, b"\0") + raw_method(1, 50, 10, DECLARE + table)
        )
    else:
        publish = raw_method(1, 60, 40, b"\0\0\x0bamq.headers\0\0")
        content = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + table
        data = junk.greeting() + raw_method(1, 20, 10, b"\0") + publish + raw_frame(2, 1, content)
    send_and_hang_up(url, data, random.Random(1))


@pytest.mark.parametrize(
    "announcement",
    [
        pytest.param(PROTOCOL_HEADER + struct.pack(">BHI", 1, 0, 2**32 - 1), id="before login"),
        pytest.param(junk.greeting() + struct.pack(">BHI", 1, 1, 2**32 - 1), id="frame of 4 GiB"),
        pytest.param(junk.greeting() + struct.pack(">BHI", 3, 1, 2**31), id="body of 2 GiB"),
    ],
)
def test_a_huge_announced_frame_is_refused_at_once(url: str, announcement: bytes) -> None:
    conn = WireConnection.dial(url)
    conn.send_raw(announcement)
    conn.read_until_eof(END_DEADLINE_S)
    conn.abort()


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40, 100 * 2**20])
def test_a_huge_announced_body_takes_no_memory(
    url: str, resident_bytes: Callable[[], int], size: int
) -> None:
    before = resident_bytes()
    with WireConnection.connect(url) as conn:
        channel = conn.open_channel()
        channel.send(Basic.Publish(routing_key="nowhere"))
        channel.send_raw(raw_frame(2, channel.number, struct.pack(">HHQH", 60, 0, size, 0)))
        channel.send_raw(raw_frame(3, channel.number, bytes(1000)))
        conn.open_channel().qos(1)
        assert resident_bytes() - before < MEMORY_SLACK_BYTES


def test_a_flood_of_channels_opened_and_closed_is_survived(
    url: str, resident_bytes: Callable[[], int]
) -> None:
    flood = b"".join(
        raw_method(number, 20, 10, b"\0") + raw_method(number, 20, 40, b"\0\xc8\0\0\0\0\0")
        for number in range(1, 1500)
    )
    with WireConnection.connect(url) as conn:
        for _ in range(3):
            conn.send_raw(flood)
        conn.open_channel(2000).rpc(Confirm.Select())


def test_a_session_over_and_over_does_not_grow_the_broker(
    url: str, resident_bytes: Callable[[], int]
) -> None:
    rng = random.Random(5)

    def converse(count: int) -> None:
        for _ in range(count):
            send_and_hang_up(url, junk.conversation(), rng)

    converse(60)
    settled = resident_bytes()
    converse(150)
    assert resident_bytes() - settled < MEMORY_SLACK_BYTES // 4


def test_a_whole_session_at_once_is_understood(url: str) -> None:
    """The seed of the mutations is itself valid: it ends in close-ok, not in an error."""
    conn = WireConnection.dial(url)
    conn.send_raw(junk.conversation())
    seen = b""
    try:
        while b"\x00\x0a\x00\x33\xce" not in seen:
            seen += conn.sock.recv(65536) or pytest.fail(f"ended without close-ok: {seen!r}")
    finally:
        conn.abort()
    assert b"\x00\x0a\x00\x32" not in seen, "the broker closed the connection"
