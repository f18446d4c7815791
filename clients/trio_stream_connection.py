"""A connection of the Trio client of streams: dialled when it is needed, again when it is lost."""

import inspect
import logging
import random
from typing import Any, Final, TypeVar

import trio

from clients import amqp_errors
from clients.amqp_url import Endpoint
from clients.backoff import Backoff
from clients.stream_address import Address
from clients.stream_errors import ClientClosedError, ConnectionLostError
from clients.stream_plans import Again, Ask, Call, Plan, Step, asked, run_async
from clients.trio_link import dial
from clients.trio_stream_link import StreamLink, came

log = logging.getLogger("leveret.client")

T = TypeVar("T")
M = TypeVar("M")

TIMEOUT_S: Final = 30.0  # for an answer, on top of the time that a fetch asks the server to wait


class StreamLine:
    """Any number of tasks may share it: answers come in any order."""

    def __init__(
        self,
        address: Address,
        nursery: trio.Nursery,
        *,
        name: str,
        backoff: Backoff,
        timeout_s: float,
    ) -> None:
        self.address = address
        self.reconnects = -1  # how often there was another link than the first
        self._nursery = nursery
        self._name = name
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._chance = random.Random()  # noqa: S311 - only spreads attempts
        self._nodes = address.nodes  # the next to be dialled is the first
        self._link: StreamLink | None = None
        self._dialling = trio.Lock()
        self._closed = False

    def another(self, name: str) -> "StreamLine":
        """To the same broker."""
        return StreamLine(
            self.address,
            self._nursery,
            name=name,
            backoff=self._backoff,
            timeout_s=self._timeout_s,
        )

    def close(self) -> None:
        """What is in flight is lost."""
        self._closed = True
        if self._link is not None:
            self._link.close()

    # Requests

    async def ask(self, message: Any, kind: type[M]) -> M:
        """Again if the connection is lost meanwhile, or nobody can answer now."""
        return await self.run(asked(message, kind))

    async def run(self, plan: Plan[T]) -> T:
        return await run_async(plan, self.carry_out)

    async def carry_out(self, step: Step) -> Any:
        match step:
            case Ask(message, kind, operation):
                link = await self.open()
                return (await came(link.send(message, operation))).decode(kind)
            case Again(attempt, error):
                return await self._pause(attempt, error)
            case Call(function, arguments):
                result = function(*arguments)
                return await result if inspect.isawaitable(result) else result
            case _:
                raise AssertionError(step)

    async def _pause(self, attempt: int, error: Exception) -> None:
        if self._backoff.attempts is not None and attempt >= self._backoff.attempts:
            raise error
        pause_s = self._backoff.pause_s(attempt, self._chance)
        log.warning("%s:%d: %s; again in %.1f s", *self._nodes[0], error, pause_s)
        await trio.sleep(pause_s)

    # The link

    @property
    def link(self) -> StreamLink | None:
        """The present one, which may be lost."""
        return self._link

    async def open(self) -> StreamLink:
        """The link; if there is none, by the first node that answers.

        Raises ConnectionLostError if none does, RefusedError if it is not let in.
        """
        if self._link is not None and self._link.error is None:
            return self._link
        async with self._dialling:
            last: ConnectionLostError | None = None
            for _ in self._nodes:
                if self._closed:
                    raise ClientClosedError("this client is closed")
                if self._link is not None:
                    if self._link.error is None:
                        return self._link  # somebody else was quicker
                    self._next_node()
                try:
                    self._link = await self._dial(*self._nodes[0])
                except ConnectionLostError as error:
                    last = error
                    self._next_node()
                else:
                    self.reconnects += 1
                    return self._link
            assert last is not None
            raise last

    def _next_node(self) -> None:
        """This one is of no use now."""
        self._link = None
        self._nodes = [*self._nodes[1:], self._nodes[0]]

    async def _dial(self, host: str, port: int) -> StreamLink:
        try:
            with trio.fail_after(self._timeout_s):
                stream = await dial(Endpoint(host, port), self.address.tls)
                link = StreamLink(stream, self._timeout_s)
                self._nursery.start_soon(link.run)
                try:
                    await link.log_in(self.address, self._name)
                except BaseException:
                    link.close()
                    raise
        except trio.TooSlowError:
            text = f"{host}:{port} did not answer within {self._timeout_s} s"
            raise ConnectionLostError(text) from None
        except amqp_errors.ConnectionLostError as error:
            raise ConnectionLostError(str(error)) from error
        return link
