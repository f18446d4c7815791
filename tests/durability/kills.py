"""Kills a broker again and again under load, and checks that it kept its word.

    python -m tests.durability.kills --kills 50 --seed 7

Publishers confirm in windows; consumers ack, requeue and break off; the broker is killed at random
moments, now and then while it starts, and sometimes stopped in good order. See ledger.py for what
is checked. The seed decides what everybody does; what the machine does in between it cannot.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from random import Random

from tests.durability.ledger import Ledger, Name
from tests.support.forked import Forked
from tests.support.frames import Basic, Confirm, kind_of
from tests.support.process import TRACEBACK, BrokerProcess, clean_environment
from tests.support.wire import (
    ChannelClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    WireChannel,
    WireConnection,
)

QUEUES = {
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
    "classic": {"x-queue-type": "classic"},
    "priority": {"x-max-priority": 2, "x-delivery-limit": 1_000_000},
}
PUBLISHERS = 3
CONSUMERS = 2  # of each queue
WINDOW = 200
PREFETCH = 50
LOST = (OSError, ConnectionLostError, ConnectionClosedError, TimeoutError)


class Broker:
    """The one under attack; clients ask it where to go."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended = threading.Event()  # the test is over
        self._process = BrokerProcess(directory)

    @property
    def url(self) -> str:
        """Another one in every life."""
        return self._process.amqp_url()

    def connect(self) -> WireConnection:
        return WireConnection.connect(self.url)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        assert self._process.stop() == 0, self._process.log_text()

    def start(self) -> None:
        self._process = BrokerProcess(self.directory)

    def start_and_kill(self, after_s: float) -> None:
        """A life too short to be of use to anybody."""
        data_dir = str(self.directory / "data")
        arguments = ["serve", "--amqp-port", "0", "--http-port", "0", "--data-dir", data_dir]
        with Path(os.devnull).open("wb") as nowhere:
            process = Forked(arguments, clean_environment({}), nowhere)
        time.sleep(after_s)
        process.kill()
        process.wait()

    def log_text(self) -> str:
        return self._process.log_text()


