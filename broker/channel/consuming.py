"""basic.qos, consume, cancel, get and recover."""

from functools import partial
from typing import TYPE_CHECKING, Final

from pamqp import commands

from broker.channel.farewell import when_unused_are_gone
from broker.channel.fronting import begin_consuming, fetch
from broker.channel.own_publishes import when_published
from broker.channel.replies import ReplyQueue, new_reply_address
from broker.channel.streaming import consume_stream, fifo
from broker.channel.topology import authorize, own_queue, queue_name, random_name
from broker.cluster.front import QueueFront
from broker.protocol.errors import (
    ConnectionFailure,
    access_refused,
    not_implemented,
    precondition_failed,
)
from broker.protocol.tables import Table
from broker.routes import REPLY_TO
from queues.consumers import Consumer
from queues.options import DELAY_MS_MAX
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from broker.channel.channel import Channel
    from queues.queue import Queue
    from queues.seams import AnyQueue


CONSUMERS_MAX: Final = 10_000  # of a channel: half a KiB each, and a row in every list of them


def qos(channel: "Channel", method: commands.Basic.Qos) -> None:
    if method.prefetch_size:
        raise not_implemented(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.deliveries.credit.limit = method.prefetch_count
        channel.send(commands.Basic.QosOk)
        channel.deliveries.wake_consumers()
    else:
        channel.prefetch = method.prefetch_count
        channel.send(commands.Basic.QosOk)


def consume(channel: "Channel", method: commands.Basic.Consume) -> None:
    tag = method.consumer_tag or random_name("amq.ctag-")
    if tag in channel.deliveries.consumers:
        text = f"attempt to reuse consumer tag '{tag}'"
        raise ConnectionFailure(530, text, method=method.index)
    if len(channel.deliveries.consumers) >= CONSUMERS_MAX:
        raise precondition_failed(f"a channel has {CONSUMERS_MAX} consumers at most")
    if method.queue == REPLY_TO:
        _consume_replies(channel, method, tag)
        return
    authorize(channel, "read", "queue", queue_name(channel, method.queue))
    queue = own_queue(channel, method.queue)
    if isinstance(queue, Stream):
        consume_stream(channel, method, tag, queue)
        return
    led: Queue | QueueFront
    if isinstance(queue, QueueFront):
        led = queue  # its leader looks at who else consumes
    else:
        led = fifo(queue, "basic.consume")
        _check_exclusive(channel, led, wanted=method.exclusive)
    consumer = Consumer(
        tag,
        led,
        channel.deliveries,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        prefetch=channel.prefetch,
        priority=_priority(method.arguments, queue),
        lease_ms=_consumer_timeout_ms(method.arguments, queue),
        arguments=method.arguments,
    )
    if isinstance(led, QueueFront):
        begin_consuming(channel, led, consumer, nowait=method.nowait)
        return
    channel.deliveries.consumers[tag] = consumer
    led.add_consumer(consumer)
    if not method.nowait:
        channel.send(commands.Basic.ConsumeOk, consumer_tag=tag)
    led.start_consumer()


def _priority(arguments: Table, queue: "AnyQueue") -> int:
    value = arguments.get("x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise precondition_failed(
            f"invalid arg 'x-priority' for queue '{queue.name}': expected integer, got {value!r}"
        )
    return value


def _consumer_timeout_ms(arguments: Table, queue: "AnyQueue") -> int | None:
    """How long this consumer may hold a message: its own argument, before the queue's."""
    value = arguments.get("x-consumer-timeout")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= DELAY_MS_MAX:
        raise precondition_failed(
            f"invalid arg 'x-consumer-timeout' for queue '{queue.name}': "
            f"expected a number from 1 to {DELAY_MS_MAX}, got {value!r}"
        )
    return value


def _check_exclusive(channel: "Channel", queue: "Queue", *, wanted: bool) -> None:
    if queue.has_exclusive_consumer or (
        wanted and (queue.consumer_count or queue.options.single_active_consumer)
    ):
        text = f"queue '{queue.name}' in vhost '{channel.vhost.name}' in exclusive use"
        raise access_refused(text)


def _consume_replies(channel: "Channel", method: commands.Basic.Consume, tag: str) -> None:
    if not method.no_ack:
        raise precondition_failed("reply consumer cannot acknowledge")
    if channel.reply_queue is not None:
        raise precondition_failed("reply consumer already set")
    elsewhere = channel.vhost.replies
    prefix = elsewhere.prefix if elsewhere is not None else REPLY_TO
    replies = ReplyQueue(new_reply_address(prefix), channel.link.outbox)
    replies.consumer = Consumer(tag, replies, channel.deliveries, no_ack=True)
    channel.deliveries.consumers[tag] = replies.consumer
    channel.reply_queue = replies
    channel.publisher.inspector.reply_to = replies.address
    channel.vhost.reply_targets[replies.address] = replies
    if not method.nowait:
        channel.send(commands.Basic.ConsumeOk, consumer_tag=tag)


def forget_reply_queue(channel: "Channel") -> None:
    if channel.reply_queue is not None:
        channel.vhost.reply_targets.pop(channel.reply_queue.address, None)
        channel.reply_queue = None
        channel.publisher.inspector.reply_to = None


def cancel(channel: "Channel", method: commands.Basic.Cancel) -> None:
    """What the consumer holds stays with the channel."""
    consumer = channel.deliveries.consumers.pop(method.consumer_tag or "", None)
    left: list[object] = []
    if consumer is not None:
        if channel.reply_queue is not None and consumer.queue is channel.reply_queue:
            forget_reply_queue(channel)
        left.append(consumer.queue)
        consumer.queue.remove_consumer(consumer)

    def say() -> None:
        if not method.nowait:
            channel.send(commands.Basic.CancelOk, consumer_tag=method.consumer_tag)

    channel.suspend(partial(when_unused_are_gone, channel.vhost, left), say)


def get(channel: "Channel", method: commands.Basic.Get) -> None:
    name = queue_name(channel, method.queue)
    authorize(channel, "read", "queue", name)
    named = channel.vhost.queue(name, user_of=channel.link)
    deliveries = channel.deliveries
    if deliveries.credit.full and not method.no_ack:
        limit = deliveries.credit.most
        raise precondition_failed(f"limit of unacked messages on a channel ({limit}) is reached")
    when_published(channel, method, named, lambda: _get(channel, method, name))


def _get(channel: "Channel", method: commands.Basic.Get, name: str) -> None:
    named = channel.vhost.queue(name, user_of=channel.link)
    deliveries = channel.deliveries
    if isinstance(named, QueueFront):
        fetch(channel, named, no_ack=method.no_ack)
        return
    queue = fifo(named, "basic.get")
    if queue.is_loading:
        channel.suspend(queue.when_loaded, lambda: get(channel, method))
        return
    holder = Consumer(
        "",
        queue,
        deliveries,
        no_ack=method.no_ack,
        fetching=True,
        lease_ms=queue.options.lease_ms,
    )
    message = queue.get(holder)
    if message is None:
        deliveries.tally.get_empty += 1
        channel.send(commands.Basic.GetEmpty)
    else:
        deliveries.deliver_get(holder, message, queue.ready)


def recover(channel: "Channel", method: commands.Basic.Recover) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.send(commands.Basic.RecoverOk)
    channel.deliveries.requeue_all(lost=False)


def recover_async(channel: "Channel", method: commands.Basic.RecoverAsync) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.deliveries.requeue_all(lost=False)
