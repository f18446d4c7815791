"""The writing side of a connection: at the end of a turn, then on as the kernel takes it."""

from collections.abc import Callable

import trio

from broker.connection.transport import Transport


class Sender:
    """Flushes an outbox. A task takes over where the kernel is full."""

    def __init__(self, transport: Transport, on_relief: Callable[[], None]) -> None:
        self.transport = transport
        self.outbox = transport.outbox
        self.nursery: trio.Nursery | None = None  # for the task; set while the connection runs
        self.draining = False
        self.flushed = trio.Event()  # the task is through
        self.relieved = trio.Event()  # the outbox has room again
        self._on_relief = on_relief  # consumers that had to wait may go on

    def flush(self) -> None:
        self.transport.flush_nowait()
        waiting = not self.transport.idle or self.outbox.turned_away
        if waiting and not self.draining and self.nursery is not None:
            self.draining = True
            self.flushed = trio.Event()
            self.nursery.start_soon(self._drain)

    async def _drain(self) -> None:
        try:
            while not self.transport.idle or self.outbox.turned_away:
                await self.transport.wait_writable()
                self.transport.flush_nowait()
                if self.outbox.relieved:
                    self.outbox.turned_away = False
                    self.relieved.set()
                    self._on_relief()
        finally:
            self.draining = False
            self.flushed.set()

    async def wait_for_relief(self, timeout_s: float) -> bool:
        """Whether the peer took enough of what waits for it, in time."""
        self.relieved = trio.Event()
        with trio.move_on_after(timeout_s) as scope:
            await self.relieved.wait()
        return not scope.cancelled_caught

    def leave(self) -> None:
        """No task is started any more: the connection leaves its nursery."""
        self.nursery = None

    def give_up(self) -> None:
        """Whatever is left to be sent is dropped."""
        self.leave()
        self.transport.reset()
