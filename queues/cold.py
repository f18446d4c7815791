"""Messages of a durable queue that are in its log only, and their way back into memory."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from queues.commands import ENQUEUE, decode_messages, enqueued_ms, split_commands
from queues.groups import group_of
from queues.live import LiveEntry
from queues.live_log import Entries, LiveLog, Log
from queues.message import Message

if TYPE_CHECKING:
    from queues.paged import PagedReady

# One read of cold messages: long enough for a thread hop to be worth it.
LOAD_MESSAGES: Final = 2048
# Overdue messages may lie in as many entries, each of which is read as a whole.
LOAD_ENTRIES: Final = 64


class Holder(Protocol):
    """The queue, as its storage sees it."""

    @property
    def away(self) -> "Waiting": ...
    def enqueued(self, messages: list[Message]) -> None: ...
    def loaded(self, messages: list[Message]) -> None: ...
    def redeliver(self, messages: list[Message]) -> None:
        """Consumers held these at the restart, in all likelihood."""
        ...

    def blocks_groups(self, messages: list[Message]) -> None:
        """These failed and wait for another try: later ones of their groups have to wait too."""
        ...

    def holds_groups(self, messages: list[Message]) -> None:
        """These were claimed unread, and this is what they are."""
        ...

    def damage(self, reason: str) -> None: ...


class Waiting(Protocol):
    """Where the queue keeps count of messages that are not ready yet."""

    def delayed(self, messages: list[Message]) -> None: ...
    def scheduled(self, delays: Iterable[tuple[int, int]]) -> None: ...
    def may_redeliver(self) -> bool: ...
    def withdraw(self, sequences: Iterable[int]) -> set[int]: ...
    def withdraw_paced(self, sequences: Collection[int]) -> list[Message]: ...


class ColdMessages:
    """Three kinds, in the order in which they are loaded.

    Those that block their groups, to be known before anything else is; overdue ones; and all from
    the sequence `first` on, but for those that are or were delayed and those in `apart`.
    """

    def __init__(self, log: Log, state: LiveLog, holder: Holder) -> None:
        self.ready: PagedReady  # set by the store
        self.first = 0
        self.apart: set[int] = set()  # in memory, though their number says they are cold or delayed
        self.maybe_delivered = 0  # earlier ones may have been delivered before a restart
        self.doubtful_before = 0  # earlier ones were probably held by consumers at the restart
        self.started_ms = 0
        self.grouped = False  # messages have groups
        self.moved: dict[int, int | None] = {}  # delays asked for and not applied; None: cancelled
        self.unapplied: dict[int, int] = {}  # sequence → returns that the live set does not know of
        self._log = log
        self._state = state
        self._holder = holder
        self._blocking: list[int] = []
        self._claimed: list[int] = []  # to be read for their groups
        self._overdue: deque[int] = deque()
        self._fetching: set[int] = set()  # overdue ones on their way from the disk
        self._loading = False
        self._retired = False
        self._purges = 0  # what was asked for before the last one is not wanted any more

    def block_groups(self, asleep: Iterable[int]) -> None:
        """Those of the delayed messages that failed block their groups.

        So do those that were due before a restart: somebody may have held them. Which groups these
        are has to be known before anything is offered.
        """
        due, started_ms = self._state.live.due, self.started_ms
        self._blocking = [
            s for s in asleep if self.count_of(s) or due.get(s, started_ms + 1) <= started_ms
        ]
        self._open_or_close()
        self.load()

    def _open_or_close(self) -> None:
        self.ready.closed = bool(self._blocking or self._claimed)

    def count_of(self, sequence: int) -> int:
        return self._state.live.count_of(sequence) + self.unapplied.get(sequence, 0)

    def damaged(self, reason: str) -> None:
        self._loading = False
        self._holder.damage(reason)

    def overdue(self, sequences: list[int]) -> None:
        """These are due, and counted among the ready ones."""
        self._overdue.extend(sequences)
        self.ready.refill()

    def purge(self) -> None:
        self.first = self._state.live.next_sequence
        self._overdue.clear()
        self._fetching = set()
        self._purges += 1
        self._blocking = []
        self._open_or_close()

    def retire(self) -> None:
        """Nothing is wanted any more, not even what is on its way."""
        self._retired = True

    # With somebody who took them before this queue was served here

    def early(self, sequences: list[int], *, returned: bool) -> list[int]:
        """Delayed ones that another node may have delivered, whose clock was ahead of this one's.

        Those that were `returned` since then are among them only for whoever has them again.
        """
        due, end_ms = self._state.live.due, self.started_ms
        early = [s for s in sequences if s in due and due[s] <= end_ms]
        return early if returned else [s for s in early if not self.count_of(s)]

    def claim(self, sequences: Iterable[int], waiting: set[int]) -> list[int]:
        """Those of these messages that are cold, from before a restart: they are so no more.

        Neither are those that were `waiting`.
        """
        live = self._state.live
        late = self._fetching.union(self._overdue) if live.due else self._fetching
        taken: list[int] = []
        for sequence in sequences:
            if sequence in late:
                self.ready.overdue -= 1
            elif sequence >= self.first and self._is_cold(sequence):
                self.ready.claimed()
            elif sequence not in waiting:
                continue
            self.apart.add(sequence)
            taken.append(sequence)
        if late:
            self._fetching -= self.apart
            self._overdue = deque([s for s in self._overdue if s not in self.apart])
        if self._blocking:  # not as one that failed and waits, even if it is being read as such
            self._blocking = [s for s in self._blocking if s not in self.apart]
            self._open_or_close()
        return taken

    def _is_cold(self, sequence: int) -> bool:
        live = self._state.live
        elsewhere = (live.due, self.apart, self.moved)
        return live.is_live(sequence) and not any(sequence in others for others in elsewhere)

    def block_claimed(self, sequences: list[int]) -> None:
        """They were claimed, and have groups: which ones has to be known before others go."""
        self._claimed += sequences
        self._open_or_close()
        self.load()

    def forget(self, sequences: list[int]) -> None:
        """These delayed messages will never come: they block nothing."""
        if self._blocking:
            self._blocking = [s for s in self._blocking if s not in sequences]
            self._open_or_close()

    def load(self) -> None:
        """Ask for the next of them, unless that is under way."""
        if self._loading or self._retired:
            return
        if self._claimed:
            self._loading = True
            asked = self._claimed.copy()
            self.read(asked, lambda messages: self._read_claimed(asked, messages))
        elif self._blocking:
            self._loading = True
            self._blocking = [s for s in self._blocking if s not in self.apart]  # came meanwhile
            self.read(self._blocking, self._blocked)
        elif self._overdue:
            self._load_overdue()
        elif not self.ready.cold:
            return  # overdue ones are yet to come
        elif self.first >= self.doubtful_before or self._holder.away.may_redeliver():
            self._load_next()

    # In the order of the log

    def _load_next(self) -> None:
        batch: list[LiveEntry] = []
        count = 0
        for entry in self._state.live.entries_from(self.first):
            if not self.cold_in(entry):
                if not batch:  # all of it is delayed, and need not be looked at again
                    self.first = entry.first + entry.count
                continue
            batch.append(entry)
            count += entry.count
            if count >= LOAD_MESSAGES:
                break
        if batch:
            self._loading = True
            indexes = [entry.index for entry in batch]
            self._log.read(indexes, lambda found: self._loaded(batch, found))

    def _loaded(self, batch: list[LiveEntry], found: Entries) -> None:
        if self._retired:
            return
        self._loading = False
        payloads = dict(found)
        last = found[-1][0] if found else batch[-1].index
        messages: list[Message] = []
        for entry in batch:
            if entry.index > last:
                break
            if entry.first < self.first:
                continue  # purged meanwhile
            cold = self.cold_in(entry)
            if cold and entry.index not in payloads:
                self._miss(f"entry {entry.index}")
                return
            messages += self._revive(entry, payloads[entry.index], cold) if cold else []
            self.first = entry.first + entry.count
        held = [message for message in messages if message.sequence < self.doubtful_before]
        fresh = messages[len(held) :]
        self.ready.loaded(messages, fresh)
        if held:
            self._holder.redeliver(held)
        self._holder.loaded(fresh)
        self._go_on()

    def _go_on(self) -> None:
        """A read is done; there may be more to read."""
        if self._blocking or self._claimed:
            self.load()
        self.ready.refill()

    def cold_in(self, entry: LiveEntry) -> list[int]:
        """The messages of an entry that are alive and belong to the cold ones."""
        live = self._state.live
        alive = [entry.first + sub for sub, alive in enumerate(live.alive_in(entry)) if alive]
        if live.due or self.apart or self.moved:
            elsewhere = (live.due, self.apart, self.moved)
            alive = [s for s in alive if not any(s in others for others in elsewhere)]
        return alive

    def _miss(self, what: str) -> None:
        self.damaged(f"{what} of its log is missing")

    # By sequence

    def read(self, sequences: Iterable[int], then: Callable[[list[Message]], None]) -> None:
        """Read some messages that are alive, as many of the first ones as are worth a read."""
        wanted: dict[LiveEntry, list[int]] = {}
        for sequence in sorted(sequences):
            entry = self._state.live.entry_of(sequence)
            if entry is not None:
                wanted.setdefault(entry, []).append(sequence)
                if len(wanted) >= LOAD_ENTRIES:
                    break
        if not wanted:
            then([])
            return

        def found(entries: Entries) -> None:
            messages: list[Message] = []
            by_index = {entry.index: entry for entry in wanted}
            for index, payload in entries:
                entry = by_index[index]
                messages += self._revive(entry, payload, wanted[entry])
            then(messages)

        self._log.read([entry.index for entry in wanted], found)

    def _load_overdue(self) -> None:
        live = self._state.live
        wanted: list[int] = []
        entries: set[int] = set()
        while self._overdue and len(wanted) < LOAD_MESSAGES and len(entries) < LOAD_ENTRIES:
            sequence = self._overdue.popleft()
            entry = live.entry_of(sequence)
            if entry is None:
                self.ready.overdue -= 1  # settled by an operator meanwhile
            else:
                wanted.append(sequence)
                entries.add(entry.index)
        if not wanted:
            self.load()  # nothing is overdue any more: the others' turn
            return
        self._loading = True
        self._fetching = set(wanted)
        purges = self._purges
        self.read(wanted, lambda messages: self._loaded_overdue(wanted, messages, purges))

    def _loaded_overdue(self, wanted: list[int], messages: list[Message], purges: int) -> None:
        if self._retired:
            return
        self._loading = False
        if purges == self._purges:
            live = self._state.live
            wanted = [s for s in wanted if s in self._fetching]  # the rest was claimed meanwhile
            self._fetching = set()
            found = {message.sequence: message for message in messages}
            if not found and any(live.is_live(sequence) for sequence in wanted):
                self._miss(f"message {wanted[0]}")
                return
            gone = [s for s in wanted if s not in found and not live.is_live(s)]
            left = [s for s in wanted if s not in found and live.is_live(s)]
            self._overdue.extendleft(reversed(left))
            self.ready.overdue -= len(gone)
            back = [found[s] for s in wanted if s in found]
            self.apart.update([message.sequence for message in back])
            self.ready.loaded_overdue(back)
            self._holder.loaded(back)
        self._go_on()

    def _read_claimed(self, asked: list[int], messages: list[Message]) -> None:
        if self._retired:
            return
        self._loading = False
        left = self._unread(asked, messages)
        if left and not messages:
            self._miss(f"message {left[0]}")
            return
        self._claimed = self._unread(self._claimed, messages)
        self._holder.holds_groups(messages)
        self._opened()

    def _unread(self, wanted: list[int], messages: list[Message]) -> list[int]:
        done = {message.sequence for message in messages}
        live = self._state.live
        return [s for s in wanted if s not in done and live.is_live(s)]

    def _opened(self) -> None:
        """Something is known of groups that was not: others may have their turn."""
        self._open_or_close()
        self._holder.loaded([])
        self.ready.refill()
        self.load()

    def _blocked(self, messages: list[Message]) -> None:
        if self._retired:
            return
        self._loading = False
        wanted = set(self._blocking)
        left = self._unread(self._blocking, messages)
        if left and not messages:
            self._miss(f"message {left[0]}")
            return
        self._blocking = left
        self._holder.blocks_groups([m for m in messages if m.sequence in wanted])
        self._opened()

    def _revive(self, entry: LiveEntry, payload: bytes, sequences: list[int]) -> list[Message]:
        """Messages of an entry, numbered and counted."""
        stored: list[Message] = []
        enqueued_at = 0
        for kind, start, _ in split_commands(payload):
            if kind == ENQUEUE:
                stored += decode_messages(payload, start)
                enqueued_at = enqueued_ms(payload, start)
        live = self._state.live
        for sequence in sequences:
            message = stored[sequence - entry.first]
            message.sequence = sequence
            message.enqueued_ms = enqueued_at
            if self.grouped:
                message.group = group_of(message)
            message.delivery_count = self.count_of(sequence)
            before_restart = sequence < self.maybe_delivered
            due_ms = live.due.get(sequence)
            if due_ms is not None:
                message.due_ms = due_ms
                if not message.delivery_count:
                    message.enqueued_ms = due_ms
                before_restart = before_restart and due_ms <= self.started_ms
            message.redelivered = before_restart or message.delivery_count > 0
        return [stored[sequence - entry.first] for sequence in sequences]
