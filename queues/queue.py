"""The queue: batches of messages in, deliveries to consumers out, in memory or through a store."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from queues.admission import Admission
from queues.away import Away
from queues.browse import Browser
from queues.burials import DEAD_MAX, Burial, Burials
from queues.consumers import Consumer, Dispatcher
from queues.expiry import Expiry
from queues.groups import GroupReady, group_of
from queues.message import Message
from queues.options import NOTHING_ALTERED, QueueOptions
from queues.ordering import (
    is_in_order,
    is_same_order,
    make_ready,
    mark_anew,
    mark_returned,
)
from queues.paged import PagedReady
from queues.publishers import Note, Origin
from queues.ready import FifoReady, Ready
from queues.seams import Context, Once, Partly, Receipt, Store
from queues.spill import Spill, SpillingReady, paged_out
from queues.statistics import QueueStatistics
from queues.tally import Tally
from queues.unused import Unused

S = TypeVar("S", bound=Store)


class Queue:
    """A queue on this node. Nothing here awaits: each call decides and acts."""

    __slots__ = (
        "_admission",
        "_burials",
        "_claims",
        "_context",
        "_dispatcher",
        "_expiry",
        "_groups",
        "_next_sequence",
        "_ready",
        "_store",
        "_unused",
        "_waiting",
        "arguments",
        "auto_delete",
        "away",
        "damaged",
        "deleted",
        "durable",
        "name",
        "operator_policy",
        "options",
        "owner",
        "policy",
        "retired",
        "settings",
        "tally",
        "uid",
        "unacked",
    )

    def __init__(
        self,
        name: str,
        context: Context,
        options: QueueOptions,
        *,
        arguments: Mapping[str, object],
        durable: bool,
        auto_delete: bool,
        owner: object | None,
    ) -> None:
        self.name = name
        self.options = options
        self.policy: str | None = None  # the names of those that it has
        self.operator_policy: str | None = None
        self.arguments = arguments
        self.settings: Mapping[str, object] = NOTHING_ALTERED
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner  # the connection of an exclusive queue
        self.uid = b""  # names its log; new whenever a queue of this name is made
        self.unacked = 0
        self.tally = Tally()
        self.deleted = False
        self.retired = False  # it is served elsewhere: as good as deleted, and not gone
        self.damaged: str | None = None  # why it must not be served
        self._context = context
        self._ready: Ready = make_ready(options)
        self._groups = self._ready if isinstance(self._ready, GroupReady) else None
        self._dispatcher = Dispatcher(single_active=options.single_active_consumer)
        self._store: Store | None = None
        self._next_sequence = 0
        self._expiry = Expiry(
            context,
            self._dispatch,
            ttl_ms=options.message_ttl_ms,
            out_of_order=not is_in_order(options),
        )
        self._admission = Admission(context, options, self._expiry)
        self.away = Away(context, self)
        self._burials: Burials | None = None  # made when the first message dies
        self._unused: Unused | None = None
        self._waiting: list[Callable[[], None]] = []
        self._claims: dict[int, Message] = {}  # messages that are held though never taken from here
        self._watch_use()

    def _watch_use(self) -> None:
        """x-expires starts, or starts anew."""
        if self._unused is not None:
            self._unused.stop()
            self._unused = None
        if self.options.expires_ms is not None:
            self._unused = Unused(
                self._context,
                self.options.expires_ms,
                lambda: bool(self.consumer_count),
                lambda: self._context.queue_unused(self),
            )

    def touch(self) -> None:
        """A declare, a get or a leaving consumer counts as use."""
        if self._unused is not None:
            self._unused.touch()

    def configure(self, options: QueueOptions) -> None:
        """Do as these options say from now on. Messages keep the times they were given."""
        old, self.options = self.options, options
        self._admission.configure(options)
        self._expiry.set_ttl(options.message_ttl_ms)
        if options.expires_ms != old.expires_ms:
            self._watch_use()
        for consumer in self._dispatcher.consumers:
            consumer.lease_ms = consumer.own_lease_ms or options.lease_ms
        if not is_same_order(old, options) and self.damaged is None:
            self._reorder()
        self.away.configure(options)
        if self._burials is not None:
            self._burials.retry()  # dead letters may have another place to go to
        self._dispatch()
        self._drop_over_limit()

    def _reorder(self) -> None:
        hot = make_ready(self.options)
        self._groups = hot if isinstance(hot, GroupReady) else None
        in_order = is_in_order(self.options)
        self._expiry.mixed = self._expiry.mixed or not in_order
        now = self._context.now_ms()
        mark_anew(self._ready, self.options, now)
        if self._store is not None:
            mark_anew(self._store.under_way(), self.options, now)
            grouped = self._groups is not None
            self._store.reorder(hot, in_order=in_order, grouped=grouped)
        elif isinstance(self._ready, SpillingReady):
            mark = partial(mark_anew, options=self.options, now_ms=now)
            self._ready.reorder(hot, mark, in_order=in_order)
        else:
            hot.push(sorted(self._ready, key=lambda message: message.sequence))
            self._ready = hot
        self.blocks_groups(self.away.failed())

    def damage(self, reason: str) -> None:
        """Its log cannot be vouched for: nothing is taken or given any more."""
        self.damaged = reason
        for consumer in self._dispatcher.consumers:
            self._dispatcher.remove(consumer)
            consumer.sink.consumer_cancelled(consumer)
        self._stop_clocks()
        self._ready = FifoReady()
        self._groups = None
        self._wake_waiting()

    def _stop_clocks(self) -> None:
        self._expiry.stop()
        self.away.clear()
        if self._burials is not None:
            self._burials.clear()
        if self._unused is not None:
            self._unused.stop()

    def keep_in(self, make_store: Callable[[Ready], S]) -> S:
        """Make it durable, before anything happens to it. The store takes over the ready list."""
        assert not self._next_sequence
        self._store = store = make_store(self._ready)
        self._ready = store.ready
        self.away.keep_in(store)
        return store

    def stop(self) -> None:
        """The node stops in good order."""
        if self._store is not None and self.damaged is None:
            self._store.mark_clean_stop()

    def retire(self) -> None:
        """Its node does not serve it any more. Nobody is told anything, now or later."""
        self.deleted = self.retired = True
        self._stop_clocks()
        self._dispatcher = Dispatcher(single_active=self.options.single_active_consumer)
        self._claims.clear()
        if self._store is not None:
            self._store.retire()
        self._wake_waiting()

    # What is in it

    @property
    def ready(self) -> int:
        return len(self._ready) + self.away.paced_count

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, now or later, and nothing waits for its dead letter to be safe."""
        return not self.ready and not self.away.delayed_count and not self.dying

    @property
    def dying(self) -> int:
        """Messages that died, and whose dead letters are not safe yet."""
        return self._burials.count if self._burials is not None else 0

    @property
    def is_reachable(self) -> bool:
        return self.damaged is None

    @property
    def next_sequence(self) -> int:
        """Of the next message to come; all that are there have smaller ones."""
        return self._next_sequence if self._store is None else self._store.next_sequence

    @property
    def ready_bytes(self) -> int:
        return self._ready.size_bytes

    @property
    def consumers(self) -> list[Consumer]:
        return self._dispatcher.consumers

    @property
    def on_disk(self) -> int:
        """Ready messages that are not in memory."""
        ready = self._ready
        return ready.on_disk if isinstance(ready, PagedReady | SpillingReady) else 0

    def statistics(self) -> QueueStatistics:
        on_disk = self.on_disk
        return QueueStatistics(
            ready=self.ready,
            ready_bytes=self.ready_bytes,
            unacked=self.unacked,
            pending=self._store.pending if self._store is not None else 0,
            in_memory=self.ready - on_disk,
            on_disk=on_disk,
            consumers=self.consumer_count,
            dying=self.dying,
        )

    @property
    def has_exclusive_consumer(self) -> bool:
        """It would be the only one."""
        first = self._dispatcher.active
        return first is not None and first.exclusive

    @property
    def consumer_count(self) -> int:
        return len(self._dispatcher)

    def lag_of(self, consumer: Consumer) -> int:  # noqa: ARG002 - they have all one line to wait in
        return self.ready

    @property
    def counts_deliveries(self) -> bool:
        """Whether redeliveries carry the header x-delivery-count."""
        return self.options.type == "quorum"

    # Messages in

    def publish(
        self, messages: list[Message], receipt: Receipt | None, origin: Origin | None = None
    ) -> None:
        """Take a batch. The receipt is told at once: in memory, stored means enqueued.

        One that has an origin may come again, until its publisher gets to know what became of it.
        It is stored once and answered each time; a queue in memory does not look at origins.
        """
        if self.deleted or self.damaged is not None:
            if receipt is not None and not self.retired:
                receipt.stored(messages if self.damaged is not None else [])
            return
        refused: list[Message] = []
        if origin is not None:
            if self._store is None:
                origin = None
            elif self._store.repeats(origin, messages, receipt):
                return
        self.tally.publish += len(messages)
        self.tally.changed = True
        if self._admission.is_close or [m for m in messages if m.wishes is not None]:
            refused = self._publish_closely(messages, receipt, origin)
        elif self._store is not None:
            self._expiry.stamp(messages)
            if origin is None:
                self._store.enqueue(messages, receipt)
            else:
                self._store.enqueue(messages, receipt, note=Note(*origin))
        else:
            self._expiry.stamp(messages)
            self._number(messages)
            self.enqueued(messages)
        if refused and self.options.overflow == "reject-publish-dlx":
            # The publisher is told that they were refused: nobody else counts on them.
            burial = Burial([m.copy() for m in refused], "maxlen", self._context.now_ms())
            self._context.dead_letter(self, burial, _nothing)
        if receipt is not None and (self._store is None or len(refused) == len(messages)):
            receipt.stored(refused)

    def _publish_closely(
        self, messages: list[Message], receipt: Receipt | None, origin: Origin | None
    ) -> list[Message]:
        """Look at each of them; those that there is no room for."""
        if self._store is None:
            return self._take_closely(messages)
        ahead = len(self._ready) + self._store.pending
        if self._admission.limit.refuses:
            ahead -= self._dispatcher.room(len(messages))
        batch = self._admission.admit(messages, self._ready, ahead, self._store)
        note = None if origin is None else Note(*origin, _places(batch.refused, messages))
        if len(batch.refused) < len(messages):
            if receipt is not None and batch.refused:
                receipt = Partly(receipt, batch.refused)
            self._store.enqueue(batch.accepted, receipt, batch.delayed, batch.ids, note)
        elif note is not None:
            self._store.enqueue([], None, note=note)  # else a later batch would seem to include it
        return batch.refused

    def _take_closely(self, messages: list[Message]) -> list[Message]:
        """The same in memory. With limits one by one: each may go straight to a consumer."""
        refused: list[Message] = []
        step = 1 if self._admission.limit.refuses else len(messages)
        for start in range(0, len(messages), step):
            some = messages[start : start + step]
            batch = self._admission.admit(some, self._ready, len(self._ready), None)
            refused += batch.refused
            self._number(batch.accepted)
            if batch.delayed:
                self.away.delayed(batch.delayed)
            if batch.prompt:
                self.enqueued(batch.prompt)
        return refused

    def _number(self, messages: list[Message]) -> None:
        sequence = self._next_sequence
        for message in messages:
            message.sequence = sequence
            sequence += 1
        self._next_sequence = sequence

    def enqueued(self, messages: list[Message]) -> None:
        """They are safe, and may be delivered."""
        self._ready.push(messages)
        self._dispatch()
        self._drop_over_limit()

    def loaded(self, messages: list[Message]) -> None:
        """These came back from disk, and are among the ready ones."""
        self._expiry.notice(messages)
        if not self.deleted:
            self._dispatch()
            self._drop_over_limit()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def when_loaded(self, action: Callable[[], None]) -> None:
        """Call back when the next messages have come from disk, or never will."""
        self._waiting.append(action)

    def _drop_over_limit(self) -> None:
        if not self._admission.limit.drops_head:
            return
        is_other_head = False
        while dropped := self._take_over_limit():
            self._bury(dropped, "maxlen")
            is_other_head = True
        if is_other_head:
            self._watch_head()

    def _take_over_limit(self) -> list[Message]:
        """As many of those that there are too many of as may die now."""
        ready, exceeded, room = self._ready, self._admission.limit.exceeded, self._room_to_die
        dropped: list[Message] = []
        while len(dropped) < room and exceeded(ready) and ready.oldest() is not None:
            dropped.append(ready.pop_oldest())
        return dropped

    # Dead letters

    @property
    def _room_to_die(self) -> int:
        return self._burials.room if self._burials is not None else DEAD_MAX

    @property
    def _is_stalled(self) -> bool:
        """So many dead letters wait to be taken that no other message may die."""
        return self._burials is not None and self._burials.stalled

    def _bury(self, messages: list[Message], reason: str) -> None:
        """They go to the dead-letter exchange, or nowhere, and stay until they are safe there."""
        self.tally.changed = True
        if self._groups is not None:
            self._groups.release(messages)
        if self._burials is None:
            send = partial(self._context.dead_letter, self)
            self._burials = Burials(self._context, send, self._buried, self._deal_again)
        self._burials.add(messages, reason, self.uid if self._store is not None else None)

    def _buried(self, messages: list[Message]) -> None:
        self.tally.changed = True
        if self._store is not None:
            self._store.settle(messages)  # not before: a crash must find one or the other

    def _deal_again(self) -> None:
        """Dead letters were taken: messages may be delivered, and may die, again."""
        self._dispatch()
        self._drop_over_limit()

    # Expiry

    def _expire(self, before_ms: int) -> None:
        while room := self._room_to_die:
            expired = self._expiry.take_expired(self._ready, before_ms, room)
            if expired:
                self._bury(expired, "expired")
            # The next of a group comes up only when the first is buried.
            if not expired or (self._groups is None and len(expired) < room):
                break

    def _watch_head(self) -> None:
        """There may be another head, by other means than dispatch: its time may have come."""
        if self._expiry.active:
            self._expire(self._context.now_ms() + 1)

    # Messages that are away for a while

    def came_back(self, messages: list[Message]) -> None:
        """They take their old places among the ready ones."""
        mark_returned(messages, self.options, self._context.now_ms())
        self._expiry.notice(messages)
        self._ready.put_back(messages)
        self._dispatch()
        self._drop_over_limit()
        if self._waiting:
            self._wake_waiting()

    def redeliver(self, messages: list[Message]) -> None:
        """Consumers held these at a restart, and they were read: they come back in turns."""
        if not self.deleted and self.damaged is None:
            self.came_back(self.away.admit(messages))

    def cancelled(self, sequence: int) -> None:
        """A delayed message will never come: it may have been what its group waited for."""
        if self._groups is not None:
            self._groups.release_numbers([sequence])
            self._dispatch()

    def refill(self) -> None:
        """Messages may be read back that could not be before."""
        if self._store is not None:
            self._store.refill()

    def blocks_groups(self, messages: list[Message]) -> None:
        """These failed and wait for another try: later ones of their groups have to wait too."""
        if self._groups is not None:
            for message in messages:
                message.group = group_of(message)
                self._groups.block(message)

    def holds_groups(self, messages: list[Message]) -> None:
        """Claimed messages were read: later ones of their groups wait for those still held."""
        if self._groups is not None:
            for message in messages:
                if message.sequence in self._claims:
                    message.group = group_of(message)
                    self._groups.hold(message)

    def lease(self, consumer: Consumer, messages: list[Message]) -> None:
        """They were handed to a consumer that has to settle them in time."""
        self.away.lease(consumer, messages)

    def extend_lease(self, message: Message, lease_ms: int | None) -> bool:
        """Let a message be held for so long from now, or for as long as its holder's lease is.

        False if nobody holds it on a lease.
        """
        message = self._claims.get(message.sequence, message)
        return self.away.extend_lease(message, lease_ms)

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call back when what was said to it so far is in its log, for good.

        Never, where it ceases to be served here before that.
        """
        if self._store is None or self.deleted or self.damaged is not None:
            then()
        else:
            self._store.enqueue([], Once(then))

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Say whether it is still the one that is served, once that is known.

        Where it is, what it says next is as new as anything that was said before it was asked.
        """
        if self._store is None or self.deleted or self.damaged is not None:
            then(True)  # noqa: FBT003 - an answer
        else:
            self._store.confirm(then)

    def when_published(self, then: Callable[[], None]) -> None:
        """Call back when all that was published to it so far is in it, or was refused."""
        if self._store is None or self.deleted or not any(self._store.under_way()):
            then()
        else:
            self._store.enqueue([], Once(then))

    @property
    def said(self) -> int:
        """What `kept` is when its log has, for good, all that became of deliveries so far."""
        return self._store.said if self._store is not None else 0

    @property
    def kept(self) -> int:
        """How far its log has come since it is served here."""
        return self._store.kept if self._store is not None else 0

    def any_live(self, sequences: Iterable[int]) -> bool:
        """Whether the log does not know of one of these messages that it is gone."""
        return self._store is not None and any(map(self._store.is_live, sequences))

    # Messages that consumers hold since before this queue was served here

    def hold_dealing(self) -> None:
        """Deliver, expire and drop nothing until `start_dealing` is called as often as this.

        For durable queues: what is held of others ends with them.
        """
        if isinstance(self._ready, PagedReady):
            self._ready.held += 1

    def start_dealing(self) -> None:
        if isinstance(self._ready, PagedReady) and not self.deleted:
            self._ready.held -= 1
            self.loaded([])

    def claim(
        self,
        consumer: Consumer,
        sequences: Iterable[int],
        known: Iterable[Message] = (),
        *,
        returned: bool = True,
    ) -> list[Message]:
        """These messages are with this consumer, as if they had just been delivered to it.

        Those that are returned, by sequence, are: ready ones that were there when this queue began
        to be served here. Others were settled, are delayed, or somebody else has them; without
        `returned` those that wait since they came back count as delayed. Nothing is
        read: some may be stand-ins, which can be given to `settle`, `requeue`, `discard` and
        `extend_lease` as any other message; those that are in `known` are used as they are, and
        whatever else has the same sequence is accepted for them. Leases begin anew. The credit is
        the caller's matter: `consumer.hold(len(claimed))`.
        """
        if self.deleted or self.damaged is not None or self._store is None:
            return []
        by_sequence = {message.sequence: message for message in known}
        claimed = self._store.claim(sequences, by_sequence, returned=returned)
        self._claims.update([(message.sequence, message) for message in claimed])
        self.unacked += len(claimed)
        self.away.lease(consumer, claimed)
        if self._groups is not None and claimed:
            self.holds_groups(_read_ones(claimed))
            unread = [message.sequence for message in claimed if message.is_stand_in]
            if unread:
                self._store.block_claimed(unread)
        return claimed

    def held(self, sequences: Iterable[int]) -> list[Message]:
        """Those of these messages that were claimed and not handed back, by sequence."""
        return [self._claims[sequence] for sequence in sequences if sequence in self._claims]

    def _only_known(
        self, messages: list[Message], then: Callable[[list[Message]], None]
    ) -> list[Message]:
        """Messages without those that have to be read first: `then` is called with them."""
        unread = [message for message in messages if message.is_stand_in]
        if unread and self._store is not None:
            self.away.end_leases(unread)
            self._store.fill(unread, lambda: then(_read_ones(unread)))
            return _read_ones(messages)
        return messages

    # Messages out

    def _dispatch(self) -> None:
        if self._is_stalled:
            return  # `_deal_again` follows
        if self._expiry.active:
            self._dispatch_unexpired()
        elif self._ready.available and len(self._dispatcher):
            self._delivered(self._dispatcher.deal(self._ready))

    def _delivered(self, count: int) -> None:
        """To consumers that ack; those that do not count for themselves."""
        self.unacked += count
        self.tally.deliver += count
        self.tally.changed = True
        if count:
            self._note_delivered()

    def _note_delivered(self) -> None:
        """After a crash what consumers held is to come back at a rate: a tenth of it is close."""
        rate = self.options.redelivery_rate
        if rate and self._store is not None:
            self._store.delivered(rate // 10 or 1)

    def _dispatch_unexpired(self) -> None:
        """A message due this very millisecond (a TTL of zero) reaches a consumer that waits."""
        now = self._context.now_ms()
        self._expire(now)
        if self._is_stalled:
            return  # what stands first may be about to die
        if not self._expiry.mixed:
            self._delivered(self._dispatcher.deal(self._ready))
        else:
            while self._ready.available and not self._is_stalled:
                held = self._dispatcher.deal_one(self._ready)
                if held is None:
                    break
                self._delivered(held)
                self._expire(now)
        self._expire(now + 1)

    def has_next(self) -> bool:
        """Whether `get` would find something."""
        self._watch_head()
        return bool(self._ready.available)

    def get(self, holder: Consumer) -> Message | None:
        """basic.get: the head, held by `holder` unless that is no-ack."""
        self.touch()
        self._watch_head()
        self.tally.changed = True
        if not self._ready.available or self._is_stalled:
            self.tally.get_empty += 1
            return None
        message = self._ready.pop()
        if not holder.no_ack:
            self.unacked += 1
            self.tally.get += 1
            self.away.lease(holder, [message])
            self._note_delivered()
        else:
            self.tally.get_no_ack += 1
            self._gone([message])
        self._watch_head()
        return message

    def get_behind(self, holder: Consumer, message: Message, count: int) -> list[Message]:
        """More of the group of a message that `holder` has just got, to be held together with it.

        In order; none where messages have no groups.
        """
        if self._groups is None or self._is_stalled:
            return []
        taken = self._groups.take_behind(message, count)
        self._ready.remove(())  # whoever wraps the groups weighs them anew
        self._delivered(len(taken))
        self.away.lease(holder, taken)
        return taken

    @property
    def is_loading(self) -> bool:
        """There are messages, but the first of them is still on its way from the disk."""
        if self._store is not None:
            return self._store.is_loading
        return isinstance(self._ready, SpillingReady) and self._ready.is_loading

    def page_out(self, spill: Spill) -> None:
        """Memory is short: what only waits in it may go to disk. For queues without a store."""
        if self._store is None:
            self._ready = paged_out(self._ready, spill, self.loaded)

    def auto_acked(self, messages: list[Message]) -> None:
        """Delivered to a consumer that does not ack."""
        self.tally.deliver_no_ack += len(messages)
        self.tally.changed = True
        self._gone(messages)

    def _gone(self, messages: list[Message]) -> None:
        if self._groups is not None:
            self._groups.release(messages)
        if self._store is not None:
            self._store.settle(messages)

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        """Acked: gone for good."""
        self._returned(consumer, messages)
        if self.deleted:
            return
        self.tally.ack += len(messages)
        self._gone(messages)
        if len(self._ready):
            self._dispatch()

    def requeue(self, consumer: Consumer, messages: list[Message], *, lost: bool = False) -> None:
        """Back to their old places, redelivered; over the delivery limit they are dead-lettered.

        Where the queue has a retry delay they wait that long first, unless their holder is `lost`:
        it may not even have looked at them.
        """
        if self.deleted:
            return
        if self._claims:
            messages = self._only_known(messages, partial(self.requeue, consumer, lost=lost))
            if not messages:
                return
        limit = self.options.delivery_limit
        back: list[Message] = []
        dead: list[Message] = []
        for message in messages:
            message.redelivered = True
            message.delivery_count += 1
            (dead if limit is not None and message.delivery_count > limit else back).append(message)
        self.tally.redeliver += len(back)
        if self._store is not None:
            self._store.give_back(back)
        self._returned(consumer, messages)
        if dead:
            self._bury(dead, "delivery_limit")
        if lost:
            back = self.away.admit(back)
        elif self.options.retry_delay_ms:
            self.away.retry_later(back)
            back = []
        self.came_back(back)

    def discard(self, consumer: Consumer, messages: list[Message]) -> None:
        """Rejected without requeue: dead-lettered, or dropped."""
        if self.deleted:
            return
        if self._claims:
            messages = self._only_known(messages, partial(self.discard, consumer))
            if not messages:
                return
        self._returned(consumer, messages)
        self._bury(messages, "rejected")
        if len(self._ready):
            self._dispatch()

    def _returned(self, consumer: Consumer, messages: list[Message]) -> None:
        self.unacked -= len(messages)
        self.tally.changed = True
        self.away.end_leases(messages)
        if self._claims:
            for message in messages:
                self._claims.pop(message.sequence, None)
        self._dispatcher.wake(consumer)

    def browse(self) -> Browser:
        return Browser(self._ready, self._store)

    def read_delayed(self, sequences: list[int], then: Callable[[list[Message]], None]) -> None:
        """Some messages that wait for their time, as many of the first ones as are worth a read."""
        if self._store is not None:
            self._store.read(sequences, then)
        else:
            then(self.away.delays.held(sequences))

    def hold(self, messages: list[Message]) -> None:
        """An operator took them out by hand, and will settle them or let them go."""
        self.unacked += len(messages)

    def are_overtaken(self, messages: list[Message]) -> bool:
        """Whether others than these, that come behind one of them, may have been delivered."""
        fresh = self._ready.first_fresh()
        first = min(message.sequence for message in messages)
        return (self.next_sequence if fresh is None else fresh) - first > len(messages)

    def let_go(self, messages: list[Message]) -> None:
        """They come back as if they had never been held."""
        if messages and not self.deleted:
            self.unacked -= len(messages)
            self.came_back(messages)

    def drop(self, messages: list[Message]) -> None:
        """What an operator held is gone for good."""
        if messages and not self.deleted:
            self.unacked -= len(messages)
            self._gone(messages)
            self._dispatch()

    def purge(self) -> int:
        """All that is ready or delayed goes, and what waits to be buried; how many those were."""
        self.tally.changed = True
        paced = self.away.forget_paced()
        if self._burials is not None:
            paced += self._burials.purge()
        delayed = self.away.forget_delayed()
        if self._groups is not None:
            self._groups.release(paced)
        if self._store is not None:
            self._store.settle(paced)
            return len(paced) + self._store.purge()
        count = len(self._ready) + len(paced) + delayed
        self._ready.clear()
        return count

    # Consumers

    def add_consumer(self, consumer: Consumer) -> None:
        consumer.lease_ms = consumer.own_lease_ms or self.options.lease_ms
        self._dispatcher.add(consumer)

    def start_consumer(self) -> None:
        """Deliver what waits; apart from `add_consumer` so that consume-ok can go out first."""
        self._dispatch()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Cancelled or lost. What it holds stays with its channel."""
        if self.deleted:
            return
        self._dispatcher.remove(consumer)
        self.touch()
        if self.auto_delete and not len(self._dispatcher):
            self._context.queue_unused(self)
        elif len(self._ready):
            self._dispatch()

    def consumer_ready(self, consumer: Consumer) -> None:
        """Its connection drained, or its channel's credit grew."""
        self._dispatcher.wake(consumer)
        if len(self._ready):
            self._dispatch()

    def delete(self) -> int:
        """Called by the vhost that forgot it. Consumers are told; the number of ready messages."""
        count = self.ready
        self.deleted = True
        self._stop_clocks()
        self._ready.clear()
        if self._store is not None:
            for receipt in self._store.close():
                receipt.stored([])
        for consumer in self._dispatcher.consumers:
            consumer.sink.consumer_cancelled(consumer)
        self.loaded([])
        return count


def _places(some: list[Message], messages: list[Message]) -> tuple[int, ...]:
    """Where some messages of a batch stand in it."""
    if not some:
        return ()
    wanted = set(map(id, some))
    return tuple([place for place, message in enumerate(messages) if id(message) in wanted])


def _read_ones(messages: list[Message]) -> list[Message]:
    return [message for message in messages if not message.is_stand_in]


def _nothing(_refused: list[Message]) -> None:
    """For those who need not know."""
