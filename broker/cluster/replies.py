"""Direct replies to requesters who are connected to other nodes.

A reply address names its node, so that whoever has it can answer from anywhere. In CBOR, as parcels
of kind REPLY:

    [0, vhost, address, messages]   to the requester's node; messages as in a DELIVER
    [1, number, vhost, address]     is anybody there?
    [2, number, there]              the answer

As on one node a reply is delivered at once or not at all.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import cbor2

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import Parcels, send_parcel
from broker.cluster.queue_wire import FETCHER, decode_deliver, encode_deliver
from broker.routes import REPLY_TO, Target
from queues.message import Message
from queues.raft.messages import NodeId
from queues.seams import Receipt

if TYPE_CHECKING:
    from broker.vhost import VHost

_MESSAGES, _QUESTION, _ANSWER = range(3)
_DIGITS_MAX: Final = 10  # of a node's number

Then = Callable[[bool], None]


class Replies:
    """One per node of a cluster."""

    def __init__(self, me: NodeId, mail: Mail, vhosts: "Mapping[str, VHost]") -> None:
        self._me = me
        self._mail = mail
        self._vhosts = vhosts
        self._parcels = Parcels()
        self._open: dict[int, tuple[NodeId, Then]] = {}
        self._last = 0

    @property
    def prefix(self) -> str:
        """What addresses of this node begin with."""
        return f"{REPLY_TO}.{self._me}"

    def _node_of(self, address: str) -> NodeId | None:
        """Where the requester is, if that is another node which is up."""
        number, dot, _ = address[len(REPLY_TO) + 1 :].partition(".")
        if not dot or not number.isascii() or not number.isdigit() or len(number) > _DIGITS_MAX:
            return None
        node = int(number)
        return node if node != self._me and self._mail.is_up(node) else None

    def find(self, vhost: str, address: str) -> Target | None:
        """Takes replies for a requester elsewhere; None if there is no such node."""
        node = self._node_of(address)
        return None if node is None else _Requester(self._mail, node, vhost, address)

    def ask(self, vhost: str, address: str, then: Then) -> None:
        """Whether anybody takes replies there, on another node."""
        node = self._node_of(address)
        if node is None:
            then(False)  # noqa: FBT003 - it is an answer
            return
        self._last += 1
        self._open[self._last] = (node, then)
        self._send(node, _QUESTION, self._last, vhost, address)

    def _send(self, node: NodeId, *message: object) -> None:
        send_parcel(self._mail, node, Kind.REPLY, [cbor2.dumps(message)])

    def received(self, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind REPLY."""
        parcel = self._parcels.taken(node, body)
        if parcel is None:
            return
        kind, *details = cbor2.loads(parcel)
        if kind == _MESSAGES:
            vhost, address, content = details
            target = self._target(vhost, address)
            if target is not None:
                target.publish(decode_deliver(content, 0)[1], None)
        elif kind == _QUESTION:
            number, vhost, address = details
            self._send(node, _ANSWER, number, self._target(vhost, address) is not None)
        elif kind == _ANSWER:
            number, there = details
            self._answered(number, there=bool(there))
        else:
            raise ValueError(f"unknown message {kind!r} about replies")

    def _target(self, vhost: str, address: str) -> Target | None:
        known = self._vhosts.get(vhost)
        return None if known is None else known.reply_targets.get(address)

    def _answered(self, number: int, *, there: bool) -> None:
        asked = self._open.pop(number, None)
        if asked is not None:
            asked[1](there)

    def node_down(self, node: NodeId) -> None:
        self._parcels.lost(node)
        for number, (asked, _) in list(self._open.items()):
            if asked == node:
                self._answered(number, there=False)


class _Requester:
    """Takes replies for one on another node. Not while the way there is full, see ReplyQueue."""

    def __init__(self, mail: Mail, node: NodeId, vhost: str, address: str) -> None:
        self._mail = mail
        self._node = node
        self._vhost = vhost
        self._address = address

    def publish(self, messages: list[Message], receipt: Receipt | None) -> None:
        if not self._mail.congested(self._node, (Kind.REPLY, b"")):
            content = b"".join(encode_deliver(FETCHER, messages))
            message = (_MESSAGES, self._vhost, self._address, content)
            send_parcel(self._mail, self._node, Kind.REPLY, [cbor2.dumps(message)])
        if receipt is not None:
            receipt.stored([])
