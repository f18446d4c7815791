"""Nodes in one loop: real fronts, desks, queues and replicas over a made-up log and made-up links.

Links lose what is on its way when they are cut, and deliver in order otherwise, as slowly as the
caller likes. The log commits what its leader proposes while a majority is in sight. A deposed
leader that nobody can reach goes on believing in itself.
"""

import heapq
from collections import deque
from itertools import count

from broker.cluster.front import QueueFront
from broker.cluster.fronts import Fronts
from broker.cluster.kinds import Kind
from broker.cluster.leaders import LeaderBook
from broker.cluster.placement import Placement
from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import Message
from queues.options import QueueOptions
from queues.paged import HotBudget
from queues.queue import Queue
from queues.replica import QueueReplica

UID = b"u" * 16


class Timer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None


class Clock:
    """Set by hand."""

    def __init__(self):
        self.now = 1_700_000_000_000
        self._heap = []
        self._order = count()

    def now_ms(self):
        return self.now

    def call_at(self, when_ms, callback):
        timer = Timer(callback)
        heapq.heappush(self._heap, (when_ms, next(self._order), timer))
        return timer

    def advance(self, ms):
        until = self.now + ms
        while self._heap and self._heap[0][0] <= until:
            when, _, timer = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            if timer.callback is not None:
                timer.callback()
        self.now = until


class Net:
    """Links between nodes."""

    def __init__(self):
        self.links = {}  # frozenset of two → up
        self.lanes = {}  # (from, to, lane) → messages on their way

    def is_up(self, a, b):
        return frozenset((a, b)) in self.links

    def busy(self):
        return [key for key, waiting in self.lanes.items() if waiting]

    def drop(self, a, b):
        self.links.pop(frozenset((a, b)), None)
        for (origin, to, _), waiting in self.lanes.items():
            if {origin, to} == {a, b}:
                waiting.clear()


class Mail:
    """One node's end of all links."""

    def __init__(self, net, me):
        self._net = net
        self._me = me
        self.is_congested = False
        self.is_dead = False  # its node is gone, though objects of it may still have timers

    def send(self, node, kind, *pieces):
        if self.is_up(node):
            key = (self._me, node, kind.lane)
            self._net.lanes.setdefault(key, deque()).append((kind, b"".join(pieces)))

    def is_up(self, node):
        return not self.is_dead and self._net.is_up(self._me, node)

    def up(self):
        return {node for pair in self._net.links if self._me in pair for node in pair - {self._me}}

    def send_large(self, node, key, *pieces):
        self.send(node, key[0], *pieces)

    def carries(self, node, key):
        return False

    def congested(self, node, key):
        return self.is_congested


class Log:
    """One replica's view of the log."""

    def __init__(self, group, node):
        self._group = group
        self._node = node

    def changed(self, *, urgent, size_bytes=0):
        pass

    def read(self, indexes, then):
        entries = [(index, self._group.committed[index - 1]) for index in indexes]
        self._group.world.later(self._node, lambda: then(entries))

    def release(self, indexes):
        pass

    def checkpoint(self, index, state, then):
        then()

    def confirm(self, then):
        self._group.confirm(self._node, then)

    def delete(self):
        pass


