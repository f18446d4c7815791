"""A replicated queue without a network: some replicas, what is committed, and whoever leads."""

from collections import deque

from queues.options import QueueOptions
from queues.paged import HotBudget
from queues.queue import Queue
from queues.replica import QueueReplica
from tests.queues.fakes import FakeContext


class MemberLog:
    """The `Log` of one replica: what it has of the common log, and what is asked of it."""

    def __init__(self):
        self.entries = {}
        self.checkpointed = (0, b"")
        self.checkpoints = deque()  # (index, state, then) on their way to the disk
        self.reads = deque()
        self.dirty = False
        self.deleted = False

    def changed(self, *, urgent, size_bytes=0):
        self.dirty = True

    def read(self, indexes, then):
        assert indexes == sorted(indexes)
        self.reads.append((indexes, then))

    def release(self, indexes):
        for index in indexes:
            assert index <= self.checkpointed[0], "it is above the checkpoint"
            self.entries.pop(index, None)

    def spread(self, slices, then):
        for _ in slices:
            pass
        then()

    def checkpoint(self, index, state, then):
        self.checkpoints.append((index, state, then))

    def delete(self):
        self.deleted = True

    def finish_read(self, count=None):
        indexes, then = self.reads.popleft()
        found = [(index, self.entries[index]) for index in indexes if index in self.entries]
        then(found if count is None else found[:count])

    def finish_checkpoint(self):
        index, state, then = self.checkpoints.popleft()
        if index > self.checkpointed[0]:
            self.checkpointed = (index, state)
        then()


class Member:
    """A replica, its log and its share of memory."""

    def __init__(self, group):
        self.group = group
        self.log = MemberLog()
        self.context = None  # of the queue, while it leads
        self._open()

    def _open(self):
        self.budget = HotBudget(self.group.budget_bytes)
        self.applied = self.log.checkpointed[0]
        self.replica = QueueReplica(
            self.log,
            self._make_queue,
            self.budget,
            lambda: self.group.now,
            on_lead=self._leads,
            on_follow=self._follows,
        )
        index, state = self.log.checkpointed
        self.replica.recover((index, state) if index else None)

    def _leads(self, queue):
        self.group.on_lead(queue)

    def _follows(self):
        self.group.on_follow()

    def _make_queue(self):
        self.context = FakeContext()
        self.context.now = self.group.now
        self.context.dead_letter = self.group.on_dead
        options = {"arguments": {}, "durable": True, "auto_delete": False, "owner": None}
        return Queue("q", self.context, self.group.options, **options)

    def catch_up(self, count=None):
        """Apply what is committed: the next so many entries, or all."""
        committed = self.group.committed
        upto = len(committed) if count is None else min(len(committed), self.applied + count)
        while self.applied < upto:
            entry = committed[self.applied]
            self.applied += 1
            self.log.entries[self.applied] = entry
            self.replica.apply(self.applied, entry)

    def has_all(self):
        """What it needs; after a restart, only when it has applied again what it had before."""
        return self.log.entries.keys() >= set(self.replica.kept())

    def restart(self):
        """It was killed: what was on its way to the disk is lost."""
        self.log.reads.clear()
        self.log.checkpoints.clear()
        self.log.dirty = False
        self._open()

    def receive(self, other):
        """The whole state of another one, and those entries in it that this one lacks."""
        index, state = other.applied, other.replica.state()
        kept = other.replica.kept()
        self.log.entries = {at: other.log.entries[at] for at in kept}
        self.log.checkpointed = (index, state)
        assert self.replica.install(index, state) == kept
        self.applied = index


class Group:
    """Replicas on one log. `open` are the leader's proposals that are not committed."""

    def __init__(self, *, size=3, budget_bytes=1 << 30, **options):
        self.now = 1000
        self.budget_bytes = budget_bytes
        self.options = QueueOptions(**options)
        self.committed = []
        self.open = deque()
        self.leader = None
        self.on_lead = lambda queue: None
        self.on_follow = lambda: None
        self.on_dead = lambda queue, burial, then: then([])
        self.on_commit = lambda entry: None
        self.members = [Member(self) for _ in range(size)]

    @property
    def queue(self):
        return self.leader.replica.queue if self.leader is not None else None

    def submit(self):
        """The leader proposes what it has to say."""
        self.leader.log.dirty = False
        while (entry := self.leader.replica.next_entry()) is not None:
            self.open.append(entry)

    def commit(self, count=None):
        count = len(self.open) if count is None else min(count, len(self.open))
        for _ in range(count):
            entry = self.open.popleft()
            self._committed(entry)
            leader = self.leader
            leader.applied = len(self.committed)
            leader.log.entries[leader.applied] = entry
            leader.replica.applied(leader.applied)

    def _committed(self, entry):
        self.committed.append(entry)
        self.on_commit(entry)

    def depose(self, *, kept=0, killed=False):
        """The leader is none any more; so many of its proposals are committed all the same."""
        old, self.leader = self.leader, None
        for entry in list(self.open)[:kept]:
            self._committed(entry)
        self.open.clear()
        if killed:
            old.restart()
            self.on_follow()
        else:
            old.replica.follow()
            assert old.context.timers == 0, "a clock of a queue that is over"
        return old

    def elect(self, number):
        self.leader = self.members[number]
        self.leader.catch_up()
        assert self.leader.has_all(), "an entry is needed that was given away"
        self.leader.replica.lead()

    def advance(self, ms):
        for _ in range(ms):
            self.now += 1
            if self.leader is not None:
                self.leader.context.advance(1)

    def settle_down(self):
        """Until the leader has nothing to say and nothing to read."""
        log = self.leader.log
        while log.dirty or self.open or log.reads:
            self.submit()
            self.commit()
            if log.reads:
                log.finish_read()
