"""Messages of any size over links that take bounded ones: cut here, put together there.

    offset 0   u8   0: all of it   1: a piece, more follow   2: the last piece
           1   …    bytes

The pieces of a parcel follow one another in their lane.
"""

from collections.abc import Iterator
from typing import Final

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from queues.raft.messages import NodeId

PIECE_BYTES: Final = 256 * 1024  # about what others in the lane wait for
PARCEL_BYTES_MAX: Final = 1 << 30  # an entry holds a message, of which an operator sets the size

_WHOLE, _PIECE, _LAST = b"\0", b"\1", b"\2"


def send_parcel(mail: Mail, node: NodeId, kind: Kind, pieces: list[bytes]) -> None:
    size = sum(map(len, pieces))
    if size <= PIECE_BYTES:
        mail.send(node, kind, _WHOLE, *pieces)
        return
    cut = list(_cut(pieces))
    for some in cut[:-1]:
        mail.send(node, kind, _PIECE, *some)
    mail.send(node, kind, _LAST, *cut[-1])


def _cut(pieces: list[bytes]) -> Iterator[list[bytes]]:
    """Lists of pieces of about PIECE_BYTES, at most twice that; most pieces stay whole."""
    some: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) > PIECE_BYTES:
            parts = [piece[at : at + PIECE_BYTES] for at in range(0, len(piece), PIECE_BYTES)]
        else:
            parts = [piece]
        for part in parts:
            some.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield some
                some, size = [], 0
    if some:
        yield some


class Parcels:
    """What came in pieces so far, of one kind."""

    def __init__(self) -> None:
        self._begun: dict[NodeId, bytearray] = {}

    def taken(self, node: NodeId, message: bytes | memoryview) -> memoryview | None:
        """The parcel that this message completes, if so. ValueError if it is no piece of one."""
        mark, body = bytes(message[:1]), memoryview(message)[1:]
        begun = self._begun.get(node)
        if mark == _WHOLE and begun is None:
            return body
        if mark not in (_PIECE, _LAST):
            raise ValueError("not a piece of a parcel")
        if begun is None:
            begun = self._begun[node] = bytearray()
        begun += body
        if len(begun) > PARCEL_BYTES_MAX:
            raise ValueError(f"a parcel of more than {PARCEL_BYTES_MAX} bytes")
        return memoryview(self._begun.pop(node)) if mark == _LAST else None

    def lost(self, node: NodeId) -> None:
        """The link broke: what was begun never ends."""
        self._begun.pop(node, None)
