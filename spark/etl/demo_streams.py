"""The demo's streams: declared anew, filled in whole chunks."""

import time
import zlib
from collections.abc import Sequence
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from clients import blocking
from clients.streams import StreamClient
from spark.etl.dead_letters import dlq_of
from spark.etl.demo_data import Event

PARTITIONS: Final = 2
SOURCES: Final = ("impressions", "clicks", "orders", "users")
CHUNK_RECORDS: Final = 5000
RETENTION_BYTES: Final = 1024 * 1024 * 1024  # of a stream; the demo may run for long


def declare(url: str, prefix: str) -> None:
    """Empty ones, whatever was there before."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        for name in SOURCES:
            for topic in (prefix + name, dlq_of(prefix + name)):
                channel.delete_queue(topic)
        for name in SOURCES:
            arguments = {
                "x-queue-type": "stream",
                "x-partitions": PARTITIONS,
                "x-max-length-bytes": RETENTION_BYTES,
            }
            channel.declare_queue(prefix + name, arguments=arguments)


def delete(url: str, *topics: str) -> None:
    with blocking.connect(url) as connection, connection.channel() as channel:
        for topic in topics:
            channel.delete_queue(topic)


def append(client: StreamClient, topic: str, events: Sequence[Event]) -> None:
    """To the partitions of their keys, as other producers do it; durable when this returns."""
    parts: list[list[Event]] = [[] for _ in range(PARTITIONS)]
    for event in events:
        parts[zlib.crc32(event.key) % PARTITIONS].append(event)
    waiting = []
    for number, part in enumerate(parts):
        for place in range(0, len(part), CHUNK_RECORDS):
            some = part[place : place + CHUNK_RECORDS]
            keys: list[bytes | None] = [each.key for each in some]
            values: list[bytes | None] = [each.value for each in some]
            chunk = encode_chunk(keys, values, [b""] * len(some), time.time_ns() // 1_000_000)
            waiting.append(client.connection.send(wire.Append(topic, number, chunk)))
    for correlation in waiting:
        client.connection.receive(correlation, wire.Appended)
