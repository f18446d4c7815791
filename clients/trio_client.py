"""The AMQP client for Trio.

    async with connect("amqp://guest:guest@localhost:5672/") as connection:
        async with connection.channel() as channel:
            queue = await channel.declare_queue("greetings")
            await channel.publish(b"hello", routing_key=queue.name)
            async with channel.consume(queue) as messages:
                async for message in messages:
                    print(message.body)
                    message.ack()
                    break

A connection that is lost is dialled again, at any of the addresses in the URL, and gets back what
was declared through it.
"""

import logging
import math
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from clients.amqp_errors import (
    AMQPClientError,
    AuthenticationError,
    ChannelClosedError,
    ClosedByUsError,
    ConnectionClosedError,
    ConnectionLostError,
    RecoveryError,
)
from clients.amqp_topology import Topology
from clients.amqp_url import Endpoint, Target
from clients.backoff import NEVER, Backoff
from clients.trio_channel import CLOSE_S, Channel
from clients.trio_link import Link, dial, settled

__all__ = ["NEVER", "Backoff", "Connection", "connect"]

log = logging.getLogger("leveret.client")

CONNECT_S: Final = 10.0  # for one address, up to the end of the handshake
_FORCED: Final = 320
_INTERNAL: Final = 541
_HOPELESS: Final = frozenset({403, 406})  # what nobody but a human can mend


@asynccontextmanager
async def connect(
    url: str | Target,
    *,
    name: str = "",
    reconnect: Backoff | None = None,
    resend: bool = False,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator["Connection"]:
    """A connection for the length of a block.

    `name` is shown by the broker. `resend`: what was published and not confirmed when the
    connection was lost is published again (so it may arrive twice); otherwise that publish raises
    ConnectionLostError. Raises AuthenticationError, and ConnectionLostError if no address answers.
    """
    connection = Connection(
        Target.of_url(url) if isinstance(url, str) else url,
        name=name,
        backoff=reconnect if reconnect is not None else Backoff(),
        resend=resend,
        ssl_context=ssl_context,
    )
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(connection.run)
            yield connection
        except BaseException as error:  # noqa: BLE001 - raised below, out of the nursery's group
            raised = error
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_S):
            await connection.close()
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


