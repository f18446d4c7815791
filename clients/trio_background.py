"""Tasks beside a block, whose own exceptions pass through as they are and not in a group."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def plain_nursery() -> AsyncIterator[trio.Nursery]:
    """For tasks that raise nothing. A block that ends waits for them, one that raises does not."""
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:  # noqa: BLE001 - raised below, out of the nursery's group
            raised = error
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


@asynccontextmanager
async def in_background(task: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """One task that ends with the block."""
    async with plain_nursery() as nursery:
        nursery.start_soon(task)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def until(stop: trio.Event) -> AsyncIterator[None]:
    """The block ends when the event is set, wherever it waits."""
    with trio.CancelScope() as scope:

        async def watch() -> None:
            await stop.wait()
            scope.cancel()

        async with in_background(watch):
            yield
