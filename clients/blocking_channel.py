"""A channel of the blocking client: declare, publish, consume, fetch, transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, Unpack

from pamqp.base import Frame
from pamqp.commands import Basic, Exchange, Queue, Tx

from clients.amqp_channel import ChannelCore
from clients.amqp_errors import ChannelClosedError
from clients.amqp_inbox import Inbox
from clients.amqp_message import Message
from clients.amqp_promise import Promise
from clients.amqp_properties import Properties, PropertyArguments
from clients.amqp_requests import (
    QueueName,
    Table,
    exchange_binding,
    prepare,
    queue_binding,
    queue_declaration,
)
from clients.amqp_topology import DeclaredQueue
from clients.blocking_link import BlockingLink
from clients.blocking_messages import Consumer, PublishWindow

PREFETCH: Final = 100
WINDOW: Final = 1000
CLOSE_S: Final = 5.0  # for a goodbye; then without


class Channel:
    """Use it in `with`."""

    def __init__(self, link: BlockingLink, core: ChannelCore) -> None:
        self._link = link
        self._core = core
        self._tags = 0
        self._transactional = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        core = self._core
        untold = isinstance(core.error, ChannelClosedError) and not core.error_told
        self.close()
        if error is None and untold:
            core.check()

    def close(self) -> None:
        """What was delivered and not acked goes back to its queues."""
        closed = self._core.close()
        self._link.wait_until(lambda: closed.done, CLOSE_S)

    # What is there

    def declare_queue(
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
        answer = self._ask(Queue.Declare, Queue.DeclareOk, **told)
        return DeclaredQueue(answer.queue, answer.message_count, answer.consumer_count)

    def delete_queue(
        self, queue: QueueName, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """How many messages went with it."""
        told = {"queue": str(queue), "if_unused": if_unused, "if_empty": if_empty}
        answer = self._ask(Queue.Delete, Queue.DeleteOk, **told)
        return int(answer.message_count)

    def purge_queue(self, queue: QueueName) -> int:
        """How many messages there were."""
        answer = self._ask(Queue.Purge, Queue.PurgeOk, queue=str(queue))
        return int(answer.message_count)

    def declare_exchange(
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
        self._ask(Exchange.Declare, Exchange.DeclareOk, **told)

    def delete_exchange(self, exchange: str, *, if_unused: bool = False) -> None:
        self._ask(Exchange.Delete, Exchange.DeleteOk, exchange=exchange, if_unused=if_unused)

    def bind_queue(
        self,
        queue: QueueName,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = queue_binding(queue, exchange, routing_key, arguments)
        self._ask(Queue.Bind, Queue.BindOk, **told)

    def unbind_queue(
        self,
        queue: QueueName,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = queue_binding(queue, exchange, routing_key, arguments)
        self._ask(Queue.Unbind, Queue.UnbindOk, **told)

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = exchange_binding(destination, source, routing_key, arguments)
        self._ask(Exchange.Bind, Exchange.BindOk, **told)

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Table | None = None,
    ) -> None:
        told = exchange_binding(destination, source, routing_key, arguments)
        self._ask(Exchange.Unbind, Exchange.UnbindOk, **told)

    # Messages out

    def publish(
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
        it, ConnectionLostError if nobody can know.
        """
        publish = prepare(
            body, exchange, routing_key, properties, others, mandatory=mandatory, resend=False
        )
        connection = self._link.core
        if connection.blocked is not None:
            self._link.wait_until(lambda: connection.blocked is None)
        if self._transactional or not confirm:
            self._core.publish(publish, None)
            self._link.pump()
            return
        promise = Promise()
        self._core.publish(publish, promise)
        self._link.wait(promise)

    def publishing(self, window: int = WINDOW) -> PublishWindow:
        """Many messages, up to `window` of them unconfirmed at a time:

        with channel.publishing() as out:
            out.send(b"...", routing_key="q")
        """
        return PublishWindow(self._link, self._core, window)

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
        timeout_s: float | None = None,
    ) -> Consumer:
        """The messages of a queue, as they come:

        with channel.consume("q", timeout_s=10) as messages:
            for message in messages:
                message.ack()
        """
        self._tags += 1
        prefetch = 0 if no_ack else prefetch
        tag = tag or f"consumer-{self._tags}"
        inbox = Inbox(tag, no_ack=no_ack, bounded=prefetch > 0)
        if prefetch:
            self._core.request(Basic.Qos, Basic.QosOk, prefetch_count=prefetch)
        promise = self._core.consume(str(queue), inbox, exclusive=exclusive, arguments=arguments)
        self._link.wait(promise)
        return Consumer(self._link, self._core, inbox, timeout_s)

    def get(self, queue: QueueName, *, no_ack: bool = False) -> Message | None:
        """One message, if there is any."""
        told = {"queue": str(queue), "no_ack": no_ack}
        answer = self._ask(Basic.Get, Basic.GetOk, Basic.GetEmpty, **told)
        if isinstance(answer, Frame):
            return None
        message: Message = answer[0]
        if no_ack:
            self._core.settling.skip(message.delivery_tag)
        return message

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Publishes and acks in here happen all together at its end, or not at all if it raises."""
        if not self._transactional:
            self._ask(Tx.Select, Tx.SelectOk)
            self._transactional = True
        try:
            yield
        except BaseException:
            if self._core.error is None:
                self._core.request(Tx.Rollback, Tx.RollbackOk)
            raise
        self._ask(Tx.Commit, Tx.CommitOk)

    def _ask(self, kind: type[Frame], *answers: type[Frame], **arguments: object) -> Any:
        return self._link.wait(self._core.request(kind, *answers, **arguments))
