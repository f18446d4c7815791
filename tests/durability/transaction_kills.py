"""Kills a broker again and again in the middle of transactions, while a reader takes cuts.

    python -m tests.durability.transaction_kills --kills 50 --seed 7

Each transaction puts one row into every partition and an offset into a group; some are aborted, and
what was not answered is asked again, with the same key. So in every cut all partitions hold the
same transactions, each once, in order, and at the end the group stands at the last of them.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import Status
from clients.stream_address import Address
from clients.stream_connection import StreamConnection
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_reader import Reader
from tests.durability.kills import Broker
from tests.support.process import TRACEBACK
from tests.support.waiting import eventually

STREAM = "ledger"
SOURCE = "source"
GROUP = "movers"
PARTITIONS = 3
PRODUCER = "mover"
TIMEOUT_S = 20.0


class Book:
    """What was decided and seen; written by all threads, each its own part."""

    def __init__(self) -> None:
        self.wrongs: list[str] = []
        self.committed: list[bytes] = []
        self.aborted = 0
        self.repeated = 0  # commits that were answered when they were asked again
        self.cuts = 0
        self.longest = 0

    def cut(self, ends: list[int]) -> None:
        self.cuts += 1
        if len(set(ends)) != 1:
            self.wrongs.append(f"a transaction is in some of its partitions only: {ends}")
        if ends[0] < self.longest:
            self.wrongs.append(f"a cut at {ends[0]} after one at {self.longest}")
        self.longest = max(self.longest, ends[0])

    def close(self, partitions: list[list[bytes]], offset: int | None) -> None:
        """At the end: all that is there."""
        for number, values in enumerate(partitions):
            if values != self.committed:
                self.wrongs.append(f"{number}: {len(values)} rows, {len(self.committed)} committed")
        if offset != len(self.committed):
            self.wrongs.append(f"the group stands at {offset}, not at {len(self.committed)}")


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
                address = Address.of_url(self.broker.url)
                connection = StreamConnection(address, name=self.name, timeout_s=TIMEOUT_S)
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


class Mover(Actor):
    """One transaction after another, each until it is decided."""

    epoch = -1
    sequence = 0
    attempt = 0
    asked = False  # for the commit of this attempt

    @property
    def done(self) -> bool:
        return self.broker.ended.is_set() and not self.asked

    def work(self, connection: StreamConnection) -> None:
        if self.epoch < 0:
            self.epoch = ask(connection, wire.OpenTransactions(PRODUCER)).epoch
        while not self.done:
            writer = f"writer-{self.attempt}"
            if not self.asked:
                for number in range(PARTITIONS):
                    self.stage(connection, number, writer)
                if self.random.random() < 0.2:
                    ask(connection, wire.Abort(self.key, self.parts(writer), ()))
                    self.book.aborted += 1
                    self.attempt += 1
                    continue
            self.commit(connection, writer)

    @property
    def key(self) -> wire.Key:
        return wire.Key(PRODUCER, self.epoch, self.sequence)

    @property
    def row(self) -> bytes:
        return b"%d %d" % (self.sequence, self.attempt)

    def parts(self, writer: str) -> tuple[wire.PartitionPart, ...]:
        rows = (wire.WriterRows(writer, 1),)
        return tuple(
            wire.PartitionPart(wire.Partition(STREAM, number), rows) for number in range(PARTITIONS)
        )

    def stage(self, connection: StreamConnection, number: int, writer: str) -> None:
        chunk = encode_chunk([None], [self.row], [b""], int(time.time() * 1000))
        ask(connection, wire.Stage(self.key, STREAM, number, writer, 0, chunk))

    def commit(self, connection: StreamConnection, writer: str) -> None:
        position = wire.Position(wire.Partition(SOURCE, 0), self.sequence + 1)
        group = wire.GroupPart(GROUP, "", 0, (position,))
        again, self.asked = self.asked, True
        try:
            ask(connection, wire.Commit(self.key, self.parts(writer), (group,)))
            self.book.repeated += again
        except RefusedError as error:
            if error.status == Status.TRANSACTION_BUSY:
                return
            if error.status != Status.TRANSACTION_ABORTED:
                raise
            self.book.aborted += 1
        else:
            self.book.committed.append(self.row)
            self.sequence += 1
        self.attempt += 1
        self.asked = False


class Cutter(Actor):
    def work(self, connection: StreamConnection) -> None:
        while not self.done:
            [found] = ask(connection, wire.Metadata((STREAM,))).streams
            self.book.cut([each.stable_offset for each in found.partitions])


def ask(connection: StreamConnection, request):
    """Once: what becomes of it if the connection is lost is for the caller to find out."""
    kinds = dict(wire.MESSAGES.values())
    return connection.receive(connection.send(request), kinds[type(request)])


def declare(broker: Broker) -> None:
    with broker.connect() as connection:
        channel = connection.open_channel()
        for name, count in ((STREAM, PARTITIONS), (SOURCE, 1)):
            arguments = {"x-queue-type": "stream", "x-partitions": count}
            channel.declare_queue(name, durable=True, arguments=arguments)


def read_all(connection: StreamConnection, count: int) -> tuple[list[list[bytes]], int | None]:
    """A broker that was killed first ends what it had decided."""

    def is_carried_out() -> bool:
        [found] = ask(connection, wire.Metadata((STREAM,))).streams
        return all(each.stable_offset >= count for each in found.partitions)

    eventually(is_carried_out, f"{count} transactions in all partitions", within_s=TIMEOUT_S)
    rows = [
        [record.value for record in Reader(connection, STREAM, number, 0)]
        for number in range(PARTITIONS)
    ]
    offsets = ask(connection, wire.FetchOffsets(GROUP, ())).offsets
    return rows, offsets[0].offset if offsets else None


def run(directory: Path, *, kills: int, seed: int) -> Book:
    random = Random(seed)
    book = Book()
    broker = Broker(directory)
    declare(broker)
    actors: list[Actor] = [kind(kind.__name__, broker, book, seed) for kind in (Mover, Cutter)]
    for actor in actors:
        actor.start()
    try:
        for life in range(1, kills + 1):
            enough = 10 * life
            eventually(
                lambda enough=enough: len(book.committed) >= enough <= book.cuts or book.wrongs,
                "something to lose",
                within_s=60,
            )
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
    connection = StreamConnection(Address.of_url(broker.url), timeout_s=TIMEOUT_S)
    book.close(*read_all(connection, len(book.committed)))
    connection.close()
    broker.stop()
    if TRACEBACK in broker.log_text():
        book.wrongs.append(f"the broker raised:\n{broker.log_text()[-5000:]}")
    return book


def summary(book: Book, seed: int) -> str:
    counts = (
        f"seed {seed}: {len(book.committed)} transactions committed, {book.aborted} aborted, "
        f"{book.repeated} asked for again, {book.cuts} cuts"
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
