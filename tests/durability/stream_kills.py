"""Kills a broker again and again while producers send chunks and readers follow.

    python -m tests.durability.stream_kills --kills 50 --seed 7

A producer numbers its records in each partition, and after every kill sends again whatever was not
confirmed. So each partition must hold the records of each producer once, in order, without a hole,
up to the last confirmed one at least; and what a reader saw at an offset stays there.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from pathlib import Path
from random import Random

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer as Place
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import END
from clients.stream_address import Address
from clients.stream_connection import StreamConnection
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError
from clients.stream_reader import FETCH_BYTES, Reader, slices
from tests.durability.kills import Broker
from tests.support.process import TRACEBACK

STREAM = "events"
PARTITIONS = 2
PRODUCERS = 2
IN_FLIGHT_MAX = 5
TIMEOUT_S = 20.0
WAIT_MS = 500  # of a follower at the end: it looks whether it is over


class Book:
    """What was sent, confirmed and read; written by all threads, each its own part."""

    def __init__(self) -> None:
        self.wrongs: list[str] = []
        self.confirmed: dict[tuple[str, int], int] = defaultdict(int)  # records, in order
        self.duplicates = 0
        self.read: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """A reader that goes on where it was got this."""
        if offset != len(self.read[partition]):
            self.wrongs.append(f"{partition}: offset {offset} after {len(self.read[partition])}")
        self.read[partition].append(value)

    def close(self, partition: int, values: list[bytes]) -> None:
        """At the end: all that a partition holds."""
        seen = self.read[partition]
        if values[: len(seen)] != seen:
            self.wrongs.append(f"{partition}: not what a reader saw before")
        counts: dict[str, int] = defaultdict(int)
        for value in values:
            name, number = value.decode().split()[:2]
            if int(number) != counts[name]:
                self.wrongs.append(f"{partition}: {name} {number} where {counts[name]} belongs")
            counts[name] = int(number) + 1
        for (name, where), count in self.confirmed.items():
            if where == partition and counts[name] < count:
                self.wrongs.append(f"{partition}: {name} has {counts[name]}, {count} confirmed")


class Actor(threading.Thread):
    """Works over one connection after another."""

    def __init__(self, name: str, broker: Broker, book: Book, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.book = book
        self.random = Random(f"{seed} {name}")

    def run(self) -> None:
        try:
            while not self.done:
                connection = StreamConnection(
                    Address.of_url(self.broker.url), name=self.name, timeout_s=TIMEOUT_S
                )
                try:
                    self.work(connection)
                except ConnectionLostError:
                    time.sleep(0.02)  # it is down; nothing tells when it is up again
                finally:
                    connection.close()
        except Exception as error:
            self.book.wrongs.append(f"{self.name} failed: {error!r}")
            raise

    @property
    def done(self) -> bool:
        return self.broker.ended.is_set()

    def work(self, connection: StreamConnection) -> None:
        raise NotImplementedError


class Sender(Actor):
    """To one partition, in one epoch for all its life."""

    def __init__(self, partition: int, *rest) -> None:
        super().__init__(f"sender-{partition}-{rest[0]}", *rest[1:])
        self.partition = partition
        self.identity: wire.ProducerAllocated | None = None
        self.next = 0
        self.unconfirmed: deque[tuple[bytes, int]] = deque()  # chunk and its records

    @property
    def done(self) -> bool:
        return self.broker.ended.is_set() and not self.unconfirmed

    def work(self, connection: StreamConnection) -> None:
        if self.identity is None:
            asked = connection.send(wire.AllocateProducer(self.name))
            self.identity = connection.receive(asked, wire.ProducerAllocated)
        in_flight = deque(self.send(connection, chunk) for chunk, _ in self.unconfirmed)
        while not self.done:
            if not self.broker.ended.is_set() and len(self.unconfirmed) < IN_FLIGHT_MAX:
                self.unconfirmed.append(self.make())
                in_flight.append(self.send(connection, self.unconfirmed[-1][0]))
            else:
                answer = connection.receive(in_flight.popleft(), wire.Appended)
                self.book.duplicates += answer.duplicate
                _, records = self.unconfirmed.popleft()
                self.book.confirmed[self.name, self.partition] += records

    def make(self) -> tuple[bytes, int]:
        count = self.random.choice([1, 1, 10, 200])
        values = [
            f"{self.name} {number} ".encode() + b"x" * self.random.randint(0, 1500)
            for number in range(self.next, self.next + count)
        ]
        place = Place(self.identity.producer_id, self.identity.epoch, self.next)
        self.next += count
        now_ms = int(time.time() * 1000)
        return encode_chunk([None] * count, values, [b""] * count, now_ms, producer=place), count

    def send(self, connection: StreamConnection, chunk: bytes) -> int:
        return connection.send(wire.Append(STREAM, self.partition, chunk))


class Follower(Actor):
    def __init__(self, partition: int, *rest) -> None:
        super().__init__(f"follower-{partition}", *rest)
        self.partition = partition

    def work(self, connection: StreamConnection) -> None:
        while not self.done:
            offset = len(self.book.read[self.partition])
            request = wire.Fetch(STREAM, self.partition, offset, END, FETCH_BYTES, 1, WAIT_MS)
            fetched = connection.receive(connection.send(request), Fetched)
            for piece in slices(fetched, offset, END):
                for record in piece.records():
                    self.book.take(self.partition, record.offset, record.value)


def declare(broker: Broker) -> None:
    with broker.connect() as connection:
        arguments = {"x-queue-type": "stream", "x-partitions": PARTITIONS}
        connection.open_channel().declare_queue(STREAM, durable=True, arguments=arguments)


def read_all(broker: Broker, partition: int) -> list[bytes]:
    connection = StreamConnection(Address.of_url(broker.url), timeout_s=TIMEOUT_S)
    try:
        return [record.value for record in Reader(connection, STREAM, partition, 0)]
    finally:
        connection.close()


def run(directory: Path, *, kills: int, seed: int) -> Book:
    random = Random(seed)
    book = Book()
    broker = Broker(directory)
    declare(broker)
    rest = (broker, book, seed)
    actors: list[Actor] = [
        Sender(partition, number, *rest)
        for partition in range(PARTITIONS)
        for number in range(PRODUCERS)
    ]
    actors += [Follower(partition, *rest) for partition in range(PARTITIONS)]
    for actor in actors:
        actor.start()
    try:
        for _ in range(kills):
            time.sleep(random.uniform(0.1, 1.0))  # the moment, not a wait for anything
            broker.kill() if random.random() < 0.85 else broker.stop()
            if random.random() < 0.25:
                broker.start_and_kill(random.uniform(0.01, 0.2))
            broker.start()
    finally:
        broker.ended.set()
        for actor in actors:
            actor.join(60)
    book.wrongs += [f"{actor.name} did not come to its end" for actor in actors if actor.is_alive()]
    broker.kill()
    broker.start()
    for partition in range(PARTITIONS):
        book.close(partition, read_all(broker, partition))
    broker.stop()
    if TRACEBACK in broker.log_text():
        book.wrongs.append(f"the broker raised:\n{broker.log_text()[-5000:]}")
    return book


def summary(book: Book, seed: int) -> str:
    counts = (
        f"seed {seed}: {sum(book.confirmed.values())} records confirmed, {book.duplicates} chunks "
        f"sent again in vain, {sum(map(len, book.read.values()))} records read meanwhile"
    )
    return "\n".join([counts, *book.wrongs[:50]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        book = run(Path(directory), kills=options.kills, seed=options.seed)
    print(summary(book, options.seed))
    return 1 if book.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
