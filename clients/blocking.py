"""The AMQP client for threads and scripts, in the shape of the one for Trio.

    with connect("amqp://guest:guest@localhost:5672/") as connection:
        with connection.channel() as channel:
            queue = channel.declare_queue("greetings")
            channel.publish(b"hello", routing_key=queue.name)
            with channel.consume(queue) as messages:
                for message in messages:
                    print(message.body)
                    message.ack()
                    break

A connection belongs to one thread at a time; another thread connects for itself. Bytes move while
one of its methods waits, or in `connection.pump()`; only heartbeats are sent by a thread of its
own, so that work that takes long does not lose the connection. It does not reconnect by itself.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clients.amqp_errors import ClosedByUsError
from clients.amqp_topology import DeclaredQueue
from clients.amqp_url import Target
from clients.blocking_channel import Channel
from clients.blocking_link import BlockingLink, open_link

CLOSE_S: Final = 5.0  # for a goodbye; then without


@contextmanager
def connect(
    url: str, *, name: str = "", ssl_context: ssl.SSLContext | None = None
) -> Iterator["Connection"]:
    """A connection for the length of a block, to the first address in the URL that answers.

    Raises AuthenticationError and ConnectionLostError.
    """
    connection = open_connection(url, name=name, ssl_context=ssl_context)
    try:
        yield connection
    finally:
        connection.close()


def open_connection(
    url: str, *, name: str = "", ssl_context: ssl.SSLContext | None = None
) -> "Connection":
    """A connection that the caller closes."""
    return Connection(open_link(Target.of_url(url), name, ssl_context))


class Connection:
    """Made by `connect`."""

    def __init__(self, link: BlockingLink) -> None:
        self._link = link

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        """A channel for the length of a block."""
        channel = self.open_channel()
        with channel:
            yield channel

    def open_channel(self) -> Channel:
        """A channel that the caller closes."""
        core, opened = self._link.core.open_channel()
        self._link.wait(opened)
        return Channel(self._link, core)

    @property
    def blocked(self) -> str | None:
        """The broker's reason to hold publishers back, while it does."""
        return self._link.core.blocked

    @property
    def server_properties(self) -> dict[str, object]:
        return self._link.core.server_properties

    def pump(self) -> None:
        """Send acks and take what has come, without waiting."""
        self._link.pump()
        error = self._link.core.error
        if error is not None:
            raise error

    def close(self) -> None:
        """Say goodbye. The end of the `connect` block does it as well."""
        core = self._link.core
        if core.error is None:
            closed = core.close()
            self._link.wait_until(lambda: closed.done, CLOSE_S)
        self._link.abort()

    def __repr__(self) -> str:
        over = isinstance(self._link.core.error, ClosedByUsError)
        return f"<Connection to {self._link.core.target}{', closed' if over else ''}>"


__all__ = ["Channel", "Connection", "DeclaredQueue", "connect", "open_connection"]
