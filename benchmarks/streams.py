"""Streams side by side with RabbitMQ's over AMQP, and in bulk by the blocking client.

    python -m benchmarks.streams [--seconds 10] [--no-rabbitmq] [--mib 256]

Over AMQP both brokers get the same load from the same generator: one connection that publishes 1 KB
with confirms, and then one that consumes all of it from the start. What the blocking client does
has no counterpart there: RabbitMQ's stream protocol is not AMQP's, and not asked here.
"""

from __future__ import annotations

import argparse
import select
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pamqp import commands
from rich.console import Console
from rich.table import Table

from benchmarks import brokers
from benchmarks.load import Publisher, queue_names
from benchmarks.scenarios import LoadScenario
from benchmarks.wire import BrokerError, Connection, DeliveryCounter, encode_acks
from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer, encode_chunk
from clients.streams import StreamClient, connect

if TYPE_CHECKING:
    from benchmarks.brokers import Broker

MIB: Final = 1024 * 1024
PREFETCH: Final = 500
IN_FLIGHT: Final = 5  # chunks
PARTITIONS: Final = 64
# Ten gigabytes of a partition in segments of the usual size; here so many small ones.
SEGMENTS: Final = 80
SEGMENT_BYTES: Final = 64 * 1024
AMQP: Final = LoadScenario(
    name="stream", about="", body_bytes=1024, durable=True, confirm_window=1000
)


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    broker: str
    value: float
    unit: str
    budget: str = ""


def declare(url: str, name: str, **arguments: object) -> None:
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    connection = Connection(url)
    connection.call(
        commands.Queue.Declare(
            queue=name, durable=True, arguments={"x-queue-type": "stream", **given}
        ),
        commands.Queue.DeclareOk,
    )
    connection.close()


# Over AMQP


def over_amqp(broker: Broker, seconds: float) -> list[Figure]:
    (queue,) = queue_names(AMQP)
    declare(broker.url, queue)
    count, rate = publish(broker.url, seconds)
    figures = [Figure("AMQP publish, confirms, 1 KB", broker.name, rate, "msg/s", "3 times")]
    rate = consume(broker.url, queue, count)
    figures.append(Figure("AMQP consume from the start", broker.name, rate, "msg/s", "2 times"))
    return figures


def publish(url: str, seconds: float) -> tuple[int, float]:
    """How many were published and confirmed, and how many in a second."""
    publisher = Publisher(url, AMQP, 0)
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or publisher.confirmed < publisher.sent:
        going_on = time.perf_counter() - started < seconds
        if publisher.congested:
            publisher.flush()
        elif going_on and publisher.may_publish():
            publisher.publish(time.monotonic_ns())
            continue
        if select.select([publisher.sock], [], [], 0.0005)[0]:
            publisher.read()
    rate = publisher.confirmed / (time.perf_counter() - started)
    publisher.connection.close()
    return publisher.confirmed, rate


def consume(url: str, queue: str, count: int) -> float:
    """All of them, from the first; acks of half a prefetch at a time."""
    connection = Connection(url)
    connection.call(commands.Basic.Qos(prefetch_count=PREFETCH), commands.Basic.QosOk)
    counter = DeliveryCounter(body_bytes=AMQP.body_bytes, sample_every=64)
    arguments = {"x-stream-offset": "first"}
    started = time.perf_counter()
    consume = commands.Basic.Consume(queue=queue, consumer_tag="c", arguments=arguments)
    connection.call(consume, commands.Basic.ConsumeOk)
    counter.feed(connection.unread)
    counter.advance(0)
    acked = 0
    while counter.count < count:
        nbytes = connection.sock.recv_into(counter.space())
        if not nbytes:
            raise BrokerError(f"consumer cut off: {counter.unexplained()}")
        counter.advance(nbytes)
        if counter.count - acked >= PREFETCH // 2:
            acked = counter.count
            connection.sock.sendall(encode_acks([acked], channel=1, multiple=True))
    rate = counter.count / (time.perf_counter() - started)
    connection.close()
    return rate


# By the blocking client


def in_bulk(broker: Broker, seconds: float, mib: int) -> list[Figure]:
    figures = []
    with connect(broker.url) as client:
        for size in (100, 1024):
            declare(broker.url, f"bulk-{size}")
            written = write(client, f"bulk-{size}", size, mib)
            if size == 1024:
                what = "bulk publish, whole chunks, 1 KB, durable"
                figures.append(Figure(what, broker.name, written, "msg/s", "100,000"))
        rates = [read(client, "bulk-100") for _ in range(rounds(seconds))]
        figures.append(Figure("bulk fetch, 100 B", broker.name, max(rates), "records/s", "1 M"))
        rates = [read(client, "bulk-1024") * 1024 / 1e6 for _ in range(rounds(seconds))]
        figures.append(Figure("bulk fetch, 1 KB", broker.name, max(rates), "MB/s", "500"))
    return figures