class Group:
    """The log of one queue."""

    def __init__(self, world, members):
        self.world = world
        self.members = members
        self.committed = []
        self.applied = dict.fromkeys(members, 0)
        self.proposed = {node: deque() for node in members}
        self.leader = None
        self.leading = {}  # who thinks that it leads → term
        self.term = 0
        self.unsure = []  # nodes that asked whether they lead, and who waits for it there

    def in_majority(self, node):
        alive = [m for m in self.members if m == node or self.world.net.is_up(node, m)]
        return node in self.world.nodes and len(alive) * 2 > len(self.members)

    def gather(self, node):
        replica = self.world.nodes[node].replica
        while (entry := replica.next_entry()) is not None:
            self.proposed[node].append(entry)

    def commit(self):
        """The leader's oldest proposal is committed."""
        node = self.leader
        if node is None or node not in self.world.nodes or not self.in_majority(node):
            return False
        self.gather(node)
        if not self.proposed[node]:
            return False
        self.committed.append(self.proposed[node].popleft())
        self.applied[node] = len(self.committed)
        self.world.nodes[node].replica.applied(len(self.committed))
        return True

    def apply(self, node):
        index = self.applied[node] + 1
        if node in self.leading or index > len(self.committed):
            return False
        self.applied[node] = index
        self.world.nodes[node].replica.apply(index, self.committed[index - 1])
        return True

    def confirm(self, node, then):
        """A leader that nobody can reach does not know until it is reached."""
        self.unsure.append((node, then))

    def answer(self):
        """The leader has heard from a majority that it is."""
        node = self.leader
        sure = [each for each in self.unsure if each[0] == node and self.in_majority(node)]
        self.unsure = [each for each in self.unsure if each not in sure]
        for _, then in sure:
            then(True)
        return bool(sure)

    def step_down(self, node):
        term = self.leading.pop(node, None)
        if term is not None:
            self.proposed[node].clear()
            self.world.nodes[node].replica.follow()
            self.world.nodes[node].book.i_lead_no_more(UID, term)
            waiting = [then for other, then in self.unsure if other == node]
            self.unsure = [each for each in self.unsure if each[0] != node]
            for then in waiting:
                then(False)

    def elect(self, node, survivors=0):
        """Another leads. So many of the old one's proposals turn out to be committed."""
        if node in self.leading or not self.in_majority(node):
            return
        old = self.leader
        if old is not None:
            if old in self.world.nodes and old in self.leading:
                self.gather(old)
            self.committed += [
                self.proposed[old].popleft() for _ in range(min(survivors, len(self.proposed[old])))
            ]
            self.proposed[old].clear()
            if old in self.world.nodes and self.world.net.is_up(old, node):
                self.step_down(old)
        self.leader = node
        self.term += 1
        while self.apply(node):
            pass
        self.leading[node] = self.term
        self.world.nodes[node].term = self.term
        self.world.nodes[node].replica.lead()
        self.world.nodes[node].book.i_lead(UID, self.term)


class Node:
    """One node: what it has of one queue."""

    def __init__(self, world, number):
        self.world = world
        self.number = number
        self.term = 0
        self.mail = Mail(world.net, number)
        self.book = LeaderBook(number, self.mail)
        sessions = count(world.new_session())
        self.fronts = Fronts(
            number,
            self.mail,
            self.book,
            world.clock,
            lambda _: self.world.group.in_majority(number),
            new_session=lambda: next(sessions).to_bytes(16, "big"),
        )
        self.front = QueueFront(
            "q",
            UID,
            self.fronts,
            world.options,
            vhost="/",
            arguments={},
            durable=True,
            auto_delete=False,
            owner=None,
            placement=Placement((tuple(world.members),)),
        )
        self.replica = None
        if number in world.members:
            self.replica = QueueReplica(
                Log(world.group, number),
                self._make_queue,
                HotBudget(1 << 20),
                world.clock.now_ms,
                on_lead=lambda queue: self.fronts.lead(UID, queue, self.term),
                on_follow=lambda: self.fronts.follow(UID),
            )
            self.front.part = self.replica
        self.front.start()

    def _make_queue(self):
        return Queue(
            "q",
            self.world,
            self.front.options,
            arguments={},
            durable=True,
            auto_delete=False,
            owner=None,
        )

    def received(self, sender, kind, body):
        if kind == Kind.LEADS:
            self.book.received(sender, body)
        else:
            self.fronts.received(sender, body)


