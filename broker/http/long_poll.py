"""Waiting on behalf of a client, for as long as there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def while_connected(
    hangup: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[T]]
) -> T:
    """What `wait` comes to; it is cancelled if the client goes, as `Request.hangup` tells."""
    results: list[T] = []
    problems: list[Exception] = []
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await hangup()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            results.append(await wait())
        except Exception as problem:  # noqa: BLE001 - raised below, and not in a group
            problems.append(problem)
        nursery.cancel_scope.cancel()
    if problems:
        raise problems[0]
    if not results:
        raise trio.BrokenResourceError("the client is gone")
    return results[0]
