"""A worker: messages of a queue to a function, with retries, dead letters, and nothing done twice.

    async def resize(message: Message) -> None:
        ...

    trio.run(run_worker, "amqp://localhost/", Job("images"), resize)

The message is acked when the function returns. When it raises, the message comes again after a
pause that grows each time; after `attempts` it is a dead letter, in the queue `<name>.dead`.
GiveUpError sends it there at once.
"""

import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from clients.amqp_errors import AlreadySettledError, AMQPClientError, ReturnedError
from clients.amqp_message import Message
from clients.idempotency import IdempotencyStore
from clients.trio_background import in_background, plain_nursery, until
from clients.trio_channel import Channel
from clients.trio_client import Connection, connect

LEASES: Final = "amq.leveret.lease"
DRAIN_S: Final = 30.0  # for what is under way when the worker is told to end

Handler = Callable[[Message], Awaitable[object]]
KeyOf = Callable[[Message], str | None]

log = logging.getLogger("leveret.worker")


class GiveUpError(Exception):
    """Raised by a handler: trying this message again is of no use."""


@dataclass(frozen=True, slots=True)
class Job:
    """A queue and how its messages are worked on. The arguments are those of docs/messages.md."""

    queue: str
    attempts: int = 5
    retry_s: float = 1.0  # after the first failure, and twice as long after each
    retry_most_s: float = 600.0
    lease_s: float | None = None  # a worker that hangs loses its message after so long
    prefetch: int = 10  # and so many are worked on at a time

    @property
    def dead_letters(self) -> str:
        return f"{self.queue}.dead"

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the queue."""
        found: dict[str, Any] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead_letters,
            "x-delivery-limit": self.attempts - 1,
            "x-retry-delay": int(self.retry_s * 1000),
            "x-retry-backoff": 2,
            "x-retry-max-delay": max(1, int(self.retry_most_s * 1000)),
        }
        if self.lease_s is not None:
            found["x-visibility-timeout"] = max(1, int(self.lease_s * 1000))
        return found

    async def declare(self, channel: Channel) -> None:
        """The queue and that of its dead letters."""
        await channel.declare_queue(self.dead_letters)
        await channel.declare_queue(self.queue, arguments=self.arguments)


def message_id(message: Message) -> str | None:
    return message.properties.message_id


async def run_worker(
    url: str,
    job: Job,
    handler: Handler,
    store: IdempotencyStore | None = None,
    *,
    drain_s: float = DRAIN_S,
) -> None:
    """Connect and work until SIGTERM or SIGINT; then finish what is under way, for `drain_s`."""
    stop = trio.Event()
    with trio.CancelScope() as scope:

        async def listen() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    stop.set()
                    scope.deadline = trio.current_time() + drain_s

        async with in_background(listen), connect(url, name=f"worker {job.queue}") as connection:
            await work(connection, job, handler, store, stop=stop)


async def work(
    connection: Connection,
    job: Job,
    handler: Handler,
    store: IdempotencyStore | None = None,
    *,
    key: KeyOf = message_id,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Declare the queues and work until `stop` is set, and what is under way then is done.

    With a `store`, a message whose key (its message id, or what `key` says) was done before is
    acked and not given to the handler. The key is stored when the handler has returned, and the
    message acked after that: so work is done twice only if the process dies between the two.
    """
    async with connection.channel() as channel:
        await job.declare(channel)
        worker = _Worker(channel, job, handler, store, key)
        async with (
            plain_nursery() as tasks,
            channel.consume(job.queue, prefetch=job.prefetch) as messages,
        ):
            task_status.started()
            async with until(stop if stop is not None else trio.Event()):
                async for message in messages:
                    tasks.start_soon(worker.handle, message)


class _Worker:
    def __init__(
        self,
        channel: Channel,
        job: Job,
        handler: Handler,
        store: IdempotencyStore | None,
        key_of: KeyOf,
    ) -> None:
        self._channel = channel
        self._job = job
        self._handler = handler
        self._store = store
        self._key_of = key_of
        self._under_way: dict[str, trio.Event] = {}

    async def handle(self, message: Message) -> None:
        """Raises nothing but Cancelled, which leaves the message to be delivered again."""
        settle: Callable[[], None]
        try:
            with trio.CancelScope() as scope:
                if self._job.lease_s is None:
                    await self._once(message)
                else:
                    lease_s = self._job.lease_s
                    async with in_background(lambda: self._hold(message, lease_s, scope)):
                        await self._once(message)
            if scope.cancelled_caught:
                log.warning("lost the lease of %r: somebody else has it", message)
                return
            settle = message.ack
        except GiveUpError as error:
            log.warning("giving up %r: %s", message, error)
            settle = message.reject
        except Exception:
            log.exception("%r failed", message)
            settle = message.nack
        with contextlib.suppress(AlreadySettledError):  # by the handler itself
            settle()

    async def _once(self, message: Message) -> None:
        """The handler, unless it has done this before."""
        store = self._store
        key = self._key_of(message) if store is not None else None
        if store is None or key is None:
            await self._handler(message)
            return
        while key in self._under_way:  # a duplicate that came while the first is at work
            await self._under_way[key].wait()
        done = self._under_way[key] = trio.Event()
        try:
            if not await trio.to_thread.run_sync(store.is_done, key):
                await self._handler(message)
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(store.add, key)
        finally:
            del self._under_way[key]
            done.set()

    async def _hold(self, message: Message, lease_s: float, work_on: trio.CancelScope) -> None:
        """Extend the lease while the work goes on; when it is lost, so is the work."""
        while True:
            await trio.sleep(lease_s / 3)
            if not message.live:
                return  # it comes again by itself; the tag means another message now
            try:
                tag = str(message.delivery_tag)
                await self._channel.publish(b"", exchange=LEASES, routing_key=tag, mandatory=True)
            except ReturnedError:
                work_on.cancel()
                return
            except AMQPClientError:
                return
