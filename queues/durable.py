"""A durable queue's storage: its commands into the log, its messages back out of it."""

import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

from queues.commands import (
    ENQUEUE,
    RETURN,
    SETTLE,
    Range,
    decode_messages,
    encode_delivered,
    encode_enqueue,
    encode_ranges,
    split_commands,
)
from queues.live import LiveEntry, LiveSet
from queues.message import Message
from queues.paged import EVERYTHING, HotBudget, PagedReady
from queues.ready import FifoReady, PriorityReady

# An entry is written, replicated and read back as a whole.
ENTRY_MESSAGES_MAX: Final = 1024
ENTRY_BYTES_MAX: Final = 1024 * 1024
# One read of cold messages: long enough for a thread hop to be worth it.
LOAD_MESSAGES: Final = 2048
# Settled sequences wait for company, but not for ever: at this many they are written at once.
SETTLE_BATCH: Final = 4096
# Entries above the last checkpoint are kept even when dead: it is made when so much has piled up.
CHECKPOINT_ENTRIES: Final = 8192
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024


Entries: TypeAlias = list[tuple[int, bytes]]  # index and payload, ascending


class Receipt(Protocol):
    def stored(self, refused: list[Message]) -> None: ...


class Log(Protocol):
    """One replicated log, as far as a queue's storage goes."""

    def changed(self, *, urgent: bool, size_bytes: int = 0) -> None:
        """There is something to propose, so many bytes of it new: now, or when it suits."""
        ...

    def read(self, indexes: list[int], then: "Callable[[Entries], None]") -> None:
        """Read entries off the loop, as many of the first ones as are worth a read.

        Those that were released meanwhile are left out.
        """
        ...

    def release(self, indexes: list[int]) -> None:
        """Entries at or under the last checkpoint that are not needed any more."""
        ...

    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None:
        """Keep the state up to `index`; `then` is called when it is durable."""
        ...

    def delete(self) -> None:
        """The whole log may go."""
        ...


class Holder(Protocol):
    """The queue, as its storage sees it."""

    def enqueued(self, messages: list[Message]) -> None: ...
    def loaded(self, messages: list[Message]) -> None: ...
    def damage(self, reason: str) -> None: ...


class _Proposal:
    """An entry on its way through the log."""

    __slots__ = ("entry", "messages", "receipts")

    def __init__(self, entry: bytes, messages: list[Message], receipts: list[Receipt]) -> None:
        self.entry = entry
        self.messages = messages
        self.receipts = receipts


