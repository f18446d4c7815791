"""A durable queue's storage: its commands into the log, its messages back out of it."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from queues.cold import ColdMessages, Holder
from queues.commands import (
    RETURN,
    SETTLE,
    Due,
    Id,
    Range,
    encode_delays,
    encode_delivered,
    encode_enqueue,
    encode_origins,
    encode_ranges,
    encode_reached,
    encode_seen,
)
from queues.live_log import LiveLog, Log
from queues.message import Message
from queues.paged import EVERYTHING, LOW_MESSAGES, MESSAGE_OVERHEAD_BYTES, HotBudget, PagedReady
from queues.publishers import SESSION_BYTES, Note, Origin
from queues.ready import Ready

# An entry is written, replicated and read back as a whole.
ENTRY_MESSAGES_MAX: Final = 1024
ENTRY_BYTES_MAX: Final = 1024 * 1024
# Settled sequences wait for company, but not for ever: at this many they are written at once.
SETTLE_BATCH: Final = 4096


class Receipt(Protocol):
    def stored(self, refused: list[Message]) -> None: ...


class Arrival:
    """A batch handed over by the queue, on its way into an entry."""

    __slots__ = ("delayed", "ids", "messages", "note", "receipt", "size_bytes")

    def __init__(
        self,
        messages: list[Message],
        receipt: Receipt | None,
        delayed: Sequence[Message],
        ids: Sequence[Id],
        note: Note | None,
    ) -> None:
        self.messages = messages
        self.receipt = receipt
        self.delayed = delayed
        self.ids = ids
        self.note = note
        self.size_bytes = sum([len(m.frames) for m in messages])


class _Proposal:
    """An entry on its way through the log."""

    __slots__ = (
        "actions",
        "apart",
        "cancelled",
        "delayed",
        "delays",
        "entry",
        "ids",
        "messages",
        "notes",
        "receipts",
        "returned",
    )

    def __init__(self) -> None:
        self.entry = b""
        self.messages: list[Message] = []
        self.receipts: list[Receipt] = []
        self.delayed: list[Message] = []  # some of the messages
        self.delays: list[Due] = []  # of messages that came earlier
        self.ids: list[Id] = []
        self.cancelled: list[int] = []  # delayed messages that were taken out
        self.apart: list[int] = []  # settled ones that were in memory apart from others
        self.returned: list[int] = []
        self.notes: list[Note] = []
        self.actions: list[Callable[[], None]] = []


class _Repeat:
    """A batch that came again while it was on its way: who else is to be told."""

    __slots__ = ("messages", "receipt")

    def __init__(self, messages: list[Message], receipt: Receipt) -> None:
        self.messages = messages
        self.receipt = receipt

    def stored(self, places: Sequence[int]) -> None:
        """Messages at these places were refused."""
        count = len(self.messages)
        self.receipt.stored([self.messages[place] for place in places if place < count])


class DurableStore:
    """Turns what happens to a queue into log entries, and applied entries into what happened."""

    def __init__(
        self,
        log: Log,
        holder: Holder,
        budget: HotBudget,
        now_ms: Callable[[], int],
        hot: Ready,
        *,
        in_order: bool,
        grouped: bool,
        state: LiveLog | None = None,
    ) -> None:
        """With a state, which follows the log already, there is nothing to recover."""
        self._log = log
        self._holder = holder
        self._budget = budget
        self._now_ms = now_ms
        self._state = state or LiveLog(log)
        self._cold = ColdMessages(log, self._state, holder)
        self._arriving: deque[Arrival] = deque()
        self._settling: list[int] = []
        self._settling_ranges: list[Range] = []
        self._parting: list[int] = []  # being settled; in memory apart from others until applied
        self._returning: list[int] = []
        self._delaying: list[Due] = []
        self._cancelled: list[int] = []
        self._moved = self._cold.moved
        self._early: set[int] = set()  # due before their delay is applied: read when it is
        self._new_ids: dict[bytes, int] = {}  # ids taken and not applied, and until when they count
        # Batches of publishers that are not applied, and what came of the same again meanwhile.
        self._under_way: dict[tuple[bytes, int], list[_Repeat]] = {}
        self._proposed: deque[_Proposal] = deque()
        self._next_sequence = 0  # of the next message to be proposed
        self._found_before = 0  # earlier messages were there when it began
        self._clean_mark: int | None = None  # to be written last, at a clean stop
        self._marked: list[Callable[[], None]] = []  # to be called when that is applied
        self._reached = 0  # what the log was told last of how far deliveries have come
        self._reaching = False  # it is to be told more
        self._retired = False
        self.pending = 0  # messages proposed or about to be, not yet ready; without delayed ones
        self.kept = 0  # proposals that were applied
        self._in_order = in_order  # messages are delivered in the order of their sequences
        self.ready = PagedReady(
            hot, self._budget_for(in_order=in_order), self._cold.load, low=_low(in_order=in_order)
        )
        self._cold.ready = self.ready
        self._cold.grouped = grouped

    def _budget_for(self, *, in_order: bool) -> HotBudget:
        # Else the next one may be anywhere in the log, so that all of it is kept in memory.
        return self._budget if in_order else HotBudget(sys.maxsize)

    def reorder(self, hot: Ready, *, in_order: bool, grouped: bool) -> None:
        """Messages are delivered in another order from now on."""
        self._in_order = in_order
        self._cold.grouped = grouped
        budget = self._budget_for(in_order=in_order)
        self.ready.reorder(hot, budget, low=_low(in_order=in_order))
        if grouped:
            self._cold.block_groups(self._asleep())

    def under_way(self) -> Iterator[Message]:
        """Messages that were handed over and are not enqueued yet."""
        for proposal in self._proposed:
            yield from proposal.messages
        for arrival in self._arriving:
            yield from arrival.messages

    def _asleep(self) -> list[int]:
        """All that are delayed or due, and not in memory."""
        numbers = self._state.live.due.keys() | self._moved.keys()
        apart = self._cold.apart
        return [s for s in numbers if s not in apart and self.due_of(s) is not None]

    @property
    def is_loading(self) -> bool:
        """There are messages, but the first of them is still on its way from the disk."""
        return self.ready.is_loading

    @property
    def next_sequence(self) -> int:
        return self._next_sequence

    @property
    def said(self) -> int:
        """What `kept` is when all that became of deliveries so far is applied."""
        unsaid = self._settling or self._settling_ranges or self._returning or self._delaying
        return self.kept + len(self._proposed) + bool(unsaid)

    def is_live(self, sequence: int) -> bool:
        """As far as the log is applied."""
        return self._state.live.is_live(sequence)

    def refill(self) -> None:
        self.ready.refill()

    # What the queue says

    def enqueue(
        self,
        messages: list[Message],
        receipt: Receipt | None,
        delayed: Sequence[Message] = (),
        ids: Sequence[Id] = (),
        note: Note | None = None,
    ) -> None:
        """Take a batch, some of which may be delayed; `ids` are those to be known again.

        A note says which batch of its publisher it is, so that it is known if it comes again.
        """
        sequence = self._next_sequence
        for message in messages:
            message.sequence = sequence
            sequence += 1
        self._next_sequence = sequence
        self.pending += len(messages) - len(delayed)
        self._new_ids.update(ids)
        arrival = Arrival(messages, receipt, delayed, ids, note)
        if note is not None:
            assert len(note.session) == SESSION_BYTES
            self._under_way[note.session, note.seq] = []
        self._arriving.append(arrival)
        cost = arrival.size_bytes + MESSAGE_OVERHEAD_BYTES * len(messages)
        self._log.changed(urgent=True, size_bytes=cost)

    def repeats(self, origin: Origin, messages: list[Message], receipt: Receipt | None) -> bool:
        """Whether a batch came before: then it is answered as it was, or as it will be."""
        publisher = self._state.live.publishers.find(origin)
        under_way = self._under_way.get(origin)
        if publisher is None and under_way is None:
            return False
        if receipt is not None:
            repeat = _Repeat(messages, receipt)
            if publisher is not None:
                repeat.stored(publisher.refused_of(origin.seq, len(messages)))
            elif under_way is not None:
                under_way.append(repeat)
        return True

    def claim(
        self, sequences: Iterable[int], known: Mapping[int, Message], *, returned: bool
    ) -> list[Message]:
        """Take out messages that were there when it began, for somebody who has had them."""
        wanted = {s for s in sequences if s < self._found_before}
        found = self.ready.remove(wanted) + self._holder.away.withdraw_paced(wanted)
        hot = {message.sequence: message for message in found}
        unread = sorted(wanted - hot.keys())
        early = self._cold.early(unread, returned=returned)
        cold = set(self._cold.claim(unread, self._holder.away.withdraw(early)))
        claimed: list[Message] = []
        for sequence in sorted(hot.keys() | cold):
            message = known.get(sequence) or hot.get(sequence) or Message.stand_in(sequence)
            if message.is_stand_in and sequence in hot:
                message.fill(hot[sequence])
            message.delivery_count = self._cold.count_of(sequence)
            claimed.append(message)
        return claimed

    def block_claimed(self, sequences: list[int]) -> None:
        self._cold.block_claimed(sequences)

    def fill(self, stand_ins: list[Message], then: Callable[[], None]) -> None:
        """Read the contents of those that are alive; `then` is not called if one is lost."""
        by_sequence = {message.sequence: message for message in stand_ins}

        def found(messages: list[Message]) -> None:
            if self._retired:
                return
            for message in messages:
                by_sequence.pop(message.sequence).fill(message)
            left = [s for s in by_sequence if self._state.live.is_live(s)]
            if not left:
                then()
            elif messages:
                self.read(left, found)
            else:
                self._cold.damaged(f"message {left[0]} of its log is missing")

        self.read(by_sequence, found)

    def settle(self, messages: list[Message]) -> None:
        self._settling += [m.sequence for m in messages]
        if self._cold.apart:
            self._parting += [m.sequence for m in messages if m.sequence in self._cold.apart]
        self._log.changed(urgent=len(self._settling) >= SETTLE_BATCH)

    def give_back(self, messages: list[Message]) -> None:
        unapplied = self._cold.unapplied
        for message in messages:
            sequence = message.sequence
            self._returning.append(sequence)
            unapplied[sequence] = unapplied.get(sequence, 0) + 1
        self._log.changed(urgent=False)

    def delivered(self, step: int) -> None:
        """Have the log know how far deliveries have come, when it is behind by so many messages.

        Not at once: most entries that say so have been on their way for something else.
        """
        if self._in_order and not self._reaching:
            known = max(self._reached, self._state.live.taken)
            if self._reach() >= known + step:
                self._reaching = True
                self._log.changed(urgent=False)

    def _reach(self) -> int:
        """Where messages begin that were never delivered."""
        fresh = self.ready.first_fresh()
        if fresh is not None:
            return fresh
        return self._cold.first if self.ready.cold else self._state.live.next_sequence

    def delay(self, delays: list[Due]) -> None:
        """These messages leave the memory until they are due."""
        self._delaying += delays
        self._moved.update(delays)
        self._cold.apart.difference_update([sequence for sequence, _ in delays])
        self._log.changed(urgent=False)

    def settle_sequences(self, sequences: list[int]) -> None:
        """Delayed messages that are not wanted any more."""
        self._settling += sequences
        self._gone(sequences)
        self._cold.forget(sequences)
        self._log.changed(urgent=True)

    def _gone(self, sequences: Iterable[int]) -> None:
        """These are not delayed any more, whatever the live set says until it knows."""
        self._cancelled += sequences
        self._moved.update(dict.fromkeys(sequences))

    def due_of(self, sequence: int) -> int | None:
        if sequence in self._moved:
            return self._moved[sequence]
        return self._state.live.due.get(sequence)

    def overdue(self, sequences: list[int]) -> None:
        """Not before the log knows that they were returned and until when they had to wait."""
        self.ready.overdue += len(sequences)
        self._early.update([s for s in sequences if s in self._moved])
        self._cold.overdue([s for s in sequences if s not in self._early])

    def seen(self, digest: bytes, now_ms: int) -> bool:
        """Whether a message of this id came lately."""
        return self._new_ids.get(digest, 0) > now_ms or self._state.live.seen.seen(digest, now_ms)

    def purge(self) -> int:
        """Settle all that is ready or delayed, in memory or not."""
        live, cold = self._state.live, self._cold
        count = len(self.ready)
        hot = [m.sequence for m in self.ready]
        self._settling += hot
        asleep = self._asleep()
        self._settling += [s for s in asleep if s < cold.first]
        self._gone(asleep)
        self._settling_ranges += _without(cold.first, live.next_sequence, cold.apart)
        count += len(asleep) - self.ready.overdue
        self._parting += [s for s in hot if s in cold.apart]
        cold.purge()
        self._early.clear()
        self.ready.clear()
        self._log.changed(urgent=True)
        return count

    def mark_clean_stop(self, then: Callable[[], None] | None = None) -> None:
        """Note which messages were never delivered: after the restart they are not redelivered."""
        if not self._state.live.live:
            if then is not None:
                then()
            return
        fresh = self.ready.first_fresh()
        if fresh is None:
            fresh = self._cold.first if self._in_order else self._next_sequence
        self._reaching = self._in_order
        self.say_delivered(max(fresh, self._cold.maybe_delivered), then)

    def say_delivered(self, sequence: int, then: Callable[[], None] | None) -> None:
        """Nothing from here on was delivered; what is said last counts."""
        self._clean_mark = sequence
        if then is not None:
            self._marked.append(then)
        self._log.changed(urgent=True)

    def confirm(self, then: Callable[[bool], None]) -> None:
        self._log.confirm(then)

    def retire(self) -> None:
        """The log goes on without it. What it was told and is not applied is void."""
        self._retired = True
        self._cold.retire()
        self._arriving.clear()
        self._proposed.clear()
        self._under_way.clear()
        self.pending = 0
        self.ready.clear()

    def close(self) -> list[Receipt]:
        """The queue is deleted: the receipts that wait for nothing now."""
        receipts = [a.receipt for a in self._arriving if a.receipt is not None]
        receipts += [receipt for proposal in self._proposed for receipt in proposal.receipts]
        self._arriving.clear()
        self._proposed.clear()
        self.ready.clear()
        self._log.delete()
        return receipts

    # Looking at messages one by one

    def read(self, sequences: Iterable[int], then: Callable[[list[Message]], None]) -> None:
        """Messages that are alive, read from the log whether they are in memory or not."""
        self._cold.read(sequences, then)

    def cold_after(self, sequence: int, count: int) -> list[int]:
        """The first cold messages behind this one."""
        found: list[int] = []
        first = max(sequence + 1, self._cold.first)
        for entry in self._state.live.entries_from(first) if self.ready.cold else ():
            found += [s for s in self._cold.cold_in(entry) if s >= first]
            if len(found) >= count:
                break
        return found[:count]

    def take_apart(self, message: Message) -> bool:
        """A cold message that was read goes by itself from now on; False if it is cold no more."""
        sequence = message.sequence
        if self.cold_after(sequence - 1, 1) != [sequence]:
            return False
        self._cold.apart.add(sequence)
        self.ready.took_apart(message.body_bytes)
        return True

    # What the log says

    def next_entry(self) -> bytes | None:
        """The next entry to propose, if there is anything to say."""
        commands: list[bytes] = []
        proposal = _Proposal()
        self._gather(proposal)
        if proposal.messages:
            commands.append(encode_enqueue(proposal.messages, self._now_ms()))
        if self._settling or self._settling_ranges:
            commands.append(encode_ranges(SETTLE, self._settling, self._settling_ranges))
            self._settling, self._settling_ranges = [], []
            proposal.cancelled, self._cancelled = self._cancelled, []
            proposal.apart, self._parting = self._parting, []
        if self._returning:
            # One message may have come back twice since: a range counts each sequence once.
            commands += [encode_ranges(RETURN, [sequence]) for sequence in self._returning]
            proposal.returned, self._returning = self._returning, []
        if self._delaying or proposal.delayed:
            delays = [(m.sequence, m.due_ms) for m in proposal.delayed] + self._delaying
            commands.append(encode_delays(delays))
            proposal.delays, self._delaying = self._delaying, []
        if proposal.ids:
            commands.append(encode_seen(proposal.ids, self._now_ms()))
        if proposal.notes:
            commands.append(encode_origins(proposal.notes, self._now_ms()))
        if self._reaching:
            self._reaching = False
            self._reached = self._reach()
            commands.append(encode_reached(self._reached))
        if self._clean_mark is not None:
            commands.append(encode_delivered(self._clean_mark))
            self._clean_mark = None
            proposal.actions, self._marked = self._marked, []
        if not commands:
            self._answer_early(proposal.receipts)
            return None
        proposal.entry = commands[0] if len(commands) == 1 else b"".join(commands)
        self._proposed.append(proposal)
        return proposal.entry

    def _gather(self, proposal: _Proposal) -> None:
        """Arrivals for one entry."""
        messages = proposal.messages
        size = 0
        while self._arriving and len(messages) < ENTRY_MESSAGES_MAX and size < ENTRY_BYTES_MAX:
            arrival = self._arriving.popleft()
            messages += arrival.messages
            size += arrival.size_bytes
            if arrival.receipt is not None:
                proposal.receipts.append(arrival.receipt)
            if arrival.delayed:
                proposal.delayed += arrival.delayed
            if arrival.ids:
                proposal.ids += arrival.ids
            if arrival.note is not None:
                proposal.notes.append(arrival.note)

    def _answer_early(self, receipts: list[Receipt]) -> None:
        """Nothing but duplicates came: they are safe when what they repeat is."""
        if self._proposed:
            self._proposed[-1].receipts += receipts
        else:
            for receipt in receipts:
                receipt.stored([])

    def applied(self, index: int) -> None:
        """The oldest proposal is committed and durable, at this index."""
        if not self._proposed:
            return  # deleted meanwhile
        proposal = self._proposed.popleft()
        self.kept += 1
        first = self._state.live.next_sequence
        self._state.apply(index, proposal.entry)
        self._forget_applied(proposal)
        if proposal.messages:
            assert proposal.messages[0].sequence == first, "applied in the order proposed"
            self.pending -= len(proposal.messages) - len(proposal.delayed)
            self._enqueued(proposal, first)
        if self._early:
            early = {s for s, _ in proposal.delays if s in self._early and s not in self._moved}
            self._early -= early
            self._cold.overdue(sorted(early))
        self._state.checkpoint_if_due()
        for receipt in proposal.receipts:
            receipt.stored([])
        for session, seq, places in proposal.notes:
            for repeat in self._under_way.pop((session, seq), ()):
                repeat.stored(places)
        for action in proposal.actions:
            action()

    def _enqueued(self, proposal: _Proposal, first: int) -> None:
        messages = proposal.messages
        if proposal.delayed:
            due = self._state.live.due
            messages = [m for m in messages if m.sequence not in due]
            self._holder.away.delayed(proposal.delayed)
        was_cold = self.ready.cold
        if messages:
            self._holder.enqueued(messages)
        if not self.ready.cold:
            self._cold.first = self._state.live.next_sequence
        elif not was_cold:
            self._cold.first = first

    def _forget_applied(self, proposal: _Proposal) -> None:
        """The live set knows now what had to be remembered beside it."""
        for sequence, due_ms in proposal.delays:
            if self._moved.get(sequence) == due_ms:
                del self._moved[sequence]
        for sequence in proposal.cancelled:
            self._moved.pop(sequence, None)
        unapplied = self._cold.unapplied
        for sequence in proposal.returned:
            unapplied[sequence] -= 1
            if not unapplied[sequence]:
                del unapplied[sequence]
        self._cold.apart.difference_update(proposal.apart)
        for digest, until_ms in proposal.ids:
            if self._new_ids.get(digest) == until_ms:  # else it came again, after its time
                del self._new_ids[digest]

    def damaged(self, reason: str) -> None:
        """Messages could not be read back: the queue must not go on without them."""
        self._cold.damaged(reason)

    # Recovery

    def recover(
        self,
        checkpoint: tuple[int, bytes] | None,
        entries: Iterable[tuple[int, bytes]],
        *,
        stopped_cleanly: bool,
    ) -> Sequence[int]:
        """Rebuild from what the log holds; the indexes of entries under the checkpoint in use."""
        used = self._state.recover(checkpoint, entries)
        self.take_over(stopped_cleanly=stopped_cleanly)
        return used

    def take_over(self, *, stopped_cleanly: bool) -> None:
        """Go on from what is applied: whatever is alive is in the log only."""
        live, cold = self._state.live, self._cold
        self._next_sequence = self._found_before = live.next_sequence
        cold.maybe_delivered = self._next_sequence
        if stopped_cleanly:
            cold.maybe_delivered = min(live.delivered, self._next_sequence)
        if self._in_order:
            cold.doubtful_before = live.taken

    def start(self, *, clocks_apart_ms: int = 0) -> None:
        """Offer what was recovered, and let go of what a crash kept from being let go of.

        What was due by now may have been delivered; or by a little later, where another clock than
        this one may have told the time.
        """
        live = self._state.live
        now = self._now_ms()
        self._cold.started_ms = now + clocks_apart_ms
        if self._cold.grouped:
            self._cold.block_groups(live.due)
        self._holder.away.scheduled(item for item in live.due.items() if item[1] > now)
        self.overdue(sorted([s for s, due_ms in live.due.items() if due_ms <= now]))
        self.ready.recovered(live.live - len(live.due))
        self._state.checkpoint_if_due()


def _low(*, in_order: bool) -> int:
    return LOW_MESSAGES if in_order else EVERYTHING


def _without(first: int, end: int, apart: set[int]) -> list[Range]:
    """What is left of a run of sequences."""
    if not apart:
        return [(first, end - first)] if end > first else []
    cuts = sorted(s for s in apart if first <= s < end)
    bounds = zip([first, *[cut + 1 for cut in cuts]], [*cuts, end], strict=True)
    return [(start, stop - start) for start, stop in bounds if stop > start]
