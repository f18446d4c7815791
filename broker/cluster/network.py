"""How nodes connect: TCP, with TLS where it is configured."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import trio

from broker.cluster.table import split_address
from broker.cluster.tls import TlsContexts
from broker.startup import open_listeners

Accepted: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]


class Network(Protocol):
    """What tests replace by a network that they can cut."""

    async def connect(self, address: str) -> trio.abc.Stream:
        """OSError if nobody listens there."""
        ...

    async def serve(
        self, accepted: Accepted, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Started once it listens. A stream is closed when `accepted` is through with it."""
        ...


class TcpNetwork:
    """The real one. TLS shakes hands with the first bytes, so within the time for the hello."""

    def __init__(self, host: str, port: int, tls: TlsContexts | None = None) -> None:
        self.host = host
        self.port = port  # the one that was given, if that was 0, once it listens
        self._tls = tls

    async def connect(self, address: str) -> trio.abc.Stream:
        host, port = split_address(address)
        stream = await trio.open_tcp_stream(host, port)
        if self._tls is None:
            return stream
        return trio.SSLStream(stream, self._tls.dialing, server_hostname=host)

    async def serve(
        self, accepted: Accepted, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listeners = await open_listeners(self.host, self.port, purpose="nodes of the cluster")
        self.port = listeners[0].socket.getsockname()[1]
        tls = self._tls

        async def handle(stream: trio.SocketStream) -> None:
            if tls is None:
                await accepted(stream)
            else:
                await accepted(trio.SSLStream(stream, tls.accepting, server_side=True))

        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, handle, listeners)
            task_status.started()
