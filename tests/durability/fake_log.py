"""A log in memory for one machine: commits late, forgets at a crash, answers reads when told to."""

from collections import deque


class FakeDisk:
    """What outlives a crash: entries by index, and the last checkpoint."""

    def __init__(self):
        self.entries = {}
        self.released = {}  # a crash may bring them back
        self.checkpoint = None  # (index, state)
        self.last = 0
        self.stopped_cleanly = False  # as the node notes it, for all its logs together

    def copy(self):
        twin = FakeDisk()
        twin.entries = dict(self.entries)
        twin.checkpoint = self.checkpoint
        twin.last = self.last
        twin.stopped_cleanly = self.stopped_cleanly
        return twin

    def above_checkpoint(self):
        covered = self.checkpoint[0] if self.checkpoint else 0
        return [(index, self.entries[index]) for index in sorted(self.entries) if index > covered]


class FakeLog:
    """The `Log` of queues.durable. Writes reach the disk in order, through `commit`."""

    def __init__(self, disk):
        self.disk = disk
        self.machine = None
        self.on_submit = lambda index: None
        self.on_commit = lambda index: None
        self.writes = deque()  # ("entry", index, payload) or ("checkpoint", index, state, then)
        self.reads = deque()
        self.dirty = False
        self.deleted = False
        self.released = []
        self._last = disk.last
        self._applied = disk.last

    # What the machine says

    def changed(self, *, urgent, size_bytes=0):
        self.dirty = True

    def confirm(self, then):
        then(True)

    def read(self, indexes, then):
        assert indexes == sorted(indexes)
        self.reads.append((indexes, then))

    def release(self, indexes):
        covered = self.disk.checkpoint[0] if self.disk.checkpoint else 0
        for index in indexes:
            assert index <= covered, f"{index} is above the checkpoint at {covered}"
            self.released.append(index)
            if index in self.disk.entries:  # a replay releases once more
                self.disk.released[index] = self.disk.entries.pop(index)

    def spread(self, slices, then):
        for _ in slices:
            pass
        then()

    def checkpoint(self, index, state, then):
        assert index <= self._applied, "a checkpoint covers only what was applied"
        self.writes.append(("checkpoint", index, state, then))

    def delete(self):
        self.deleted = True

    # What the world does

    def submit(self):
        """Take what the machine has to say; nothing of it is on disk yet."""
        self.dirty = False
        while (entry := self.machine.next_entry()) is not None:
            self._last += 1
            self.writes.append(("entry", self._last, entry))
            self.on_submit(self._last)

    def commit(self, count=None):
        """The first so many writes are durable, all of them if None."""
        count = len(self.writes) if count is None else count
        for _ in range(min(count, len(self.writes))):
            write = self.writes.popleft()
            self._put(write)
            if write[0] == "entry":
                self._applied = write[1]
                self.on_commit(write[1])
                self.machine.applied(write[1])
            else:
                write[3]()

    def _put(self, write):
        if write[0] == "entry":
            self.disk.entries[write[1]] = write[2]
            self.disk.last = write[1]
        else:
            self.disk.checkpoint = (write[1], write[2])

    def settle_down(self):
        """Until nothing moves any more."""
        while self.dirty or self.writes:
            self.submit()
            self.commit()

    def finish_read(self, count=None):
        """The oldest read comes back, with at least one entry, with so many of them if told."""
        indexes, then = self.reads.popleft()
        found = [
            (index, self.disk.entries[index]) for index in indexes if index in self.disk.entries
        ]
        then(found if count is None else found[:count])

    def crash(self, kept, brought_back):
        """So many of the open writes reached the disk all the same; releases may be undone."""
        for write in list(self.writes)[:kept]:
            self._put(write)
        for index in brought_back:
            self.disk.entries[index] = self.disk.released[index]
        self.disk.released.clear()
        self.writes.clear()
        self.reads.clear()


class FakeAway:
    """A queue's account of delayed messages, for storage that is tested without a queue."""

    def __init__(self, on_delayed=lambda messages: None):
        self._on_delayed = on_delayed
        self.delays = {}  # sequence → due

    def delayed(self, messages):
        self.delays |= {message.sequence: message.due_ms for message in messages}
        self._on_delayed(messages)

    def scheduled(self, delays):
        self.delays |= dict(delays)

    def may_redeliver(self):
        return True

    def withdraw_paced(self, sequences):
        return []
