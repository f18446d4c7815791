"""What a wire test acts on: connections to one broker, fresh names, and the cleaning up."""

import itertools
import os
from typing import Any

from tests.support.frames import Exchange, Queue, unvalidated
from tests.support.wire import ChannelClosedError, WireChannel, WireConnection

_serial = itertools.count(1)


class Scene:
    """Connections, queues and exchanges of one test; `clean_up` removes them all."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections: list[WireConnection] = []
        self._queues: list[str] = []
        self._exchanges: list[str] = []

    def connect(self, **options: Any) -> WireConnection:
        return self._track(WireConnection.connect(self.url, **options))

    def dial(self) -> WireConnection:
        return self._track(WireConnection.dial(self.url))

    def channel(self, **options: Any) -> WireChannel:
        """A channel on a connection of its own."""
        return self.connect(**options).open_channel()

    def queue_name(self) -> str:
        self._queues.append(f"t{os.getpid()}-q{next(_serial)}")
        return self._queues[-1]

    def exchange_name(self) -> str:
        self._exchanges.append(f"t{os.getpid()}-x{next(_serial)}")
        return self._exchanges[-1]

    def queue(self, channel: WireChannel, /, **options: Any) -> str:
        name = self.queue_name()
        channel.declare_queue(name, **options)
        return name

    def exchange(self, channel: WireChannel, kind: str = "direct", /, **options: Any) -> str:
        name = self.exchange_name()
        channel.declare_exchange(name, kind, **options)
        return name

    def bound_queue(
        self,
        channel: WireChannel,
        exchange: str,
        key: str = "",
        arguments: dict[str, Any] | None = None,
    ) -> str:
        name = self.queue(channel, exclusive=True)
        channel.bind(name, exchange, key, arguments)
        return name

    def clean_up(self) -> None:
        for connection in self._connections:
            connection.close()
        if not (self._queues or self._exchanges):
            return
        with WireConnection.connect(self.url) as connection:
            channel = connection.open_channel()
            for name in self._queues:
                channel = self._delete(channel, unvalidated(Queue.Delete, queue=name))
            for name in self._exchanges:
                channel = self._delete(channel, unvalidated(Exchange.Delete, exchange=name))

    def _delete(self, channel: WireChannel, method: Any) -> WireChannel:
        try:
            channel.rpc(method)
        except ChannelClosedError:
            return channel.conn.open_channel()
        return channel

    def _track(self, connection: WireConnection) -> WireConnection:
        self._connections.append(connection)
        return connection
