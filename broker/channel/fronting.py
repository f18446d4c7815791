"""Consuming from a queue of the cluster: its leader, perhaps on another node, has to answer."""

from typing import TYPE_CHECKING

from pamqp import commands

from broker.protocol.errors import ChannelError
from queues.consumers import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.channel.channel import Channel
    from broker.cluster.front import Fetched, QueueFront


def begin_consuming(
    channel: "Channel", front: "QueueFront", consumer: Consumer, *, nowait: bool
) -> None:
    """consume-ok once the leader has taken the consumer; the channel waits for that."""
    refusal: list[ChannelError] = []

    def ask(resume: "Callable[[], None]") -> None:
        def answered(error: ChannelError | None) -> None:
            if error is not None:
                refusal.append(error)
            elif channel.closed:
                front.remove_consumer(consumer)
            resume()

        front.consume(consumer, answered)

    def begin() -> None:
        if refusal:
            error = refusal[0]
            raise ChannelError(error.code, error.text, method=commands.Basic.Consume.index)
        channel.deliveries.consumers[consumer.tag] = consumer
        if not nowait:
            channel.send(commands.Basic.ConsumeOk, consumer_tag=consumer.tag)
            channel.link.mark_dirty()
        front.start_consumer(consumer)

    channel.suspend(ask, begin)


def fetch(channel: "Channel", front: "QueueFront", *, no_ack: bool) -> None:
    """basic.get; the channel waits for the leader's answer."""
    deliveries = channel.deliveries
    holder = Consumer("", front, deliveries, no_ack=no_ack, fetching=True)
    answers: list[Fetched] = []

    def ask(resume: "Callable[[], None]") -> None:
        def fetched(answer: "Fetched") -> bool:
            answers.append(answer)
            resume()
            return not channel.closed

        front.fetch(holder, fetched)

    def give() -> None:
        answer = answers[0]
        if isinstance(answer, ChannelError):
            raise ChannelError(answer.code, answer.text, method=commands.Basic.Get.index)
        if answer is None:
            deliveries.tally.get_empty += 1
            channel.send(commands.Basic.GetEmpty)
        else:
            deliveries.deliver_get(holder, *answer)
        channel.link.mark_dirty()

    channel.suspend(ask, give)
