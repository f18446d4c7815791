"""A list as a state machine, and the book that compares what its replicas say."""

import json
from collections import deque
from typing import TYPE_CHECKING
from zlib import crc32

from broker.hosted_log import MemberLog
from tests.support.promises import check

if TYPE_CHECKING:
    from tests.cluster_host.world import World


class Book:
    """Of one log: what was applied where in it, what was confirmed."""

    def __init__(self) -> None:
        self.history: dict[int, tuple[bytes, int]] = {}  # index → entry, and digest up to there
        self.confirmed: dict[bytes, int] = {}  # entry → index

    def saw(self, index: int, entry: bytes, digest: int) -> None:
        before = self.history.setdefault(index, (entry, digest))
        check(before == (entry, digest), f"{entry!r} at {index}, and {before[0]!r} elsewhere")

    def confirm(self, index: int, entry: bytes) -> None:
        self.confirmed[entry] = index

    @property
    def confirmed_max(self) -> int:
        return max(self.confirmed.values(), default=0)


def log_runs(log: MemberLog | None) -> bool:
    """Whether it is not just being brought back from its disk."""
    return log is not None and log.raft is not None


class ListMachine:
    """Entries are `add N` or `kill INDEX`; an entry is alive until it is killed."""

    def __init__(self, world: "World", book: Book, name: str, every: int) -> None:
        self.world = world
        self.book = book
        self.name = name
        self.log: MemberLog | None = None
        self.leading = False
        self.index = 0  # the last that was applied
        self.digest = 0
        self.live: list[int] = []
        self.installs = 0
        self.damage: str | None = None
        self._every = every  # entries between checkpoints
        self._checkpointed = 0
        self._checkpointing = False
        self._dead: list[int] = []  # and not released
        self._to_say: deque[bytes] = deque()
        self._said: deque[bytes] = deque()

    def on(self, log: MemberLog) -> "ListMachine":
        self.log = log
        return self

    # Clients.

    def say(self, entry: bytes) -> None:
        assert self.log is not None
        self._to_say.append(entry)
        self.log.changed(urgent=True, size_bytes=len(entry))

    # What the host calls.

    def next_entry(self) -> bytes | None:
        check(self.leading, self.name, "is asked for an entry and does not lead")
        if not self._to_say:
            return None
        self._said.append(self._to_say.popleft())
        return self._said[-1]

    def applied(self, index: int) -> None:
        check(self.leading, self.name, "is answered and does not lead")
        entry = self._said.popleft()
        self._apply(index, entry)
        self.book.confirm(index, entry)

    def apply(self, index: int, entry: bytes) -> None:
        self._apply(index, entry)

    def lead(self) -> None:
        check(not self.leading, self.name, "leads twice")
        check(self.damage is None, self.name, "leads though damaged")
        check(self.index >= self.book.confirmed_max, self.name, "leads too early")
        self.leading = True
        self.check_live()

    def follow(self) -> None:
        check(self.leading, self.name, "has not led and is told to follow")
        self.leading = False
        self._said.clear()
        self._to_say.clear()

    def damaged(self, reason: str) -> None:
        self.damage = reason

    def begin_anew(self) -> bool:
        assert not self.leading
        self.index = self.digest = self._checkpointed = 0
        self.live, self._dead = [], []
        self._checkpointing = False
        self.damage = None
        return True

    def install(self, index: int, state: bytes) -> list[int]:
        check(index > self.index, self.name, "goes back from", self.index, "to", index)
        check(not self.leading, self.name, "leads and is replaced")
        self.index, self.digest, self.live = json.loads(state)
        self.installs += 1
        self.world.transfers += log_runs(self.log)
        self._checkpointed = index
        self._checkpointing = False
        self._dead = []
        before = self.book.history.get(self.index)
        check(before is not None and before[1] == self.digest, self.name, "got another state")
        return list(self.live)

    def _apply(self, index: int, entry: bytes) -> None:
        check(index > self.index, self.name, "applies", index, "after", self.index)
        self.index = index
        self.digest = crc32(b"%d " % index + entry, self.digest)
        self.book.saw(index, entry, self.digest)
        word, _, rest = entry.partition(b" ")
        if word == b"add":
            self.live.append(index)
        else:
            self._dead.append(index)
            if int(rest) in self.live:
                self.live.remove(int(rest))
                self._dead.append(int(rest))
        self._let_go()
        if len(self._dead) >= self._every and not self._checkpointing:
            self._checkpoint()

    def _let_go(self) -> None:
        """Of what is dead, only entries at or under a durable checkpoint may go."""
        assert self.log is not None
        gone = sorted(index for index in self._dead if index <= self._checkpointed)
        if gone:
            self._dead = [index for index in self._dead if index > self._checkpointed]
            self.log.release(gone)

    def _checkpoint(self) -> None:
        assert self.log is not None
        self._checkpointing = True
        index, installs = self.index, self.installs

        def durable() -> None:
            if self.installs == installs:
                self._checkpointing = False
                self._checkpointed = index
                self._let_go()

        state = json.dumps([self.index, self.digest, self.live]).encode()
        self.log.checkpoint(index, state, durable)

    # What must hold.

    def check_live(self, truth: "ListMachine | None" = None) -> None:
        """Every live entry can be read, and is what it was.

        One that lags may lack what is dead in truth, as entries that it will get say.
        """
        log = self.log
        assert log is not None
        assert log.gid is not None
        found = log._host.store.read_indexes(log.gid, sorted(self.live), bytes_max=1 << 40)
        entries = {entry.index: entry.payload for entry in found}
        lost = [index for index in self.live if index not in entries]
        if truth is not None:
            lost = [index for index in lost if index in truth.live]
        check(not lost, self.name, "has lost", lost)
        for index, entry in entries.items():
            check(self.book.history[index][0] == entry, self.name, "has changed", index)