class Client:
    """A channel with its consumers: a sink that checks what it is given."""

    def __init__(self, node, limit=0):
        self.node = node
        self.credit = Credit(limit)
        self.paused = False
        self.closed = False
        self.unacked = {}  # tag → consumer, message
        self.consumers = {}
        self.cancelled = []
        self.refused = []
        self.seen = []  # (body, redelivered, consumer's tag)
        self._last = 0
        self._names = count()

    def held_of(self, queue):
        return [held for held in self.unacked.values() if held[0].queue is queue]

    def deliver(self, consumer, messages):
        assert not self.paused
        assert self.consumers.get(consumer.tag) is consumer, "delivered to a consumer that is gone"
        for message in messages:
            self._last += 1
            message.tag = self._last
            if not consumer.no_ack:
                self.unacked[self._last] = (consumer, message)
            body = bytes(message.body)
            self.seen.append((body, message.redelivered, consumer.tag))
            self.node.world.delivered(body, redelivered=message.redelivered)
            if consumer.no_ack:
                self.node.world.acked.add(body)
        if not consumer.no_ack:
            assert not consumer.credit.limit or consumer.credit.used <= consumer.credit.limit
            assert not self.credit.limit or self.credit.used <= self.credit.limit

    def revoke(self, consumer, messages):
        taken = [m for m in messages if self.unacked.pop(m.tag, None) is not None]
        consumer.release(len(taken))
        return taken

    def consumer_cancelled(self, consumer):
        self.consumers.pop(consumer.tag, None)
        self.cancelled.append(consumer.tag)

    # What the client does

    def consume(self, **how):
        tag = f"c{next(self._names)}"
        consumer = Consumer(tag, self.node.front, self, **how)

        def answered(error):
            if error is not None:
                self.refused.append(error)
                return
            if self.closed:
                self.node.front.remove_consumer(consumer)
                return
            self.consumers[tag] = consumer
            self.node.front.start_consumer(consumer)

        self.node.front.consume(consumer, answered)
        return consumer

    def cancel(self, consumer):
        if self.consumers.pop(consumer.tag, None) is not None:
            self.node.front.remove_consumer(consumer)

    def get(self, *, no_ack=False):
        holder = Consumer("", self.node.front, self, no_ack=no_ack, fetching=True)
        answers = []

        def fetched(answer):
            if self.closed:
                return False
            answers.append(answer)
            if isinstance(answer, tuple):
                message = answer[0]
                self.node.world.delivered(bytes(message.body), redelivered=message.redelivered)
                if no_ack:
                    self.node.world.acked.add(bytes(message.body))
                else:
                    self._last += 1
                    message.tag = self._last
                    self.unacked[self._last] = (holder, message)
                    self.credit.fetched += 1
            return True

        self.node.front.fetch(holder, fetched)
        return answers

    def hand_back(self, tags, how):
        groups = {}
        for tag in tags:
            consumer, message = self.unacked.pop(tag)
            groups.setdefault(consumer, []).append(message)
        for consumer, messages in groups.items():
            consumer.release(len(messages))
            if how == "ack":
                self.node.world.acked.update(bytes(m.body) for m in messages)
                self.node.front.settle(consumer, messages)
            elif how == "requeue":
                self.node.front.requeue(consumer, messages)
            else:
                self.node.world.rejected.update(bytes(m.body) for m in messages)
                self.node.front.discard(consumer, messages)
        for consumer in list(self.consumers.values()):
            self.node.front.consumer_ready(consumer)

    def resume(self):
        self.paused = False
        for consumer in list(self.consumers.values()):
            self.node.front.consumer_ready(consumer)

    def close(self):
        self.closed = True
        for consumer in list(self.consumers.values()):
            self.cancel(consumer)
        groups = {}
        for consumer, message in self.unacked.values():
            groups.setdefault(consumer, []).append(message)
        self.unacked.clear()
        for consumer, messages in groups.items():
            consumer.release(len(messages))
            self.node.front.requeue(consumer, messages, lost=True)


class Receipt:
    """Counts: told exactly once."""

    def __init__(self, world, node, messages):
        self._world = world
        self.node = node
        self._bodies = {m.sequence: bytes(m.body) for m in messages}
        self.told = 0
        self.refused = set()

    def stored(self, refused):
        self.told += 1
        assert self.told == 1, "a receipt is told once"
        self.refused = {self._bodies[m.sequence] for m in refused}
        self._world.confirmed.update(set(self._bodies.values()) - self.refused)
        self._world.nacked.update(self.refused)


def message(body, tag=0):
    made = Message(b"\x00\x01q", frames_of(body), 14, 0, len(body), 1)
    made.sequence = tag
    return made


def frames_of(body):
    header = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
    header += len(body).to_bytes(8, "big") + b"\x00\x00\xce"
    if not body:
        return header
    return header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"


