"""Three replicas of a partition on logs and disks that forget, with publishers on each node.

The log that they share is as Raft promises, and no better: an entry is committed when two have it,
only who has all of those leads, and what a leader proposed before it lost the lead may be committed
or not. A node knows what is committed only as far as it was told. Everything else is real.
"""

from collections import deque
from contextlib import suppress
from random import Random

from broker.protocol.chunk import Producer, encode_chunk
from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from queues.stream.forwarding import handle_forwarded
from queues.stream.options import StreamOptions
from queues.stream.outgoing import Outgoing
from queues.stream.participant import Decision, Marker, TransactionKey, Vote, WriterRows
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.staged_rows import Lost
from queues.stream.staging import StageAnswer
from queues.stream.tail import TailBudget
from queues.stream.verdict import Verdict
from tests.stream.fakes import ByHand
from tests.stream.life import TAILS_BYTES
from tests.stream.walk import EVERYTHING, PowerFailedError, fail_after
from tests.support.simdisk import SimDisk

UID = b"a partition's log"


class Receipt:
    def __init__(self, appended, lost):
        self.appended, self.lost, self.dropped = appended, lost, lost


class Holder:
    def __init__(self):
        self.reasons = []

    def advanced(self):
        pass

    def damage(self, reason):
        self.reasons.append(reason)

    def repaired(self):
        self.reasons.clear()


class Node:
    """A replica and what it stands on; its log is what of the shared one it has."""

    def __init__(self, world, number):
        self.world = world
        self.number = number
        self.disk = SimDisk()
        self.entries = {}
        self.checkpoint_ = None  # (index, state)
        self.received = 0
        self.boot = 0
        self.open()

    @property
    def compacted(self):
        return self.checkpoint_[0] if self.checkpoint_ else 0

    def open(self):
        world = self.world
        self.boot += 1
        self.dirty = False
        self.writes = deque()
        self.off_loop = ByHand()
        self.holder = Holder()
        self.partition = StreamPartition(
            self,
            self.holder,
            self.disk,
            world.options,
            TailBudget(TAILS_BYTES),
            lambda: world.now_ms,
            self.off_loop,
            IdempotentProducers(),
            replicated=True,
        )
        self.partition.fetch = self.fetch
        self.outgoing = Outgoing(UID, self.number, self.boot, self, lambda: world.now_ms, self.want)
        known = world.random.randint(self.compacted, max(self.compacted, self.known))
        if self.checkpoint_ is not None:
            self.retain(self.partition.install(*self.checkpoint_))
        for index in range(self.compacted + 1, known + 1):
            self.partition.apply(index, self.entries[index])
        self.applied = known
        self.partition.start()

    @property
    def known(self):
        return min(self.received, len(self.world.log))

    def retain(self, kept):
        for index in [i for i in self.entries if i <= self.compacted and i not in kept]:
            del self.entries[index]

    # As its log

    def changed(self, *, urgent, size_bytes=0):
        self.dirty = True

    def release(self, indexes):
        for index in indexes:
            assert index <= self.compacted, "released above the checkpoint"
            self.entries.pop(index, None)

    def checkpoint(self, index, state, then):
        assert index <= self.applied + 1, "a checkpoint covers only what was applied"
        self.writes.append((index, state, then))

    def write(self):
        if self.writes:
            index, state, then = self.writes.popleft()
            assert index >= self.compacted, "an old checkpoint after a newer one"
            self.checkpoint_ = (index, state)
            then()

    def fetch(self, indexes):
        return [(index, self.entries[index]) for index in indexes if index in self.entries]

    # As the way to others

    def want(self, outgoing):
        self.world.wanting.add(outgoing)

    def forward(self, uid, node, body, then):
        assert uid == UID
        self.world.sent.append([self, self.boot, self.world.nodes[node], body, then])

    # What the log says

    def apply(self):
        if self.applied < self.known:
            self.applied += 1
            self.partition.apply(self.applied, self.entries[self.applied])


