"""Planted bugs: each breaks one promise of the node, and must be caught by the simulation."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from broker.journal import Journal
from broker.vhost import VHost
from queues.away import Away
from queues.cold import ColdMessages
from queues.dedup import DedupWindow
from queues.durable import DurableStore
from queues.live import LiveEntry, LiveSet
from queues.live_checkpoint import FrozenLiveSet
from queues.live_log import LiveLog
from queues.message import Message
from queues.paged import PagedReady

Mutant: TypeAlias = Callable[[], Any]  # a context manager


@contextmanager
def _replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    with patch.object(owner, name, wrap(getattr(owner, name))):
        yield


def confirm_at_submit() -> Any:
    def wrap(real: Any) -> Any:
        def next_entry(self: DurableStore) -> bytes | None:
            entry: bytes | None = real(self)
            if entry is not None:
                for receipt in self._proposed[-1].receipts:
                    receipt.stored([])
                self._proposed[-1].receipts = []
            return entry

        return next_entry

    return _replaced(DurableStore, "next_entry", wrap)


def release_above_the_checkpoint() -> Any:
    def wrap(real: Any) -> Any:
        def apply(self: LiveLog, index: int, entry: bytes) -> None:
            checkpointed, self._checkpointed = self._checkpointed, 1 << 60
            real(self, index, entry)
            self._checkpointed = checkpointed

        return apply

    return _replaced(LiveLog, "apply", wrap)


def release_before_the_checkpoint_is_durable() -> Any:
    def wrap(real: Any) -> Any:
        def checkpoint(self: LiveLog) -> None:
            if not self._checkpointing:
                self._log.release(self._dead)
            real(self)

        return checkpoint

    return _replaced(LiveLog, "_checkpoint", wrap)


def settle_not_logged() -> Any:
    return patch.object(DurableStore, "settle", lambda self, messages: None)


def return_not_logged() -> Any:
    return patch.object(DurableStore, "give_back", lambda self, messages: None)


def checkpoint_forgets_what_is_partly_settled() -> Any:
    def wrap(real: Any) -> Any:
        def freeze(self: LiveSet) -> FrozenLiveSet:
            settled, self._settled = self._settled, {}
            state: FrozenLiveSet = real(self)
            self._settled = settled
            return state

        return freeze

    return _replaced(LiveSet, "freeze", wrap)


def load_brings_back_what_is_settled() -> Any:
    def alive_in(self: LiveSet, entry: LiveEntry) -> list[bool]:
        return [True] * entry.count

    return patch.object(LiveSet, "alive_in", alive_in)


def first_cold_entry_passed_over() -> Any:
    def wrap(real: Any) -> Any:
        def applied(self: DurableStore, index: int) -> None:
            was_cold = self.ready.cold
            real(self, index)
            if self.ready.cold and not was_cold:
                self._cold.first = self._state.live.next_sequence

        return applied

    return _replaced(DurableStore, "applied", wrap)


def last_loaded_entry_loaded_again() -> Any:
    def wrap(real: Any) -> Any:
        def loaded(self: ColdMessages, batch: list[LiveEntry], found: Any) -> None:
            real(self, batch, found)
            if found:
                self.first = min(self.first, batch[-1].first)

        return loaded

    return _replaced(ColdMessages, "_loaded", wrap)


def definitions_answered_at_once() -> Any:
    return patch.object(Journal, "when_durable", lambda self, action: action())


def delete_not_recorded() -> Any:
    def wrap(real: Any) -> Any:
        def record(self: VHost, kind: str, *details: object) -> None:
            if kind != "-queue":
                real(self, kind, *details)

        return record

    return _replaced(VHost, "_record", wrap)


def sequences_used_again() -> Any:
    def wrap(real: Any) -> Any:
        def recover(self: DurableStore, *args: Any, **named: Any) -> Any:
            indexes = real(self, *args, **named)
            live = self._state.live
            self._next_sequence = live.next_sequence = live.live
            return indexes

        return recover

    return _replaced(DurableStore, "recover", wrap)


def hot_after_cold() -> Any:
    """Messages that arrive behind cold ones are kept in memory, and overtake them."""

    def wrap(real: Any) -> Any:
        def push(self: PagedReady, messages: list[Message]) -> None:
            if self.cold and self._has_room(0) and len(self._hot):
                self._hot.push(messages)
                self._charge()
            else:
                real(self, messages)

        return push

    return _replaced(PagedReady, "push", wrap)


# Delays, retries, groups and ids


def delay_not_logged() -> Any:
    """Only in the memory of the store, for as long as it lives."""

    def delay(self: DurableStore, delays: list[tuple[int, int]]) -> None:
        self._state.live.due.update(delays)
        self._cold.apart.difference_update([sequence for sequence, _ in delays])

    return patch.object(DurableStore, "delay", delay)


def checkpoint_forgets_delays() -> Any:
    def wrap(real: Any) -> Any:
        def freeze(self: LiveSet) -> FrozenLiveSet:
            due, self.due = self.due, {}
            state: FrozenLiveSet = real(self)
            self.due = due
            return state

        return freeze

    return _replaced(LiveSet, "freeze", wrap)


def checkpoint_forgets_ids() -> Any:
    def wrap(real: Any) -> Any:
        def freeze(self: LiveSet) -> FrozenLiveSet:
            seen, self.seen = self.seen, DedupWindow()
            state: FrozenLiveSet = real(self)
            self.seen = seen
            return state

        return freeze

    return _replaced(LiveSet, "freeze", wrap)


def ids_not_logged() -> Any:
    return patch("queues.durable.encode_seen", lambda ids, time_ms: b"")


def overdue_loaded_twice() -> Any:
    def wrap(real: Any) -> Any:
        def overdue(self: ColdMessages, sequences: list[int]) -> None:
            self.ready.overdue += len(sequences)
            real(self, sequences * 2)

        return overdue

    return _replaced(ColdMessages, "overdue", wrap)


def overdue_read_before_the_log_knows() -> Any:
    """Neither of its return nor of its delay."""

    def overdue(self: DurableStore, sequences: list[int]) -> None:
        self.ready.overdue += len(sequences)
        self._cold.overdue(sequences)

    def count_of(self: ColdMessages, sequence: int) -> int:
        return self._state.live.count_of(sequence)

    stack = ExitStack()
    stack.enter_context(patch.object(DurableStore, "overdue", overdue))
    stack.enter_context(patch.object(ColdMessages, "count_of", count_of))
    return stack


def delayed_ones_loaded_as_cold() -> Any:
    def cold_in(self: ColdMessages, entry: LiveEntry) -> list[int]:
        alive = self._state.live.alive_in(entry)
        return [entry.first + sub for sub, yes in enumerate(alive) if yes]

    return patch.object(ColdMessages, "cold_in", cold_in)


def purge_settles_what_is_held_apart() -> Any:
    return patch("queues.durable._without", lambda first, end, apart: [(first, end - first)])


def purge_forgets_delayed_ones() -> Any:
    return patch.object(DurableStore, "_asleep", lambda self: [])


def group_block_forgotten_after_a_restart() -> Any:
    return patch.object(ColdMessages, "block_groups", lambda self, asleep: None)


def cancel_not_logged() -> Any:
    def settle_sequences(self: DurableStore, sequences: list[int]) -> None:
        for sequence in sequences:
            self._moved[sequence] = None

    return patch.object(DurableStore, "settle_sequences", settle_sequences)


def retry_not_counted() -> Any:
    """A message that waited for its next try comes back without its count."""

    def wrap(real: Any) -> Any:
        def count_of(self: ColdMessages, sequence: int) -> int:
            return 0 if sequence in self._state.live.due else real(self, sequence)

        return count_of

    return _replaced(ColdMessages, "count_of", wrap)


def settled_ones_stay_apart() -> Any:
    """A sequence that was once apart is never forgotten: memory that is not given back."""

    def wrap(real: Any) -> Any:
        def forget(self: DurableStore, proposal: Any) -> None:
            proposal.apart = []
            real(self, proposal)

        return forget

    return _replaced(DurableStore, "_forget_applied", wrap)


def settled_ones_apart_no_more() -> Any:
    """Before the log knows that they are settled."""

    def wrap(real: Any) -> Any:
        def settle(self: DurableStore, messages: list[Message]) -> None:
            real(self, messages)
            self._cold.apart.difference_update([m.sequence for m in messages])

        return settle

    return _replaced(DurableStore, "settle", wrap)


def leases_never_end() -> Any:
    return patch.object(Away, "_lease_over", lambda self, consumer, messages: None)


MUTANTS: list[Mutant] = [
    confirm_at_submit,
    release_above_the_checkpoint,
    release_before_the_checkpoint_is_durable,
    settle_not_logged,
    return_not_logged,
    checkpoint_forgets_what_is_partly_settled,
    load_brings_back_what_is_settled,
    first_cold_entry_passed_over,
    last_loaded_entry_loaded_again,
    definitions_answered_at_once,
    delete_not_recorded,
    sequences_used_again,
    hot_after_cold,
    delay_not_logged,
    checkpoint_forgets_delays,
    checkpoint_forgets_ids,
    ids_not_logged,
    overdue_loaded_twice,
    overdue_read_before_the_log_knows,
    delayed_ones_loaded_as_cold,
    purge_settles_what_is_held_apart,
    purge_forgets_delayed_ones,
    group_block_forgotten_after_a_restart,
    cancel_not_logged,
    retry_not_counted,
    settled_ones_stay_apart,
    settled_ones_apart_no_more,
    leases_never_end,
]
# Where few runs would come to the point: the kinds of queues that are at stake.
FOCUS: dict[Mutant, tuple[str, ...]] = {
    purge_settles_what_is_held_apart: ("retry",),
    group_block_forgotten_after_a_restart: ("groups",),
    settled_ones_apart_no_more: ("classic", "retry"),
}
