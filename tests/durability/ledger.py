"""What was promised and what was seen while a broker was killed again and again.

A message is *confirmed* when its publisher got the ack. It is *settled* when a consumer acked it
and then, on the same channel, published to the same queue and got that confirmed: commands of one
queue stand in its log in the order in which they came, so that the confirm vouches for the ack
before it. An ack without such a confirm behind it may be lost with the broker.

    confirmed and never acked   must still be there at the end
    acked, not settled          may be there or not
    settled                     must never be delivered again
    published, not confirmed    may be there or not
"""

import threading
from collections import Counter, defaultdict
from typing import NamedTuple


class Name(NamedTuple):
    """A message: who published it, and its number among his to this queue."""

    queue: str
    publisher: str
    number: int

    def body(self, size: int) -> bytes:
        head = f"{self.queue} {self.publisher} {self.number} ".encode()
        filling = (str(self.number) * (size // len(str(self.number)) + 1))[:size]
        return head + filling.encode()

    @classmethod
    def of(cls, body: bytes) -> "Name":
        """The name in a body; ValueError if the rest is not as it was made."""
        queue, publisher, number, filling = body.decode().split(" ", 3)
        name = cls(queue, publisher, int(number))
        if name.body(len(filling)) != body:
            raise ValueError(f"{name} with another body than was published: {body[:200]!r}")
        return name


class Ledger:
    """Written by all actors, from their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[tuple[str, str], int] = defaultdict(int)
        self.published: set[Name] = set()
        self.confirmed: set[Name] = set()
        self.acked: set[Name] = set()
        self.settled: set[Name] = set()
        self.delivered: set[Name] = set()
        self.deliveries = 0
        self.wrongs: list[str] = []

    def publish(self, queue: str, publisher: str) -> Name:
        """Before it is sent."""
        with self._lock:
            name = Name(queue, publisher, self._next[queue, publisher])
            self._next[queue, publisher] += 1
            self.published.add(name)
            return name

    def confirm(self, names: list[Name]) -> None:
        with self._lock:
            self.confirmed.update(names)

    def deliver(self, queue: str, body: bytes) -> Name | None:
        with self._lock:
            self.deliveries += 1
            try:
                name = Name.of(body)
            except ValueError as error:
                self.wrongs.append(f"invented or damaged: {error}")
                return None
            if name not in self.published or name.queue != queue:
                self.wrongs.append(f"invented: {name} in {queue}")
            if name in self.settled:
                self.wrongs.append(f"came back after it was settled: {name}")
            self.delivered.add(name)
            return name

    def ack(self, name: Name) -> None:
        """Before it is sent."""
        with self._lock:
            self.acked.add(name)

    def settle(self, names: list[Name]) -> None:
        with self._lock:
            self.settled.update(names)

    def wrong(self, text: str) -> None:
        with self._lock:
            self.wrongs.append(text)

    def close(self, left: list[Name]) -> None:
        """At the end: what one consumer found in the queues, in its order."""
        found = set(left)
        twice = [name for name, count in Counter(left).items() if count > 1]
        lost = sorted(self.confirmed - self.acked - found)
        never = sorted(self.confirmed - self.delivered)
        self.wrongs += [f"twice in the end: {name}" for name in twice]
        self.wrongs += [f"lost: {name}" for name in lost]
        self.wrongs += [f"never delivered: {name}" for name in never]
        last: dict[tuple[str, str], int] = {}
        for name in left:
            source = (name.queue, name.publisher)
            if name.number <= last.get(source, -1):
                self.wrongs.append(f"out of order in the end: {name} after {last[source]}")
            last[source] = name.number
