"""Catalogs of several nodes over a log and links that a test drives step by step."""

import heapq
import itertools
from collections import deque

from broker.cluster.catalog import Catalog
from broker.cluster.checkpoint import changes_of
from broker.cluster.nodes import NodeRecord
from broker.cluster.state import State
from broker.cluster.table import PeerInfo
from broker.security.registry import Registry
from broker.timers import Timers
from broker.vhost import VHost
from exchanges.values import canonical


class Front:
    """A queue as the definitions see it."""

    def __init__(self, name, uid, options, arguments, *, durable, auto_delete, owner, placement):
        self.name = name
        self.uid = uid
        self.options = options
        self.arguments = arguments
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.placement = placement
        self.policy = self.operator_policy = self.damaged = None
        self.settings = {}
        self.deleted = False

    def configure(self, options):
        self.options = options

    def placed(self, placement):
        self.placement = placement

    def delete(self):
        self.deleted = True
        return 0

    def touch(self):
        pass


class FakeClock(Timers):
    def __init__(self):
        self.now = 0
        self._deadlines = []
        self._number = itertools.count()

    def now_ms(self):
        return self.now

    def call_at(self, when_ms, callback):
        heapq.heappush(self._deadlines, (when_ms, next(self._number), callback))

    def advance(self, by_ms):
        until = self.now + by_ms
        while self._deadlines and self._deadlines[0][0] <= until:
            when, _, callback = heapq.heappop(self._deadlines)
            self.now = max(self.now, when)
            callback()
        self.now = until


class FakeMail:
    """One end of the links of a node."""

    def __init__(self, cluster, me):
        self.cluster = cluster
        self.me = me

    def send_large(self, node, key, *pieces):
        self.send(node, key[0], *pieces)

    def carries(self, node, key):
        return False

    def send(self, node, kind, *pieces):
        assert node != self.me
        if self.is_up(node):
            self.cluster.wires[self.me, node].append(b"".join(pieces))

    def is_up(self, node):
        lives = self.me not in self.cluster.nodes or self.cluster.nodes[self.me].mail is self
        return lives and frozenset((self.me, node)) in self.cluster.links

    def up(self):
        return {node for node in self.cluster.nodes if node != self.me and self.is_up(node)}


class Node:
    """A node, its vhost and its member of the metadata log."""

    def __init__(self, cluster, number, boot, checkpoint=None):
        self.cluster = cluster
        self.number = number
        self.boot = boot
        self.clock = cluster.clock
        self.vhosts = {}
        self.catalog = None
        self.registry = Registry(self.vhosts, self)
        self.state = State(self.vhosts, self.vhost_of, self.registry)
        self.mail = FakeMail(cluster, number)
        self.catalog = Catalog(number, boot, self.mail, self.clock, self.state)
        self.dirty = False
        self.proposed = deque()
        self.reads = []  # (commit index then, callback)
        self.at = 0
        self.leading = False
        self.released = []
        self.vhost_of("/")
        if checkpoint is not None:
            self.at, state = checkpoint
            self.catalog.install(self.at, state)
        self.catalog.use(self)

    @property
    def vhost(self):
        return self.vhosts["/"]

    def vhost_of(self, name):
        if name not in self.vhosts:
            vhost = self.vhosts[name] = VHost(name, self.clock)
            vhost.catalog = self.catalog
            vhost.make_front = self.cluster.make_front
        self.vhosts[name].catalog = self.catalog
        return self.vhosts[name]

    # As Hosts

    def open_vhost(self, name, uid, members):
        vhost = self.vhost_of(name)
        vhost.uid, vhost.members = uid, members
        return vhost

    def drop_vhost(self, name):
        vhost = self.vhosts[name]
        for queue in list(vhost.queues.values()):
            self.state.drop_queue(vhost, queue)
        vhost.close()
        del self.vhosts[name]

    def user_gone(self, user):
        pass

    # As HostedLog

    def changed(self, *, urgent, size_bytes=0):
        self.dirty = True

    def release(self, indexes):
        self.released += indexes

    def checkpoint(self, index, state, then):
        assert index == self.at
        self.cluster.checkpoints[self.number] = (index, state)
        then()

    def read_index(self, then):
        self.reads.append((len(self.cluster.log), then))

    # Steps

    def propose(self):
        if self.leading:
            while (entry := self.catalog.next_entry()) is not None:
                self.proposed.append(entry)

    def apply_next(self):
        term, entry = self.cluster.log[self.at]
        self.at += 1
        if self.leading and term == self.cluster.term and self is self.cluster.leader:
            self.catalog.applied(self.at)
        else:
            self.catalog.apply(self.at, entry)

    def confirm_reads(self):
        """As a leader that has just heard of a quorum, and has applied what was committed."""
        ready = [then for index, then in self.reads if index <= self.at]
        self.reads = [read for read in self.reads if read[0] > self.at]
        for then in ready:
            then(None)

    def step_down(self):
        self.leading = False
        self.proposed.clear()
        reads, self.reads = self.reads, []
        for _, then in reads:
            then(Exception("leads no more"))
        self.catalog.follow()


