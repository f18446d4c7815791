"""Producer ids that belong to a user: whose an id is can be read off it.

     63  62           40 39                                     0
    +---+---------------+---------------------------------------+
    | 0 | owner         | number that the registry gave         |
    +---+---------------+---------------------------------------+

The owner is a digest of vhost and user, never 0. A user can only send with ids of its own, so that
nobody fences another's producer or uses up its sequence. Ids of earlier versions have no owner and
are taken from anyone, until partitions have forgotten them.
"""

from hashlib import blake2b
from typing import Final

from broker.streams.service import Caller

_OWNER_SHIFT: Final = 40
_OWNER_MASK: Final = 2**23 - 1


def owned(number: int, caller: Caller) -> int:
    """The id that a caller gets for a number of the registry."""
    assert number < 1 << _OWNER_SHIFT, number
    return _owner_of(caller) << _OWNER_SHIFT | number


def may_use(producer: int, caller: Caller) -> bool:
    return producer >> _OWNER_SHIFT in (0, _owner_of(caller))


def _owner_of(caller: Caller) -> int:
    name = f"{len(caller.vhost)}:{caller.vhost}{caller.user}".encode()
    digest = blake2b(name, digest_size=4, person=b"leveret producer").digest()
    return int.from_bytes(digest, "big") & _OWNER_MASK or 1
