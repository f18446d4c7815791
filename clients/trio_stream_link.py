"""One socket of the Trio client of streams: two tasks that carry bytes, and promises of answers."""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import trio

from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import LAST_WORD, Answer, Operation
from clients.amqp_promise import Promise
from clients.stream_address import Address
from clients.stream_conversation import Conversation, decode, last_word
from clients.stream_errors import ConnectionLostError, NoBrokerError, RefusedError
from clients.stream_reader import WAIT_MS
from clients.trio_link import settled

M = TypeVar("M")
# The server waits so long before it answers a fetch; it is not dead before that is over.
LONG_POLL_S: Final = WAIT_MS / 1000


class Came(NamedTuple):
    answer: Answer
    start: int | None  # of a fetch

    def decode(self, kind: type[M]) -> M:
        """Raises RefusedError and OffsetOutOfRangeError."""
        try:
            return decode(self.answer, kind, self.start)
        except MalformedError as error:
            raise ConnectionLostError(f"the answer makes no sense: {error}") from error


async def came(promise: Promise) -> Came:
    """Wait for it. Cancelled, it is thrown away when it comes."""
    found = await settled(promise)
    assert isinstance(found, Came)
    return found


class StreamLink:
    """Lives as long as its socket; `error` says why it has ended."""

    def __init__(
        self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream], timeout_s: float
    ) -> None:
        self.error: ConnectionLostError | RefusedError | None = None
        self._stream = stream
        self._limit_s = timeout_s + LONG_POLL_S
        self._conversation = Conversation()
        self._promises: dict[int, Promise] = {}
        self._output: list[bytes] = []
        self._has_output = trio.Event()
        self._silence = trio.CancelScope()  # of the peer, while answers are awaited
        self._tasks = trio.CancelScope()

    # Requests

    async def log_in(self, address: Address, client: str) -> wire.Authenticated:
        correlation, data = self._conversation.login(address, client)
        promise = self._expect(correlation, data)
        return (await came(promise)).decode(wire.Authenticated)

    def send(self, message: Any, operation: Operation | None = None) -> Promise:
        """Of what `came`. One that nobody waits for any more is thrown away."""
        if self.error is not None:
            promise = Promise()
            promise.fail(self.error)
            return promise
        return self._expect(*self._conversation.request(message, operation))

    def _expect(self, correlation: int, data: bytes) -> Promise:
        promise = self._promises[correlation] = Promise()
        self._output.append(data)
        self._has_output.set()
        if self._silence.deadline == math.inf:
            self._silence.deadline = trio.current_time() + self._limit_s
        return promise

    # The life of it

    async def run(self) -> None:
        try:
            with self._tasks:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read()
                    nursery.cancel_scope.cancel()
        finally:
            self.lost(ConnectionLostError("the connection was given up"))
            await trio.aclose_forcefully(self._stream)

    def close(self) -> None:
        self.lost(ConnectionLostError("the connection was closed"))

    def lost(self, error: ConnectionLostError | RefusedError) -> None:
        """All that is in flight is."""
        if self.error is None:
            self.error = error
            self._tasks.cancel()
            promises, self._promises = self._promises, {}
            for promise in promises.values():
                promise.fail(error)

    async def _read(self) -> None:
        try:
            while self.error is None:
                waits = self._limit_s if self._promises else math.inf
                with trio.CancelScope(deadline=trio.current_time() + waits) as self._silence:
                    count = await self._receive_into(self._conversation.space())
                if self._silence.cancelled_caught:
                    self.lost(ConnectionLostError(f"no answer within {self._limit_s} s"))
                elif not count:
                    self.lost(ConnectionLostError("the server closed the connection"))
                else:
                    self._came(self._conversation.filled(count))
        except NoBrokerError as error:
            self.lost(error)
        except (OSError, MalformedError, trio.ClosedResourceError) as error:
            self.lost(ConnectionLostError(str(error)))
        except trio.BrokenResourceError as error:  # as TLS says it
            self.lost(ConnectionLostError(str(error.__cause__ or error)))

    async def _receive_into(self, space: memoryview) -> int:
        if isinstance(self._stream, trio.SocketStream):
            return await self._stream.socket.recv_into(space)
        data = await self._stream.receive_some(len(space))
        space[: len(data)] = data
        return len(data)

    def _came(self, answer: Answer | None) -> None:
        if answer is None:
            return
        if answer.correlation == LAST_WORD:
            self.lost(last_word(answer))
            return
        start = self._conversation.settle(answer.correlation)
        promise = self._promises.pop(answer.correlation, None)
        if promise is not None:
            promise.resolve(Came(answer, start))

    async def _write(self) -> None:
        try:
            while True:
                await self._has_output.wait()
                self._has_output = trio.Event()
                output, self._output = self._output, []
                await self._stream.send_all(b"".join(output))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = error.__cause__ if error.__cause__ is not None else error
            self.lost(ConnectionLostError(str(reason)))


def when_done(promise: Promise, then: Callable[[], object]) -> None:
    """Call it now or later. For those who do not wait for the answer in a task of their own."""
    if promise.done:
        then()
    else:
        promise.wake = then
