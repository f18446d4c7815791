"""One replica of a queue: a live set that follows the log, and the queue itself while it leads."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from queues.durable import DurableStore
from queues.live import ANYTHING
from queues.live_log import LiveLog, Log
from queues.ordering import is_in_order
from queues.paged import HotBudget
from queues.queue import Queue
from queues.ready import Ready

# By how much the clocks of nodes may differ. What is delayed and due so soon after a node begins to
# lead may have been delivered by the node that led before.
CLOCKS_APART_MS: Final = 1000


class QueueReplica:
    """What lives on a replicated queue's log. It may lead any number of times.

    A follower knows which messages are alive and holds none of them. A leader has a `Queue`, made
    anew each time, in which all of them are ready, on disk until they are wanted. Who held what is
    told by those who hold it: see `Queue.claim`.
    """

    def __init__(
        self,
        log: Log,
        make_queue: Callable[[], Queue],
        budget: HotBudget,
        now_ms: Callable[[], int],
        *,
        on_lead: Callable[[Queue], None],
        on_follow: Callable[[], None],
    ) -> None:
        """`make_queue` gives a queue that nothing has happened to, with the options of the day.

        `on_lead` is called with it when it is in use. Nothing is delivered before that returns, and
        if it calls `Queue.hold_dealing`, not before `Queue.start_dealing`. `on_follow` is called
        when the queue is over: whoever has it lets go of it.
        """
        self.queue: Queue | None = None  # while it leads
        self.damage: str | None = None  # why it must not be served
        self._log = log
        self._make_queue = make_queue
        self._budget = budget
        self._now_ms = now_ms
        self._on_lead = on_lead
        self._on_follow = on_follow
        self._live = LiveLog(log)
        self._store: DurableStore | None = None
        self._handing_over = False

    @property
    def messages(self) -> int:
        """How many are alive, as far as this replica knows: ready, delayed and unacked ones."""
        return self._live.live.live

    @property
    def applied_index(self) -> int:
        return self._live.applied_index

    # What the log says

    def recover(
        self, checkpoint: tuple[int, bytes] | None, entries: Iterable[tuple[int, bytes]] = ()
    ) -> Sequence[int]:
        """Begin with what the disk has and is known to be committed.

        The indexes of entries under the checkpoint that are in use.
        """
        return self._live.recover(checkpoint, entries)

    def next_entry(self) -> bytes | None:
        return self._store.next_entry() if self._store is not None else None

    def applied(self, index: int) -> None:
        """The oldest proposal is committed."""
        if self._store is not None:  # else it was deleted by what was applied just before
            self._store.applied(index)

    def apply(self, index: int, entry: bytes) -> None:
        """Committed, and not proposed by this replica since it leads."""
        assert self._store is None, "a leader applies its own proposals"
        assert index > self.applied_index, "entries are applied in order"
        self._live.apply(index, entry)
        self._live.checkpoint_if_due()

    def lead(self) -> None:
        """Serve the queue from now on: all that was ever committed is applied."""
        assert self._store is None
        self.queue = queue = self._make_queue()
        self._store = store = queue.keep_in(lambda hot: self._make_store(queue, hot))
        if self.damage is not None:
            queue.damage(self.damage)
            self._on_lead(queue)
            return
        queue.hold_dealing()
        was_handed_over = self._live.live.delivered != ANYTHING
        store.take_over(stopped_cleanly=was_handed_over)
        store.start(clocks_apart_ms=CLOCKS_APART_MS)
        if was_handed_over:
            # What is delivered from now on is not in the log: what the log says must go first.
            queue.hold_dealing()
            store.say_delivered(ANYTHING, queue.start_dealing)
        self._on_lead(queue)
        queue.start_dealing()

    def _make_store(self, queue: Queue, hot: Ready) -> DurableStore:
        return DurableStore(
            self._log,
            queue,
            self._budget,
            self._now_ms,
            hot,
            in_order=is_in_order(queue.options),
            grouped=queue.options.message_groups,
            state=self._live,
        )

    def follow(self) -> None:
        """Another replica leads, or none. What was proposed and not applied is void.

        Nobody gets an answer: whoever waits for one asks the next leader.
        """
        queue, self.queue, self._store = self.queue, None, None
        self._handing_over = False
        if queue is not None:
            queue.retire()
            self._on_follow()

    # Handing over in good order

    def prepare_transfer(self, then: Callable[[], None]) -> None:
        """Deliver nothing more, and let the next leader know what never was delivered.

        `then` is called when the log has it: the time to make another replica the leader.
        """
        assert self._store is not None
        assert self.queue is not None
        if not self._handing_over:
            self._handing_over = True
            self.queue.hold_dealing()
        self._store.mark_clean_stop(lambda: then() if self._handing_over else None)

    def cancel_transfer(self) -> None:
        """It came to nothing: go on, as soon as the log does not say any more what was said."""
        if self._handing_over and self._store is not None and self.queue is not None:
            self._handing_over = False
            self._store.say_delivered(ANYTHING, self.queue.start_dealing)

    # Checkpoints

    def state(self) -> bytes:
        """All that is applied, without any message."""
        return self._live.live.checkpoint()

    def kept(self) -> Sequence[int]:
        """Entries that the state refers to, ascending: they hold live messages."""
        return self._live.kept()

    def install(self, index: int, state: bytes) -> Sequence[int]:
        """The leader's state at `index` takes the place of this one; entries under it in use.

        The host made it this log's checkpoint before.
        """
        assert self._store is None, "a leader has all that is committed"
        return self._live.install(index, state)

    # Its end

    def damaged(self, reason: str) -> None:
        """What the log has cannot be vouched for."""
        self.damage = reason
        if self._store is not None:
            self._store.damaged(reason)

    def begin_anew(self) -> bool:
        """Of a damaged one: be as a new one, for a log that begins again."""
        assert self._store is None
        self._live.abandon()
        self._live = LiveLog(self._log)
        self.damage = None
        return True

    def delete(self) -> int:
        """The queue is deleted: its log goes. How many messages were ready here."""
        queue, self.queue, self._store = self.queue, None, None
        if queue is not None:
            return queue.delete()
        self._log.delete()
        return 0
