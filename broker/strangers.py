"""Clients that have not logged in: how many may be connected, and who goes first when it is full.

Whoever can reach a port can open sockets and say nothing. So they have a share of their own at each
door, of which one address gets a part, and of the node's file descriptors some are kept for its own
files. Where there is no room, the newcomer is let in and another stranger goes: of the address that
has most of them, the oldest that has never said anything, or else the oldest that is waited for.
Honest clients speak at once and are through in a moment; who is being served is never dropped.
"""

import resource
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from broker import logs

FILES_SHARE_MAX: Final = 4  # no more than a quarter of all descriptors is kept, however few
_NETWORK_BITS: Final = 64  # of an IPv6 address: one customer has at least as many addresses

_log = logs.get("server")


def file_limit() -> int:
    """How many files may be open; it can be changed from outside."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Files:
    """The descriptors of the process; some are kept free of clients' sockets."""

    def __init__(self, reserved: int, limit: Callable[[], int] = file_limit) -> None:
        self._reserved = reserved
        self._limit = limit
        self._sockets = 0  # of clients
        self._leaving = 0  # of these, those that were dropped and are not closed yet
        self._own = 0  # the most that all else was seen to have open
        self.doors: list[Strangers] = []

    def opened(self, descriptor: int) -> None:
        """A socket was accepted. It has the lowest number that was free: all below are taken."""
        self._sockets += 1
        self._own = max(self._own, descriptor + 1 - self._sockets)

    def closed(self, *, dropped: bool) -> None:
        self._sockets -= 1
        self._leaving -= dropped

    def dropped(self) -> None:
        self._leaving += 1

    @property
    def are_short(self) -> bool:
        limit = self._limit()
        most = limit - min(self._reserved, limit // FILES_SHARE_MAX)
        return self._sockets - self._leaving + self._own > most

    def make_room(self) -> bool:
        """Whether a stranger, at any door, had to go."""
        return any(door.drop_one() for door in sorted(self.doors, key=len, reverse=True))


class Stranger:
    """A socket whose client has not logged in."""

    __slots__ = ("_door", "_drop", "_dropped", "_files", "address", "heard", "waiting")

    def __init__(
        self,
        door: "Strangers | None",
        address: str,
        drop: Callable[[], None],
        files: Files | None = None,
    ) -> None:
        self._files = files
        self._dropped = False
        self.address = address
        self.waiting = True  # for the client to say or to take something
        self.heard = False  # it has said something
        self._door = door
        self._drop = drop

    def leave(self) -> None:
        """It has logged in, and is none any more."""
        if self._door is not None:
            self._door.forget(self)
            self._door = None

    def end(self) -> None:
        """Its socket is closed, whether it has logged in or not."""
        self.leave()
        if self._files is not None:
            self._files.closed(dropped=self._dropped)
            self._files = None

    def drop(self) -> None:
        self.leave()
        if self._files is not None:
            self._dropped = True
            self._files.dropped()
        self._drop()


class Strangers:
    """Those at one door. An address stands for all that a client may have as its own."""

    def __init__(self, *, most: int, of_one_address: int, files: Files) -> None:
        self._most = most
        self._of_one_address = of_one_address
        self._files = files
        self._by_address: dict[str, dict[Stranger, None]] = {}  # the oldest first
        self._count = 0
        files.doors.append(self)

    def __len__(self) -> int:
        return self._count

    def enter(self, host: str, descriptor: int, drop: Callable[[], None]) -> Stranger | None:
        """A socket was accepted; None if there is no room for it, and nobody else can go.

        `drop` ends it, should it have to go for another.
        """
        address = address_of(host)
        self._files.opened(descriptor)
        if not self._make_room(address):
            self._files.closed(dropped=False)
            return None
        stranger = Stranger(self, address, drop, self._files)
        self._by_address.setdefault(address, {})[stranger] = None
        self._count += 1
        return stranger

    def _make_room(self, address: str) -> bool:
        own = self._by_address.get(address, {})
        if self._files.are_short and not self._files.make_room():
            return False
        if len(own) >= self._of_one_address and not _drop_first(own):
            return False
        return self._count < self._most or self.drop_one()

    def forget(self, stranger: Stranger) -> None:
        own = self._by_address[stranger.address]
        del own[stranger]
        self._count -= 1
        if not own:
            del self._by_address[stranger.address]

    def drop_one(self) -> bool:
        """Whether there was one that could go."""
        crowds = sorted(self._by_address.values(), key=len, reverse=True)
        return any(_drop_first(crowd) for crowd in crowds)


def _drop_first(crowd: dict[Stranger, None]) -> bool:
    waiting = [stranger for stranger in crowd if stranger.waiting]
    if not waiting:
        return False
    going = next((stranger for stranger in waiting if not stranger.heard), waiting[0])
    _log.debug("stranger_dropped", address=going.address, spoke=going.heard)
    going.drop()
    return True


def address_of(host: str) -> str:
    """What one client has: an IPv4 address, or a network of IPv6 addresses."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address, _NETWORK_BITS), strict=False))


def nobody() -> Stranger:
    """Stands for one where there is no door: it is never dropped."""
    return Stranger(None, "", lambda: None)