class World:
    def __init__(self, seed, options=None):
        self.seed = seed
        self.random = Random(seed)
        self.options = options or StreamOptions(segment_bytes=3000)
        self.now_ms = 1000
        self.log = []  # committed entries; the first has index 1
        self.pending = []  # proposed by the leader
        self.sent = deque()  # requests between nodes
        self.answers = deque()
        self.wanting = set()
        self.leader = None
        self.transfer = None
        self.names = 0
        self.committed = []  # value by offset
        self.confirmed = {}  # value → offset
        self.published = {}  # publisher → values in order
        self.chunks = {7: [], 8: []}  # producer → batches, each with whether it is confirmed
        self.whole = []  # values of committed transactions
        self.aborted = set()
        self.transactions = 0
        self.doing = None
        self.installs = 0
        self.failing = None
        self.nodes = [Node(self, number) for number in range(3)]
        self.elect()

    # Publishers

    def name(self):
        self.names += 1
        return b"%d" % self.names + bytes(self.random.choice([0, 20, 90]))

    def publish(self):
        node = self.random.choice(self.nodes)
        values = [self.name() for _ in range(self.random.choice([1, 1, 3, 8]))]
        self.published.setdefault((node.number, node.boot), []).extend(values)
        keys = [self.random.choice([None, b"k", b"l"]) for _ in values]

        def appended(verdict, first):
            assert verdict is Verdict.NEW
            for place, value in enumerate(values):
                assert value not in self.confirmed, "confirmed twice"
                self.confirmed[value] = None if first is None else first + place
            if first is not None:
                self.see(first, values)

        def lost():
            raise AssertionError("nobody gave up")

        node.outgoing.append(keys, values, [b"p"] * len(values), Receipt(appended, lost))

    def send(self):
        """A producer, at one node or another, that sends all without an answer again."""
        producer = self.random.choice([7, 8])
        batches = self.chunks[producer]
        batches.append(([self.name() for _ in range(self.random.choice([1, 2, 5]))], []))
        start, node = 0, self.random.choice(self.nodes)
        for values, confirmed in batches:
            if not confirmed:
                self.send_part(node, Producer(producer, 1, start), values, confirmed)
            start += len(values)

    def send_part(self, node, producer, values, confirmed):
        def appended(verdict, first):
            if verdict in (Verdict.NEW, Verdict.DUPLICATE):
                confirmed.append(True)
                if first is not None:
                    self.see(first, values)
            else:
                assert verdict is Verdict.OUT_OF_ORDER  # it moved on to another node too soon

        count = len(values)
        chunk = encode_chunk([None] * count, values, [b""] * count, self.now_ms, producer=producer)
        node.outgoing.append_chunk(chunk, Receipt(appended, lambda: None))

    def see(self, offset, values):
        self.committed += [None] * (offset + len(values) - len(self.committed))
        for place, value in enumerate(values, offset):
            known = self.committed[place]
            assert known in (None, value), "another record at the same offset"
            self.committed[place] = value

    # A transaction, one at a time; who drives it asks again until it is answered

    def transact(self):
        if self.doing is None:
            self.transactions += 1
            chunks = [[self.name() for _ in range(self.random.choice([1, 3]))] for _ in range(2)]
            self.doing = Doing(self, self.transactions, chunks)
        self.doing.go_on()

    # Between nodes

    def deliver(self):
        """The next request, in order, or an answer."""
        if self.answers and self.random.random() < 0.5:
            source, boot, then, answer = self.answers.popleft()
            if source.boot == boot:
                then(answer)
        elif self.sent:
            source, boot, target, body, then = self.sent.popleft()
            if source.boot == boot:
                handle_forwarded(
                    target.partition,
                    body,
                    lambda answer: self.answers.append((source, boot, then, answer)),
                )

    def cut_link(self):
        """Whatever is under way between two nodes is lost, and its sender knows."""
        for source, boot, _, _, then in list(self.sent):
            self.answers.append((source, boot, then, None))
        self.sent.clear()

    def flush(self):
        wanting, self.wanting = self.wanting, set()
        for node in self.nodes:
            if node.outgoing in wanting:
                node.outgoing.flush()

    def retry(self):
        self.random.choice(self.nodes).outgoing.retry()

    # The shared log

    def submit(self):
        if self.leader is not None:
            self.leader.dirty = False
            while (entry := self.leader.partition.next_entry()) is not None:
                self.pending.append(entry)

    def commit(self):
        """The next entry, if another node has it."""
        leader = self.leader
        if leader is None or not self.pending:
            return
        index = len(self.log) + 1
        others = [n for n in self.nodes if n is not leader and n.received == index - 1]
        others = [n for n in others if n.partition.unsound is None]
        if not others:
            return
        entry = self.pending.pop(0)
        self.log.append(entry)
        for node in (leader, self.random.choice(others)):
            node.entries[index] = entry
            node.received = index
        leader.applied = index
        leader.partition.applied(index)

    def receive(self):
        node = self.random.choice(self.nodes)
        if self.leader is None or node is self.leader or node.received >= len(self.log):
            return
        index = node.received + 1
        if index > self.leader.compacted:
            node.entries[index] = self.log[index - 1]
            node.received = index

    def apply(self):
        node = self.random.choice(self.nodes)
        if node is not self.leader:
            node.apply()

    def depose(self):
        """What was proposed may or may not be in the log of whoever leads next."""
        leader, self.leader = self.leader, None
        if leader is None:
            return
        self.survives(leader)
        leader.partition.follow()
        for node in self.nodes:
            node.outgoing.leader_changed(None)

    def survives(self, leader):
        kept = self.pending[: self.random.randint(0, len(self.pending))]
        self.pending = []
        others = [n for n in self.nodes if n is not leader and n.received == len(self.log)]
        if others:
            heir = self.random.choice(others)
            for entry in kept:
                self.log.append(entry)
                heir.received = len(self.log)
                heir.entries[heir.received] = entry
                leader.entries[heir.received] = entry  # it had written it
            leader.received = len(self.log)

    def elect(self):
        if self.leader is not None:
            return
        able = [n for n in self.nodes if n.received == len(self.log)]
        able = [n for n in able if n.partition.unsound is None]
        if not able:
            return
        node = self.random.choice(able)
        while node.applied < len(self.log):
            node.apply()
        if node.partition._keeper is None:
            node.partition.recover(None, [])
        self.leader = node
        node.partition.lead()
        assert node.partition.leads, node.holder.reasons
        for each in self.nodes:
            each.outgoing.leader_changed(node.number, node.partition if each is node else None)

    # Snapshots

    def snapshot(self):
        """Begin one for somebody who needs it, or go on with the one that is under way."""
        if self.transfer is not None:
            self.transfer.go_on()
            return
        behind = [n for n in self.nodes if n is not self.leader and self.needs_snapshot(n)]
        if self.leader is None or not behind:
            return
        target, keeper = self.random.choice(behind), self.leader.partition._keeper
        if self.leader.checkpoint_ is not None and self.leader.compacted >= target.compacted:
            self.transfer = Transfer(self, self.leader, target)
        elif keeper._entries and not keeper._busy:
            keeper._move()

    def needs_snapshot(self, node):
        behind = self.leader is not None and node.received < self.leader.compacted
        return behind or node.partition.unsound is not None

    def give_up_transfer(self):
        self.transfer = None

    # What else happens

    def write(self):
        self.random.choice(self.nodes).write()

    def work(self):
        jobs = self.random.choice(self.nodes).off_loop
        jobs.jobs.rotate(self.random.randrange(3))
        jobs.run(1)

    def tick(self):
        self.now_ms += self.random.choice([1, 10, 30])
        for node in self.nodes:
            if node.partition._keeper is not None:
                node.partition.tick(self.now_ms)

    def read(self):
        """From any replica, wherever."""
        node = self.random.choice(self.nodes)
        partition = node.partition
        if partition.unsound is not None or partition._keeper is None:
            return
        offset = self.random.randint(0, len(self.committed) + 1)

        def then(found):
            if isinstance(found, OffsetOutOfRangeError):
                assert offset < found.first_offset or partition.leads
                return
            if isinstance(found, StreamError):
                assert partition.unsound is not None, found
                return
            for chunk in found.chunks:
                for record in chunk.slice(offset, EVERYTHING):
                    self.see(record.offset, [record.value])

        partition.reader.read(offset, self.random.choice([1, 500, EVERYTHING]), then)

    def crash(self, node=None):
        node = node or self.random.choice(self.nodes)
        if node is self.failing:
            self.failing = None
        if self.transfer is not None and node in (self.transfer.source, self.transfer.target):
            self.transfer = None
        if node is self.leader:
            self.leader_dies(node)
        self.power_fails(node)
        for request in list(self.sent):
            if request[2] is node:
                self.sent.remove(request)
                self.answers.append((request[0], request[1], request[4], None))
        node.open()
        if self.leader is not None:
            node.outgoing.leader_changed(self.leader.number)

    def leader_dies(self, node):
        self.leader = None
        if self.doing is not None:
            self.doing.asked = False
        self.survives(node)
        for each in self.nodes:
            if each is not node:
                each.outgoing.leader_changed(None)

    def power_fails(self, node):
        if node.off_loop.jobs and self.random.random() < 0.3:
            with suppress(PowerFailedError):
                node.off_loop.work_without_telling()
        fail_after(node.disk, 0)
        keeper = node.partition._keeper
        if keeper is not None and keeper._compactor is not None:
            with suppress(PowerFailedError):
                keeper._compactor.close()
        for _ in range(self.random.randint(0, len(node.writes))):
            index, state, _ = node.writes.popleft()
            node.checkpoint_ = (index, state)
        node.disk.crash(self.random)

    def fail_soon(self):
        if self.failing is None:
            self.failing = self.random.choice(self.nodes)
            fail_after(self.failing.disk, self.random.randint(0, 25))

    def step(self):
        actions = [self.publish] * 3 + [self.send, self.transact, self.transact]
        actions += [self.submit] * 4 + [self.commit] * 6 + [self.receive] * 8 + [self.apply] * 8
        actions += [self.deliver] * 6 + [self.flush] * 4 + [self.retry, self.write, self.write]
        actions += [self.work] * 6 + [self.read] * 3 + [self.snapshot] * 4 + [self.tick] * 2
        actions += [self.elect]
        rare = [self.depose, self.crash, self.cut_link, self.give_up_transfer, self.fail_soon]
        action = self.random.choice(rare if self.random.random() < 0.02 else actions)
        try:
            action()
        except PowerFailedError:
            assert self.failing is not None
            self.crash(self.failing)

    # The end

    def settle_down(self):
        """Everybody is up and hears everybody, until nothing moves any more."""
        for node in self.nodes:
            fail_after(node.disk, 1 << 30)
        self.failing = None
        for _ in range(3000):
            self.elect()
            for action in (self.flush, self.submit, self.commit, self.deliver, self.snapshot):
                action()
            for node in self.nodes:
                node.outgoing.retry()
                node.off_loop.run()
                node.write()
            for _ in range(4):
                self.receive()
                self.apply()
            if self.doing is not None:
                self.doing.go_on()
            if self.is_quiet():
                return
        raise AssertionError(f"it never comes to rest, seed {self.seed}")

    def is_quiet(self):
        nodes = self.nodes
        return (
            self.leader is not None
            and self.doing is None
            and not (self.pending or self.sent or self.answers)
            and all(n.applied == len(self.log) == n.received for n in nodes)
            and all(n.partition.unsound is None and not n.outgoing.size_bytes for n in nodes)
            and not any(n.off_loop.jobs or n.writes for n in nodes)
        )

    def check(self):
        partitions = [node.partition for node in self.nodes]
        assert len({each.next_offset for each in partitions}) == 1
        assert (
            len({(each.stable_end, each.whole_end(each.staged.decided)) for each in partitions})
            == 1
        )
        assert len({each.state() for each in partitions}) == 1, "another state"
        found = [self.read_all(node) for node in self.nodes]
        for node, records in zip(self.nodes, found, strict=True):
            first = node.partition.first_offset
            if not self.options.compact:
                offsets = [record.offset for record in records]
                assert offsets == list(range(first, node.partition.next_offset))
            for record in records:
                self.see(record.offset, [record.value])
        self.check_keys(found)
        there = [value for value in self.committed if value is not None]
        assert len(set(there)) == len(there), "a record is stored twice"
        self.check_publishers()
        self.check_transactions()

    def check_keys(self, found):
        """Compaction leaves the last record of each key, and what has none, on every replica."""
        kept = [{r.offset for r in records} for records in found]
        for records in found:
            last = {}
            for record in records:
                last[record.key] = record.offset
            for number, offsets in enumerate(kept):
                first = self.nodes[number].partition.first_offset
                for key, offset in last.items():
                    assert key is None or offset < first or offset in offsets

    def check_publishers(self):
        places = {value: n for n, value in enumerate(self.committed) if value is not None}
        for value, offset in self.confirmed.items():
            if offset is not None:
                assert self.committed[offset] == value, "a confirmed record is lost"
            elif not self.options.compact and not self.options.max_bytes:
                assert value in places, "a confirmed record is lost"
        for values in self.published.values():
            stored = [places[value] for value in values if value in places]
            assert stored == sorted(stored), "overtaken"
        for batches in self.chunks.values():
            values = [value for batch, _ in batches for value in batch]
            stored = [places[value] for value in values if value in places]
            assert stored == sorted(stored), "a producer's records are out of order"

    def check_transactions(self):
        places = {value: n for n, value in enumerate(self.committed) if value is not None}
        for values in self.whole:
            stored = [places[value] for value in values if value in places]
            assert stored == sorted(stored)
            if not self.options.compact and not self.options.max_bytes:
                assert len(stored) == len(values), "half of a transaction"
                assert stored[-1] - stored[0] == len(values) - 1
        assert not self.aborted & places.keys(), "rows of an aborted transaction"

    def read_all(self, node):
        records = []
        partition = node.partition
        offset = partition.first_offset
        while offset < partition.next_offset:
            answers = []
            partition.reader.read(offset, 700, answers.append)
            node.off_loop.run()
            for chunk in answers[0].chunks:
                records += chunk.slice(offset, EVERYTHING)
            assert answers[0].next_offset > offset
            offset = answers[0].next_offset
        return records


