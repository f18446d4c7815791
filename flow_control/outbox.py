"""A bounded write buffer: what a connection has to send, and when its consumers must wait."""

from typing import Final

# Deliveries stop at HIGH and go on at LOW: some milliseconds of a fast link, and little enough that
# a thousand stuck consumers cost half a gigabyte at most.
HIGH_BYTES: Final = 512 * 1024
LOW_BYTES: Final = 128 * 1024
# Answers (confirms, returns, get-ok) are not stopped at HIGH, since a client may well write a lot
# before it reads again. Beyond this its requests are no longer read.
BRIM_BYTES: Final = 16 * 1024 * 1024


class Outbox:
    """Pieces of bytes in sending order. Who appends to `pieces` adds their length to `size`."""

    __slots__ = ("pieces", "sent_bytes", "size", "turned_away", "writes")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.sent_bytes = 0  # so far, and by how many writes
        self.writes = 0
        self.turned_away = False  # a consumer had to wait, and must be told when there is room

    def write(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    @property
    def congested(self) -> bool:
        """Asked on behalf of consumers: they get nothing now, and are told later."""
        if self.size <= HIGH_BYTES:
            return False
        self.turned_away = True
        return True

    @property
    def relieved(self) -> bool:
        return self.size <= LOW_BYTES

    @property
    def brimming(self) -> bool:
        return self.size > BRIM_BYTES

    def take(self) -> bytes:
        """All pieces as one. `size` is lowered by `sent`, as the kernel takes them."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        self.size = len(data)
        return data

    def sent(self, count: int) -> None:
        self.size -= count
        self.sent_bytes += count
        self.writes += 1
