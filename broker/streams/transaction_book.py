"""The transactions of a vhost: between their coordinator and the partitions and groups in them.

What the coordinator's applied commands ask for is carried out here, and what participants answer,
once that is durable, is told to it. What gets lost on the way to another node, or with this one, is
asked for again, with each tick and whenever the coordinator begins to lead.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from broker.log_host import LogHost
from broker.streams.group_book import Barrier, GroupBook, at_once
from broker.streams.group_participant import Answer as GroupAnswer
from broker.streams.group_participant import GroupParticipant, GroupsElsewhere
from broker.streams.transaction_log import Asker, TransactionLog, coordinator_uid
from broker.timers import Timers
from broker.vhost import VHost
from queues.live_log import Log
from queues.stream.cuts import Standing
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import Participant, PartitionPart, TransactionKey, Vote
from queues.stream.staged_rows import Answer, Lost
from queues.stream.stream import Stream
from queues.stream.transaction_commands import (
    Command,
    Committed,
    Discard,
    Effect,
    Expire,
    Mark,
    Open,
    Opened,
    Outcome,
    Prepare,
    Propose,
    Refused,
    Reply,
    Told,
)

if TYPE_CHECKING:
    from queues.stream.partition import StreamPartition

TICK_MS: Final = 1000
# A producer that did nothing for so long is forgotten, and with it what it committed last.
PRODUCER_IDLE_MS: Final = 30 * 24 * 3600 * 1000
NEVER: Final = 2**63  # no decision has this number
# One that has nothing more to commit need only be known while it may ask again.
PRODUCER_DONE_MS: Final = 3600 * 1000
EXPIRE_MS: Final = 3600 * 1000  # between looks at who did nothing


# Lost: another node decides now; whoever asked may ask there again.
Then: TypeAlias = Callable[[Outcome | Lost], None]
# Puts a machine on a log that other nodes have too (LogHost.join).
Join: TypeAlias = Callable[[VHost, bytes, Callable[[Log], TransactionLog]], object]


class TransactionBook:
    """For the loop's thread."""

    def __init__(
        self,
        vhost: VHost,
        timers: Timers,
        groups: GroupBook,
        host: LogHost,
        *,
        lost_logs: bool,
        join: Join | None = None,
        elsewhere: GroupsElsewhere | None = None,
        definitions: Barrier = at_once,
    ) -> None:
        """`join` puts it on a log that other nodes have too; `elsewhere` is the way to groups.

        A partition that is not here is deleted only if it is missing behind `definitions`.
        """
        self._definitions = definitions
        self._vhost = vhost
        self._timers = timers
        self._groups = groups
        self._waiting: dict[TransactionKey, list[Then]] = {}
        # Committed, and not yet carried out everywhere: who waits for that.
        self._deciding: list[tuple[Committed, Then]] = []
        self._ticking = False
        self._expired_ms = timers.now_ms()
        self.groups = GroupParticipant(vhost.name, groups, elsewhere, self._knows)
        self._machine: TransactionLog
        if join is not None:
            join(vhost, coordinator_uid(vhost.name, vhost.uid), self._made)
        else:
            self._machine = self._recover(host, lost_logs=lost_logs)

    def _made(self, log: Log) -> TransactionLog:
        self._machine = TransactionLog(log, self, replicated=True)
        return self._machine

    def _recover(self, host: LogHost, *, lost_logs: bool) -> TransactionLog:
        log = host.open(coordinator_uid(self._vhost.name, self._vhost.uid))
        machine = log.machine = TransactionLog(log, self)
        reason = host.damage_of(log)
        if log.gid is None and lost_logs:
            reason = "logs are lost, and this may be one of them"
        if reason is not None:
            machine.damaged(reason)
        else:
            machine.recover(host.checkpoint_of(log), host.replay(log))
        return machine

    @property
    def trouble(self) -> str | None:
        return self._machine.trouble

    def _knows(self, transaction: int) -> bool:
        """Errs to yes, on a node that lags and on one whose log is lost."""
        return self._machine.coordinator.knows(transaction)

    def start(self) -> None:
        """Go on with what is unfinished, once logs can be written."""
        if self.trouble is None and self._machine.leads:
            self.lead()

    def lead(self) -> None:
        coordinator = self._machine.coordinator
        for queue in self._vhost.queues.values():
            for partition in queue.partitions if isinstance(queue, Stream) else ():
                for transaction in partition.staged.held:
                    if not coordinator.knows(transaction):
                        partition.staged.forget(transaction)
        self.carry_out(coordinator.resume(self._timers.now_ms()), None)

    def follow(self) -> None:
        """Another node decides: whoever waits may ask there, and gets the same answer."""
        waiting = [then for thens in self._waiting.values() for then in thens]
        waiting += [then for _, then in self._deciding]
        self._waiting, self._deciding = {}, []
        for then in waiting:
            then(Lost.LOST)

    def close(self) -> None:
        """The vhost is deleted, and the log with it."""
        self._machine.follow()
        self._machine.delete()

    def settled(self, stream: Stream) -> int:
        """Up to which decision all transactions of a stream are whole on this node.

        Where nobody will ever know, since the log of this lone node is lost, nothing is hidden.
        """
        if self._machine.trouble is not None and self._machine.leads:
            return NEVER
        return self._machine.coordinator.whole_up_to(stream.uid, self._standing)

    def _standing(self, name: PartitionId, uid: bytes) -> Standing | None:
        stream = self._vhost.queues.get(name.stream)
        if not isinstance(stream, Stream) or stream.uid != uid or stream.damaged is not None:
            return None
        staged = stream.partitions[name.number].staged
        return Standing(staged.decided, staged.forgotten)

    def uid_of(self, stream: str) -> bytes:
        """Empty: there is none here."""
        found = self._vhost.queues.get(stream)
        return found.uid if isinstance(found, Stream) else b""

    def when_known(self, streams: Iterable[str], action: Callable[[], None]) -> None:
        """Once this node knows all streams that there are, if some of these are missing."""
        if all(self.uid_of(each) for each in streams):
            action()
        else:
            self._definitions(lambda _: action())

    # What producers ask for

    def open(self, producer: str, then: Asker) -> None:
        self._expire_now_and_then()
        self._machine.propose(Open(producer, self._timers.now_ms()), then)

    def _expire_now_and_then(self) -> None:
        now_ms = self._timers.now_ms()
        if now_ms - self._expired_ms >= EXPIRE_MS:
            self._expired_ms = now_ms
            self._machine.propose(Expire(now_ms - PRODUCER_IDLE_MS, now_ms - PRODUCER_DONE_MS))

    def ask(self, key: TransactionKey, command: Command, then: Then) -> None:
        """A Commit or an Abort; answered when it is durable what becomes of the key.

        That it is committed is told when it is so everywhere.
        """
        self._expire_now_and_then()
        self._waiting.setdefault(key, []).append(then)

        def answer(outcome: Outcome | Opened | Lost) -> None:
            """A refusal is for whoever asked, and for nobody else who waits for the key."""
            assert not isinstance(outcome, Opened)
            waiting = self._waiting.get(key, [])
            if then in waiting:
                waiting.remove(then)
                if not waiting:
                    del self._waiting[key]
                then(outcome)

        self._machine.propose(command, answer)

    # What the coordinator says

    def carry_out(self, effects: list[Effect], asker: Asker | None) -> None:
        for effect in effects:
            match effect:
                case Propose(command):
                    self._machine.propose(command)
                case Reply(_, Refused() as refused) if asker is not None:
                    asker(refused)
                case Reply(key, Committed() as committed):
                    for then in self._waiting.pop(key, ()):
                        self._deciding.append((committed, then))
                case Reply(key, outcome):
                    for then in self._waiting.pop(key, ()):
                        then(outcome)
                case Told(_, outcome) if asker is not None:
                    asker(outcome)
                case Opened() if asker is not None:
                    asker(effect)
                case Prepare() | Mark() | Discard():
                    self._send(effect)
        self._tell_committed()
        if self._machine.coordinator.unfinished:
            self._tick_soon()

    def _tell_committed(self) -> None:
        """Who hears that it is committed can read it."""
        if self._deciding:
            is_done = self._machine.coordinator.is_carried_out
            done = [each for each in self._deciding if is_done(each[0].number)]
            self._deciding = [each for each in self._deciding if not is_done(each[0].number)]
            for committed, then in done:
                then(committed)

    def _send(self, effect: Prepare | Mark | Discard) -> None:
        """To a participant."""
        is_group = isinstance(effect.participant, GroupId)
        if isinstance(effect, Prepare):
            if is_group:
                self.groups.prepare(effect, partial(self._group_voted, effect))
            else:
                self._prepare_partition(effect)
        elif isinstance(effect, Mark):
            if is_group:
                self.groups.mark(effect, partial(self._group_marked, effect))
            else:
                self._mark_partition(effect)
        elif isinstance(effect.participant, PartitionId):
            partition = self._groups.partition(effect.participant)
            if partition is not None:
                partition.staged.discard(effect.key, effect.writers)

    def _tick(self) -> None:
        self._ticking = False
        if self._machine.leads:
            try:
                self.carry_out(self._machine.coordinator.tick(self._timers.now_ms()), None)
            except Exception:
                self._tick_soon()  # others' transactions have time-outs as well
                raise

    def _tick_soon(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._timers.call_at(self._timers.now_ms() + TICK_MS, self._tick)

    # Partitions

    def _prepare_partition(self, effect: Prepare) -> None:
        assert isinstance(effect.participant, PartitionId)
        assert isinstance(effect.part, PartitionPart)
        writers = effect.part.writers

        def voted(answer: Answer) -> None:
            if isinstance(answer, Lost):
                return  # with the next tick
            vote = answer if isinstance(answer, Vote) else Vote.MISSING  # it was deleted
            self._voted(effect.participant, effect.transaction, vote)

        def found(partition: "StreamPartition | None") -> None:
            if partition is None:
                voted(None)
            else:
                partition.staged.prepare(effect.transaction, effect.key, writers, voted)

        self._find(effect.participant, found)

    def _mark_partition(self, effect: Mark) -> None:
        assert isinstance(effect.participant, PartitionId)
        last = effect.markers[-1].number if effect.markers else 0

        def found(partition: "StreamPartition | None") -> None:
            def marked(answer: Answer) -> None:
                """Where it was deleted there is nothing left to do."""
                if isinstance(answer, Lost):
                    return  # with the next tick
                decided = answer if isinstance(answer, int) else last
                self._marked(effect.participant, decided)

            if partition is None:
                marked(None)
            else:
                partition.staged.mark(effect.markers, effect.settled, marked)

        self._find(effect.participant, found)

    def _find(self, name: PartitionId, then: "Callable[[StreamPartition | None], None]") -> None:
        """None: it is deleted. While nobody can say that, `then` is called with a later tick."""
        partition = self._groups.partition(name)
        if partition is not None:
            then(partition)
            return

        def passed(error: Exception | None) -> None:
            if error is None and self._machine.leads:
                then(self._groups.partition(name))

        self._definitions(passed)

    # Groups

    def _group_voted(self, effect: Prepare, vote: GroupAnswer) -> None:
        if isinstance(vote, Vote):
            self._voted(effect.participant, effect.transaction, vote)

    def _group_marked(self, effect: Mark, decided: GroupAnswer) -> None:
        if isinstance(decided, int):
            self._marked(effect.participant, decided)

    def _voted(self, participant: Participant, transaction: int, vote: Vote) -> None:
        self.carry_out(self._machine.coordinator.voted(participant, transaction, vote), None)

    def _marked(self, participant: Participant, decided: int) -> None:
        self.carry_out(self._machine.coordinator.marked(participant, decided), None)
