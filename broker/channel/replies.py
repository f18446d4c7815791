"""Direct reply-to: a pseudo-queue that is the consuming channel itself."""

import base64
import os
from typing import TYPE_CHECKING

from broker.routes import REPLY_TO

if TYPE_CHECKING:
    from flow_control.outbox import Outbox
    from queues.consumers import Consumer
    from queues.message import Message
    from queues.seams import Receipt


def new_reply_address(prefix: str = REPLY_TO) -> str:
    """What `amq.rabbitmq.reply-to` is rewritten to. Unguessable: whoever has it may reply."""
    return f"{prefix}.{base64.b64encode(os.urandom(24)).decode()}"


class ReplyQueue:
    """Takes replies like a queue and delivers them at once, or not at all.

    Not to a client that reads nothing: they would pile up in its outbox, as nothing else does.
    """

    name = REPLY_TO
    counts_deliveries = False

    def __init__(self, address: str, outbox: "Outbox") -> None:
        self.address = address
        self.consumer: Consumer | None = None
        self._outbox = outbox  # of the consumer's connection

    def publish(self, messages: "list[Message]", receipt: "Receipt | None") -> None:
        if self.consumer is not None and not self._outbox.brimming:
            self.consumer.sink.deliver(self.consumer, messages)
        if receipt is not None:
            receipt.stored([])

    # Its consumer is no-ack and nothing is ever kept: the rest of what a queue is asked is void.

    def lag_of(self, consumer: "Consumer") -> int:  # noqa: ARG002
        return 0

    def lease(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def extend_lease(self, message: "Message", lease_ms: int | None) -> bool:  # noqa: ARG002
        return False

    def auto_acked(self, messages: "list[Message]") -> None: ...

    def settle(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def requeue(
        self, consumer: "Consumer", messages: "list[Message]", *, lost: bool = False
    ) -> None: ...

    def discard(self, consumer: "Consumer", messages: "list[Message]") -> None: ...

    def consumer_ready(self, consumer: "Consumer") -> None: ...

    def remove_consumer(self, consumer: "Consumer") -> None:  # noqa: ARG002 - it has but one
        self.consumer = None
