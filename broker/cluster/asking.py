"""Questions to other nodes, and their answers, of any size.

    offset 0   u8    0: a question   1: an answer
           1   u64   its number, big-endian
           9   …     what is asked or answered

A question is answered once, or the node goes down first.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import Parcels, send_parcel
from queues.bell import Clock
from queues.raft.messages import NodeId

_HEAD: Final = Struct(">BQ")
_QUESTION, _ANSWER = range(2)

Then: TypeAlias = Callable[[bytes | None], None]  # None: no answer will come
Handle: TypeAlias = Callable[[NodeId, bytes, Callable[[bytes], None]], None]


class Asking:
    """Those of one kind."""

    def __init__(self, mail: Mail, kind: Kind, clock: Clock, handle: Handle) -> None:
        """`handle` is given the questions of others; if it raises, the link ends."""
        self._mail = mail
        self._kind = kind
        self._clock = clock
        self._handle = handle
        self._parcels = Parcels()
        self._last = 0
        self._open: dict[int, tuple[NodeId, Then]] = {}

    def ask(self, node: NodeId, body: bytes, then: Then) -> None:
        """In order for each node. `then` is never called within this call."""
        if not self._mail.is_up(node):
            self._clock.call_at(self._clock.now_ms(), lambda: then(None))
            return
        self._last += 1
        self._open[self._last] = (node, then)
        self._send(node, _QUESTION, self._last, body)

    def _send(self, node: NodeId, what: int, number: int, body: bytes) -> None:
        send_parcel(self._mail, node, self._kind, [_HEAD.pack(what, number), body])

    def received(self, node: NodeId, message: bytes) -> None:
        """A message of this kind. ValueError if it is none."""
        parcel = self._parcels.taken(node, message)
        if parcel is None:
            return
        what, number = _HEAD.unpack_from(parcel)
        body = bytes(parcel[_HEAD.size :])
        if what == _QUESTION:
            self._handle(node, body, lambda answer: self._send(node, _ANSWER, number, answer))
        elif number in self._open and self._open[number][0] == node:
            self._open.pop(number)[1](body)

    def node_down(self, node: NodeId) -> None:
        self._parcels.lost(node)
        lost = [number for number, (asked, _) in self._open.items() if asked == node]
        for then in [self._open.pop(number)[1] for number in lost]:
            then(None)
