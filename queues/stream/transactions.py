"""The coordinator of transactions over partitions and consumer groups: all or nothing, once.

Staged rows are kept apart and are appended when their transaction commits, rather than appended at
once and hidden until then. So offsets have no holes, readers never wait for somebody's open
transaction nor filter what was aborted, chunks go out as they stand, and an abort costs nothing.
Nothing is written twice: the entry that stages a chunk is what is moved to a segment later.

    COMMIT in the log → Prepare to each participant → all hold their part and vote yes
      → DECIDE in the log → an answer to the producer, markers to each participant → all confirm
      → FINISH in the log

The log is where races end: every command is judged when it is applied, in the order of the log, and
what is decided stays so. Effects come from applied commands only, so no marker exists before its
decision is durable; they are made of state, so a new leader (`resume`) makes the same again; what
is lost is made again by `tick`. Votes and confirmations are not in the log: a new leader asks anew.

A participant that holds a part and hears no more asks `knows`; if the answer is no, it may `forget`
that part: it was asked to prepare by a message older than the end of the transaction.
A key (producer, sequence) that was committed is answered the same ever after; what other writers
staged under it is dropped. One that was aborted may be tried again with other writers, as soon as
its markers are confirmed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import cbor2

from queues.stream.cuts import Cuts, Look
from queues.stream.participant import (
    Decision,
    Marker,
    Part,
    Participant,
    PartitionPart,
    TransactionKey,
    Vote,
)
from queues.stream.transaction_commands import (
    OPENING,
    Abort,
    Aborted,
    Command,
    Commit,
    Committed,
    Decide,
    Discard,
    Effect,
    Expire,
    Finish,
    Mark,
    Open,
    Opened,
    Outcome,
    Prepare,
    Propose,
    Refusal,
    Refused,
    Reply,
    Told,
    part_row,
    parts_of,
)

FORMAT_VERSION: Final = 1
PRODUCERS_MAX: Final = 100_000  # a Spark query each; about 0.5 KB
TRANSACTIONS_MAX: Final = 1000  # unfinished ones; each may hold back cuts over many partitions
PARTS_MAX: Final = 4096
LAST_SEQUENCE: Final = 2**63 - 1  # nothing comes after it: its producer need not be known for long
RESULTS_MAX: Final = 8  # a producer asks again for its last, not for one of long ago
PREPARE_MS: Final = 30_000  # a participant without a leader for so long fails the transaction


class _Result(NamedTuple):
    epoch: int
    outcome: Committed


@dataclass(slots=True)
class _Producer:
    epoch: int
    at_ms: int
    last: int = -1
    results: dict[int, _Result] = field(default_factory=dict)  # by sequence
    deciding: int | None = None  # its transaction without a decision


@dataclass(slots=True)
class _Transaction:
    number: int
    key: TransactionKey
    parts: dict[Participant, Part]
    at_ms: int
    decision: Decision | None = None
    decided: int = 0  # the number of the decision
    # The leader's alone: who has not voted, or not confirmed the marker.
    awaited: set[Participant] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.awaited = set(self.parts)

    def marker_for(self, participant: Participant) -> Marker:
        assert self.decision is not None, self
        part = self.parts[participant]
        writers = (
            tuple(each.writer for each in part.writers) if isinstance(part, PartitionPart) else ()
        )
        return Marker(self.decided, self.number, self.key, self.decision, writers)


class TransactionCoordinator:
    def __init__(self) -> None:
        self._producers: dict[str, _Producer] = {}
        self._transactions: dict[int, _Transaction] = {}  # unfinished, in the order of COMMIT
        self._next = 1
        self._decisions = 0
        self._cuts = Cuts()

    def apply(self, command: Command) -> list[Effect]:
        """A committed command; followers drop the effects."""
        match command:
            case Open():
                return self._open(command)
            case Commit():
                return self._commit(command)
            case Abort():
                return self._abort(command)
            case Decide():
                transaction = self._transactions.get(command.transaction)
                if transaction is None or transaction.decision is not None:
                    return []
                return self._decide(transaction, command.decision, command.reason)
            case Finish():
                self._transactions.pop(command.transaction, None)
                return []
            case Expire():
                self._expire(command)
                return []

    # What the leader hears

    def voted(self, participant: Participant, transaction: int, vote: Vote) -> list[Effect]:
        found = self._transactions.get(transaction)
        if found is None or found.decision is not None:
            return []
        if vote is not Vote.YES:
            return [Propose(Decide(transaction, Decision.ABORT, vote.value))]
        found.awaited.discard(participant)
        return self._next_step(found)

    def marked(self, participant: Participant, decided: int) -> list[Effect]:
        """It has carried out all its decisions up to this one, durably."""
        effects: list[Effect] = []
        for found in self._in_order_of_decision():
            if participant in found.awaited and found.decided <= decided:
                found.awaited.discard(participant)
                effects += self._next_step(found)
        return effects

    def resume(self, now_ms: int) -> list[Effect]:
        """A new leader: nobody has told it anything."""
        for transaction in self._transactions.values():
            transaction.awaited = set(transaction.parts)
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Once a second or so: ask again whoever did not answer; give up what takes too long."""
        effects: list[Effect] = []
        waiting: set[Participant] = set()
        for found in self._transactions.values():
            if found.decision is not None:
                waiting |= found.awaited
                effects += self._next_step(found)
            elif now_ms >= found.at_ms + PREPARE_MS:
                effects.append(Propose(Decide(found.number, Decision.ABORT, "timed out")))
            else:
                effects += self._prepares(found)
                effects += self._next_step(found)
        return effects + self._marks(waiting)

    # What anybody may ask

    def knows(self, transaction: int) -> bool:
        """Whether it is unfinished. A replica that lags may be asked too: it errs to yes."""
        return transaction in self._transactions or transaction >= self._next

    @property
    def settled(self) -> int:
        """All decisions up to this one are carried out everywhere."""
        undone = [each.decided for each in self._transactions.values() if each.decided]
        return min(undone, default=self._decisions + 1) - 1

    def whole_up_to(self, uid: bytes, look: Look) -> int:
        """The last decision of which a node has all, as far as it concerns a stream (cuts.py)."""
        return self._cuts.settled(uid, self._decisions, look)

    @property
    def unfinished(self) -> int:
        return len(self._transactions)

    def is_carried_out(self, number: int) -> bool:
        """Whether all participants have done what this decision says."""
        return all(each.decided != number for each in self._transactions.values())

    def last_committed(self, producer: str) -> int:
        found = self._producers.get(producer)
        return -1 if found is None else found.last

    # Commands

    def _open(self, command: Open) -> list[Effect]:
        producer = self._producers.get(command.producer)
        if producer is None:
            if len(self._producers) >= PRODUCERS_MAX:
                return [Reply(TransactionKey(command.producer, 0, OPENING), Refused(Refusal.FULL))]
            producer = self._producers[command.producer] = _Producer(0, command.at_ms)
        producer.epoch += 1
        producer.at_ms = max(producer.at_ms, command.at_ms)
        effects: list[Effect] = []
        if producer.deciding is not None:
            open_one = self._transactions[producer.deciding]
            effects += self._decide(open_one, Decision.ABORT, Refusal.FENCED.value)
        return [*effects, Opened(command.producer, producer.epoch, producer.last)]

    def _commit(self, command: Commit) -> list[Effect]:
        key = command.key
        known = self._known_answer(key)
        if known is not None:
            return [*_discards(command), Reply(key, known)]
        refusal = self._refusal(command)
        if refusal is not None:
            return [Reply(key, refusal)]
        producer = self._producers.setdefault(key.producer, _Producer(0, command.at_ms))
        parts = {part.participant: part for part in command.parts}
        if producer.deciding is not None:
            present = self._transactions[producer.deciding]
            if present.key == key and present.parts == parts:
                return []  # whoever asked twice gets the one answer
            return [Reply(key, Refused(Refusal.BUSY))]
        if any(key == each.key for each in self._transactions.values()):
            # An abort of this key must not meet rows of the next attempt at a participant.
            return [Reply(key, Refused(Refusal.BUSY))]
        producer.at_ms = max(producer.at_ms, command.at_ms)
        found = _Transaction(self._next, key, parts, command.at_ms)
        self._next += 1
        self._transactions[found.number] = found
        producer.deciding = found.number
        if not parts:
            return self._decide(found, Decision.COMMIT, "")
        return list(self._prepares(found))

    def _known_answer(self, key: TransactionKey) -> Outcome | None:
        producer = self._producers.get(key.producer)
        if producer is None or key.sequence > producer.last:
            return None
        result = producer.results.get(key.sequence)
        if result is None:
            return Refused(Refusal.PASSED)
        # A producer that restarted may learn what its former self did, but not the other way
        # round: what a zombie staged is not what was committed.
        return result.outcome if key.epoch >= result.epoch else Refused(Refusal.FENCED)

    def _refusal(self, command: Commit) -> Outcome | None:
        producer = self._producers.get(command.key.producer)
        if command.key.epoch != (0 if producer is None else producer.epoch):
            return Refused(Refusal.FENCED)
        if not _well_formed(command.parts):
            return Refused(Refusal.MALFORMED)
        if len(self._transactions) >= TRANSACTIONS_MAX:
            return Refused(Refusal.FULL)
        if producer is None and len(self._producers) >= PRODUCERS_MAX:
            return Refused(Refusal.FULL)
        return None

    def _abort(self, command: Abort) -> list[Effect]:
        """Never undoes: what is committed is answered as committed."""
        key = command.key
        known = self._known_answer(key)
        if known is not None:
            return [*_discards(command), Reply(key, known)]
        producer = self._producers.get(key.producer)
        if key.epoch != (0 if producer is None else producer.epoch):
            return [Reply(key, Refused(Refusal.FENCED))]
        asked = "the producer asked for it"
        if producer is not None and producer.deciding is not None:
            found = self._transactions[producer.deciding]
            if found.key == key and _concerns(command, found):
                return self._decide(found, Decision.ABORT, asked)
        return [*_discards(command), Told(key, Aborted(asked))]

    def _decide(self, found: _Transaction, decision: Decision, reason: str) -> list[Effect]:
        self._decisions += 1
        found.decision = decision
        found.decided = self._decisions
        found.awaited = set(found.parts)
        producer = self._producers[found.key.producer]
        producer.deciding = None
        outcome: Outcome = Aborted(reason)
        if decision is Decision.COMMIT:
            parts = [part for part in found.parts.values() if isinstance(part, PartitionPart)]
            rows = sum(each.rows for part in parts for each in part.writers)
            outcome = Committed(found.decided, rows)
            self._cuts.committed(
                found.decided, [(part.partition, part.uid) for part in parts if part.uid]
            )
            producer.last = found.key.sequence
            producer.results[found.key.sequence] = _Result(found.key.epoch, outcome)
            while len(producer.results) > RESULTS_MAX:
                del producer.results[min(producer.results)]
        effects: list[Effect] = [Reply(found.key, outcome)]
        return effects + self._marks(found.awaited) + self._next_step(found)

    def _expire(self, command: Expire) -> None:
        for name, producer in list(self._producers.items()):
            is_done = producer.last == LAST_SEQUENCE
            before_ms = command.done_before_ms if is_done else command.before_ms
            if producer.at_ms < before_ms and producer.deciding is None:
                del self._producers[name]

    # Effects

    def _next_step(self, found: _Transaction) -> list[Effect]:
        """When nobody is awaited any more."""
        if found.awaited:
            return []
        if found.decision is None:
            return [Propose(Decide(found.number, Decision.COMMIT))]
        return [Propose(Finish(found.number))]

    def _prepares(self, found: _Transaction) -> Iterator[Effect]:
        for participant, part in found.parts.items():
            if participant in found.awaited:
                yield Prepare(participant, found.number, found.key, part)

    def _marks(self, participants: Iterable[Participant]) -> list[Effect]:
        """To each all its unconfirmed markers, so that it never sees one before an earlier one."""
        markers: dict[Participant, list[Marker]] = {each: [] for each in sorted(participants)}
        for found in self._in_order_of_decision():
            for participant in found.awaited:
                if participant in markers:
                    markers[participant].append(found.marker_for(participant))
        settled = self.settled
        return [Mark(each, tuple(found), settled) for each, found in markers.items()]

    def _in_order_of_decision(self) -> list[_Transaction]:
        decided = [each for each in self._transactions.values() if each.decision is not None]
        return sorted(decided, key=lambda each: each.decided)

    # Checkpoints

    def encode(self) -> bytes:
        producers = [
            [name, p.epoch, p.at_ms, p.last, _result_rows(p)] for name, p in self._producers.items()
        ]
        transactions = [
            [
                each.number,
                list(each.key),
                [part_row(part) for part in each.parts.values()],
                each.at_ms,
                each.decision and each.decision.value,
                each.decided,
            ]
            for each in self._transactions.values()
        ]
        cuts = self._cuts.rows()
        state = [FORMAT_VERSION, self._next, self._decisions, producers, transactions, cuts]
        return cbor2.dumps(state)

    @classmethod
    def decode(cls, state: bytes) -> "TransactionCoordinator":
        # An older version wrote no cuts.
        version, following, decisions, producers, transactions, *cuts = cbor2.loads(state)
        assert version == FORMAT_VERSION, version
        found = cls()
        found._next, found._decisions = following, decisions
        if cuts:
            found._cuts = Cuts.of_rows(*cuts[0])
        for name, epoch, at_ms, last, results in producers:
            kept = {s: _Result(e, Committed(number, rows)) for s, e, number, rows in results}
            found._producers[name] = _Producer(epoch, at_ms, last, kept)
        for row in transactions:
            each = _transaction(*row)
            found._transactions[each.number] = each
            if each.decision is None:
                found._producers[each.key.producer].deciding = each.number
        return found


