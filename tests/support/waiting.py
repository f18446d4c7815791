"""Waiting for what another party does in its own time."""

import time
from collections.abc import Callable

import trio

PAUSE_S = 0.005


def eventually(condition: Callable[[], object], what: str, *, within_s: float = 30.0) -> None:
    """Ask until the answer is true; the pause only keeps the asking from eating the processor."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s} s for {what}"
        time.sleep(PAUSE_S)


async def soon(condition: Callable[[], object], what: str, *, within_s: float = 30.0) -> None:
    """The same in Trio, where others go on meanwhile, whatever its clock says."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s} s for {what}"
        await trio.to_thread.run_sync(time.sleep, PAUSE_S)