class Actor(threading.Thread):
    """Does its work over one connection after another, until the end."""

    def __init__(self, name: str, broker: Broker, ledger: Ledger, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.ledger = ledger
        self.random = Random(f"{seed} {name}")
        self.sessions = 0

    def run(self) -> None:
        while not self.broker.ended.is_set():
            try:
                connection = self.broker.connect()
            except LOST:
                time.sleep(0.02)  # it is down; nothing tells when it is up again
                continue
            self.sessions += 1
            try:
                self.work(connection.open_channel())
            except LOST:
                pass
            except ChannelClosedError as error:
                self.ledger.wrong(f"{self.name}: {error}")
            except Exception as error:
                self.ledger.wrong(f"{self.name} failed: {error!r}")
                raise
            finally:
                connection.abort()

    def work(self, channel: WireChannel) -> None:
        raise NotImplementedError


class Unconfirmed:
    """What a channel has published and nobody confirmed yet, by tag."""

    def __init__(self) -> None:
        self._tag = 0
        self._open: deque[tuple[int, Name]] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def sent(self, name: Name) -> int:
        self._tag += 1
        self._open.append((self._tag, name))
        return self._tag

    def confirmed(self, ack: Basic.Ack) -> list[Name]:
        if ack.multiple:
            names = []
            while self._open and self._open[0][0] <= ack.delivery_tag:
                names.append(self._open.popleft()[1])
            return names
        names = [name for tag, name in self._open if tag == ack.delivery_tag]
        self._open = deque(pair for pair in self._open if pair[0] != ack.delivery_tag)
        return names


class Publisher(Actor):
    def work(self, channel: WireChannel) -> None:
        channel.rpc(Confirm.Select())
        unconfirmed = Unconfirmed()
        random = self.random
        while not self.broker.ended.is_set():
            for _ in range(random.randint(1, 40)):
                name = self.ledger.publish(random.choice(list(QUEUES)), self.name)
                size = 60_000 if random.random() < 0.005 else random.randint(0, 1500)
                unconfirmed.sent(name)
                channel.publish("", name.queue, name.body(size), delivery_mode=2)
            while len(unconfirmed) > WINDOW // 2:
                self.ledger.confirm(unconfirmed.confirmed(channel.expect(Basic.Ack)))
        while len(unconfirmed):
            self.ledger.confirm(unconfirmed.confirmed(channel.expect(Basic.Ack)))


class ConsumerSession:
    """One connection of a consumer."""

    def __init__(self, actor: "Consumer", channel: WireChannel) -> None:
        self.actor = actor
        self.channel = channel
        self.unconfirmed = Unconfirmed()
        self.acked: list[Name] = []  # since the last publish
        self.covered: dict[Name, list[Name]] = {}  # published → what was acked before it
        self.last: dict[str, int] = {}  # publisher → number of its last first delivery

    def take(self, content: object) -> None:
        actor, random = self.actor, self.actor.random
        name = actor.ledger.deliver(actor.queue, content.body)
        if name is None:
            return
        if not content.redelivered:
            if name.number <= self.last.get(name.publisher, -1):
                actor.ledger.wrong(f"out of order: {name} after {self.last[name.publisher]}")
            self.last[name.publisher] = name.number
        if random.random() < 0.1:
            self.channel.nack(content.delivery_tag)
            return
        actor.ledger.ack(name)
        self.channel.ack(content.delivery_tag)
        self.acked.append(name)
        if len(self.acked) >= 25:
            self.publish()

    def publish(self) -> None:
        """To the same queue: its confirm vouches for the acks before it."""
        name = self.actor.ledger.publish(self.actor.queue, self.actor.name)
        self.covered[name], self.acked = self.acked, []
        self.unconfirmed.sent(name)
        self.channel.publish("", name.queue, name.body(10), delivery_mode=2)

    def confirmed(self, ack: Basic.Ack) -> None:
        for name in self.unconfirmed.confirmed(ack):
            self.actor.ledger.confirm([name])
            self.actor.ledger.settle(self.covered.pop(name))


class Consumer(Actor):
    def __init__(self, name: str, queue: str, *rest: object) -> None:
        super().__init__(name, *rest)
        self.queue = queue

    def work(self, channel: WireChannel) -> None:
        channel.rpc(Confirm.Select())
        channel.qos(PREFETCH)
        channel.consume(self.queue)
        session = ConsumerSession(self, channel)
        while not self.broker.ended.is_set():
            try:
                item = channel.conn.next_item(channel.number, timeout=0.2)
            except TimeoutError:
                continue
            if kind_of(item) is Basic.Deliver:
                session.take(item)
                if self.random.random() < 0.002:
                    return  # with all it holds
            elif isinstance(item, Basic.Ack):
                session.confirmed(item)
            else:
                self.ledger.wrong(f"{self.name} got {item}")


def declare(broker: Broker) -> None:
    with broker.connect() as connection:
        channel = connection.open_channel()
        for queue, arguments in QUEUES.items():
            channel.declare_queue(queue, durable=True, arguments=arguments)


def drain(broker: Broker, ledger: Ledger) -> list[Name]:
    """All that is left, in the order in which one client gets it."""
    left: list[Name] = []
    with broker.connect() as connection:
        channel = connection.open_channel()
        for queue in QUEUES:
            while (content := channel.get(queue)) is not None:
                name = ledger.deliver(queue, content.body)
                left += [name] if name is not None else []
    return left


def run(directory: Path, *, kills: int, seed: int) -> Ledger:
    """So many ends of the broker, and the ledger after them."""
    random = Random(seed)
    ledger = Ledger()
    broker = Broker(directory)
    declare(broker)
    rest = (broker, ledger, seed)
    actors: list[Actor] = [Publisher(f"publisher-{n}", *rest) for n in range(PUBLISHERS)]
    actors += [Consumer(f"{q}-{n}", q, *rest) for q in QUEUES for n in range(CONSUMERS)]
    for actor in actors:
        actor.start()
    try:
        for _ in range(kills):
            time.sleep(random.uniform(0.05, 1.0))  # the moment, not a wait for anything
            broker.kill() if random.random() < 0.85 else broker.stop()
            if random.random() < 0.25:
                broker.start_and_kill(random.uniform(0.01, 0.2))
            broker.start()
    finally:
        broker.ended.set()
        for actor in actors:
            actor.join(30)
    broker.kill()
    broker.start()
    ledger.close(drain(broker, ledger))
    broker.stop()
    if TRACEBACK in broker.log_text():
        ledger.wrong(f"the broker raised:\n{broker.log_text()[-5000:]}")
    return ledger


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ledger = run(Path(directory), kills=options.kills, seed=options.seed)
    print(summary(ledger, options.seed))
    return 1 if ledger.wrongs else 0


def summary(ledger: Ledger, seed: int) -> str:
    counts = (
        f"seed {seed}: {len(ledger.published)} published, {len(ledger.confirmed)} confirmed, "
        f"{ledger.deliveries} deliveries, {len(ledger.acked)} acked, {len(ledger.settled)} settled"
    )
    return "\n".join([counts, *ledger.wrongs[:50]])


if __name__ == "__main__":
    sys.exit(main())