class DurableStore:
    """Turns what happens to a queue into log entries, and applied entries into what happened."""

    def __init__(
        self,
        log: Log,
        holder: Holder,
        budget: HotBudget,
        now_ms: Callable[[], int],
        *,
        max_priority: int = 0,
    ) -> None:
        self._log = log
        self._holder = holder
        self._now_ms = now_ms
        self._live = LiveSet()
        self._arriving: deque[tuple[list[Message], Receipt | None, int]] = deque()
        self._settling: list[int] = []
        self._settling_ranges: list[Range] = []
        self._returning: list[int] = []
        self._proposed: deque[_Proposal] = deque()
        self._next_sequence = 0  # of the next message to be proposed
        self._cold_from = 0  # sequence from which on messages are cold
        self._loading = False
        self._maybe_delivered = (
            0  # messages before this one may have been delivered before a restart
        )
        self._clean_mark: int | None = None  # to be written last, at a clean stop
        self._applied = 0
        self._checkpointed = 0
        self._checkpointing = False
        self._sizes: dict[int, int] = {}  # entries above the checkpoint → bytes, while alive
        self._dead: list[int] = []  # entries above the checkpoint that nobody needs
        self._dead_bytes = 0
        self.pending = 0  # messages proposed or about to be, not yet enqueued
        self._in_order = not max_priority  # messages are delivered in the order of their sequences
        if max_priority:
            # The next in order may be anywhere in the log, so that all of it is kept in memory.
            unlimited = HotBudget(sys.maxsize)
            hot = PriorityReady(max_priority)
            self.ready = PagedReady(hot, unlimited, self._load, low=EVERYTHING)
        else:
            self.ready = PagedReady(FifoReady(), budget, self._load)

    # What the queue says

    def enqueue(self, messages: list[Message], receipt: Receipt | None) -> None:
        sequence = self._next_sequence
        for message in messages:
            message.sequence = sequence
            sequence += 1
        self._next_sequence = sequence
        self.pending += len(messages)
        size = sum([len(m.frames) for m in messages])
        self._arriving.append((messages, receipt, size))
        self._log.changed(urgent=True, size_bytes=size)

    def settle(self, messages: list[Message]) -> None:
        self._settling += [m.sequence for m in messages]
        self._log.changed(urgent=len(self._settling) >= SETTLE_BATCH)

    def give_back(self, messages: list[Message]) -> None:
        self._returning += [m.sequence for m in messages]
        self._log.changed(urgent=False)

    def purge(self) -> int:
        """Settle all that is ready, in memory or not."""
        count = len(self.ready)
        self._settling += [m.sequence for m in self.ready]
        cold = self._live.next_sequence - self._cold_from
        if cold:
            self._settling_ranges.append((self._cold_from, cold))
        self._cold_from = self._live.next_sequence
        self.ready.clear()
        self._log.changed(urgent=True)
        return count

    def mark_clean_stop(self) -> None:
        """Note which messages were never delivered: after the restart they are not redelivered."""
        if not self._live.live:
            return
        fresh = self.ready.first_fresh()
        if fresh is None:
            fresh = self._cold_from if self._in_order else self._next_sequence
        self._clean_mark = max(fresh, self._maybe_delivered)
        self._log.changed(urgent=True)

    def close(self) -> list[Receipt]:
        """The queue is deleted: the receipts that wait for nothing now."""
        receipts = [receipt for _, receipt, _ in self._arriving if receipt is not None]
        receipts += [receipt for proposal in self._proposed for receipt in proposal.receipts]
        self._arriving.clear()
        self._proposed.clear()
        self.ready.clear()
        self._log.delete()
        return receipts

    # What the log says

    def next_entry(self) -> bytes | None:
        """The next entry to propose, if there is anything to say."""
        commands: list[bytes] = []
        messages: list[Message] = []
        receipts: list[Receipt] = []
        size = 0
        while self._arriving and len(messages) < ENTRY_MESSAGES_MAX and size < ENTRY_BYTES_MAX:
            batch, receipt, batch_bytes = self._arriving.popleft()
            messages += batch
            size += batch_bytes
            if receipt is not None:
                receipts.append(receipt)
        if messages:
            commands.append(encode_enqueue(messages, self._now_ms()))
        if self._settling or self._settling_ranges:
            commands.append(encode_ranges(SETTLE, self._settling, self._settling_ranges))
            self._settling = []
            self._settling_ranges = []
        if self._returning:
            # One message may have come back twice since: a range counts each sequence once.
            commands += [encode_ranges(RETURN, [sequence]) for sequence in self._returning]
            self._returning = []
        if self._clean_mark is not None:
            commands.append(encode_delivered(self._clean_mark))
            self._clean_mark = None
        if not commands:
            return None
        entry = commands[0] if len(commands) == 1 else b"".join(commands)
        self._proposed.append(_Proposal(entry, messages, receipts))
        return entry

    def applied(self, index: int) -> None:
        """The oldest proposal is committed and durable, at this index."""
        if not self._proposed:
            return  # deleted meanwhile
        proposal = self._proposed.popleft()
        first = self._live.next_sequence
        self._apply(index, proposal.entry)
        messages = proposal.messages
        if messages:
            assert messages[0].sequence == first, "messages are applied in the order proposed"
            self.pending -= len(messages)
            was_cold = self.ready.cold
            self._holder.enqueued(messages)
            if not self.ready.cold:
                self._cold_from = self._live.next_sequence
            elif not was_cold:
                self._cold_from = first
        self._checkpoint_if_due()
        for receipt in proposal.receipts:
            receipt.stored([])

    def damaged(self, reason: str) -> None:
        """Messages could not be read back: the queue must not go on without them."""
        self._loading = False
        self._holder.damage(reason)

    def _apply(self, index: int, entry: bytes) -> None:
        enqueued = self._live.next_sequence
        released = self._live.apply(index, entry)
        self._applied = index
        if self._live.next_sequence == enqueued:
            self._dead.append(index)
            self._dead_bytes += len(entry)
        else:
            self._sizes[index] = len(entry)
        early = []
        for dead in released:
            if dead <= self._checkpointed:
                early.append(dead)
            else:
                self._dead.append(dead)
                self._dead_bytes += self._sizes.pop(dead, 0)
        if early:
            self._log.release(early)

    def _checkpoint_if_due(self) -> None:
        due = self._dead_bytes > CHECKPOINT_BYTES or len(self._dead) > CHECKPOINT_ENTRIES
        if due and not self._checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._checkpointing = True
        index, dead = self._applied, self._dead
        self._dead, self._dead_bytes, self._sizes = [], 0, {}

        def durable() -> None:
            self._checkpointing = False
            self._checkpointed = index
            late = [entry for entry in self._dead if entry <= index]  # died meanwhile
            self._dead = [entry for entry in self._dead if entry > index]
            self._log.release(dead + late)

        self._log.checkpoint(index, self._live.checkpoint(), durable)

    # Recovery

    def recover(
        self,
        checkpoint: tuple[int, bytes] | None,
        entries: Iterable[tuple[int, bytes]],
        *,
        stopped_cleanly: bool,
    ) -> list[int]:
        """Rebuild from what the log holds; the indexes of entries under the checkpoint in use."""
        if checkpoint is not None:
            self._checkpointed, state = checkpoint
            self._live = LiveSet.restore(state)
        for index, entry in entries:
            if index > self._checkpointed:
                self._apply(index, entry)
        self._next_sequence = self._live.next_sequence
        self._maybe_delivered = self._next_sequence
        if stopped_cleanly:
            self._maybe_delivered = min(self._live.delivered, self._next_sequence)
        return [entry.index for entry in self._live.entries_from(0)]

    def start(self) -> None:
        """Offer what was recovered, and let go of what a crash kept from being let go of."""
        self.ready.recovered(self._live.live)
        self._checkpoint_if_due()

    # Cold messages

    def _load(self) -> None:
        """Ask for the first cold entries, unless that is under way."""
        if self._loading:
            return
        batch: list[LiveEntry] = []
        count = 0
        for entry in self._live.entries_from(self._cold_from):
            batch.append(entry)
            count += entry.count
            if count >= LOAD_MESSAGES:
                break
        if not batch:
            return
        self._loading = True
        self._log.read([entry.index for entry in batch], lambda found: self._loaded(batch, found))

    def _loaded(self, batch: list[LiveEntry], found: Entries) -> None:
        self._loading = False
        payloads = dict(found)
        last = found[-1][0] if found else batch[-1].index
        messages: list[Message] = []
        for entry in batch:
            if entry.index > last:
                break
            if entry.first < self._cold_from:
                continue  # purged meanwhile
            if entry.index not in payloads:
                self.damaged(f"entry {entry.index} of its log is missing")
                return
            messages += self._revive(entry, payloads[entry.index])
            self._cold_from = entry.first + entry.count
        self.ready.loaded(messages)
        self._holder.loaded(messages)
        self.ready.refill()

    def _revive(self, entry: LiveEntry, payload: bytes) -> list[Message]:
        """The live messages of an entry, numbered and counted."""
        found: list[Message] = []
        for kind, start, _ in split_commands(payload):
            if kind == ENQUEUE:
                found += decode_messages(payload, start)
        live = self._live
        revived = []
        for sub, alive in enumerate(live.alive_in(entry)):
            if alive:
                message = found[sub]
                message.sequence = entry.first + sub
                message.delivery_count = live.count_of(message.sequence)
                message.redelivered = message.sequence < self._maybe_delivered
                revived.append(message)
        return revived