class Connection:
    """Made by `connect`. Any number of tasks may share it."""

    def __init__(
        self,
        target: Target,
        *,
        name: str,
        backoff: Backoff,
        resend: bool,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.target = target
        self.resend = resend
        self.topology = Topology()
        self.reconnects = 0  # how often the connection was lost and had again
        self._name = name
        self._backoff = backoff
        self._ssl_context = ssl_context
        self._chance = random.Random()  # noqa: S311 - only spreads reconnects
        self._endpoints = list(target.endpoints)
        self._chance.shuffle(self._endpoints)
        self._link: Link | None = None
        self._closing = False
        self._end: Exception | None = None  # why there will be no other link
        self._news = trio.Event()  # set when there is a new link, or the end
        self._channels: list[Channel] = []

    # For everybody

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A channel for the length of a block."""
        channel = await self.open_channel()
        async with channel:
            yield channel

    async def open_channel(self) -> Channel:
        """A channel that the caller closes."""
        while True:
            link = await self.up()
            core, opened = link.core.open_channel()
            try:
                await settled(opened)
            except trio.Cancelled:
                core.close()
                raise
            except (ConnectionLostError, ConnectionClosedError):
                continue
            channel = Channel(self, link, core)
            self._channels.append(channel)
            return channel

    @property
    def blocked(self) -> str | None:
        """The broker's reason to hold publishers back, while it does."""
        return self._link.core.blocked if self._link is not None else None

    async def blocked_changed(self) -> str | None:
        """Wait until the broker blocks or unblocks publishers; the new `blocked`."""
        link = await self.up()
        await link.blocked_news()
        return self.blocked

    @property
    def server_properties(self) -> dict[str, object]:
        return self._link.core.server_properties if self._link is not None else {}

    async def close(self) -> None:
        """Say goodbye. The end of the `connect` block does it as well."""
        self._closing = True
        link = self._link
        if link is not None and link.core.error is None:
            await settled(link.core.close())
        self._finish(ClosedByUsError("the connection is closed"))

    # For the channels

    def forget(self, channel: Channel) -> None:
        if channel in self._channels:
            self._channels.remove(channel)

    async def up(self) -> Link:
        """The link, when there is one. Raises why there will be none."""
        while True:
            if self._end is not None:
                raise self._end
            link = self._link
            if link is not None and link.core.error is None:
                return link
            await self._news.wait()

    # The life of it

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep a link up until `close`, or until it is hopeless. Raises only if none ever was."""
        error: Exception = ClosedByUsError("the connection is closed")
        attempt = 0
        while not self._closing:
            for endpoint in list(self._endpoints):
                had = self._link
                error = await self._serve(endpoint, task_status)
                if self._link is not had:
                    attempt = 0
                    break
                if self._is_final(error):
                    break
            if self._link is None:
                raise error
            if self._is_final(error) or attempt == self._backoff.attempts:
                break
            pause_s = self._backoff.pause_s(attempt, self._chance)
            log.warning("%r: %s; again in %.1f s", self.target, error, pause_s)
            await trio.sleep(pause_s)
            attempt += 1
            self._endpoints.append(self._endpoints.pop(0))
        self._finish(error)

    async def _serve(self, endpoint: Endpoint, task_status: trio.TaskStatus[None]) -> Exception:
        """One link from its birth to its end, and why that was."""
        link: Link | None = None
        try:
            with trio.fail_after(CONNECT_S) as limit:
                stream = await dial(endpoint, self.target.tls, self._ssl_context)
                link = Link(stream, self.target, self._name)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.run)
                    try:
                        await settled(link.core.opened)
                        limit.deadline = math.inf  # much may have to be declared again
                        await self._recover(link)
                        self._came_up(link, task_status)
                    except AMQPClientError as error:
                        link.core.lost(error)
                        nursery.cancel_scope.cancel()
                        return error
        except trio.TooSlowError:
            return ConnectionLostError(f"{endpoint} did not answer within {CONNECT_S} s")
        except ConnectionLostError as error:
            return error
        assert link.core.error is not None
        return link.core.error

    def _came_up(self, link: Link, task_status: trio.TaskStatus[None]) -> None:
        if self._link is None:
            task_status.started()
        else:
            self.reconnects += 1
        self._link = link
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _is_final(self, error: Exception) -> bool:
        """There is no point, or no wish, in trying again."""
        if isinstance(error, AuthenticationError):
            return self._link is None  # a node that starts may not know its users yet
        if isinstance(error, ConnectionClosedError):
            return error.code not in (_FORCED, _INTERNAL)
        return self._closing or isinstance(error, (RecoveryError, ClosedByUsError))

    def _finish(self, error: Exception) -> None:
        if self._end is None:
            self._end = error
        for channel in self._channels:
            channel.give_up(self._end)
        self._tell()

    async def _recover(self, link: Link) -> None:
        """Everything that was declared, then the channels with their consumers."""
        if self._link is None:
            return
        try:
            await self._redeclare(link)
            for channel in list(self._channels):
                if channel.recoverable:
                    await channel.recover(link)
        except ChannelClosedError as error:
            if error.code in _HOPELESS:
                raise RecoveryError(f"cannot be had again: {error}") from error
            raise ConnectionLostError(f"not yet: {error}") from error

    async def _redeclare(self, link: Link) -> None:
        core, _ = link.core.open_channel()
        for step in self.topology.steps():
            answer: Any = await settled(core.request(step.kind, step.answer, **step.arguments))
            if step.queue is not None:
                step.queue.name = answer.queue
        self.topology.renamed()
        await settled(core.close())
