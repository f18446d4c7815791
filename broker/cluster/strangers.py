"""Connections that have not proven who they are: few at a time, and whoever comes next is heard.

An honest node needs milliseconds to prove itself. So where there are too many, the one that has
taken longest gives way to the newest: of the same address, if that has too many; else of an address
that is no member's, as long as there is one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class _Stranger:
    __slots__ = ("known", "scope", "source")

    def __init__(self, source: str, *, known: bool) -> None:
        self.source = source
        self.known = known
        self.scope = trio.CancelScope()


class Strangers:
    def __init__(self, total_max: int, address_max: int) -> None:
        self._total_max = total_max
        self._address_max = address_max
        self._heard: dict[_Stranger, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._heard)

    @contextmanager
    def hear(self, source: str, *, known: bool) -> Iterator[None]:
        """For as long as it has to prove itself; left early if it has to give way to others.

        `known`: a member has this address.
        """
        self._make_room(source)
        stranger = _Stranger(source, known=known)
        self._heard[stranger] = None
        try:
            with stranger.scope:
                yield
        finally:
            self._heard.pop(stranger, None)

    def _make_room(self, source: str) -> None:
        same = [other for other in self._heard if other.source == source]
        if len(same) >= self._address_max:
            self._turn_away(same[0])
        elif len(self._heard) >= self._total_max:
            unknown = (other for other in self._heard if not other.known)
            self._turn_away(next(unknown, next(iter(self._heard))))

    def _turn_away(self, stranger: _Stranger) -> None:
        del self._heard[stranger]
        stranger.scope.cancel()
