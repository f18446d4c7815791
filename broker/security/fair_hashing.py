"""Passwords hashed a few at a time, one for each address, and each address in its turn.

A flood of guesses from one address keeps others waiting for one hash, not for its queue.
"""

from __future__ import annotations

from collections import deque
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.off_loop import OffLoop

HASHING_MAX: Final = 2  # at a time: 32 MiB and a core each
IPV6_PREFIX_BITS: Final = 64  # what one customer or one machine has of them

T = TypeVar("T")


def neighbourhood(host: str) -> str:
    """What counts as one address: of IPv6 a /64, since whoever has one address has all of that."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, IPV6_PREFIX_BITS), strict=False))


class FairHashing:
    """For the loop's thread; `off_loop` does the work."""

    def __init__(self, off_loop: OffLoop) -> None:
        self._off_loop = off_loop
        self._running: set[str] = set()
        self._waiting: dict[str, deque[trio.Event]] = {}  # whose turn comes first, first

    async def __call__(self, where: str, work: Callable[[], T]) -> T:
        """Do it for a neighbourhood."""
        await self._enter(where)
        try:
            return await self._off_loop(work)
        finally:
            self._leave(where)

    async def _enter(self, where: str) -> None:
        granted = trio.Event()
        self._waiting.setdefault(where, deque()).append(granted)
        self._grant()
        try:
            await granted.wait()
        except trio.Cancelled:
            if granted.is_set():
                self._leave(where)
            else:
                self._give_up(where, granted)
            raise

    def _give_up(self, where: str, granted: trio.Event) -> None:
        self._waiting[where].remove(granted)
        if not self._waiting[where]:
            del self._waiting[where]

    def _leave(self, where: str) -> None:
        self._running.remove(where)
        others = self._waiting.pop(where, None)
        if others is not None:  # behind everybody else
            self._waiting[where] = others
        self._grant()

    def _grant(self) -> None:
        for where in [each for each in self._waiting if each not in self._running]:
            if len(self._running) >= HASHING_MAX:
                return
            self._running.add(where)
            first = self._waiting[where].popleft()
            if not self._waiting[where]:
                del self._waiting[where]
            first.set()