def snapshot(node):
    """Everything that a node knows, in an order of its own."""
    return sorted(repr(canonical(change)) for change in changes_of(node.state))


class Cluster:
    """A log that one leader at a time appends to, and links that come and go."""

    def __init__(self, count, make_front=Front):
        self.clock = FakeClock()
        self.make_front = make_front
        self.log = []  # committed: (term, entry)
        self.term = 0
        self.leader = None  # the one whose proposals count
        self.links = set()
        self.wires = {}
        self.checkpoints = {}
        self.nodes = {}
        for number in range(1, count + 1):
            for other in range(1, count + 1):
                self.wires[number, other] = deque()
        for number in range(1, count + 1):
            self.nodes[number] = Node(self, number, 1)
        for a, b in itertools.combinations(self.nodes, 2):
            self.connect(a, b)

    def record(self, number):
        return NodeRecord(number, f"n{number}", b"%016d" % number, f"h:{number}", "", "")

    def table(self):
        """As the links of a cluster that has just been formed know it."""
        return {n: PeerInfo(f"n{n}", b"%016d" % n, f"h:{n}") for n in self.nodes}

    def start(self, number, table=None):
        node = self.nodes[number]
        done = []

        def boots():
            return {other: self.nodes[other].boot for other in node.mail.up()}

        node.catalog.start(self.record(number), boots, done.append, table=table)
        return done

    def connect(self, a, b):
        self.links.add(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            self.nodes[one].catalog.node_up(other)

    def disconnect(self, a, b):
        if frozenset((a, b)) in self.links:
            self.links.discard(frozenset((a, b)))
            self.wires[a, b].clear()
            self.wires[b, a].clear()
            for one, other in ((a, b), (b, a)):
                self.nodes[one].catalog.node_down(other)

    def has_quorum(self, number):
        return 2 * (len(self.nodes[number].mail.up()) + 1) > len(self.nodes)

    def elect(self, number, adopted=0):
        """A new leader, which has this many of the last one's proposals in its log."""
        before = self.leader
        if before is not None and before is not self.nodes[number]:
            before.propose()
            for entry in itertools.islice(before.proposed, adopted):
                self.log.append((self.term, entry))
        elif before is not None:
            before.propose()
            self.log += [(self.term, entry) for entry in before.proposed]
            before.step_down()
        self.term += 1
        self.leader = node = self.nodes[number]
        while node.at < len(self.log):
            node.apply_next()
        node.leading = True
        node.catalog.lead()
        return before

    def hear_of_leader(self, number):
        """A node learns who leads; one that thought it did steps down."""
        node = self.nodes[number]
        leader = self.leader
        if leader is None or node is leader or not node.mail.is_up(leader.number):
            return
        if node.leading:
            node.step_down()
        node.catalog.leader_changed(leader.number)

    def commit(self):
        """The leader's proposals are on a majority's disks."""
        if self.leader is not None and self.has_quorum(self.leader.number):
            self.leader.propose()
            while self.leader.proposed:
                self.log.append((self.term, self.leader.proposed.popleft()))
            self._catch_up_leader()
            self.leader.confirm_reads()

    def _catch_up_leader(self):
        while self.leader.at < len(self.log):
            self.leader.apply_next()

    def apply(self, number, count=1):
        node = self.nodes[number]
        reached = node is self.leader or (
            self.leader is not None and node.mail.is_up(self.leader.number)
        )
        for _ in range(count if reached else 0):
            if node.at < len(self.log):
                node.apply_next()

    def deliver(self, a, b):
        if self.wires[a, b]:
            self.nodes[b].catalog.received(a, self.wires[a, b].popleft())

    def deliver_all(self):
        for (a, b), wire in self.wires.items():
            while wire:
                self.deliver(a, b)

    def install(self, number):
        """A node that is behind gets the leader's state instead of the entries."""
        node = self.nodes[number]
        assert not node.leading
        node.at = self.leader.at
        node.catalog.install(self.leader.at, self.leader.catalog.encoded_state())

    def restart(self, number):
        """The process ends and another one begins, with what the disk has."""
        old = self.nodes[number]
        for other in list(self.nodes):
            if other != number:
                self.disconnect(number, other)
        if self.leader is old:
            self.leader = None
        checkpoint = self.checkpoints.get(number)
        self.nodes[number] = Node(self, number, old.boot + 1, checkpoint)
        return old

    def settle(self, rounds=6):
        """Let everything that is under way come to an end."""
        for _ in range(rounds):
            self.deliver_all()
            self.commit()
            for number in self.nodes:
                self.apply(number, len(self.log))
            self.clock.advance(1)
        self.deliver_all()
