"""Messages in the hands of SQS's receivers: taken from a queue on a lease, deleted, given back."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from broker.cluster.guests import hand_back
from broker.cluster.queue_wire import How
from broker.sqs.duplicates import Duplicates
from broker.sqs.receipts import SESSION_BYTES, Held, Receipt, Receipts
from flow_control.credit import Credit
from queues.consumers import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queues.message import Message
    from queues.queue import Queue
    from queues.stream.subscription import Records

IN_FLIGHT_MAX: Final = 120_000  # AWS's limit too
TAG: Final = "sqs"
_SWEEP_MIN: Final = 64  # holders of queues that are gone are looked for from so many on


class Receiver:
    """The sink of one ReceiveMessage: takes as many messages as it may, once."""

    paused: Final = False

    def __init__(self, holder: Holder, count: int, lease_ms: int, now_ms: int) -> None:
        self.credit = Credit()
        self.consumer = Consumer(TAG, holder.queue, self, prefetch=count, lease_ms=lease_ms)
        self.taken: list[Held] = []
        self.over = trio.Event()  # there is something, or never will be
        self._receipts = holder.receipts
        self._now_ms = now_ms

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        for message in messages:
            self.taken.append(self._receipts.issue(consumer, message, self._now_ms))
        self.over.set()

    def deliver_records(self, consumer: Consumer, records: Records) -> None:
        raise NotImplementedError("streams are not received from")

    def revoke(self, consumer: Consumer, messages: list[Message]) -> list[Message]:  # noqa: ARG002
        return self._receipts.came_back(messages)

    def consumer_cancelled(self, consumer: Consumer) -> None:  # noqa: ARG002
        self.over.set()


class Holder:
    """What receivers hold of one queue, while this node serves it."""

    def __init__(self, queue: Queue, session: bytes) -> None:
        self.queue = queue
        self.receipts = Receipts(queue.uid, session)

    # Receiving

    @contextmanager
    def receiving(self, count: int, lease_ms: int, now_ms: int) -> Iterator[Receiver]:
        """A receiver that stands in line with all other consumers as long as this lasts.

        An exception, such as that the client went away, gives back what it got.
        """
        queue = self.queue
        receiver = Receiver(self, count, lease_ms, now_ms)
        if queue.auto_delete:  # which a consumer that leaves would end: none comes
            receiver.consumer.fetching = True
            _fetch(queue, receiver, count)
        else:
            queue.add_consumer(receiver.consumer)
            queue.start_consumer()
        try:
            yield receiver
        except BaseException:
            self._leave(receiver)
            self.give_up(receiver)
            raise
        self._leave(receiver)
        self._fill(receiver, count)

    def _leave(self, receiver: Receiver) -> None:
        if not self.queue.auto_delete:
            self.queue.remove_consumer(receiver.consumer)

    def _fill(self, receiver: Receiver, count: int) -> None:
        """With more of the same groups, in a queue that has any."""
        for held in receiver.taken.copy():
            left = count - len(receiver.taken)
            if left <= 0:
                return
            more = self.queue.get_behind(receiver.consumer, held.message, left)
            receiver.deliver(receiver.consumer, more)

    def give_up(self, receiver: Receiver) -> None:
        """Nobody was shown what it took."""
        back = self.receipts.came_back([held.message for held in receiver.taken])
        if back and not self.queue.deleted:
            hand_back(self.queue, receiver.consumer, How.UNTOUCHED, back)

    # What becomes of messages

    def delete(self, helds: list[Held]) -> None:
        """All at once."""
        for held in helds:
            self.receipts.settled(held)
            self.receipts.deleted(held.receipt)
        if helds:
            self.queue.settle(helds[0].consumer, [held.message for held in helds])

    def delete_late(self, receipts: list[Receipt], then: Callable[[set[Receipt]], None]) -> None:
        """Delete messages whose time was over, unless somebody got them since: which they were."""
        wanted = {receipt.sequence: receipt for receipt in receipts}
        self.queue.browse().take(wanted.keys(), partial(self._drop_late, wanted, then))

    def _drop_late(
        self,
        wanted: dict[int, Receipt],
        then: Callable[[set[Receipt]], None],
        taken: list[Message],
    ) -> None:
        queue = self.queue
        good = [m for m in taken if self.receipts.still_good(wanted[m.sequence], m)]
        gone = {wanted[message.sequence] for message in good}
        queue.hold(taken)
        queue.let_go([m for m in taken if wanted[m.sequence] not in gone])
        queue.drop(good)
        for receipt in gone:
            self.receipts.deleted(receipt)
        then(gone)

    def release(self, helds: list[Held]) -> None:
        """They are given back before their time is over."""
        back = self.receipts.came_back([held.message for held in helds])
        if back:
            self.queue.requeue(helds[0].consumer, back)

    def extend(self, held: Held, lease_ms: int) -> bool:
        return self.queue.extend_lease(held.message, lease_ms)

    def purge(self) -> None:
        """What receivers hold goes as well."""
        self.queue.purge()
        self.delete(self.receipts.all())


def _fetch(queue: Queue, receiver: Receiver, count: int) -> None:
    for _ in range(count):
        message = queue.get(receiver.consumer)
        if message is None:
            return
        receiver.deliver(receiver.consumer, [message])


class Holders:
    """Of all queues that this node serves."""

    def __init__(self, new_session: Callable[[int], bytes]) -> None:
        self.duplicates = Duplicates()
        self.altering = trio.Lock()  # settings of queues, one after another
        self._new_session = new_session
        self._holders: dict[bytes, Holder] = {}  # by the queue's uid
        self._sweep_at = _SWEEP_MIN

    def of(self, queue: Queue) -> Holder:
        holder = self._holders.get(queue.uid)
        if holder is None or holder.queue is not queue:
            holder = self._holders[queue.uid] = Holder(queue, self._new_session(SESSION_BYTES))
            if len(self._holders) > self._sweep_at:
                self._sweep()
        return holder

    def _sweep(self) -> None:
        self._holders = {u: one for u, one in self._holders.items() if not one.queue.deleted}
        self._sweep_at = max(_SWEEP_MIN, 2 * len(self._holders))
