"""One socket of the Trio client: two tasks that carry bytes between it and the core."""

import math
import ssl
from typing import Final

import trio

from clients.amqp_core import ConnectionCore
from clients.amqp_errors import ConnectionLostError
from clients.amqp_promise import Promise
from clients.amqp_url import Endpoint, Target
from clients.tls import Tls

READ_BYTES: Final = 256 * 1024
OUT_BYTES_MAX: Final = 1024 * 1024  # waiting to be written; then publishers wait
LAST_WORDS_S: Final = 1.0  # for the socket to take our last bytes
# How far an unread inbox may grow while answers are awaited, which come behind all that the broker
# and both kernels hold: some ten megabytes each.
UNREAD_BYTES_AT_MOST: Final = 64 * 1024 * 1024


async def settled(promise: Promise) -> object:
    """Wait for an answer. Cancelled, it stays expected and is thrown away when it comes."""
    if not promise.done:
        task = trio.lowlevel.current_task()

        def wake() -> None:
            promise.wake = None
            trio.lowlevel.reschedule(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            promise.wake = None
            return trio.lowlevel.Abort.SUCCEEDED

        promise.wake = wake
        await trio.lowlevel.wait_task_rescheduled(abort)
    else:
        await trio.lowlevel.checkpoint()
    return promise.result()


async def dial(
    endpoint: Endpoint, tls: Tls | None, context: ssl.SSLContext | None = None
) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
    """Raises ConnectionLostError. A context goes before what the URL says of TLS."""
    try:
        if tls is not None and context is None:
            context = tls.context()
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        if tls is not None:
            assert context is not None
            secured = trio.SSLStream(
                stream, context, server_hostname=endpoint.host, https_compatible=True
            )
            try:
                await secured.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return secured
    except (OSError, ssl.SSLError) as error:
        raise ConnectionLostError(f"no connection to {endpoint}: {error}") from error
    except trio.BrokenResourceError as error:
        reason = error.__cause__ if error.__cause__ is not None else error
        raise ConnectionLostError(f"no connection to {endpoint}: {reason}") from error
    return stream


class Link:
    """Lives as long as its socket: `run` returns when `core.error` says why it has ended."""

    def __init__(self, stream: trio.abc.Stream, target: Target, name: str) -> None:
        self._stream = stream
        self._output = trio.Event()
        self._room = trio.Event()
        self._blocked_news = trio.Event()
        self._resume = trio.Event()
        self._read_paused = False
        self.core = ConnectionCore(
            target, name=name, on_output=self._has_output, on_blocked=self._blocked_changed
        )

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                self._room.set()
                nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS_S
        finally:
            self.core.lost(ConnectionLostError("the connection was given up"))
            await trio.aclose_forcefully(self._stream)

    # Waiting

    async def room(self) -> None:
        """Until little waits to be written and the broker takes publishes, or it is all over."""
        core = self.core
        while core.error is None:
            if core.blocked is not None:
                await self._blocked_news.wait()
            elif core.out_bytes > OUT_BYTES_MAX:
                await self._room.wait()
            else:
                return

    async def blocked_news(self) -> None:
        """Until connection.blocked or unblocked comes."""
        await self._blocked_news.wait()

    def resume(self) -> None:
        """Somebody has read from an inbox, or waits for an answer: perhaps read on."""
        if self._read_paused:
            self._resume.set()

    def _has_output(self) -> None:
        self._output.set()
        self.resume()

    def _blocked_changed(self) -> None:
        self._blocked_news.set()
        self._blocked_news = trio.Event()

    # Carrying

    async def _read(self) -> None:
        core = self.core
        try:
            while core.error is None:
                await self._until_read()
                limit_s = 2 * core.heartbeat_s if core.heartbeat_s else math.inf
                with trio.fail_after(limit_s):
                    data = await self._stream.receive_some(READ_BYTES)
                if not data:
                    raise trio.BrokenResourceError("the broker ended the stream")
                core.feed(bytes(data))
        except trio.TooSlowError:
            core.lost(ConnectionLostError(f"nothing came for {2 * core.heartbeat_s} s"))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = error.__cause__ if error.__cause__ is not None else error
            core.lost(ConnectionLostError(f"the connection is lost: {reason}"))

    async def _until_read(self) -> None:
        """A consumer without prefetch that does not read stops the socket, not the memory.

        Unless somebody waits for an answer: that would never come. Then its inbox may grow, by what
        the broker had under way before the answer. So a task that waits for confirms and should
        read that inbox meanwhile must do both, or use two connections.
        """
        core = self.core
        while core.error is None:
            full, most_bytes = False, 0
            for channel in core.channels.values():
                for inbox in channel.consumers.values():
                    full = full or inbox.full
                    most_bytes = max(most_bytes, inbox.bytes)
            if not full or (most_bytes <= UNREAD_BYTES_AT_MOST and core.expects_answers):
                return
            self._read_paused = True
            self._resume = trio.Event()
            await self._resume.wait()
            self._read_paused = False

    async def _write(self) -> None:
        core = self.core
        try:
            while True:
                self._output = trio.Event()
                data = core.data_to_send()
                if data:
                    await self._stream.send_all(data)
                    self._room.set()
                    self._room = trio.Event()
                elif core.error is not None:
                    return
                else:
                    with trio.move_on_after(core.heartbeat_s / 2 or math.inf) as pause:
                        await self._output.wait()
                    if pause.cancelled_caught:
                        core.heartbeat()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the reader finds out why, and tells
