"""basic.qos, consume, cancel, get and recover."""

from typing import TYPE_CHECKING

from pamqp import commands

from broker.channel.replies import ReplyQueue, new_reply_address
from broker.channel.topology import authorize, own_queue, queue_name, random_name
from broker.protocol.errors import (
    ConnectionFailure,
    access_refused,
    not_implemented,
    precondition_failed,
)
from broker.protocol.tables import Table
from broker.routes import REPLY_TO
from queues.consumers import Consumer

if TYPE_CHECKING:
    from broker.channel.channel import Channel
    from queues.queue import Queue


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
    if method.queue == REPLY_TO:
        _consume_replies(channel, method, tag)
        return
    queue = own_queue(channel, method.queue)
    authorize(channel, "read", "queue", queue.name)
    _check_exclusive(channel, queue, wanted=method.exclusive)
    consumer = Consumer(
        tag,
        queue,
        channel.deliveries,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        prefetch=channel.prefetch,
        priority=_priority(method.arguments, queue),
        arguments=method.arguments,
    )
    channel.deliveries.consumers[tag] = consumer
    queue.add_consumer(consumer)
    if not method.nowait:
        channel.send(commands.Basic.ConsumeOk, consumer_tag=tag)
    queue.start_consumer()


def _priority(arguments: Table, queue: "Queue") -> int:
    value = arguments.get("x-priority", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise precondition_failed(
            f"invalid arg 'x-priority' for queue '{queue.name}': expected integer, got {value!r}"
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
    replies = ReplyQueue(new_reply_address())
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
    if consumer is not None:
        if channel.reply_queue is not None and consumer.queue is channel.reply_queue:
            forget_reply_queue(channel)
        consumer.queue.remove_consumer(consumer)
    if not method.nowait:
        channel.send(commands.Basic.CancelOk, consumer_tag=method.consumer_tag)


def get(channel: "Channel", method: commands.Basic.Get) -> None:
    queue = channel.vhost.queue(queue_name(channel, method.queue), user_of=channel.link)
    authorize(channel, "read", "queue", queue.name)
    if queue.is_loading:
        channel.suspend(queue.when_loaded, lambda: get(channel, method))
        return
    holder = Consumer("", queue, channel.deliveries, no_ack=method.no_ack, fetching=True)
    message = queue.get(holder)
    if message is None:
        channel.send(commands.Basic.GetEmpty)
    else:
        channel.deliveries.deliver_get(holder, message, queue.ready)


def recover(channel: "Channel", method: commands.Basic.Recover) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.send(commands.Basic.RecoverOk)
    channel.deliveries.requeue_all()


def recover_async(channel: "Channel", method: commands.Basic.RecoverAsync) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.deliveries.requeue_all()
