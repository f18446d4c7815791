"""Planted bugs: coordinators and partitions that break one rule each. The suite must catch all."""

from queues.stream.participant import Decision, Marker, Vote
from queues.stream.staging import Appended, Staging
from queues.stream.transaction_commands import Decide, Mark, Propose
from queues.stream.transactions import TransactionCoordinator
from tests.stream_groups.hosts import CoordinatorHost, PartitionHost


class MarkBeforeDecision(TransactionCoordinator):
    """Markers leave with the last vote, before the decision is in the log."""

    def voted(self, participant, transaction, vote):
        effects = super().voted(participant, transaction, vote)
        found = self._transactions.get(transaction)
        if Propose(Decide(transaction, Decision.COMMIT)) in effects:
            for each in found.parts:
                number = self._decisions + 1
                marker = Marker(number, transaction, found.key, Decision.COMMIT, ())
                effects.append(Mark(each, (marker,), self.settled))
        return effects


class NoEpochCheck(TransactionCoordinator):
    """A producer may commit whatever its epoch is."""

    def _refusal(self, command):
        return None


class NoKey(TransactionCoordinator):
    """A commit that is asked for again is a new one."""

    def _known_answer(self, key):
        return None


class DecideTwice(TransactionCoordinator):
    """A decision can be changed."""

    def apply(self, command):
        found = isinstance(command, Decide) and self._transactions.get(command.transaction)
        if found and found.decision is not None:
            return self._decide(found, command.decision, command.reason)
        return super().apply(command)


class CommitOnFirstVote(TransactionCoordinator):
    def voted(self, participant, transaction, vote):
        if vote is Vote.YES and transaction in self._transactions:
            return [Propose(Decide(transaction, Decision.COMMIT))]
        return super().voted(participant, transaction, vote)


class NewestMarkerOnly(TransactionCoordinator):
    """A participant may see a marker before an earlier one."""

    def _marks(self, participants):
        return [
            Mark(each.participant, each.markers[-1:], each.settled)
            for each in super()._marks(participants)
        ]


class SettledWhenDecided(TransactionCoordinator):
    """A decision counts as carried out everywhere as soon as it is made."""

    @property
    def settled(self):
        return self._decisions


class ForgetsTheUndecided(TransactionCoordinator):
    """Participants that ask are told to let go of what is not decided."""

    def knows(self, transaction):
        return super().knows(transaction) and bool(
            transaction in self._transactions and self._transactions[transaction].decided
        )


class FinishedWhenSent(TransactionCoordinator):
    """Nobody waits until markers are confirmed."""

    def _decide(self, found, decision, reason):
        effects = super()._decide(found, decision, reason)
        self._transactions.pop(found.number)
        return effects


class ResumesWithAllVotes(TransactionCoordinator):
    """A new leader takes it that everybody has voted yes."""

    def resume(self, now_ms):
        for transaction in self._transactions.values():
            transaction.awaited = set()
        return self.tick(now_ms)


class VisibleWhenStaged(Staging):
    """Rows are shown when they come."""

    def stage(self, key, writer, number, chunk, at_ms):
        answer = super().stage(key, writer, number, chunk, at_ms)
        self.let_out = [chunk.ref] if answer.name == "STAGED" else []
        return answer


class MarkerTwice(Staging):
    """A marker is carried out as often as it comes."""

    def mark(self, markers, next_offset):
        done = self.__dict__.setdefault("done", {})
        again = [m for m in markers if m.number <= self.decided and m.transaction in done]
        done.update({m.transaction: self.held[m.transaction] for m in commits(markers, self)})
        marked = super().mark(markers, next_offset)
        next_offset += sum(each.rows for each in marked.appended)
        for marker in again:
            for chunk in done[marker.transaction].chunks:
                marked.appended.append(Appended(chunk.ref, next_offset, chunk.rows))
                next_offset += chunk.rows
        return marked


def commits(markers, staging):
    return [m for m in markers if m.decision is Decision.COMMIT and m.transaction in staging.held]


class ExpiresWhatIsHeld(Staging):
    """What was promised with a vote is dropped when it is old."""

    def expire(self, before_ms):
        dropped = super().expire(before_ms)
        for transaction in [n for n, held in self.held.items() if held.at_ms < before_ms + 19_000]:
            dropped += self.forget(transaction)
        return dropped


class VotesForWhatIsMissing(Staging):
    def prepare(self, transaction, key, writers, at_ms):
        vote = super().prepare(transaction, key, writers, at_ms)
        if vote is Vote.MISSING:
            present = self._open[key].writers if key in self._open else {}
            here = [each for each in writers if each.writer in present]
            here = [w._replace(rows=sum(c.rows for c in present[w.writer])) for w in here]
            vote = super().prepare(transaction, key, here, at_ms)
        return vote


class ShowsAllWriters(Staging):
    """Rows of attempts that failed become visible with those that were asked for."""

    def prepare(self, transaction, key, writers, at_ms):
        if key in self._open:
            for writer, chunks in self._open[key].writers.items():
                if writer not in {each.writer for each in writers}:
                    rows = sum(chunk.rows for chunk in chunks)
                    writers = (*writers, type(writers[0])(writer, rows))
        return super().prepare(transaction, key, writers, at_ms)


class EffectsBeforeDurable(CoordinatorHost):
    """Commands are carried out when they are proposed; a crash may still forget them."""

    def propose(self, entry, asker=None):
        super().propose(entry, asker)
        super().apply(entry, asker)

    def apply(self, entry, asker, *, replay=False):
        if replay:
            super().apply(entry, asker, replay=True)


class AnswersBeforeDurable(PartitionHost):
    """Whoever asks is answered when the entry is proposed; a crash may still forget it."""

    def propose(self, entry, asker=None):
        super().propose(entry)
        super().apply(entry, asker)

    def apply(self, entry, asker, *, replay=False):
        if replay:
            super().apply(entry, asker, replay=True)


HOSTS = {"coordinator_host": EffectsBeforeDurable, "partition_host": AnswersBeforeDurable}
COORDINATORS = [
    MarkBeforeDecision,
    NoEpochCheck,
    NoKey,
    DecideTwice,
    CommitOnFirstVote,
    NewestMarkerOnly,
    SettledWhenDecided,
    ForgetsTheUndecided,
    FinishedWhenSent,
    ResumesWithAllVotes,
]
STAGINGS = [
    VisibleWhenStaged,
    MarkerTwice,
    ExpiresWhatIsHeld,
    VotesForWhatIsMissing,
    ShowsAllWriters,
]
