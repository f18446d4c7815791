"""Consuming from streams: what they ask of a consumer, and what it may ask of them."""

from functools import partial
from typing import TYPE_CHECKING

from pamqp import commands

from broker.protocol.errors import access_refused, not_implemented, precondition_failed
from queues.arguments import InvalidArgumentError
from queues.consumers import Consumer
from queues.queue import Queue
from queues.stream.stream import Stream
from queues.stream.wishes import Edge, read_membership, read_wishes

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.channel.channel import Channel
    from queues.seams import AnyQueue


def consume_stream(
    channel: "Channel", method: commands.Basic.Consume, tag: str, stream: Stream
) -> None:
    """Any number of consumers read a stream, none in another's way: also if said exclusive.

    Those of a group share its partitions instead.
    """
    thing = f"queue '{stream.name}' in vhost '{channel.vhost.name}'"
    if method.no_ack:
        raise not_implemented(f"automatic acknowledgement not supported by stream {thing}")
    if not channel.prefetch:
        raise precondition_failed(f"consumer prefetch count is not set for stream {thing}")
    try:
        wishes = read_wishes(method.arguments, len(stream.partitions), channel.vhost.now_ms())
        membership = read_membership(method.arguments)
    except InvalidArgumentError as error:
        text = f"invalid arg '{error.name}' for {thing}: {error.reason}"
        raise precondition_failed(text) from None
    consumer = Consumer(
        tag,
        stream,
        channel.deliveries,
        exclusive=method.exclusive,
        prefetch=channel.prefetch,
        arguments=method.arguments,
    )
    if membership is None:

        def begin() -> None:
            channel.vhost.queue(stream.name, user_of=channel.link)  # it may have gone meanwhile
            stream.subscribe(consumer, wishes)
            _begin(channel, method, consumer, stream)

        if wishes.start in (Edge.NEXT, Edge.LAST):
            channel.suspend(partial(stream.when_current, wishes.partitions), begin)
        else:
            begin()
        return
    group, instance = membership
    _authorize_group(channel, group)
    groups = channel.vhost.groups
    if groups is None:
        raise not_implemented("consumer groups")

    def join() -> None:
        # The stream may have gone while the groups were being read.
        channel.vhost.queue(stream.name, user_of=channel.link)
        if groups.trouble is not None:
            raise precondition_failed(f"consumer groups are damaged: {groups.trouble}")
        consume = partial(groups.consume, stream, consumer, wishes, group, instance)
        _begin_for_group(channel, method, consumer, stream, consume)

    channel.suspend(groups.when_ready, join)


def _begin_for_group(
    channel: "Channel",
    method: commands.Basic.Consume,
    consumer: Consumer,
    stream: Stream,
    consume: "Callable[[Callable[[str | None], None]], None]",
) -> None:
    """consume-ok once it has its share of the partitions; the channel waits for that."""
    refusal: list[str] = []

    def ask(resume: "Callable[[], None]") -> None:
        def answered(why_not: str | None) -> None:
            if why_not is not None:
                refusal.append(why_not)
            elif channel.closed:
                stream.remove_consumer(consumer)
            resume()

        consume(answered)

    def begin() -> None:
        if refusal:
            raise precondition_failed(refusal[0])
        channel.vhost.queue(stream.name, user_of=channel.link)
        _begin(channel, method, consumer, stream)

    channel.suspend(ask, begin)


def _authorize_group(channel: "Channel", group: str) -> None:
    """A group is read by its name, as over the stream protocol."""
    if not channel.user.may(channel.vhost.name, "read", group):
        raise access_refused(
            f"read access to group '{group}' in vhost '{channel.vhost.name}' refused "
            f"for user '{channel.user.name}'"
        )


def _begin(
    channel: "Channel", method: commands.Basic.Consume, consumer: Consumer, stream: Stream
) -> None:
    channel.deliveries.consumers[consumer.tag] = consumer
    if not method.nowait:
        channel.send(commands.Basic.ConsumeOk, consumer_tag=consumer.tag)
        channel.link.mark_dirty()
    stream.start_consumer(consumer)


def fifo(queue: "AnyQueue", method: str) -> Queue:
    """The queue, for methods that only those of messages that come and go have."""
    if not isinstance(queue, Queue):
        raise not_implemented(f"{method} not supported by stream queues")
    return queue
