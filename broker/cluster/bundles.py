"""What the groups of a node say in one turn, in one message per node and lane."""

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import Parcels, send_parcel
from queues.raft.codec import Tails, encode_bundle
from queues.raft.messages import Append, Install, Message, NodeId


class Bundles:
    """Appends go by the bulk lane, in order; all else overtakes them."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._control: dict[NodeId, list[tuple[bytes, Message]]] = {}
        self._bulk: dict[NodeId, list[tuple[bytes, Message]]] = {}
        self._parcels = {Kind.RAFT: Parcels(), Kind.RAFT_BULK: Parcels()}

    def add(self, uid: bytes, message: Message) -> None:
        of_lane = self._bulk if isinstance(message, Append | Install) else self._control
        items = of_lane.get(message.to)
        if items is None:
            of_lane[message.to] = [(uid, message)]
        else:
            items.append((uid, message))

    def post(self) -> None:
        if self._control:
            control, self._control = self._control, {}
            self._post(Kind.RAFT, control)
        if self._bulk:
            bulk, self._bulk = self._bulk, {}
            self._post(Kind.RAFT_BULK, bulk)

    def _post(self, kind: Kind, by_node: dict[NodeId, list[tuple[bytes, Message]]]) -> None:
        tails = Tails()  # followers of one log mostly get the same entries
        for node, items in by_node.items():
            send_parcel(self._mail, node, kind, encode_bundle(items, tails))

    def taken(self, node: NodeId, kind: Kind, message: bytes | memoryview) -> memoryview | None:
        """The bundle that this message completes, if it does."""
        return self._parcels[kind].taken(node, message)

    def lost(self, node: NodeId) -> None:
        """The link broke; what was to be sent by it is void too."""
        for parcels in self._parcels.values():
            parcels.lost(node)
        self._control.pop(node, None)
        self._bulk.pop(node, None)
