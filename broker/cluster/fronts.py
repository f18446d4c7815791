"""All fronts of a node, the desks of the queues that it leads, and their mail.

fronts = Fronts(peers, book, timers, has_quorum)
peers.handlers[Kind.QUEUE] = fronts.received
peers.on_up.append(fronts.node_up); peers.on_down.append(fronts.node_down)
peers.on_relief.append(fronts.relieved)
fronts.lead(uid, queue, term) / fronts.follow(uid)      # from QueueReplica's on_lead, on_follow
fronts.flush()                                          # at the end of a turn, before peers.flush
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker.cluster.desk import Desk
from broker.cluster.guests import Guest
from broker.cluster.mail import Mail
from broker.cluster.post import Parts, post
from broker.cluster.queue_wire import (
    FROM_LEADER,
    HEAD,
    Op,
    decode_number,
    encode_number,
)
from queues.bell import Bell, Clock
from queues.queue import Queue
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.front import QueueFront

LOOK_MS: Final = 1000  # between looks at whether what waits has a majority to wait for
# What waits for other nodes may cost so much in memory. Beyond it publishers are not read.
PENDING_BYTES_MAX: Final = 64 * 1024 * 1024


class Book(Protocol):
    """See broker.cluster.leaders.LeaderBook."""

    def leader_of(self, uid: bytes) -> NodeId | None: ...
    def term_of(self, uid: bytes) -> int: ...
    def watch(self, uid: bytes, watcher: Callable[[NodeId | None], None]) -> None: ...
    def unwatch(self, uid: bytes, watcher: Callable[[NodeId | None], None]) -> None: ...
    def forget(self, uid: bytes) -> None: ...


class Fronts:
    """One per node."""

    def __init__(
        self,
        me: NodeId,
        mail: Mail,
        book: Book,
        clock: Clock,
        has_quorum: Callable[[bytes], bool],
        *,
        new_session: Callable[[], bytes] = lambda: os.urandom(16),
        crowd: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`has_quorum` says whether this node sees enough members of a queue's group.

        `crowd` is told when so much waits for other nodes that publishers should not be read, and
        when that is over.
        """
        self.me = me
        self.mail = mail
        self.book = book
        self.clock = clock
        self.has_quorum = has_quorum
        self.new_session = new_session
        self.pending_bytes = 0  # published, and not known to be stored on other nodes
        self.pending_bytes_max = PENDING_BYTES_MAX
        self.desks: dict[bytes, Desk] = {}
        self._crowd = crowd
        self._crowded = False
        self._fronts: dict[bytes, QueueFront] = {}
        self._dirty: dict[QueueFront, None] = {}
        self._told: dict[Guest, None] = {}  # guests with something to be told
        self._waiting: dict[QueueFront, None] = {}  # fronts that keep publishes
        self._look = Bell(clock, self._look_at_waiting)
        self._parts = Parts()
        self._next_consumer = 1

    @property
    def congested(self) -> bool:
        """Publishers should not be read. (See broker.log_host.Crowded.)"""
        return self._crowded

    # Fronts

    def add(self, front: "QueueFront") -> None:
        self._fronts[front.uid] = front
        self.book.watch(front.uid, front.leader_changed)

    def remove(self, front: "QueueFront") -> None:
        if self._fronts.pop(front.uid, None) is not None:
            self.book.unwatch(front.uid, front.leader_changed)
        self._dirty.pop(front, None)
        self._waiting.pop(front, None)

    def get(self, uid: bytes) -> "QueueFront | None":
        return self._fronts.get(uid)

    def next_consumer(self) -> int:
        number = self._next_consumer
        self._next_consumer = number % 0xFFFFFFFF + 1
        return number

    def changed(self, front: "QueueFront") -> None:
        """It has something for `flush`."""
        self._dirty[front] = None

    def waits(self, front: "QueueFront") -> None:
        """It keeps publishes that are not stored."""
        if not self._waiting:
            self._look.ring_at(self.clock.now_ms() + LOOK_MS)
        self._waiting[front] = None

    def pending(self, more_bytes: int) -> None:
        self.pending_bytes += more_bytes
        crowded = self.pending_bytes > self.pending_bytes_max
        if crowded != self._crowded:
            self._crowded = crowded
            self._crowd(crowded)

    def _look_at_waiting(self) -> None:
        now = self.clock.now_ms()
        for front in list(self._waiting):
            if not front.look(now, majority=self.has_quorum(front.uid)):
                self._waiting.pop(front, None)
        if self._waiting:
            self._look.ring_at(now + LOOK_MS)

    # Leading

    def lead(self, uid: bytes, queue: Queue, term: int = 0, *, alone: bool = False) -> None:
        """This node leads the queue. `alone`: no other node can hold anything of it yet."""
        self.follow(uid)
        expected = set() if alone else self.mail.up()
        desk = Desk(*(queue, uid, self.mail, self.clock, self._guest_changed, expected))
        self.desks[uid] = desk
        for node in self.mail.up():
            self._send(node, Op.OPEN, uid, 0, encode_number(term))
        front = self._fronts.get(uid)
        if front is not None:
            front.led_here(desk)
        desk.own_front_attached()

    def follow(self, uid: bytes) -> None:
        """This node leads it no more."""
        desk = self.desks.pop(uid, None)
        if desk is not None:
            desk.close()
            front = self._fronts.get(uid)
            if front is not None:
                front.led_here_no_more(desk)

    def _guest_changed(self, guest: Guest) -> None:
        self._told[guest] = None

    # Links

    def node_up(self, node: NodeId) -> None:
        for front in list(self._fronts.values()):
            front.node_up(node)

    def node_down(self, node: NodeId) -> None:
        for desk in list(self.desks.values()):
            desk.node_down(node)
        for front in list(self._fronts.values()):
            front.node_down(node)
        self._parts.forget(node)
        self._told = {guest: None for guest in self._told if guest.node != node}

    def relieved(self, node: NodeId) -> None:
        for desk in list(self.desks.values()):
            desk.relieved(node)

    def _send(self, node: NodeId, op: Op, uid: bytes, attachment: int, body: bytes = b"") -> None:
        post(self.mail, node, (op, uid, attachment), (body,))

    def received(self, node: NodeId, body: bytes) -> None:
        """A message of kind QUEUE. What is malformed raises."""
        number, uid, attachment = HEAD.unpack_from(body)
        op = Op(number)
        if op in (Op.PART, Op.LAST):
            whole = self._parts.add(node, op, body)
            if whole is not None:
                self.received(node, whole)
            return
        if op < FROM_LEADER:
            desk = self.desks.get(uid)
            if desk is None or not desk.received(node, op, attachment, body):
                self._send(node, Op.AWAY, uid, attachment)
            return
        front = self._fronts.get(uid)
        if front is None:
            return
        if op == Op.OPEN:
            front.opened(node, decode_number(body))
        else:
            front.received(node, op, attachment, body)

    def flush(self) -> None:
        """At the end of a turn, before the links are flushed."""
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for front in dirty:
                front.flush()
        while self._told:
            told, self._told = self._told, {}
            for guest in told:
                guest.flush()
