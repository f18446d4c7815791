"""Planted bugs: each breaks one promise of the node, and must be caught by the simulation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from broker.journal import Journal
from broker.vhost import VHost
from queues.durable import DurableStore
from queues.live import LiveEntry, LiveSet
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
        def apply(self: DurableStore, index: int, entry: bytes) -> None:
            checkpointed, self._checkpointed = self._checkpointed, 1 << 60
            real(self, index, entry)
            self._checkpointed = checkpointed

        return apply

    return _replaced(DurableStore, "_apply", wrap)


def release_before_the_checkpoint_is_durable() -> Any:
    def wrap(real: Any) -> Any:
        def checkpoint(self: DurableStore) -> None:
            if not self._checkpointing:
                self._log.release(self._dead)
            real(self)

        return checkpoint

    return _replaced(DurableStore, "_checkpoint", wrap)


def settle_not_logged() -> Any:
    return patch.object(DurableStore, "settle", lambda self, messages: None)


def return_not_logged() -> Any:
    return patch.object(DurableStore, "give_back", lambda self, messages: None)


def checkpoint_forgets_what_is_partly_settled() -> Any:
    def wrap(real: Any) -> Any:
        def checkpoint(self: LiveSet) -> bytes:
            settled, self._settled = self._settled, {}
            state: bytes = real(self)
            self._settled = settled
            return state

        return checkpoint

    return _replaced(LiveSet, "checkpoint", wrap)


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
                self._cold_from = self._live.next_sequence

        return applied

    return _replaced(DurableStore, "applied", wrap)


def last_loaded_entry_loaded_again() -> Any:
    def wrap(real: Any) -> Any:
        def loaded(self: DurableStore, batch: list[LiveEntry], found: Any) -> None:
            real(self, batch, found)
            if found:
                self._cold_from = min(self._cold_from, batch[-1].first)

        return loaded

    return _replaced(DurableStore, "_loaded", wrap)


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
            self._next_sequence = self._live.next_sequence = self._live.live
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
]
