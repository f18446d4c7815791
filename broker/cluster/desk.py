"""Where the leader of a queue serves its fronts: those on other nodes, and the one on its own."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from broker.cluster import calls
from broker.cluster.guests import Batch, Guest, StandIn, hand_back
from broker.cluster.mail import Mail
from broker.cluster.queue_wire import (
    CONSUME_GONE,
    CONSUME_KNOWN,
    CONSUME_SERVED,
    FETCHER,
    ConsumeWish,
    How,
    Op,
    What,
    decode_batches,
    decode_call,
    decode_pair,
    decode_returns,
    decode_sequences,
    decode_taken,
    encode_call,
    encode_deliver,
    encode_pair,
)
from broker.cluster.subscriptions import RIPEN_MS
from broker.protocol.errors import ChannelError, precondition_failed
from queues.bell import Bell, Clock
from queues.consumers import Consumer
from queues.message import Message
from queues.publishers import Origin
from queues.queue import Queue
from queues.raft.messages import NodeId

ATTACH_WAIT_MS: Final = 2000  # for the fronts of nodes that are up, before dealing begins

Answer: TypeAlias = Callable[[bytes | ChannelError], None]


class Joined(Protocol):
    """Told whether a consumer was taken."""

    def __call__(self, *, taken: bool) -> None: ...


class Joining:
    """A consumer that is to be added when dealing begins."""

    __slots__ = ("consumer", "known", "served", "then")

    def __init__(self, consumer: Consumer, then: Joined, *, known: bool, served: bool) -> None:
        self.consumer = consumer
        self.then = then
        self.known = known  # by an earlier leader
        self.served = served


class Desk:
    """Of one queue, while this node leads it."""

    def __init__(
        self,
        queue: Queue,
        uid: bytes,
        mail: Mail,
        clock: Clock,
        changed: Callable[[Guest], None],
        expected: Iterable[NodeId],
    ) -> None:
        """Dealing begins when all `expected` nodes have attached, and this node's own front."""
        self.queue = queue
        self._uid = uid
        self._mail = mail
        self._clock = clock
        self._changed = changed
        self._guests: dict[NodeId, Guest] = {}
        self._expected = set(expected)
        self._joining: list[Joining] = []
        self._requeued: list[tuple[How, list[int]]] = []  # by fronts, and maybe not in the log
        self._joined: set[Consumer] = set()
        self._nobody = StandIn(Guest(0, uid, 0, b"", mail), queue, _fetcher()).consumer
        self.dealing = False
        self._patience = Bell(clock, self._begin)
        self._ripening = Bell(clock, self._ripen)
        queue.hold_dealing()
        if self._expected:
            self._patience.ring_at(clock.now_ms() + ATTACH_WAIT_MS)

    def own_front_attached(self) -> None:
        self._begin_if_complete(None)

    def close(self) -> None:
        """This node leads no more; or the queue is deleted."""
        self._patience.stop()
        self._ripening.stop()

    def node_down(self, node: NodeId) -> None:
        guest = self._guests.pop(node, None)
        if guest is not None:
            self._drop(guest)
        self._begin_if_complete(node)

    def relieved(self, node: NodeId) -> None:
        """That node takes more messages."""
        guest = self._guests.get(node)
        for stand_in in guest.stand_ins.values() if guest is not None else ():
            if stand_in.consumer in self._joined:
                self.queue.consumer_ready(stand_in.consumer)

    def _drop(self, guest: Guest) -> None:
        """What its consumers had comes back, as from any that is lost."""
        for stand_in in guest.stand_ins.values():
            self.leave(stand_in.consumer)
        for stand_in in guest.stand_ins.values():
            held = stand_in.take_all()
            if held:
                self.queue.requeue(stand_in.consumer, held, lost=True)

    # Dealing

    def _begin_if_complete(self, node: NodeId | None) -> None:
        if node is not None:
            self._expected.discard(node)
        if not self._expected and not self.dealing:
            self._begin()

    def _begin(self) -> None:
        """Those who had deliveries go first: one of them may be the single active one."""
        if self.dealing:
            return
        self._patience.stop()
        self.dealing = True
        requeued, self._requeued = self._requeued, []
        for how, sequences in requeued:
            self.settle_unheard(how, sequences)
        joining, self._joining = self._joining, []
        joining.sort(key=lambda one: (not one.known, not one.served))
        for one in joining:
            self._join(one)
        self.queue.start_dealing()

    def join(self, one: Joining) -> None:
        """A consumer comes. Its own start is `start`, behind whatever `then` says."""
        if self.dealing:
            self._join(one)
        else:
            self._joining.append(one)

    def _join(self, one: Joining) -> None:
        queue, consumer = self.queue, one.consumer
        in_use = queue.has_exclusive_consumer or (
            consumer.exclusive
            and bool(queue.consumer_count or queue.options.single_active_consumer)
        )
        if in_use or queue.deleted or queue.damaged is not None:
            one.then(taken=False)
            return
        consumer.waiting = False  # in whatever dispatcher it was before
        self._joined.add(consumer)
        queue.add_consumer(consumer)
        one.then(taken=True)

    def leave(self, consumer: Consumer) -> None:
        self._joining = [one for one in self._joining if one.consumer is not consumer]
        if consumer in self._joined:
            self._joined.remove(consumer)
            if self.queue.damaged is None:
                self.queue.remove_consumer(consumer)

    def settle_unheard(self, how: How, sequences: list[int]) -> list[int]:
        """An earlier leader was told, and may not have written it down.

        Those of these messages that are not here: they are gone, or somebody else has them. What
        was requeued waits until all have claimed what they hold: whoever got it since then proves
        that it was written down.
        """
        is_over = how in (How.SETTLED, How.DISCARDED)
        if not self.dealing and not is_over:
            self._requeued.append((how, sequences))
            return []
        claimed = self.queue.claim(self._nobody, sequences, returned=is_over)
        if claimed:
            hand_back(self.queue, self._nobody, how, claimed)
        return _others(sequences, claimed)

    # What other nodes say

    def received(self, node: NodeId, op: Op, attachment: int, body: bytes) -> bool:
        """False if no such stay is known."""
        if op == Op.ATTACH:
            self._attach(node, attachment, body[-16:])
            return True
        guest = self._guests.get(node)
        if guest is None or guest.attachment != attachment:
            return False
        if op == Op.PUBLISH:
            self._publish(guest, body)
        elif op == Op.RETURN:
            self._return(guest, body)
        elif op == Op.TAKEN:
            self._taken(guest, body)
        elif op == Op.CALL:
            self._call(guest, body)
        else:
            self._received_rare(guest, op, body)
        return True

    def _received_rare(self, guest: Guest, op: Op, body: bytes) -> None:
        if op == Op.CONSUME:
            self._consume(guest, ConsumeWish.decode(body))
        elif op == Op.CANCEL:
            self._cancel(guest, decode_pair(body)[0])
        elif op == Op.LIMIT:
            number, limit = decode_pair(body)
            stand_in = guest.stand_ins.get(number)
            if stand_in is not None:
                stand_in.consumer.credit.limit = limit
                self.queue.consumer_ready(stand_in.consumer)
        elif op == Op.CLAIM:
            self._claim(guest, *decode_sequences(body))
        elif op == Op.ATTACHED:
            guest.attached = True
            self._begin_if_complete(guest.node)
        else:
            raise ValueError(f"unexpected message {op!r} about a queue")

    def _attach(self, node: NodeId, attachment: int, session: bytes) -> None:
        before = self._guests.pop(node, None)
        if before is not None:
            self._drop(before)
        guest = self._guests[node] = Guest(node, self._uid, attachment, session, self._mail)
        guest.changed = self._changed
        guest.stand_ins[FETCHER] = StandIn(guest, self.queue, _fetcher())

    def _publish(self, guest: Guest, body: bytes) -> None:
        session, queue = guest.session, self.queue
        for number, messages in decode_batches(body):
            receipt = Batch(guest, number, messages)
            queue.publish(messages, receipt, Origin(session, number))

    def _return(self, guest: Guest, body: bytes) -> None:
        number, groups = decode_returns(body)
        missed: list[int] = []
        for consumer, how, sequences in groups:
            if guest.attached:
                missing = self._take_back(guest, consumer, how, sequences)
            else:
                missing = self.settle_unheard(how, sequences)
            if missing and how in (How.SETTLED, How.DISCARDED):
                missed += missing
        guest.returned(number, missed, self.queue.said)
        self._ripening.ring_at(self._clock.now_ms() + RIPEN_MS)

    def _take_back(self, guest: Guest, number: int, how: How, sequences: list[int]) -> list[int]:
        """One of its consumers returns these; those of them that it does not hold."""
        stand_in = guest.stand_ins.get(number)
        if stand_in is None:
            return sequences
        if messages := stand_in.pick(sequences):
            hand_back(self.queue, stand_in.consumer, how, messages)
        if stand_in.gone and not stand_in.held:
            del guest.stand_ins[number]
        return _others(sequences, messages)

    def _ripen(self) -> None:
        kept = self.queue.kept
        more = [guest for guest in self._guests.values() if guest.ripen(kept)]
        if more:
            self._ripening.ring_at(self._clock.now_ms() + RIPEN_MS)

    def _taken(self, guest: Guest, body: bytes) -> None:
        number, taken = decode_taken(body)
        stand_in = guest.stand_ins.get(number)
        if stand_in is not None:
            was_paused = stand_in.paused
            stand_in.taken = taken
            if was_paused and stand_in.consumer in self._joined:
                self.queue.consumer_ready(stand_in.consumer)

    def _consume(self, guest: Guest, wish: ConsumeWish) -> None:
        stand_in = guest.stand_ins[wish.consumer] = StandIn(guest, self.queue, wish)
        if wish.flags & CONSUME_GONE:
            return
        known = bool(wish.flags & CONSUME_KNOWN)

        def joined(*, taken: bool) -> None:
            if not taken:
                self._forget(guest, stand_in)
            if not known:
                guest.send(Op.CONSUMING, encode_pair(wish.consumer, not taken))
            elif not taken:
                guest.send(Op.CANCELLED, encode_pair(wish.consumer, 0))

        served = bool(wish.flags & CONSUME_SERVED)
        self.join(Joining(stand_in.consumer, joined, known=known, served=served))
        if self.dealing:
            self.queue.start_consumer()

    def _cancel(self, guest: Guest, number: int) -> None:
        stand_in = guest.stand_ins.get(number)
        if stand_in is not None:
            self._forget(guest, stand_in)
            self.leave(stand_in.consumer)

    def _forget(self, guest: Guest, stand_in: StandIn) -> None:
        """As soon as it holds nothing more."""
        stand_in.gone = True
        if not stand_in.held:
            guest.stand_ins.pop(stand_in.number, None)

    def _claim(self, guest: Guest, number: int, sequences: list[int]) -> None:
        stand_in = guest.stand_ins.get(number)
        if stand_in is not None:
            stand_in.hold(self.queue.claim(stand_in.consumer, sequences))
            if stand_in.gone:
                self._forget(guest, stand_in)

    # Calls

    def _call(self, guest: Guest, body: bytes) -> None:
        number, what, arguments = decode_call(body)

        def answer(value: bytes | ChannelError) -> None:
            if isinstance(value, ChannelError):
                guest.send(Op.ANSWER, encode_call(number, 0), calls.pack_error(value))
            else:
                guest.send(Op.ANSWER, encode_call(number, what), value, size_bytes=len(value))

        if what == What.GET:
            self._get(guest, answer)
        elif what == What.EXTEND_LEASE:
            sequence, lease_ms = calls.unpack_lease(arguments)
            message = guest.held(sequence)
            extended = message is not None and self.queue.extend_lease(message, lease_ms)
            answer(bytes((extended,)))
        elif what == What.STORED and arguments:
            self.when_settled(guest.missed(calls.unpack_count(arguments)), answer)
        else:
            self.call(What(what), arguments, answer)

    def call(self, what: What, arguments: bytes, then: Answer) -> None:
        """What is asked for neither by nor about a consumer."""
        queue = self.queue
        if what == What.COUNTS:
            self._when_sure(lambda: then(calls.pack_counts(queue.ready, queue.consumer_count)))
        elif what == What.PURGE:
            self._when_sure(lambda: self._purge(then))
        elif what == What.CHECK_DELETE:
            self._when_sure(lambda: then(self._check_delete(*arguments)))
        elif what == What.STATISTICS:
            then(calls.pack_statistics(queue.statistics(), arguments))
        elif what == What.STORED:
            self.when_settled([], then)
        elif what == What.TOUCH:
            queue.touch()
            then(b"")
        else:
            raise ValueError(f"unexpected call {what!r}")

    def _when_sure(self, look: Callable[[], None]) -> None:
        """Look into the queue when it is certain that no other node leads it.

        Never, where another does: whoever asks is told so, and asks that one.
        """
        self.queue.confirm(lambda sure: look() if sure else None)

    def _purge(self, then: Answer) -> None:
        count = self.queue.purge()
        # As with an ack, what was purged must not come back once somebody knows it is gone.
        self.queue.when_stored(lambda: then(calls.pack_count(count)))

    def when_settled(self, missed: Sequence[int], then: Answer) -> None:
        """Answer when the log has all that became of deliveries so far, for good.

        Messages that were `missed` were settled by somebody who did not hold them any more. Where
        one is alive all the same, others have it, and may hand it back.
        """

        def stored() -> None:
            if self.queue.any_live(missed):
                then(ChannelError(calls.NO_LEADER, "acknowledged messages are with others by now"))
            else:
                then(b"")

        self.queue.when_stored(stored)

    def _check_delete(self, if_unused: int, if_empty: int) -> bytes | ChannelError:
        """The number of messages, or what it is that keeps the queue."""
        queue = self.queue
        if if_unused and queue.consumer_count:
            return precondition_failed("in use")
        if if_empty and (not queue.is_empty or queue.damaged is not None):
            return precondition_failed("not empty")
        return calls.pack_count(queue.ready)

    def _get(self, guest: Guest, then: Answer, *, sure: bool = False) -> None:
        if guest is not self._guests.get(guest.node):
            return  # its stay is over, and nobody waits for an answer
        if self.queue.is_loading or not self.dealing:
            self.when_ready(lambda: self._get(guest, then))
            return
        if not sure and not self.queue.has_next():
            self._when_sure(lambda: self._get(guest, then, sure=True))
            return
        stand_in = guest.stand_ins[FETCHER]
        stand_in.consumer.lease_ms = self.queue.options.lease_ms
        message = self.queue.get(stand_in.consumer)
        if message is None:
            then(b"")
            return
        stand_in.hold([message])
        content = b"".join(encode_deliver(FETCHER, [message]))
        then(calls.pack_count(self.queue.ready) + content)

    def when_ready(self, action: Callable[[], None]) -> None:
        """Call back when something may have changed for basic.get."""
        self.queue.when_loaded(action)


def _others(sequences: list[int], messages: list[Message]) -> list[int]:
    """Those that are not among the messages."""
    if len(messages) == len(sequences):
        return []
    known = {message.sequence for message in messages}
    return [sequence for sequence in sequences if sequence not in known]


def _fetcher() -> ConsumeWish:
    return ConsumeWish(FETCHER, 0, 0, None, 0, "")
