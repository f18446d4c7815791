"""Acks of one channel: remembered as they are given, written as few frames as can be.

Delivery tags count up by one. `floor` is the highest tag up to which everything is settled; so what
is acked in order goes out as one ack with `multiple`, however many messages it is for.
"""

import struct
from collections.abc import Callable
from typing import Final

from broker.protocol.constants import (
    BASIC_ACK,
    BASIC_NACK,
    BASIC_REJECT,
    FRAME_END,
    FRAME_METHOD,
)
from clients.amqp_errors import AlreadySettledError

_SETTLE = struct.Struct(">BHIIQBB")
_PAYLOAD_BYTES: Final = 13  # method key, delivery tag, bits
_MULTIPLE: Final = 1
_NACK_REQUEUE: Final = 2
_REJECT_REQUEUE: Final = 1


class Settling:
    """Told of each ack, nack and reject; `take` gives the bytes. A dead one takes no notice."""

    __slots__ = ("_above", "_channel", "_highest", "_loose", "_refused", "_wants_out", "floor")

    def __init__(self, channel: int, wants_out: Callable[[], None]) -> None:
        self._channel = channel
        self._wants_out: Callable[[], None] | None = wants_out  # None: the channel is no more
        self.floor = 0
        self._above: set[int] = set()  # settled, but not all before them
        self._highest = 0  # acked in order and not written yet
        self._loose: list[int] = []  # acked out of order and not written yet
        self._refused: list[bytes] = []  # nacks and rejects, written before the acks

    @property
    def live(self) -> bool:
        return self._wants_out is not None

    def end(self) -> None:
        """The channel is gone; what was unsettled goes back to its queue by itself."""
        self._wants_out = None
        self._loose.clear()
        self._refused.clear()
        self._highest = 0

    def skip(self, tag: int) -> None:
        """This delivery needs no ack. Replies may all have the same tag, as RabbitMQ has it."""
        if tag > self.floor and tag not in self._above:
            self._settle(tag)

    def delivered(self, tag: int) -> None:
        """This one does, though a reply before it may have had the same tag."""
        self._above.discard(tag)
        self.floor = min(self.floor, tag - 1)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if self._wants_out is None:
            return
        quiet = not (self._highest or self._loose or self._refused)
        if multiple:
            self._settle_all(tag)
            self._highest = tag
        elif tag == self.floor + 1 and not self._above:
            self.floor = self._highest = tag
        else:
            self._settle(tag)
            self._loose.append(tag)
        if quiet:
            self._wants_out()

    def nack(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        bits = _NACK_REQUEUE * requeue | _MULTIPLE * multiple
        self._refuse(BASIC_NACK, tag, bits, multiple=multiple)

    def reject(self, tag: int, *, requeue: bool) -> None:
        self._refuse(BASIC_REJECT, tag, _REJECT_REQUEUE * requeue, multiple=False)

    def take(self) -> bytes:
        """What there is to write."""
        pieces = self._refused
        highest = self._highest
        for tag in self._loose:
            if tag > self.floor:
                pieces.append(self._frame(BASIC_ACK, tag, 0))
            elif tag > highest:
                highest = tag
        if highest:
            pieces.append(self._frame(BASIC_ACK, highest, _MULTIPLE))
        self._refused = []
        self._loose.clear()
        self._highest = 0
        return b"".join(pieces)

    def _refuse(self, key: int, tag: int, bits: int, *, multiple: bool) -> None:
        if self._wants_out is None:
            return
        quiet = not (self._highest or self._loose or self._refused)
        self._check(tag)
        if multiple:
            # Acks given before it go first: they are not part of what is refused.
            self._refused = [self.take()]
            self._settle_all(tag)
        else:
            self._settle(tag)
        self._refused.append(self._frame(key, tag, bits))
        if quiet:
            self._wants_out()

    def _check(self, tag: int) -> None:
        if tag <= self.floor or tag in self._above:
            raise AlreadySettledError(f"delivery {tag} is settled, or needs no ack")

    def _settle(self, tag: int) -> None:
        self._check(tag)
        above = self._above
        if tag != self.floor + 1:
            above.add(tag)
            return
        while tag + 1 in above:
            tag += 1
            above.remove(tag)
        self.floor = tag

    def _settle_all(self, tag: int) -> None:
        self._check(tag)
        self._above = {each for each in self._above if each > tag}
        self.floor = tag - 1
        self._settle(tag)

    def _frame(self, key: int, tag: int, bits: int) -> bytes:
        return _SETTLE.pack(FRAME_METHOD, self._channel, _PAYLOAD_BYTES, key, tag, bits, FRAME_END)