def rounds(seconds: float) -> int:
    """The best of so many is told."""
    return max(1, int(seconds / 2))


def write(client: StreamClient, stream: str, size: int, mib: int) -> float:
    """Records in a second. A chunk is made anew for each megabyte, a few are under way."""
    connection = client.connection
    given = connection.ask(wire.AllocateProducer(""), wire.ProducerAllocated)
    count = MIB // size
    values = [bytes([number % 256]) * size for number in range(count)]
    in_flight: deque[int] = deque()
    started = time.perf_counter()
    for number in range(mib):
        place = Producer(given.producer_id, given.epoch, number * count)
        now_ms = int(time.time() * 1000)
        chunk = encode_chunk([None] * count, values, [b""] * count, now_ms, producer=place)
        in_flight.append(connection.send(wire.Append(stream, 0, chunk)))
        if len(in_flight) == IN_FLIGHT:
            connection.receive(in_flight.popleft(), wire.Appended)
    for correlation in in_flight:
        connection.receive(correlation, wire.Appended)
    return mib * count / (time.perf_counter() - started)


def read(client: StreamClient, stream: str) -> float:
    """Records in a second, by chunks whose checksums are looked at."""
    started = time.perf_counter()
    count = sum(piece.stop - piece.start for piece in client.reader(stream, 0, 0).slices())
    return count / (time.perf_counter() - started)


# Many partitions


def many_partitions() -> list[Figure]:
    """As many segments as 64 partitions of ten gigabytes have, each a two-thousandth as large."""
    with tempfile.TemporaryDirectory(prefix="leveret-bench-") as directory:
        home = Path(directory)
        with brokers.leveret_in(home) as broker:
            declare(
                broker.url,
                "wide",
                partitions=PARTITIONS,
                stream_max_segment_size_bytes=SEGMENT_BYTES,
            )
            with connect(broker.url) as client:
                while (segments := _segments(home)) < PARTITIONS * SEGMENTS:
                    fill(client)
        started = time.perf_counter()
        with brokers.leveret_in(home) as broker:
            restart_s = time.perf_counter() - started
            assert broker.processes is not None
            rss_mb = broker.processes.rss_bytes() / 1e6
    what = f"{PARTITIONS} partitions, {segments} segments"
    return [
        Figure(f"{what}: restart", "leveret", restart_s, "s", "10"),
        Figure(f"{what}: memory", "leveret", rss_mb, "MB", "200"),
    ]


def _segments(home: Path) -> int:
    return len(list(home.glob("data/streams/*/*.segment")))


def fill(client: StreamClient) -> None:
    """A little more in each partition."""
    connection = client.connection
    count = SEGMENT_BYTES // 1024
    now_ms = int(time.time() * 1000)
    chunk = encode_chunk([None] * count, [bytes(1024)] * count, [b""] * count, now_ms)
    sent = [connection.send(wire.Append("wide", number, chunk)) for number in range(PARTITIONS)]
    for correlation in sent:
        connection.receive(correlation, wire.Appended)


# The table


def show(figures: list[Figure]) -> None:
    table = Table("work", "leveret", "rabbitmq", "ratio", "budget")
    for what in dict.fromkeys(figure.what for figure in figures):
        found = {figure.broker: figure for figure in figures if figure.what == what}
        cells = [_cell(found.get(name)) for name in ("leveret", "rabbitmq")]
        both = len(found) == 2
        ratio = f"{found['leveret'].value / found['rabbitmq'].value:.1f}" if both else ""
        table.add_row(what, *cells, ratio, next(iter(found.values())).budget)
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    number = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:,.2f}"
    return f"{number} {figure.unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of publishing over AMQP")
    parser.add_argument("--mib", type=int, default=256, help="to write and read in bulk, each size")
    parser.add_argument("--no-rabbitmq", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    kinds = [brokers.leveret]
    if not options.no_rabbitmq and brokers.rabbitmq_installed():
        kinds.append(brokers.rabbitmq)
    for kind in kinds:
        with ExitStack() as stack:
            broker = stack.enter_context(kind())
            figures += over_amqp(broker, options.seconds)
            if broker.name == "leveret":
                figures += in_bulk(broker, options.seconds, options.mib)
    figures += many_partitions()
    show(figures)


if __name__ == "__main__":
    main()