def _result_rows(producer: _Producer) -> list[list[int]]:
    return [
        [sequence, epoch, outcome.number, outcome.rows]
        for sequence, (epoch, outcome) in producer.results.items()
    ]


def _transaction(
    number: int,
    key: list[Any],
    rows: list[list[Any]],
    at_ms: int,
    decision: str | None,
    decided: int,
) -> _Transaction:
    parts = {part.participant: part for part in parts_of(rows)}
    settled = None if decision is None else Decision(decision)
    return _Transaction(number, TransactionKey(*key), parts, at_ms, settled, decided)


def _discards(command: Commit | Abort) -> list[Effect]:
    """Of what these writers staged; what is held for a commit is not touched by them."""
    return [
        Discard(part.partition, command.key, tuple(each.writer for each in part.writers))
        for part in command.parts
        if isinstance(part, PartitionPart)
    ]


def _concerns(command: Abort, found: _Transaction) -> bool:
    """Whether it is of rows of this transaction: an attempt that failed aborts its own only."""
    for part in command.parts:
        same = found.parts.get(part.participant)
        if not isinstance(part, PartitionPart) or not isinstance(same, PartitionPart):
            continue
        if {each.writer for each in part.writers} & {each.writer for each in same.writers}:
            return True
    return not command.parts


def _well_formed(parts: tuple[Part, ...]) -> bool:
    if len(parts) > PARTS_MAX or len({part.participant for part in parts}) < len(parts):
        return False
    for part in parts:
        if isinstance(part, PartitionPart):
            writers = {each.writer for each in part.writers}
            if len(writers) < len(part.writers) or any(each.rows < 0 for each in part.writers):
                return False
    return True
