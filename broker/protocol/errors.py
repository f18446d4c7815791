"""What a peer did wrong: exceptions with the AMQP reply, turned into closes in one place."""

from broker.protocol.constants import REPLY_NAMES

REPLY_TEXT_BYTES_MAX = 255  # a short string on the wire


class AMQPError(Exception):
    """A mistake of the peer that AMQP answers with a close."""

    def __init__(self, code: int, text: str, *, method: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.method = method

    @property
    def reply_text(self) -> str:
        """The text of the close, e.g. `NOT_FOUND - no queue 'q' in vhost '/'`, cut to what fits."""
        text = f"{REPLY_NAMES[self.code]} - {self.text}"
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) <= REPLY_TEXT_BYTES_MAX:
            return text
        return raw[:REPLY_TEXT_BYTES_MAX].decode("utf-8", "ignore")


class ChannelError(AMQPError):
    """Closes the channel it happened on (AMQP's soft errors)."""


class ConnectionFailure(AMQPError):  # noqa: N818 - ConnectionError is the world's
    """Closes the whole connection (AMQP's hard errors)."""


def access_refused(text: str) -> ChannelError:
    return ChannelError(403, text)


def not_found(text: str) -> ChannelError:
    return ChannelError(404, text)


def resource_locked(text: str) -> ChannelError:
    return ChannelError(405, text)


def precondition_failed(text: str) -> ChannelError:
    return ChannelError(406, text)


def not_implemented(text: str) -> ConnectionFailure:
    return ConnectionFailure(540, text)
