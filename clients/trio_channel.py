"""A channel of the Trio client: declare, publish, consume, fetch, transactions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import trio
from pamqp.base import Frame
from pamqp.commands import Basic, Exchange, Queue, Tx

from clients.amqp_channel import ChannelCore
from clients.amqp_errors import (
    ChannelClosedError,
    ClosedByUsError,
    ConnectionClosedError,
    ConnectionLostError,
)
from clients.amqp_message import Message
from clients.amqp_promise import Promise
from clients.amqp_properties import Properties, PropertyArguments
from clients.amqp_publishing import Publish
from clients.amqp_requests import (
    QueueName,
    Table,
    exchange_binding,
    prepare,
    queue_binding,
    queue_declaration,
)
from clients.amqp_topology import DeclaredQueue
from clients.trio_consumer import Consumer
from clients.trio_link import OUT_BYTES_MAX, Link, settled
from clients.trio_publishing import PublishWindow

if TYPE_CHECKING:
    from clients.trio_client import Connection

PREFETCH: Final = 100
WINDOW: Final = 1000
CLOSE_S: Final = 5.0  # for a goodbye; then without


class Channel:
    """Use it in `async with`; any number of tasks may share it."""

    def __init__(self, connection: "Connection", link: Link, core: ChannelCore) -> None:
        self._connection = connection
        self._link = link
        self._core = core
        self._consumers: dict[str, Consumer] = {}
        self._tags = 0
        self._transactional = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        core = self._core
        untold = isinstance(core.error, ChannelClosedError) and not core.error_told
        await self.close()
        if error is None and untold:
            core.check()

    async def close(self) -> None:
        """What was delivered and not acked goes back to its queues."""
        self._closed = True
        self._connection.forget(self)
        self._consumers.clear()
        with trio.move_on_after(CLOSE_S):
            await settled(self._core.close())

    # What is there

    async def declare_queue(
        self,
        queue: str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Table | None = None,
    ) -> DeclaredQueue:
        """Without a name the broker chooses one; such a queue is exclusive if you do not say so."""
        told = queue_declaration(
            queue,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            passive=passive,
            arguments=arguments,
        )
        answer = await self._ask(Queue.Declare, Queue.DeclareOk, **told)
        handle = DeclaredQueue(answer.queue, answer.message_count, answer.consumer_count)
        if passive:
            return handle
        return self._connection.topology.queue_declared(handle, told)

    async def delete_queue(
        self, queue: QueueName, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """How many messages went with it."""
        told = {"queue": str(queue), "if_unused": if_unused, "if_empty": if_empty}
        answer = await self._ask(Queue.Delete, Queue.DeleteOk, **told)
        self._connection.topology.queue_deleted(str(queue))
        return int(answer.message_count)

    async def purge_queue(self, queue: QueueName) -> int:
        """How many messages there were."""
        answer = await self._ask(Queue.Purge, Queue.PurgeOk, queue=str(queue))
        return int(answer.message_count)

    async def declare_exchange(
        self,
        exchange: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Table | None = None,
    ) -> None:
        told = {
            "exchange": exchange,
            "exchange_type": kind,
            "durable": durable,
            "auto_delete": auto_delete,
            "internal": internal,
            "passive": passive,
            "arguments": arguments,
        }
        await self._ask(Exchange.Declare, Exchange.DeclareOk, **told)
        if not passive:
            self._connection.topology.exchange_declared(told)

    async def delete_exchange(self, exchange: str, *, if_unused: bool = False) -> None:
        await self._ask(Exchange.Delete, Exchange.DeleteOk, exchange=exchange, if_unused=if_unused)
        self._connection.topology.exchange_deleted(exchange)

    async def bind_queue(
        self,
        queue: QueueName,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = queue_binding(queue, exchange, routing_key, arguments)
        await self._ask(Queue.Bind, Queue.BindOk, **told)
        self._connection.topology.bound(Queue.Bind, told)

    async def unbind_queue(
        self,
        queue: QueueName,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = queue_binding(queue, exchange, routing_key, arguments)
        await self._ask(Queue.Unbind, Queue.UnbindOk, **told)
        self._connection.topology.unbound(Queue.Bind, told)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = exchange_binding(destination, source, routing_key, arguments)
        await self._ask(Exchange.Bind, Exchange.BindOk, **told)
        self._connection.topology.bound(Exchange.Bind, told)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = exchange_binding(destination, source, routing_key, arguments)
        await self._ask(Exchange.Unbind, Exchange.UnbindOk, **told)
        self._connection.topology.unbound(Exchange.Bind, told)

    # Messages out

    async def publish(
        self,
        body: bytes,
        *,
        exchange: str = "",
        routing_key: QueueName = "",
        mandatory: bool = False,
        confirm: bool = True,
        properties: Properties | None = None,
        **others: Unpack[PropertyArguments],
    ) -> None:
        """Returns when the broker has taken charge of the message; in a transaction, or without
        `confirm`, when it is on its way.

        Raises ReturnedError if it is mandatory and no queue takes it, NackedError if one refuses
        it, ConnectionLostError if nobody can know. A cancelled publish may have happened or not.
        """
        publish = self.prepare(body, exchange, routing_key, properties, others, mandatory=mandatory)
        core = await self.ready_to_publish()
        if self._transactional or not confirm:
            core.publish(publish, None)
            await trio.lowlevel.checkpoint()
            return
        promise = Promise()
        core.publish(publish, promise)
        await settled(promise)

    def publishing(self, window: int = WINDOW) -> PublishWindow:
        """Many messages, up to `window` of them unconfirmed at a time:

        async with channel.publishing() as out:
            await out.send(b"...", routing_key="q")
        """
        return PublishWindow(self, window)

    # Messages in

    def consume(
        self,
        queue: QueueName,
        *,
        prefetch: int = PREFETCH,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Table | None = None,
        tag: str = "",
    ) -> Consumer:
        """The messages of a queue, as they come:

        async with channel.consume("q") as messages:
            async for message in messages:
                message.ack()
        """
        self._tags += 1
        return Consumer(
            self,
            queue,
            tag or f"consumer-{self._tags}",
            prefetch=0 if no_ack else prefetch,
            no_ack=no_ack,
            exclusive=exclusive,
            arguments=arguments,
        )

    async def get(self, queue: QueueName, *, no_ack: bool = False) -> Message | None:
        """One message, if there is any."""
        core = await self.ready()
        promise = core.request(
            Basic.Get, Basic.GetOk, Basic.GetEmpty, queue=str(queue), no_ack=no_ack
        )
        answer: Any = await settled(promise)
        if isinstance(answer, Frame):
            return None
        message: Message = answer[0]
        if no_ack:
            core.settling.skip(message.delivery_tag)
        return message

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Publishes and acks in here happen all together at its end, or not at all if it raises."""
        if not self._transactional:
            await self._ask(Tx.Select, Tx.SelectOk)
            self._transactional = True
        core = self._core
        try:
            yield
            if core.error is not None:
                raise ConnectionLostError("the connection was lost, and the transaction with it")
        except BaseException:
            if self._core.error is None:  # a new one perhaps, with the second half of it
                self._core.request(Tx.Rollback, Tx.RollbackOk)
            raise
        await settled(core.request(Tx.Commit, Tx.CommitOk))

    # For the other parts of the client

    def prepare(
        self,
        body: bytes,
        exchange: str,
        routing_key: QueueName,
        properties: Properties | None,
        others: PropertyArguments,
        *,
        mandatory: bool,
    ) -> Publish:
        resend = self._connection.resend
        return prepare(
            body, exchange, routing_key, properties, others, mandatory=mandatory, resend=resend
        )

    async def ready(self) -> ChannelCore:
        """The channel, when there is a connection. Raises why there will be none."""
        while True:
            core = self._core
            if core.error is None:
                return core
            if self._closed:
                raise ClosedByUsError("the channel is closed")
            if not isinstance(core.error, (ConnectionLostError, ConnectionClosedError)):
                core.check()
            await self._connection.up()
            if self._core is core:  # opened just before the connection was lost
                raise core.error

    async def ready_to_publish(self) -> ChannelCore:
        """Also waits while the broker is blocked, or much waits to be written."""
        while True:
            core = await self.ready()
            if not self.must_wait:
                return core
            await self._link.room()

    @property
    def must_wait(self) -> bool:
        """For the connection, an alarm of the broker, or the socket."""
        core = self._link.core
        return (
            core.blocked is not None
            or core.out_bytes > OUT_BYTES_MAX
            or core.error is not None
            or self._core.error is not None
        )

    @property
    def core(self) -> ChannelCore:
        return self._core

    def read_on(self) -> None:
        self._link.resume()

    def add_consumer(self, consumer: Consumer) -> None:
        self._consumers[consumer.tag] = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.tag, None)

    async def recover(self, link: Link) -> None:
        """On a new connection: as it was, with what was not confirmed sent again if that is wanted.

        Raises why it cannot be.
        """
        before = self._core
        core, opened = link.core.open_channel()
        await settled(opened)
        if self._transactional:
            await settled(core.request(Tx.Select, Tx.SelectOk))
        for consumer in self._consumers.values():
            await consumer.subscribe(core)
        if before.confirms is not None:
            core.select_confirms()
        unconfirmed, before.unconfirmed = before.unconfirmed, []
        for receipt, publish in unconfirmed:
            core.publish(publish, receipt)
        self._core, self._link = core, link

    @property
    def recoverable(self) -> bool:
        return isinstance(self._core.error, (ConnectionLostError, ConnectionClosedError))

    def give_up(self, error: Exception) -> None:
        """There will be no other connection."""
        self._core.give_up(error)

    async def _ask(self, kind: type[Frame], *answers: type[Frame], **arguments: object) -> Any:
        core = await self.ready()
        return await settled(core.request(kind, *answers, **arguments))
