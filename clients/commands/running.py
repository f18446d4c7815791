"""Runs a command's work until it is done, or until Ctrl-C, in an orderly way."""

import signal
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import click
import trio

from clients.trio_background import in_background

Work: TypeAlias = Callable[[trio.Event], Awaitable[None]]


class InterruptedByUserError(click.ClickException):
    """By Ctrl-C or SIGTERM, in the middle of work that has an end."""

    exit_code = 130

    def __init__(self, what_was_done: str) -> None:
        super().__init__(f"interrupted: {what_was_done}")


def run_until_done(work: Work) -> bool:
    """Whether it came to its end; False if SIGINT or SIGTERM ended it.

    The work is given an event that says so, and ends in good order; a second signal cancels it.
    """
    return trio.run(_run, work)


async def _run(work: Work) -> bool:
    stop = trio.Event()
    with (
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        trio.CancelScope() as scope,
    ):

        async def watch() -> None:
            await anext(signals)
            stop.set()
            await anext(signals)
            scope.cancel()

        async with in_background(watch):
            await work(stop)
    return not stop.is_set()