class Doing:
    """A transaction on its way: rows are staged, held, and then appended or dropped."""

    def __init__(self, world, number, chunks):
        self.world = world
        self.number = number
        self.chunks = chunks
        self.staged = 0
        self.held = False
        self.asked = False
        self.key = TransactionKey("p", 1, number)
        self.decision = world.random.choice([Decision.COMMIT, Decision.COMMIT, Decision.ABORT])
        values = [value for chunk in chunks for value in chunk]
        if self.decision is Decision.COMMIT:
            world.whole.append(values)
        else:
            world.aborted.update(values)

    def go_on(self):
        leader = self.world.leader
        if leader is None or self.asked:
            return
        self.asked = True
        partition = leader.partition
        if self.staged < len(self.chunks):
            values = self.chunks[self.staged]
            count = len(values)
            chunk = encode_chunk([None] * count, values, [b""] * count, self.world.now_ms)
            partition.stage(self.key, "w", self.staged, chunk, self.answered)
        elif not self.held:
            rows = (WriterRows("w", sum(map(len, self.chunks))),)
            partition.staged.prepare(self.number, self.key, rows, self.answered)
        else:
            marker = Marker(self.number, self.number, self.key, self.decision, ("w",))
            partition.staged.mark((marker,), self.number - 1, self.answered)

    def answered(self, answer):
        if self.world.doing is not self:
            return
        self.asked = False
        match answer:
            case Lost():
                pass
            case StageAnswer.STAGED | StageAnswer.DUPLICATE:
                self.staged = min(self.staged + 1, len(self.chunks))
            case Vote.YES:
                self.held = True
            case int():
                assert answer >= self.number
                self.world.doing = None
            case _:
                raise AssertionError(answer)


