"""Planted bugs between the parts: letters, commits, leases, counts, policies, long turns."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from typing import Any
from unittest.mock import patch

from broker.channel.transactions import Transaction
from broker.cluster import catalog, checkpoint
from broker.cluster.desk import Desk
from broker.cluster.front import QueueFront
from broker.cluster.guests import Guest
from broker.cluster.subscriptions import Settled
from queues import live_log
from queues.away import Away
from queues.burials import Burials
from queues.live_log import LiveLog
from queues.publishers import Publishers
from queues.queue import Queue

BLOCKED_S = 0.060

Mutant = Callable[[], AbstractContextManager[object]]


def _replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> AbstractContextManager[object]:
    return patch.object(owner, name, wrap(getattr(owner, name)))


def refused_letters_count_as_stored() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        return lambda self, burial, life, purges, _refused: real(self, burial, life, purges, [])

    return _replaced(Burials, "_answered", wrap)


def letters_have_no_identity() -> AbstractContextManager[object]:
    numbers = count(1)
    return patch("broker.dead_letter.digest_of_letter", lambda *_: b"%016d" % next(numbers))


def letters_under_way_are_not_tried_again() -> AbstractContextManager[object]:
    """Those that were refused are neither sent again nor given up."""
    return patch.object(Burials, "_pause", lambda self: setattr(self, "_pausing", True))


def settles_are_forgotten_before_the_log_has_them() -> AbstractContextManager[object]:
    """After a while, as if that were enough."""

    def forget(self: Settled) -> None:
        self._waiting.clear()

    def wrap(real: Any) -> Any:
        return lambda self, _kept: real(self, 1 << 62)

    stack = ExitStack()
    stack.enter_context(patch.object(Settled, "_ripen", forget))
    stack.enter_context(_replaced(Guest, "ripen", wrap))
    stack.enter_context(patch.object(Guest, "missed", lambda self, since: []))
    return stack


def commits_do_not_wait_for_acks() -> AbstractContextManager[object]:
    return patch.object(QueueFront, "when_settled", lambda self, then: then(None))


def a_rollback_publishes() -> AbstractContextManager[object]:
    """What was dropped goes out with the next commit."""

    def wrap(real: Any) -> Any:
        def rollback(self: Transaction) -> None:
            publishes = self.publishes
            real(self)
            self.publishes = publishes

        return rollback

    return _replaced(Transaction, "rollback", wrap)


def leases_are_not_restarted_by_another_leader() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def claim(self: Queue, consumer: Any, *rest: Any) -> Any:
            lease_ms, consumer.lease_ms = consumer.lease_ms, None
            claimed = real(self, consumer, *rest)
            consumer.lease_ms = lease_ms
            return claimed

        return claim

    return _replaced(Queue, "claim", wrap)


def leases_never_end() -> AbstractContextManager[object]:
    return patch.object(Away, "_lease_over", lambda self, consumer, messages: None)


def the_last_batch_is_stored_twice() -> AbstractContextManager[object]:
    """A front sends it again after a change of leaders."""

    def wrap(real: Any) -> Any:
        def find(self: Publishers, origin: Any) -> Any:
            publisher = real(self, origin)
            return None if publisher is not None and origin.seq == publisher.seq else publisher

        return find

    return _replaced(Publishers, "find", wrap)


def get_is_answered_while_messages_are_loaded() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def get(self: Desk, guest: Any, then: Any) -> None:
            if self.queue.is_loading or not self.dealing:
                then(b"")
            else:
                real(self, guest, then)

        return get

    return _replaced(Desk, "_get", wrap)


def counts_leave_out_one() -> AbstractContextManager[object]:
    real: Any = Queue.ready
    return patch.object(Queue, "ready", property(lambda self: max(0, real.fget(self) - 1)))


def policies_are_not_in_checkpoints() -> AbstractContextManager[object]:
    def without(state: Any) -> Any:
        return (change for change in checkpoint.changes_of(state) if change[0] != "policy")

    return patch.object(catalog, "changes_of", without)


def a_checkpoint_blocks_the_loop() -> AbstractContextManager[object]:
    def wrap(real: Any) -> Any:
        def checkpoint_(self: LiveLog) -> None:
            ends = time.thread_time() + BLOCKED_S
            while time.thread_time() < ends:
                pass
            real(self)

        return checkpoint_

    return _replaced(LiveLog, "_checkpoint", wrap)


SEAM_MUTANTS: list[Mutant] = [
    refused_letters_count_as_stored,
    letters_have_no_identity,
    letters_under_way_are_not_tried_again,
    settles_are_forgotten_before_the_log_has_them,
    commits_do_not_wait_for_acks,
    a_rollback_publishes,
    leases_are_not_restarted_by_another_leader,
    leases_never_end,
    the_last_batch_is_stored_twice,
    get_is_answered_while_messages_are_loaded,
    counts_leave_out_one,
    policies_are_not_in_checkpoints,
    a_checkpoint_blocks_the_loop,
]

_CLIENTS: dict[str, object] = {"nodes": 3, "clients": 4, "pause_s": 0.05, "bursts": (1, 1, 3, 10)}
_REJECTING = _CLIENTS | {
    "settle_weights": (1, 0, 6),
    "weights": {"publish": 5, "consume": 3, "settle": 20},
    "seconds": 8.0,
    "fault_s": 0.5,
}
_COMMITTING = _CLIENTS | {
    "calm": False,
    "kinds": ("quorum",),
    "faults": {"isolate": 1},
    "fault_s": 0.3,
    "seconds": 15.0,
    "weights": {"publish": 3, "transact": 20, "get": 1},
}
_LEASING = _CLIENTS | {
    "calm": True,
    "kinds": ("leased",),
    "faults": {"transfer": 1},
    "fault_s": 0.7,
    "seconds": 6.0,
    "weights": {"publish": 5},
}
_COUNTING = _CLIENTS | {
    "calm": True,
    "kinds": ("quorum", "counted"),
    "faults": {"kill": 1, "transfer": 2},
    "fault_s": 0.4,
    "seconds": 8.0,
    "hot_bytes": 0,
    "read_s": 0.01,
    "weights": {"publish": 10, "get": 10, "settle": 5, "count": 8, "disconnect": 1},
}
SEAM_FOCUS: dict[Mutant, dict[str, object]] = {
    refused_letters_count_as_stored: _REJECTING
    | {"kinds": ("dlx_classic",), "faults": {"kill": 1, "transfer": 1}},
    letters_under_way_are_not_tried_again: _REJECTING
    | {"kinds": ("dlx_classic",), "faults": {"kill": 1, "transfer": 1}},
    letters_have_no_identity: _REJECTING
    | {"calm": True, "kinds": ("dlx",), "faults": {"transfer": 2, "kill": 1}},
    settles_are_forgotten_before_the_log_has_them: _COMMITTING,
    commits_do_not_wait_for_acks: _COMMITTING | {"faults": {"isolate": 1, "kill": 1}},
    a_rollback_publishes: _COMMITTING,
    leases_are_not_restarted_by_another_leader: _LEASING,
    leases_never_end: _LEASING,
    the_last_batch_is_stored_twice: _CLIENTS
    | {"calm": True, "faults": {"ambush": 1}, "ambushes": ("kill", "power"), "fault_s": 0.3}
    | {"moments": ("confirmed",), "delay_s": 0.02, "seconds": 8.0},
    get_is_answered_while_messages_are_loaded: _COUNTING,
    counts_leave_out_one: _COUNTING,
    policies_are_not_in_checkpoints: _CLIENTS
    | {"calm": True, "kinds": ("ruled",), "faults": {"rule": 3, "kill": 1}, "fault_s": 0.3}
    | {"tunables": {(catalog, "CHECKPOINT_CHANGES"): 1}, "seconds": 6.0},
    a_checkpoint_blocks_the_loop: _CLIENTS
    | {"seconds": 5.0, "tunables": {(live_log, "CHECKPOINT_ENTRIES"): 1}},
}
