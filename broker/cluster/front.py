"""A queue of the cluster, as every node has it: channels, routes and bindings hold this.

It passes everything on to the queue's leader: straight to the `Queue` where this node leads, else
by messages. What the leader may not know yet, it keeps: publishes until they are stored, returns of
deliveries until they are in the log, questions until they are answered. A new leader is told all of
that, and what the consumers of this node hold.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from broker.cluster import calls
from broker.cluster.calls import CALL_WAIT_MS, Calls
from broker.cluster.desk import Desk
from broker.cluster.front_consumers import DISOWNED, FrontConsumers
from broker.cluster.guests import hand_back
from broker.cluster.publishes import Publishes
from broker.cluster.queue_wire import (
    FETCHER,
    How,
    Op,
    What,
    decode_call,
    decode_deliver,
    decode_number,
    decode_pair,
    decode_sequences,
    decode_stored,
)
from broker.cluster.stay import Stay
from broker.cluster.subscriptions import (
    Then,
)
from broker.protocol.errors import ChannelError, access_refused, not_found, precondition_failed
from queues.consumers import Consumer, Later
from queues.message import Message
from queues.options import NOTHING_ALTERED, QueueOptions
from queues.publishers import Origin
from queues.queue import Queue
from queues.raft.messages import NodeId
from queues.seams import Receipt
from queues.statistics import QueueStatistics

if TYPE_CHECKING:
    from broker.cluster.fronts import Fronts
    from broker.cluster.placement import Placement

MINORITY_MS: Final = 3000  # without a majority in sight for so long, publishes are refused
LEADERLESS_MS: Final = 10_000  # the same without a leader: longer than any election takes
PRECONDITION_FAILED: Final = 406
RETRY_MS: Final = 100  # a leader that was heard of may not be ready yet

Fetched: TypeAlias = tuple[Message, int] | ChannelError | None  # and how many are left


class Part(Protocol):
    """A replica of the queue; or, where it lives on one node, the queue itself."""

    def delete(self) -> int:
        """It goes for good; the number of messages that were ready in it."""
        ...


class QueueFront:
    """One queue on one node. Nothing here awaits; `then` is called once, perhaps at once."""

    def __init__(
        self,
        name: str,
        uid: bytes,
        fronts: "Fronts",
        options: QueueOptions,
        *,
        arguments: Mapping[str, object],
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        placement: "Placement",
        vhost: str = "/",
    ) -> None:
        """`start` it once the rest of the node knows it."""
        self.name = name
        self._text = f"queue '{name}' in vhost '{vhost}'"
        self.uid = uid
        self.options = options
        self.arguments = arguments
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.placement = placement
        self.policy: str | None = None
        self.operator_policy: str | None = None
        self.settings: Mapping[str, object] = NOTHING_ALTERED
        self.damaged: str | None = None
        self.deleted = False
        self.queue: Queue | None = None  # where this node leads
        self._fronts = fronts
        self._stay = stay = Stay(uid, fronts.mail, lambda: fronts.changed(self))
        self.part: Part | None = None  # what of it is on this node, and goes with it
        self._publishes = Publishes(fronts.new_session(), fronts.pending)
        self._calls = Calls(name, fronts.clock)
        self._consumers = FrontConsumers(
            self, stay, fronts.clock, self._in_use, self._calls.no_leader
        )
        self._alone_since: int | None = None  # when no majority was in sight, or no leader
        self._refusing = False
        self._leaderless = False  # so that a majority in sight is no reason to go on
        # Who was said to lead, in which term, and does not: until it is heard of again.
        self._turned_away_by: tuple[NodeId, int] | None = None
        self._known = (0, 0)  # ready messages and consumers, as last heard

    def start(self) -> None:
        self._fronts.add(self)
        desk = self._fronts.desks.get(self.uid)
        if desk is not None:
            self.led_here(desk)
        else:
            self.leader_changed(self._fronts.book.leader_of(self.uid))

    def placed(self, placement: "Placement") -> None:
        self.placement = placement

    # What is in it; as far as this node knows

    @property
    def ready(self) -> int:
        return self.queue.ready if self.queue is not None else self._known[0]

    @property
    def is_empty(self) -> bool:
        return self.queue.is_empty if self.queue is not None else not self._known[0]

    @property
    def unacked(self) -> int:
        return self.queue.unacked if self.queue is not None else 0

    @property
    def consumer_count(self) -> int:
        return self.queue.consumer_count if self.queue is not None else self._known[1]

    @property
    def counts_deliveries(self) -> bool:
        return self.options.type == "quorum"

    @property
    def leader(self) -> NodeId | None:
        """The node that leads it, as far as this one knows."""
        return self._fronts.me if self.queue is not None else self._stay.leader

    @property
    def is_reachable(self) -> bool:
        if self.queue is not None:
            return self.queue.is_reachable
        is_led = self._stay.leader is not None and self._turned_away_by is None
        return is_led and not self._refusing

    @property
    def keeps(self) -> int:
        """Batches, returns and questions that the leader may not know of."""
        return len(self._publishes) + self._consumers.unheard + len(self._calls)

    def lag_of(self, consumer: Consumer) -> int:  # noqa: ARG002 - they have all one line to wait in
        return self.ready

    # Who leads

    def leader_changed(self, leader: NodeId | None) -> None:
        """As the book has it. Where this node itself is named, `led_here` follows."""
        if self._stay.desk is not None:
            return
        term = self._fronts.book.term_of(self.uid)
        if self._stay.leader is not None:
            if term < self._stay.term or (leader, term) == (self._stay.leader, self._stay.term):
                return  # the leader itself told before
            self._detach()
        if leader is not None and leader != self._fronts.me and self._fronts.mail.is_up(leader):
            self._attach(leader, term)
        elif self.placement.home is not None and leader != self._fronts.me:
            self._home_lost()

    def opened(self, node: NodeId, term: int) -> None:
        """That node leads since then: it does not know of a stay that began earlier."""
        if self._turned_away_by is not None and self._turned_away_by[0] == node:
            self._is_led()
        if self._stay.desk is None and term > self._stay.term and self._stay.leader in (None, node):
            if self._stay.leader is not None:
                self._detach()
            self._attach(node, term)

    def node_up(self, node: NodeId) -> None:
        if self._stay.leader is None and self._fronts.book.leader_of(self.uid) == node:
            self.leader_changed(node)

    def node_down(self, node: NodeId) -> None:
        if self._turned_away_by is not None and self._turned_away_by[0] == node:
            self._turned_away_by = None  # it may lead when it comes back
        if self._stay.leader == node:
            self._detach()
        if self.placement.home == node:
            self._home_lost()

    def _home_lost(self) -> None:
        """It lives on one node, which cannot be reached."""
        self._consumers.cancel_all()
        self._publishes.refuse_all()
        self._refusing = True

    def _detach(self) -> None:
        self._stay.leader = None
        self._consumers.detach()
        self._publishes.all_unsent()

    def _attach(self, leader: NodeId, term: int) -> None:
        """Tell a leader all that it has to know, in this order."""
        self._stay.leader = leader
        self._stay.term = term
        self._stay.attachment += 1
        if self._turned_away_by != (leader, term):
            self._is_led()
        self._stay.send(Op.ATTACH, self._publishes.session)
        self._consumers.attach()
        self._stay.send(Op.ATTACHED)
        self.flush()  # what was published before a question counts in its answer
        for call, _, _ in self._calls.open():
            self._stay.send(Op.CALL, self._calls.encode(call))

    def _is_led(self) -> None:
        self._refusing = self._leaderless = False
        self._alone_since = self._turned_away_by = None

    def led_here(self, desk: Desk) -> None:
        """This node leads."""
        if self._stay.leader is not None:
            self._detach()
        self._stay.desk = desk
        self.queue = self._stay.queue = desk.queue
        self._is_led()
        self._consumers.claim(desk)
        self._consumers.join_all(desk)
        for kept in self._publishes.all_here():
            origin = Origin(self._publishes.session, kept.number)
            desk.queue.publish(kept.messages, kept, origin)
        unclaimed = self._consumers.take_unclaimed()
        for call, what, arguments in self._calls.open():
            self._call_here(desk, call, what, arguments, unclaimed)

    def led_here_no_more(self, desk: Desk) -> None:
        if self._stay.desk is not desk:
            return
        self._stay.desk = self.queue = self._stay.queue = None
        self._consumers.led_here_no_more(damaged=desk.queue.damaged is not None)
        self._publishes.all_unsent()
        self.leader_changed(self._fronts.book.leader_of(self.uid))

    # Messages in

    def publish(self, messages: list[Message], receipt: Receipt | None) -> None:
        if self.deleted or self.damaged is not None or self._refuses():
            if receipt is not None:
                receipt.stored([] if self.deleted else messages)
            return
        if not len(self._publishes):
            self._fronts.waits(self)
        kept = self._publishes.add(messages, receipt)
        if self.queue is not None:
            kept.save()
            self.queue.publish(messages, kept, Origin(self._publishes.session, kept.number))
            return
        self._publishes.wait(kept)
        if self._stay.leader is not None:
            self._fronts.changed(self)

    def when_published(self, then: Callable[[], None]) -> None:
        """Call back when all that was published here so far is in the queue, or was refused.

        Or when no leader has answered for so long that whoever asks now gets no answer either.
        """
        if not len(self._publishes):
            then()
            return
        once = [then]

        def done() -> None:
            if once:
                timer.cancel()
                once.pop()()

        timer = self._fronts.clock.call_at(self._fronts.clock.now_ms() + CALL_WAIT_MS, done)
        self._publishes.when_done(done)

    def _refuses(self) -> bool:
        """No majority is in sight, or there is no leader, and that for a while."""
        if self._refusing and self.placement.home is None and not self._leaderless:
            self._refusing = not self._fronts.has_quorum(self.uid)
        return self._refusing

    def look(self, now_ms: int, *, majority: bool) -> bool:
        """From time to time, while publishes are kept: whether any still are."""
        if not len(self._publishes):
            self._alone_since = None
            return False
        if majority and self.leader is not None and self._turned_away_by is None:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now_ms
        elif now_ms - self._alone_since >= (LEADERLESS_MS if majority else MINORITY_MS):
            self._refusing = True
            self._leaderless = majority
            self._publishes.refuse_all()
        return bool(len(self._publishes))

    # Messages out

    def consume(self, consumer: Consumer, then: Then) -> None:
        """Add a consumer: `then` is told when the leader has taken it, or why not.

        Nothing is delivered to it before `start_consumer`.
        """
        if self._is_homeless:
            then(self._homeless())
            return
        consumer.number = self._fronts.next_consumer()
        consumer.lease_ms = consumer.own_lease_ms or self.options.lease_ms
        self._consumers.add(consumer, then)

    @property
    def _is_homeless(self) -> bool:
        """It lives on one node, which cannot be reached: nobody takes its place."""
        home = self.placement.home
        return home not in (None, self._fronts.me) and not self._fronts.mail.is_up(home or 0)

    def _homeless(self) -> ChannelError:
        return not_found(f"the home node of {self._text} is down or cannot be reached")

    def _in_use(self) -> ChannelError:
        return access_refused(f"{self._text} in exclusive use")

    def start_consumer(self, consumer: Consumer) -> None:
        """consume-ok is out: deliver what waits."""
        self._consumers.start(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Cancelled or lost. What it holds stays with its channel."""
        self._consumers.remove(consumer)

    def consumer_ready(self, consumer: Consumer) -> None:
        """Its connection drained, or its channel's credit changed."""
        self._consumers.wake(consumer)

    def lease(self, consumer: Consumer, messages: list[Message]) -> None:
        if self.queue is not None:
            self.queue.lease(consumer, messages)

    def extend_lease(self, message: Message, lease_ms: int | None) -> bool | Later:
        """Where another node leads, that has to be asked whether there is a lease."""
        if message.sequence == DISOWNED:
            return False
        if self.queue is not None:
            return self.queue.extend_lease(message, lease_ms)
        return partial(self._ask_for_time, message, lease_ms)

    def _ask_for_time(
        self, message: Message, lease_ms: int | None, then: Callable[[bool], None]
    ) -> None:
        def answered(value: bytes | ChannelError) -> None:
            if value is calls.MOVED and self.queue is not None:
                then(self.queue.extend_lease(message, lease_ms))
            else:
                then(value == b"\x01")

        arguments = calls.pack_lease(message.sequence, lease_ms)
        self._call(What.EXTEND_LEASE, arguments, answered)

    def auto_acked(self, messages: list[Message]) -> None:
        if self.queue is not None:
            self.queue.auto_acked(messages)
            self._consumers.settled(self.queue, How.SETTLED, messages)

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        if self.queue is not None:
            if self._consumers.has_disowned:
                messages = self._consumers.owned(messages)
            self.queue.settle(consumer, messages)
            self._consumers.settled(self.queue, How.SETTLED, messages)
        else:
            self._consumers.hand_back(consumer, How.SETTLED, messages)

    def requeue(self, consumer: Consumer, messages: list[Message], *, lost: bool = False) -> None:
        if self.queue is not None:
            self.queue.requeue(consumer, self._consumers.owned(messages), lost=lost)
        else:
            self._consumers.hand_back(consumer, How.LOST if lost else How.REQUEUED, messages)

    def discard(self, consumer: Consumer, messages: list[Message]) -> None:
        if self.queue is not None:
            messages = self._consumers.owned(messages)
            self.queue.discard(consumer, messages)
            self._consumers.settled(self.queue, How.DISCARDED, messages)
        else:
            self._consumers.hand_back(consumer, How.DISCARDED, messages)

    # basic.get and other questions

    def fetch(self, holder: Consumer, then: Callable[[Fetched], bool]) -> None:
        """basic.get: the head, held by `holder` unless that is no-ack; None if there is none.

        `then` says whether somebody was shown it.
        """
        holder.lease_ms = self.options.lease_ms
        self._consumers.known_sink(holder.sink)

        def fetched(value: bytes | ChannelError) -> None:
            if value is calls.MOVED:
                self.fetch(holder, then)
            elif isinstance(value, ChannelError):
                then(value)
            elif not value:
                then(None)
            else:
                _, messages = decode_deliver(value, 8)
                if not then((messages[0], calls.unpack_count(value))):
                    self._consumers.give_back(FETCHER, How.UNTOUCHED, messages)
                elif holder.no_ack:
                    self._consumers.give_back(FETCHER, How.SETTLED, messages)

        if self.queue is not None:
            self._fetch_here(self.queue, holder, then)
        else:
            self._call(What.GET, bytes((holder.no_ack,)), fetched)

    def _fetch_here(
        self,
        queue: Queue,
        holder: Consumer,
        then: Callable[[Fetched], bool],
        *,
        sure: bool = False,
    ) -> None:
        """That there is nothing is said when this node is `sure` to lead."""
        desk = self._stay.desk
        if self.queue is not queue or desk is None:
            self.fetch(holder, then)
        elif queue.is_loading or not desk.dealing:
            desk.when_ready(lambda: self._fetch_here(queue, holder, then))
        elif not sure and not queue.has_next():
            queue.confirm(partial(self._fetch_surely, queue, holder, then))
        else:
            taker = holder
            if holder.no_ack:  # not gone before somebody was shown it
                taker = Consumer("", self, holder.sink, fetching=True)
            message = queue.get(taker)
            if message is None:
                then(None)
            elif not then((message, queue.ready)):
                hand_back(queue, taker, How.UNTOUCHED, [message])
            elif holder.no_ack:
                queue.settle(taker, [message])

    def _fetch_surely(
        self,
        queue: Queue,
        holder: Consumer,
        then: Callable[[Fetched], bool],
        sure: bool,  # noqa: FBT001 - an answer
    ) -> None:
        clock = self._fronts.clock

        def again() -> None:
            self.fetch(holder, then)
            self._fronts.flush()

        if sure:
            self._fetch_here(queue, holder, then, sure=True)
        elif self.queue is queue:  # it was deposed this very moment
            clock.call_at(clock.now_ms() + RETRY_MS, again)
        else:
            self.fetch(holder, then)

    def counts(self, then: Callable[[int, int], None]) -> None:
        """Ready messages and consumers, as its leader knows them; zeros where nobody answers."""

        def counted(value: bytes | ChannelError) -> None:
            if isinstance(value, ChannelError):
                then(0, 0)
            else:
                self._known = calls.unpack_counts(value)
                then(*self._known)

        self._call(What.COUNTS, b"", counted)

    def purge(self, then: Callable[[int | ChannelError], None]) -> None:
        self._call(What.PURGE, b"", lambda value: then(_count(value)))

    def check_delete(
        self, *, if_unused: bool, if_empty: bool, then: Callable[[int | ChannelError], None]
    ) -> None:
        def checked(value: bytes | ChannelError) -> None:
            if isinstance(value, ChannelError) and value.code == PRECONDITION_FAILED:
                value = precondition_failed(f"{self._text} {value.text}")
            then(_count(value))

        arguments = calls.pack_check(if_unused=if_unused, if_empty=if_empty)
        self._call(What.CHECK_DELETE, arguments, checked)

    def when_settled(self, then: Callable[[ChannelError | None], None]) -> None:
        """Call back when what became of deliveries so far is in its log, for good; or why not."""

        def stored(value: bytes | ChannelError) -> None:
            then(value if isinstance(value, ChannelError) else None)

        since = calls.pack_count(self._consumers.oldest_return)
        self._call(What.STORED, since, stored)

    def statistics(self, then: Callable[[QueueStatistics | ChannelError], None]) -> None:
        def told(value: bytes | ChannelError) -> None:
            known = isinstance(value, bytes)
            then(calls.unpack_statistics(value) if known else value)  # type: ignore[arg-type]

        self._call(What.STATISTICS, calls.ALL_STATISTICS, told)

    def touch(self) -> None:
        """A declare or a get counts as use, where that matters."""
        if self.queue is not None:
            self.queue.touch()
        elif self.options.expires_ms is not None:
            self._call(What.TOUCH, b"", lambda _: None)

    def _call(self, what: What, arguments: bytes, then: calls.Then) -> None:
        if self._is_homeless:
            then(self._homeless())
            return
        number = self._calls.add(what, arguments, then)
        if self._stay.desk is not None:
            self._call_here(self._stay.desk, number, what, arguments)
        elif self._stay.leader is not None:
            self.flush()  # what was said before is heard before
            self._stay.send(Op.CALL, self._calls.encode(number))

    def _call_here(
        self,
        desk: Desk,
        number: int,
        what: What,
        arguments: bytes,
        unclaimed: Sequence[int] = (),
    ) -> None:
        def answer(value: bytes | ChannelError) -> None:
            self._calls.answer(number, value)

        if what in (What.GET, What.EXTEND_LEASE):  # about consumers, that are here
            answer(calls.MOVED)
        elif what == What.STORED:
            desk.when_settled(unclaimed, answer)
        else:
            desk.call(what, arguments, answer)

    # What the leader says

    def received(self, node: NodeId, op: Op, attachment: int, body: bytes) -> None:
        if node != self._stay.leader or attachment != self._stay.attachment:
            return
        if self._turned_away_by is not None and op != Op.AWAY:
            self._is_led()
        if op == Op.DELIVER:
            self._consumers.deliver(*decode_deliver(body))
        elif op == Op.STORED:
            for number, places in decode_stored(body):
                self._publishes.told_stored(number, places)
        elif op == Op.RETURNED:
            self._consumers.returned(decode_number(body))
        else:
            self._received_rare(op, body)

    def _received_rare(self, op: Op, body: bytes) -> None:
        if op == Op.CONSUMING:
            number, refused = decode_pair(body)
            self._consumers.answered(number, taken=not refused)
        elif op == Op.CANCELLED:
            self._consumers.cancelled(decode_pair(body)[0])
        elif op == Op.REVOKE:
            self._consumers.revoke(*decode_sequences(body))
        elif op == Op.ANSWER:
            number, what, value = decode_call(body)
            answered = self._calls.answer(number, value if what else calls.unpack_error(value))
            if what == What.GET and value and not answered:  # nobody waits for it any more
                self._consumers.give_back(FETCHER, How.UNTOUCHED, decode_deliver(value, 8)[1])
        elif op == Op.AWAY:
            self._refused_stay()
        else:
            raise ValueError(f"unexpected message {op!r} about a queue")

    def _refused_stay(self) -> None:
        """It does not lead, or not any more; or it does not know that yet."""
        if self._stay.leader is not None:
            self._turned_away_by = (self._stay.leader, self._stay.term)
        self._detach()
        self._stay.term = 0  # it may say itself when it is ready

        def again() -> None:
            if self._stay.leader is None and self._stay.desk is None and not self.deleted:
                self.leader_changed(self._fronts.book.leader_of(self.uid))
                self._fronts.flush()

        self._fronts.clock.call_at(self._fronts.clock.now_ms() + RETRY_MS, again)

    # What is said to the leader

    def flush(self) -> None:
        """At the end of a turn."""
        if self._stay.leader is None:
            return
        if self._publishes.has_unsent:
            for pieces, size_bytes in self._publishes.encode():
                self._stay.send(Op.PUBLISH, *pieces, size_bytes=size_bytes)
        self._consumers.flush()

    # Its life

    def configure(self, options: QueueOptions) -> None:
        self.options = options
        self._consumers.set_lease(options.lease_ms)
        if self.queue is not None:
            self.queue.configure(options)

    def damage(self, reason: str) -> None:
        self.damaged = reason
        if self.queue is not None:
            self.queue.damage(reason)

    def stop(self) -> None:
        if self.queue is not None:
            self.queue.stop()

    def part_gone(self) -> None:
        """This node is not to have a part of it any more."""
        part, self.part = self.part, None
        if part is not None:
            part.delete()

    def delete(self) -> int:
        """Called by the vhost that forgot it. Consumers are told; the number of ready messages."""
        count = self._known[0]
        self.deleted = True
        self._stay.leader = None
        self._fronts.remove(self)
        if self.part is not None:
            count = self.part.delete()
        led_here = self._stay.desk is not None  # then the queue has told its consumers
        self._stay.desk = self.queue = self._stay.queue = None
        self._fronts.follow(self.uid)
        self._publishes.forget_all()
        gone = ChannelError(404, f"queue '{self.name}' was deleted")
        self._calls.fail_all(gone)
        self._consumers.end(gone, told=led_here)
        self._fronts.book.forget(self.uid)
        return count


def _count(value: bytes | ChannelError) -> int | ChannelError:
    return value if isinstance(value, ChannelError) else calls.unpack_count(value)
