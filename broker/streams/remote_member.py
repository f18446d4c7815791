"""A consumer on an AMQP channel as a member of a group that another node may have.

It asks for all as a client of the stream protocol does: joins, beats, commits, leaves. It beats
each second, and at once when whoever has the groups says that something moved (`look`). What it is
told changes where it reads, as in members.py. Whoever has the groups may change, and whoever has
them next knows no members and gives what this one had to those who join. So it pauses when it has
not heard from its group for some beats, goes on if it hears that all is as it was, and begins anew
if not, at the latest after its session. What it commits counts only where the group knows it.

Before it lets go of a partition it commits how far it was acked, and, as the metadata of that, how
far it was delivered, so that its next holder knows what is delivered again. Where that is missing
because a holder was lost, all that there is may have been.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused, Status
from broker.streams.members import RELEASE_MS, by_partition
from broker.streams.service import Caller, StreamService
from broker.timers import Timers
from queues.consumers import Consumer
from queues.stream.groups import GroupOptions
from queues.stream.stream import Stream
from queues.stream.watermark import Watermark
from queues.stream.wishes import ReaderWishes

BEAT_MS: Final = 1000  # should nobody tell it what changes, it takes so long until it knows
AGAIN_MS: Final = 100  # until it asks again for what was not to be had
COMMIT_MS: Final = 100  # acks are committed together; a crash repeats them
SETTLE_MS: Final = 2 * RELEASE_MS  # consume-ok waits no longer for the consumer's share
# Without a word from its group for so long, another may have what it reads.
QUIET_MS: Final = 3 * BEAT_MS
# Without a word from its group for so long it is given up there.
SESSION_MS: Final = GroupOptions().session_timeout_ms

# Not its fault, and over some time.
_LATER: Final = frozenset({Status.UNAVAILABLE, Status.OFFSET_UNSTABLE, Status.SHUTTING_DOWN})
_DELIVERED: Final = "delivered:"  # and the offset before which all was, in metadata


class RemoteMember:
    """To its subscription it is the `Membership`. For the loop's thread."""

    def __init__(
        self,
        service: StreamService,
        timers: Timers,
        vhost: str,
        stream: Stream,
        consumer: Consumer,
        wishes: ReaderWishes,
        group: str,
        instance: str,
        then: Callable[[str | None], None],
        over: Callable[["RemoteMember"], None],
    ) -> None:
        """`then` as of `Groups.consume`; `over` is told when it need not look any more."""
        self._service = service
        self._timers = timers
        self._caller = Caller(vhost, "")  # its channel has been let in
        self._stream = stream
        self._consumer = consumer
        self._start = wishes.start
        self.group = group
        self._instance = instance
        self._then: Callable[[str | None], None] | None = then
        self._over = over
        self._member = ""
        self._generation = 0
        self._marks: dict[int, Watermark] = {}
        self._committed: dict[int, int] = {}
        self._placing: dict[int, object] = {}
        self._leaving: dict[int, int] = {}  # until when they may stay
        self._seen: dict[int, int] = {}  # up to there records were delivered before
        self._beating = self._again = self._again_set = False
        self._committing = self._commit_set = False
        self._heard_ms = timers.now_ms()
        self.gone = False
        self._subscription = stream.subscribe_member(consumer, wishes, self)
        self._tick()
        timers.call_at(timers.now_ms() + SETTLE_MS, lambda: self._settled(None))

    # Beats

    def _tick(self) -> None:
        if self.gone:
            return
        now_ms = self._timers.now_ms()
        self._timers.call_at(now_ms + BEAT_MS, self._tick)
        if self._member and now_ms - self._heard_ms >= SESSION_MS:
            self._lose()  # what it has may be another's by now
        elif self._member and now_ms - self._heard_ms >= QUIET_MS:
            for number in self._marks:
                self._stop(number)
        self.look()

    def look(self) -> None:
        """Ask what is its own now, and let go of what is not."""
        if self.gone:
            return
        if self._beating:
            self._again = True
            return
        self._beating = True
        if not self._member:
            self._join("")
        else:
            self._release([number for number in self._leaving if self._is_done(number)])

    def _look_soon(self) -> None:
        def look() -> None:
            self._again_set = False
            self.look()

        if not self._again_set:
            self._again_set = True
            self._timers.call_at(self._timers.now_ms() + AGAIN_MS, look)

    def _join(self, member: str) -> None:
        label, streams = self._consumer.tag, (self._stream.name,)
        request = wire.Join(self.group, label, member, self._instance, streams)
        self._service.join(self._caller, request, partial(self._told, []))

    def _is_done(self, number: int) -> bool:
        mark = self._marks.get(number)
        return mark is None or not mark.held or self._timers.now_ms() >= self._leaving[number]

    def _release(self, released: list[int]) -> None:
        """Let go of these; what was acked of them is committed before."""
        partitions = tuple(self._partition(number) for number in released)
        request = wire.Heartbeat(self.group, self._member, self._generation, partitions)

        def beat() -> None:
            self._service.heartbeat(self._caller, request, partial(self._told, released))

        if self._marks.keys() & set(released):
            self._commit(beat, done_with=released)
        else:
            beat()

    def _told(self, released: list[int], answer: wire.Assignment | Refused) -> None:
        self._beating = False
        if self.gone:
            if isinstance(answer, wire.Assignment):
                self._member, self._generation = answer.member, answer.generation
            self._finish()
            return
        if isinstance(answer, Refused):
            self._again = False
            self._refused(answer)
            return
        self._heard_ms = now_ms = self._timers.now_ms()
        self._member, self._generation = answer.member, answer.generation
        for number in released:
            self._leaving.pop(number, None)
            self._drop(number)
        assigned = {each.number for each in answer.assigned}
        leaving = {each.number for each in answer.leaving}
        for number in leaving - self._leaving.keys():
            self._leaving[number] = now_ms + RELEASE_MS
            self._timers.call_at(now_ms + RELEASE_MS, self.look)
            self._placing.pop(number, None)
            self._stop(number)
        for number in assigned & self._leaving.keys():  # it may stay after all
            del self._leaving[number]
            if number in self._marks:
                self._read(number, self._marks[number])
        for number in set(self._marks) - assigned - leaving:
            self._drop(number)
        for number in self._marks.keys() & assigned - self._subscription.cursors.keys():
            self._read(number, self._marks[number])  # it had paused
        for number in sorted(assigned - self._marks.keys() - self._placing.keys()):
            self._place(number)
        if self._again or any(map(self._is_done, self._leaving)):
            self._again = False
            self.look()
        else:
            self._check_settled()

    # Whether its share is its own

    def _check_settled(self) -> None:
        """It is, once nobody has to let go of anything and all that it has was begun."""
        if self._then is None or self._placing:
            return
        described = partial(self._described, self._generation)
        self._service.describe_group(self._caller, wire.DescribeGroup(self.group), described)

    def _described(self, generation: int, answer: wire.GroupDescription | Refused) -> None:
        if isinstance(answer, Refused) or self._then is None:
            return
        mine = {each.member: set(each.assigned) for each in answer.members}.get(self._member)
        has = {self._partition(number) for number in self._marks}
        if generation != answer.generation or mine != has:
            self._look_soon()
        elif not any(each.leaving for each in answer.members):
            self._settled(None)
        # Else it is told to look when they have gone.

    def _settled(self, why_not: str | None) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(why_not)

    def _refused(self, refused: Refused) -> None:
        if refused.status == Status.STALE_GENERATION and self._member:
            self._beating = True
            self._join(self._member)
        elif refused.status == Status.UNKNOWN_MEMBER:
            self._lose()
            self._look_soon()
        elif refused.status in _LATER:
            self._look_soon()
        else:
            self._dismiss(str(refused))

    def _lose(self) -> None:
        """It is no member any more: what it had is others', and it begins anew."""
        self._member = ""
        self._leaving.clear()
        self._placing.clear()
        for number in list(self._marks):
            self._drop(number)

    # Beginning

    def _partition(self, number: int) -> wire.Partition:
        return wire.Partition(self._stream.name, number)

    def _place(self, number: int) -> None:
        if self._stream.deleted or self._stream.damaged is not None:
            return
        self._placing[number] = token = object()

        def found(answer: wire.CommittedOffsets | Refused) -> None:
            if self._placing.get(number) is not token:
                return
            if isinstance(answer, Refused):
                del self._placing[number]
                self._look_soon()
            elif answer.offsets:
                self._go_on(number, token, answer.offsets[0])
            else:
                seek = partial(self._seek, number, token)
                self._stream.when_current([number], seek)

        request = wire.FetchOffsets(self.group, (self._partition(number),))
        self._service.fetch_offsets(self._caller, request, found)

    def _seek(self, number: int, token: object) -> None:
        if self._placing.get(number) is token and not self.gone:
            sought = partial(self._sought, number, token)
            self._stream.find(self._subscription, number, self._start, sought)

    def _go_on(self, number: int, token: object, committed: wire.CommittedOffset) -> None:
        """From where the group stands; up to where may records have been delivered before?"""
        told = committed.metadata.removeprefix(_DELIVERED)
        if told != committed.metadata and told.isdecimal():
            self._begin(number, token, committed.offset, int(told))
            return

        def current() -> None:
            if self._placing.get(number) is token and not self.gone:
                end = self._stream.partitions[number].next_offset
                self._begin(number, token, committed.offset, end)

        # This node's replica may lag, and the last holder's may not have.
        self._stream.when_current([number], current)

    def _sought(self, number: int, token: object, offset: int) -> None:
        """Where to begin is committed first, so that nobody who comes later begins elsewhere."""

        def committed(answer: wire.Empty | Refused) -> None:
            if self._placing.get(number) is token:
                if isinstance(answer, Refused):
                    del self._placing[number]
                    self._look_soon()
                else:
                    self._begin(number, token, offset, 0)

        if self._placing.get(number) is token:
            self._ask_commit({number: offset}, committed, {})

    def _begin(self, number: int, token: object, offset: int, seen: int) -> None:
        if self._placing.get(number) is not token or self.gone:
            return
        del self._placing[number]
        self._marks[number] = mark = Watermark(offset, max(seen, self._seen.get(number, 0)))
        self._committed[number] = offset
        self._read(number, mark)
        self._check_settled()

    def _read(self, number: int, mark: Watermark) -> None:
        first = self._stream.partitions[number].first_offset
        self._stream.read(self._subscription, number, max(first, mark.resume), mark)

    def _stop(self, number: int) -> None:
        if number in self._subscription.cursors:
            self._subscription.remove(number)

    def _drop(self, number: int) -> None:
        self._stop(number)
        mark = self._marks.pop(number, None)
        self._committed.pop(number, None)
        if mark is not None:
            self._seen[number] = mark.seen

    # What the consumer says

    def progressed(self) -> None:
        self._commit_soon()

    def settled(self, places: list[tuple[int, int]]) -> None:
        for number, offsets in by_partition(places).items():
            if number in self._marks:
                self._marks[number].ack(offsets)
        self._moved_on()

    def returned(self, places: list[tuple[int, int]]) -> None:
        for number, offsets in by_partition(places).items():
            mark = self._marks.get(number)
            if mark is not None:
                mark.requeue(offsets)
                self._subscription.go_back(number, mark.resume)
        self._moved_on()

    def _moved_on(self) -> None:
        self._commit_soon()
        if any(map(self._is_done, self._leaving)):
            self.look()

    # Commits

    def _commit_soon(self) -> None:
        if not self._commit_set and not self.gone:
            self._commit_set = True
            self._timers.call_at(self._timers.now_ms() + COMMIT_MS, self._commit_now)

    def _commit_now(self) -> None:
        self._commit_set = False
        if self.gone:
            return
        if self._committing:
            self._commit_soon()
        elif self._news() and self._member:
            self._commit(lambda: None)

    def _news(self) -> dict[int, int]:
        found = {number: mark.position for number, mark in self._marks.items()}
        return {number: at for number, at in found.items() if at != self._committed[number]}

    def _commit(self, then: Callable[[], None], done_with: Collection[int] = ()) -> None:
        """What is news; of what it is `done_with` also how far it was delivered."""
        news = self._news()
        seen: dict[int, int] = {}
        for number in self._marks.keys() & set(done_with):
            news[number], seen[number] = self._marks[number].position, self._marks[number].seen
        self._committing = True

        def committed(answer: wire.Empty | Refused) -> None:
            self._committing = False
            if not isinstance(answer, Refused):
                for number in news.keys() & self._committed.keys():
                    self._committed[number] = news[number]
            elif answer.status in _LATER or answer.status == Status.STALE_GENERATION:
                self._commit_soon()
            # Else the next beat tells, and whoever has it now begins where it had committed.
            then()

        self._ask_commit(news, committed, seen)

    def _ask_commit(
        self,
        offsets: dict[int, int],
        then: Callable[[wire.Empty | Refused], None],
        seen: Mapping[int, int],
    ) -> None:
        positions = tuple(
            wire.Position(
                self._partition(number), at, f"{_DELIVERED}{seen[number]}" if number in seen else ""
            )
            for number, at in offsets.items()
        )
        request = wire.CommitOffsets(self.group, self._member, self._generation, positions)
        self._service.commit_offsets(self._caller, request, then)

    # The end

    def _dismiss(self, why: str) -> None:
        self.gone = True
        self._over(self)
        self._lose()
        if self._then is not None:  # it was not told yet that it may read
            self._stream.remove_consumer(self._consumer)
            self._settled(why)
        else:
            self._stream.dismiss(self._consumer)

    def left(self) -> None:
        """The consumer is gone. A static member stays one until it comes back or times out."""
        if self.gone:
            return
        self.gone = True
        self._over(self)
        self._settled(f"stream '{self._stream.name}' is gone")
        if not self._beating:  # else when that is answered
            self._finish()

    def _finish(self) -> None:
        def leave() -> None:
            if not self._instance:
                request = wire.Leave(self.group, self._member)
                self._service.leave(self._caller, request, lambda _: None)

        # Of a stream that is deleted nothing may be committed: one of its name may come.
        if self._member and self._marks and not self._stream.deleted:
            self._commit(leave, done_with=list(self._marks))
        elif self._member:
            leave()
