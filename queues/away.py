"""Messages of a queue that are neither ready nor gone: delayed, leased, or coming back in turns."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Protocol

from queues.admission import retry_delay_ms
from queues.bell import Clock
from queues.consumers import Consumer
from queues.delays import Delays, OnDisk
from queues.leases import Leases
from queues.message import Message
from queues.options import QueueOptions
from queues.pacing import Pacer


class Home(Protocol):
    """The queue they come back to."""

    options: QueueOptions

    def came_back(self, messages: list[Message]) -> None: ...
    def cancelled(self, sequence: int) -> None: ...
    def blocks_groups(self, messages: list[Message]) -> None: ...
    def requeue(self, consumer: Consumer, messages: list[Message]) -> None: ...
    def refill(self) -> None: ...


class Away:
    """Each part is made when it is needed first, which in most queues is never."""

    __slots__ = ("_clock", "_delays", "_home", "_leases", "_pacer", "_store")

    def __init__(self, clock: Clock, home: Home) -> None:
        self._clock = clock
        self._home = home
        self._store: OnDisk | None = None
        self._delays: Delays | None = None
        self._leases: Leases | None = None
        self._pacer: Pacer | None = None

    def keep_in(self, store: OnDisk) -> None:
        self._store = store

    def configure(self, options: QueueOptions) -> None:
        if self._pacer is not None:
            self._pacer.set_rate(options.redelivery_rate)

    def clear(self) -> None:
        """Forget everything; no clock rings any more."""
        for part in (self._delays, self._leases, self._pacer):
            if part is not None:
                part.clear()

    def failed(self) -> list[Message]:
        """Messages in memory that were delivered and will come back; not those on disk."""
        delayed = self._delays.failed() if self._delays is not None else []
        return delayed + (self._pacer.waiting() if self._pacer is not None else [])

    # Delayed

    @property
    def delayed_count(self) -> int:
        return len(self._delays) if self._delays is not None else 0

    @property
    def delays(self) -> Delays:
        if self._delays is None:
            home = self._home
            self._delays = Delays(self._clock, home.came_back, home.cancelled, self._store)
        return self._delays

    def delayed(self, messages: list[Message]) -> None:
        """They are safe, and have to wait for their time."""
        self.delays.add(messages)

    def scheduled(self, delays: Iterable[tuple[int, int]]) -> None:
        """What a restart found."""
        found = iter(delays)
        for first in found:  # at most once: without any, nothing is needed for them
            self.delays.recovered(chain((first,), found))

    def retry_later(self, messages: list[Message]) -> None:
        """They failed, once more each."""
        now = self._clock.now_ms()
        for message in messages:
            wait_ms = retry_delay_ms(self._home.options, message.delivery_count)
            message.due_ms = now + wait_ms
        if self._store is not None:
            self._store.delay([(m.sequence, m.due_ms) for m in messages])
        self.delays.add(messages)
        self._home.blocks_groups(messages)

    def withdraw(self, sequences: Iterable[int]) -> set[int]:
        """Those of these that are delayed are so no more: somebody has them."""
        return self._delays.withdraw(sequences) if self._delays is not None else set()

    def forget_delayed(self) -> int:
        return self._delays.clear() if self._delays is not None else 0

    # Leased

    @property
    def leased_count(self) -> int:
        return len(self._leases) if self._leases is not None else 0

    def lease(self, consumer: Consumer, messages: list[Message]) -> None:
        """They were handed to a consumer that may have to settle them in time."""
        if consumer.lease_ms is not None:
            if self._leases is None:
                self._leases = Leases(self._clock, self._lease_over)
            self._leases.grant(consumer, messages, consumer.lease_ms)

    def _lease_over(self, consumer: Consumer, messages: list[Message]) -> None:
        """Take back what its holder still has; the rest is about to be settled."""
        taken = consumer.sink.revoke(consumer, messages)
        if taken:
            self._home.requeue(consumer, taken)
        if len(taken) < len(messages):
            gone = set(map(id, taken))
            self.lease(consumer, [message for message in messages if id(message) not in gone])

    def end_leases(self, messages: list[Message]) -> None:
        if self._leases is not None:
            self._leases.end(messages)

    def extend_lease(self, message: Message, lease_ms: int | None) -> bool:
        return self._leases is not None and self._leases.extend(message, lease_ms)

    # Coming back in turns

    @property
    def paced_count(self) -> int:
        return len(self._pacer) if self._pacer is not None else 0

    def admit(self, messages: list[Message]) -> list[Message]:
        """Those of a lost consumer's messages that may come back at once."""
        return self._paced().admit(messages)

    def forget_paced(self) -> list[Message]:
        return self._pacer.drain() if self._pacer is not None else []

    def may_redeliver(self) -> bool:
        """Whether more of what consumers held may be read; if not, `refill` follows."""
        return self._pacer is None or not self._pacer.full

    def withdraw_paced(self, sequences: Collection[int]) -> list[Message]:
        """Those of these that wait for their turn do so no more: somebody has them."""
        return self._pacer.remove(sequences) if self._pacer is not None else []

    def _paced(self) -> Pacer:
        if self._pacer is None:
            rate = self._home.options.redelivery_rate
            self._pacer = Pacer(self._clock, rate, self._next_turn)
        return self._pacer

    def _next_turn(self) -> None:
        self._home.came_back(self._paced().take())
        self._home.refill()
