"""What the groups of a node say in one turn, in few messages per node and lane."""

from typing import Final

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import PIECE_BYTES, WHOLE, Parcels, send_parcel
from queues.raft.codec import Tails, encode_bundle
from queues.raft.messages import Append, Install, Message, NodeId

# Handed to the link at once, so that it can say that it has enough: at most some megabytes.
APPENDS_MAX: Final = 32
ANSWERS_MAX: Final = 2048  # in one message: about 128 KB
LARGE_BYTES: Final = 2 * PIECE_BYTES  # what is longer goes apart, in pieces


class Bundles:
    """Appends go by the bulk lane, those of one log in order; all else overtakes them."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._control: dict[NodeId, list[tuple[bytes, Message]]] = {}
        self._bulk: dict[NodeId, list[tuple[bytes, Message]]] = {}
        self._tails = Tails()  # followers of one log mostly get the same entries
        self._parcels = {Kind.RAFT: Parcels(), Kind.RAFT_BULK: Parcels()}

    def add(self, uid: bytes, message: Message) -> None:
        if isinstance(message, Append | Install):
            items = self._bulk.setdefault(message.to, [])
            items.append((uid, message))
            if len(items) >= APPENDS_MAX:
                self._post_bulk(message.to, self._bulk.pop(message.to))
        else:
            self._control.setdefault(message.to, []).append((uid, message))

    def post(self) -> None:
        if self._control:
            control, self._control = self._control, {}
            for node, items in control.items():
                for start in range(0, len(items), ANSWERS_MAX):
                    pieces = encode_bundle(items[start : start + ANSWERS_MAX], self._tails)
                    send_parcel(self._mail, node, Kind.RAFT, pieces)
        if self._bulk:
            bulk, self._bulk = self._bulk, {}
            for node, items in bulk.items():
                self._post_bulk(node, items)
        self._tails = Tails()

    def _post_bulk(self, node: NodeId, items: list[tuple[bytes, Message]]) -> None:
        """Together, but for what is large: that goes apart, and what follows it in its log too."""
        mail, kind = self._mail, Kind.RAFT_BULK
        together: list[bytes] = []
        size = 0
        for item in items:
            pieces = encode_bundle((item,), self._tails)
            length = sum(map(len, pieces))
            apart = length > LARGE_BYTES or mail.carries(node, (kind, item[0]))
            if together and (apart or size >= PIECE_BYTES):
                mail.send(node, kind, WHOLE, *together)
                together, size = [], 0
            if apart:
                send_parcel(mail, node, kind, pieces, item[0])
            else:
                together += pieces
                size += length
        if together:
            mail.send(node, kind, WHOLE, *together)

    def taken(self, node: NodeId, kind: Kind, message: bytes | memoryview) -> memoryview | None:
        """The bundle that this message completes, if it does."""
        return self._parcels[kind].taken(node, message)

    def lost(self, node: NodeId) -> None:
        """The link broke; what was to be sent by it is void too."""
        for parcels in self._parcels.values():
            parcels.lost(node)
        self._control.pop(node, None)
        self._bulk.pop(node, None)