class World:
    """Three nodes, of which some are members of the queue's group."""

    def __init__(self, members=(1, 2, 3), nodes=(1, 2, 3), **options):
        self.clock = Clock()
        self.net = Net()
        self.members = members
        self.options = QueueOptions(type="quorum", **options)
        self._sessions = count()
        self._tags = count(1)
        self.group = Group(self, members)
        self.nodes = {}
        self.work = []  # (node, what was asked to be done off the loop)
        self.confirmed, self.nacked, self.acked, self.rejected = set(), set(), set(), set()
        self.fresh = set()  # bodies that were delivered as new
        self.dead = []  # (bodies, reason)
        self.receipts = []
        self.unused = []  # queues that asked for their end
        for number in nodes:
            self.nodes[number] = Node(self, number)
        for a in nodes:
            for b in nodes:
                if a < b:
                    self.net.links[frozenset((a, b))] = True

    def new_session(self):
        return next(self._sessions) * 1000 + 1

    # What queues ask of their surroundings

    def now_ms(self):
        return self.clock.now_ms()

    def call_at(self, when_ms, callback):
        return self.clock.call_at(when_ms, callback)

    def dead_letter(self, queue, burial, then):
        bodies = [bytes(m.body) for m in burial.messages]
        self.dead.append((bodies, burial.reason))
        self.rejected.update(bodies)
        then([])

    def queue_unused(self, queue):
        self.unused.append(queue)

    # What happens

    def later(self, node, action):
        self.work.append((self.nodes.get(node), action))

    def delivered(self, body, *, redelivered):
        if not redelivered:
            assert body not in self.fresh, f"{body} came twice as if it were new"
            self.fresh.add(body)

    def publish(self, node, bodies, *, confirm=True, **more):
        messages = [message(body, next(self._tags)) for body in bodies]
        for name, value in more.items():
            for one in messages:
                setattr(one, name, value)
        receipt = Receipt(self, self.nodes[node], messages) if confirm else None
        if receipt is not None:
            self.receipts.append(receipt)
        self.nodes[node].front.publish(messages, receipt)
        self.flush()
        return receipt

    def flush(self):
        for node in self.nodes.values():
            node.fronts.flush()

    def carry(self, key):
        """One message arrives."""
        origin, to, _ = key
        kind, body = self.net.lanes[key].popleft()
        self.nodes[to].received(origin, kind, body)
        self.flush()

    def do_work(self):
        node, action = self.work.pop(0)
        if self.nodes.get(getattr(node, "number", None)) is node:
            action()
            self.flush()

    def settle_down(self, ms=0):
        """Until nothing is left to do, with so much time passing."""
        self.flush()
        for left in range(ms // 50, -1, -1):
            while True:
                busy = self.net.busy()
                if busy:
                    self.carry(busy[0])
                elif self.work:
                    self.do_work()
                elif self.group.answer() or self._replicate():
                    self.flush()
                else:
                    break
            if left:
                self.clock.advance(50)
                self.flush()

    def _replicate(self):
        return self.group.commit() or any(map(self.group.apply, self._followers()))

    def _followers(self):
        return [n for n in self.members if n in self.nodes and n not in self.group.leading]

    def elect(self, node, survivors=0):
        self.group.elect(node, survivors)
        self.flush()

    def cut(self, a, b):
        if self.net.is_up(a, b):
            self.net.drop(a, b)
            for one, other in ((a, b), (b, a)):
                if one in self.nodes:
                    self.nodes[one].book.node_down(other)
                    self.nodes[one].fronts.node_down(other)
            self.flush()

    def heal(self, a, b):
        if not self.net.is_up(a, b) and a in self.nodes and b in self.nodes:
            self.net.links[frozenset((a, b))] = True
            for one, other in ((a, b), (b, a)):
                leader = self.group.leader
                if one in self.group.leading and one != leader and self.net.is_up(one, leader):
                    self.group.step_down(one)
                self.nodes[one].book.node_up(other)
                self.nodes[one].fronts.node_up(other)
            self.flush()

    def crash(self, number):
        self.nodes.pop(number).mail.is_dead = True
        self.group.unsure = [each for each in self.group.unsure if each[0] != number]
        self.group.leading.pop(number, None)
        for other in list(self.nodes):
            self.cut(number, other)

    def restart(self, number):
        node = self.nodes[number] = Node(self, number)
        if node.replica is not None:
            known = self.group.committed[: self.group.applied[number]]
            node.replica.recover(None, enumerate(known, 1))
        for other in list(self.nodes):
            if other != number:
                self.heal(number, other)

    @property
    def leader(self):
        return self.nodes.get(self.group.leader)
