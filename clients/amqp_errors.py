"""What can go wrong for an AMQP client, by whose fault and what has ended with it."""

from typing import TYPE_CHECKING

from broker.protocol.constants import REPLY_NAMES

if TYPE_CHECKING:
    from clients.amqp_message import Message


class AMQPClientError(Exception):
    """Everything that these clients raise by themselves."""


class ConnectionLostError(AMQPClientError):
    """The socket failed or was never there; what was under way may or may not have happened."""


class ReplyError(AMQPClientError):
    """The broker said no, with a code and a text."""

    def __init__(self, code: int, text: str) -> None:
        name = REPLY_NAMES.get(code, "")
        super().__init__(f"{code} {text if text.startswith(name) else f'{name} - {text}'}")
        self.code = code
        self.text = text


class ConnectionClosedError(ReplyError):
    """The broker closed the whole connection."""


class AuthenticationError(ConnectionClosedError):
    """Unknown user, wrong password, or no access to the virtual host."""


class ChannelClosedError(ReplyError):
    """The broker closed this channel. The connection goes on: open another channel."""


class ClosedByUsError(AMQPClientError):
    """The connection, channel or consumer was used after it had been closed here."""


class ReturnedError(ReplyError):
    """No queue takes this message, which was published as mandatory."""

    def __init__(self, code: int, text: str, message: "Message") -> None:
        super().__init__(code, text)
        self.message = message


class NackedError(AMQPClientError):
    """The broker refused the message: a full queue with reject-publish, or a failing disk."""


class ConsumerCancelledError(AMQPClientError):
    """The broker ended this consumer: its queue was deleted."""


class AlreadySettledError(AMQPClientError):
    """The message has been acked, nacked or rejected before, or needs no ack."""


class RecoveryError(AMQPClientError):
    """The connection is back, but something declared through it before cannot be had again."""
