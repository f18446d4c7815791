"""Direct reply-to: a pseudo-queue that is the consuming channel itself."""

import base64
import os
from typing import TYPE_CHECKING

from broker.routes import REPLY_TO

if TYPE_CHECKING:
    from queues.consumers import Consumer
    from queues.message import Message
    from queues.queue import Receipt


def new_reply_address() -> str:
    """What `amq.rabbitmq.reply-to` is rewritten to. Unguessable: whoever has it may reply."""
    return f"{REPLY_TO}.{base64.b64encode(os.urandom(24)).decode()}"


class ReplyQueue:
    """Takes replies like a queue and delivers them at once, or not at all."""

    name = REPLY_TO
    counts_deliveries = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.consumer: Consumer | None = None

    def publish(self, messages: "list[Message]", receipt: "Receipt | None") -> None:
        if self.consumer is not None:
            self.consumer.sink.deliver(self.consumer, messages)
        if receipt is not None:
            receipt.stored([])

    # Its consumer is no-ack and nothing is ever kept: the rest of what a queue is asked is void.

    def auto_acked(self, messages: "list[Message]") -> None: ...

    def settle(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def requeue(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def discard(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def consumer_ready(self, consumer: "Consumer") -> None: ...

    def remove_consumer(self, consumer: "Consumer") -> None:  # noqa: ARG002 - it has but one
        self.consumer = None
