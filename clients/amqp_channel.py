"""One channel, sans-IO: requests and publishes go out, what comes is dealt to whom it is for."""

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm

from broker.protocol.constants import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_NACK,
    BASIC_RETURN,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
)
from broker.protocol.errors import ConnectionFailure
from broker.protocol.frames import CONTENT_TOO_LARGE, Content
from broker.protocol.methods import decode, encode, name_of
from clients.amqp_errors import (
    ChannelClosedError,
    ClosedByUsError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerCancelledError,
)
from clients.amqp_inbox import Inbox
from clients.amqp_message import Message, fetched
from clients.amqp_promise import Promise
from clients.amqp_publishing import Confirms, Publish, PublishEncoder, Receipt
from clients.amqp_settling import Settling

_U64 = struct.Struct(">Q")

REPLIES: Final = "amq.rabbitmq.reply-to"
_OF_CONSUMERS: Final = (Basic.ConsumeOk.index, Basic.CancelOk.index)


class Expected(NamedTuple):
    keys: tuple[int, ...]  # of the methods that can be the answer
    promise: Promise
    tag: str | None = None  # of the consumer that it is about
    then: Callable[[], None] | None = None


class ChannelCore:
    """`write` takes bytes for the peer; `settles` tells that `settling` has some; `gone` that the
    number is free again."""

    def __init__(
        self,
        number: int,
        frame_max: int,
        *,
        write: Callable[..., None],
        settles: Callable[["ChannelCore"], None],
        abandon: Callable[["ChannelCore"], None],
        gone: Callable[["ChannelCore"], None],
    ) -> None:
        self.number = number
        self.error: Exception | None = None  # why it is closed
        self.error_told = False
        self.confirms: Confirms | None = None
        self.unconfirmed: list[tuple[Receipt, Publish]] = []  # to be sent again by whoever can
        self.settling = Settling(number, lambda: settles(self))
        self.consumers: dict[bytes, Inbox] = {}
        self._encoder = PublishEncoder(number, frame_max)
        self._write = write
        self._abandon = abandon
        self._gone = gone
        self._expected: deque[Expected] = deque()
        self._closing: Promise | None = None
        self._has_replies = False  # a consumer of direct reply-to

    @property
    def expects_answers(self) -> bool:
        return bool(self._expected) or bool(self.confirms) or self._closing is not None

    def check(self) -> None:
        """Raises why this channel cannot be used."""
        if self.error is not None:
            self.error_told = True
            raise self.error

    # What goes out

    def request(self, kind: type[Frame], *answers: type[Frame], **arguments: Any) -> Promise:
        """Send a method. The answer is decoded, or for a get a message or None."""
        expected = Expected(tuple(answer.index for answer in answers), Promise())
        return self._request(expected, kind, arguments)

    def _request(self, expected: Expected, kind: type[Frame], arguments: dict[str, Any]) -> Promise:
        self.check()
        if written := self.settling.take():
            self._write(written)
        self._write(encode(self.number, kind, **arguments))
        self._expected.append(expected)
        return expected.promise

    def select_confirms(self) -> None:
        """Have all publishes from now on confirmed."""
        if self.confirms is None:
            self.check()
            self.confirms = Confirms()
            self._write(encode(self.number, Confirm.Select, nowait=True))

    def publish(self, publish: Publish, receipt: Receipt | None) -> None:
        """With a receipt it is told of the confirm. Raises ValueError for what does not fit."""
        if self.error is not None:
            self.check()
        pieces = self._encoder.pieces(publish)
        if receipt is not None and self.confirms is None:
            self.select_confirms()
        if self.confirms is not None:
            self.confirms.add(receipt if receipt is not None else Promise(), publish)
        self._write(*pieces)

    def consume(
        self,
        queue: str,
        inbox: Inbox,
        *,
        exclusive: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> Promise:
        told = {
            "queue": queue,
            "consumer_tag": inbox.tag,
            "no_ack": inbox.no_ack,
            "exclusive": exclusive,
            "arguments": arguments,
        }
        expected = Expected((Basic.ConsumeOk.index,), Promise(), inbox.tag)
        promise = self._request(expected, Basic.Consume, told)
        self.consumers[inbox.tag.encode()] = inbox  # deliveries may come with the answer
        self._has_replies = self._has_replies or queue == REPLIES
        return promise

    def cancel(self, inbox: Inbox) -> Promise | None:
        """End a consumer; what it has not read goes back to the queue once no more can come.

        None: there is nothing to wait for. One that has not begun ends when it has: RabbitMQ does
        not bear both at a time.
        """
        if self.error is not None or self.consumers.get(inbox.tag.encode()) is not inbox:
            return None
        expected = Expected(
            (Basic.CancelOk.index,), Promise(), inbox.tag, lambda: self._forget(inbox)
        )
        for place, each in enumerate(self._expected):
            if each.tag == inbox.tag and Basic.ConsumeOk.index in each.keys:
                self._expected[place] = each._replace(then=partial(self._cancel, expected))
                return None
        self._cancel(expected)
        return expected.promise

    def _cancel(self, expected: Expected) -> None:
        self._request(expected, Basic.Cancel, {"consumer_tag": expected.tag})

    def close(self) -> Promise:
        """Resolved when the broker has closed it, also if it does so by itself."""
        if self._closing is not None:
            return self._closing
        promise = Promise()
        if self.error is not None:
            promise.resolve()
            return promise
        if written := self.settling.take():
            self._write(written)
        arguments = {"reply_code": 200, "reply_text": "done", "class_id": 0, "method_id": 0}
        self._write(encode(self.number, Channel.Close, **arguments))
        self._closing = promise
        self._abandon(self)
        self._end(ClosedByUsError("the channel is closed"))
        self.error_told = True
        return promise

    # What comes

    def handle(self, key: int, items: Sequence[Any]) -> None:
        """A batch of methods of one kind. Raises ConnectionFailure for what makes no sense."""
        if key == BASIC_DELIVER:
            self._deliver(items)
        elif key in (BASIC_ACK, BASIC_NACK):
            if self.confirms is not None:
                self.confirms.settle(items, nacked=key == BASIC_NACK)
        elif key == BASIC_RETURN:
            if self.confirms is not None:
                for content in items:
                    self.confirms.take_return(content, self.settling)
        else:
            for item in items:
                self._handle_one(key, item)

    def _handle_one(self, key: int, item: Any) -> None:
        if key == CHANNEL_CLOSE:
            self._closed_by_peer(item)
        elif key == CHANNEL_CLOSE_OK:
            self._closed()
        elif key == CONTENT_TOO_LARGE:
            raise ConnectionFailure(501, f"a message of {item} bytes is more than we take")
        elif key == Basic.Cancel.index:
            self._cancelled_by_peer(decode(key, item))
        else:
            self._answered(key, item)

    def _answered(self, key: int, item: Any) -> None:
        """The first of its kind that is expected: RabbitMQ answers what is about consumers when
        their queue has, while it goes on with other requests."""
        fitting = [each for each in self._expected if key in each.keys]
        answer: Any = decode(key, item) if fitting and key != BASIC_GET_OK else None
        if key in _OF_CONSUMERS:
            fitting = [each for each in fitting if each.tag == answer.consumer_tag]
        if not fitting:
            raise ConnectionFailure(503, f"unexpected {name_of(key)}", method=key)
        expected = fitting[0]
        self._expected.remove(expected)
        if expected.then is not None:
            expected.then()
        if key == BASIC_GET_OK:
            answer = self._fetched(cast("Content", item))
        expected.promise.resolve(answer)

    def _fetched(self, content: Content) -> tuple[Message, int]:
        found = fetched(content, self.settling)
        if self._has_replies:
            self.settling.delivered(found[0].delivery_tag)
        return found

    def _deliver(self, contents: Sequence[Content]) -> None:
        """Consecutive deliveries to one consumer reach it together."""
        consumers = self.consumers
        settling = self.settling
        name: bytes | None = None
        inbox: Inbox | None = None
        batch: list[Message] = []
        for content in contents:
            args = content[0]
            at = args[0] + 1
            if args[1:at] != name:
                if batch:
                    self._put(inbox, batch)
                    batch = []
                name = args[1:at]
                inbox = consumers.get(name)
            batch.append(Message(content, settling, _U64.unpack_from(args, at)[0], at + 8))
        self._put(inbox, batch)

    def _put(self, inbox: Inbox | None, batch: list[Message]) -> None:
        if inbox is None:  # not ours: let somebody else have it
            for message in batch:
                message.nack(requeue=True)
            return
        if inbox.no_ack:
            for message in batch:
                self.settling.skip(message.delivery_tag)
        elif self._has_replies:
            for message in batch:
                self.settling.delivered(message.delivery_tag)
        inbox.put(batch)

    def _forget(self, inbox: Inbox) -> None:
        self.consumers.pop(inbox.tag.encode(), None)
        if not inbox.no_ack:
            for message in inbox.messages:
                message.nack(requeue=True)
        inbox.fail(ClosedByUsError("the consumer is closed"))

    def _cancelled_by_peer(self, method: Any) -> None:
        inbox = self.consumers.pop(method.consumer_tag.encode(), None)
        if inbox is not None:
            inbox.cancelled(ConsumerCancelledError(f"consumer {inbox.tag!r}: its queue is gone"))

    # The end

    def _closed_by_peer(self, args: bytes) -> None:
        method: Any = decode(CHANNEL_CLOSE, args)
        self._write(encode(self.number, Channel.CloseOk))
        if self._closing is None:
            self.fail(ChannelClosedError(method.reply_code, method.reply_text))
            self._gone(self)

    def _closed(self) -> None:
        closing, self._closing = self._closing, None
        if closing is not None:
            self._gone(self)
            closing.resolve()

    def fail(self, error: Exception) -> None:
        """It is gone, or the whole connection is: everybody who waits is told."""
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.resolve()
        if self.error is None:
            self._end(error)

    def _end(self, error: Exception) -> None:
        self.error = error
        self.settling.end()
        for expected in self._expected:
            self.error_told = self.error_told or expected.promise.wake is not None
            expected.promise.fail(error)
        self._expected.clear()
        for inbox in self.consumers.values():
            inbox.fail(error)
        self.consumers.clear()
        if self.confirms:
            self.error_told = True
            self.unconfirmed = self.confirms.fail(error)
            if not isinstance(error, (ConnectionLostError, ConnectionClosedError)):
                self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """There will be no other channel on which to send the unconfirmed again."""
        unconfirmed, self.unconfirmed = self.unconfirmed, []
        for receipt, _ in unconfirmed:
            receipt.fail(error)
