"""Messages of any size over links that take bounded ones: cut here, put together there.

    offset 0   u8   0: all of it   1: a piece, more follow   2: the last piece
           1   …    bytes

The pieces of a parcel follow one another; whole messages of the same kind may come in between.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail, Piece
from queues.raft.messages import NodeId

PIECE_BYTES: Final = 256 * 1024  # about what others in the lane wait for
PARCEL_BYTES_MAX: Final = 1 << 30  # an entry holds a message, of which an operator sets the size

WHOLE: Final = b"\0"
_PIECE, _LAST = b"\1", b"\2"


def send_parcel(mail: Mail, node: NodeId, kind: Kind, pieces: list[bytes], of: bytes = b"") -> None:
    """`of`: whatever has the same arrives in the order it was sent."""
    key = (kind, of)
    if sum(map(len, pieces)) > PIECE_BYTES:
        for some, is_last in cut(pieces, PIECE_BYTES):
            mail.send_large(node, key, _LAST if is_last else _PIECE, *some)
    elif mail.carries(node, key):
        mail.send_large(node, key, WHOLE, *pieces)
    else:
        mail.send(node, kind, WHOLE, *pieces)


def cut(pieces: Iterable[bytes], size_bytes: int) -> Iterator[tuple[list[Piece], bool]]:
    """Lists of pieces of about that size, at most twice that; and whether it is the last one.

    What is long is not copied.
    """
    some: list[Piece] = []
    size = 0
    for part in _parts(pieces, size_bytes):
        if size >= size_bytes:
            yield some, False
            some, size = [], 0
        some.append(part)
        size += len(part)
    yield some, True


def _parts(pieces: Iterable[bytes], size_bytes: int) -> Iterator[Piece]:
    for piece in pieces:
        if len(piece) <= size_bytes:
            yield piece
        else:
            view = memoryview(piece)
            for at in range(0, len(view), size_bytes):
                yield view[at : at + size_bytes]


class Parcels:
    """What came in pieces so far, of one kind."""

    def __init__(self) -> None:
        self._begun: dict[NodeId, bytearray] = {}

    def taken(self, node: NodeId, message: bytes | memoryview) -> memoryview | None:
        """The parcel that this message completes, if so. ValueError if it is no piece of one."""
        mark, body = bytes(message[:1]), memoryview(message)[1:]
        if mark == WHOLE:
            return body
        if mark not in (_PIECE, _LAST):
            raise ValueError("not a piece of a parcel")
        begun = self._begun.get(node)
        if begun is None:
            begun = self._begun[node] = bytearray()
        begun += body
        if len(begun) > PARCEL_BYTES_MAX:
            raise ValueError(f"a parcel of more than {PARCEL_BYTES_MAX} bytes")
        return memoryview(self._begun.pop(node)) if mark == _LAST else None

    def lost(self, node: NodeId) -> None:
        """The link broke: what was begun never ends."""
        self._begun.pop(node, None)