class Transfer:
    """The records of a leader on their way to a node that is too far behind."""

    def __init__(self, world, source, target):
        self.world = world
        self.source = source
        self.target = target
        self.index, self.state = source.checkpoint_
        self.parts = source.partition.parts(self.index, target.partition.have())

    def go_on(self):
        """Off the loop, at both ends; as if a job of theirs were under way meanwhile."""
        try:
            part = next(self.parts, None)
            if part is not None:
                self.target.partition.take(part)
                return
        except StreamError:
            assert self.source.partition._segments.anew, "a leader's records are sound"
        else:
            self.install()
        if self.world.transfer is self:
            self.world.transfer = None

    def install(self):
        """The checkpoint of when it began, or the last one of the log."""
        source, target = self.source, self.target
        index, state = self.index, self.state
        if source.compacted > index and self.world.random.random() < 0.3:
            index, state = source.checkpoint_
        if index < target.compacted:
            return
        if index < target.received and target.partition.unsound is None:
            return
        for each, entry in source.entries.items():
            if each <= index:
                target.entries[each] = entry
        if self.world.random.random() < 0.1:
            return  # it is said and never heard
        target.writes = deque((index, state, then) for _, _, then in target.writes)
        target.checkpoint_ = (index, state)
        target.received = max(index, target.received)
        target.applied = index
        self.world.installs += 1
        target.retain(target.partition.install(index, state))
        if self.world.random.random() < 0.2:
            self.world.crash(target)


def run(seed, options=None, steps=1500):
    world = World(seed, options)
    for _ in range(steps):
        world.step()
    world.settle_down()
    world.check()
    return world
