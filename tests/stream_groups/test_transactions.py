"""The coordinator's promises, one by one; what random runs found is kept here by name."""

import pytest

import queues.stream.transactions as transactions_module
from queues.stream.group_records import Position
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import (
    Decision,
    GroupPart,
    PartitionPart,
    TransactionKey,
    Vote,
    WriterRows,
)
from queues.stream.transaction_commands import (
    OPENING,
    Abort,
    Aborted,
    Commit,
    Committed,
    Decide,
    Discard,
    Expire,
    Finish,
    Mark,
    Open,
    Opened,
    Prepare,
    Propose,
    Refusal,
    Refused,
    Reply,
    Told,
    decode_command,
    encode_command,
)
from queues.stream.transactions import (
    LAST_SEQUENCE,
    PREPARE_MS,
    RESULTS_MAX,
    TransactionCoordinator,
)

A, B, G = PartitionId("s", 0), PartitionId("s", 1), GroupId("g")


def key(sequence, epoch=0):
    return TransactionKey("query", epoch, sequence)


def parts(writer="w"):
    return (
        PartitionPart(A, (WriterRows(writer, 3),)),
        PartitionPart(B, (WriterRows(writer, 4),)),
        GroupPart(G, "m", 2, {A: Position(9, "x")}),
    )


def commit(sequence, epoch=0, writer="w", at_ms=0):
    return Commit(key(sequence, epoch), parts(writer), at_ms)


def outcomes(effects):
    return [each.outcome for each in effects if isinstance(each, Reply)]


def prepared(coordinator, effects):
    """Everybody votes yes; what the leader then wants to do."""
    wanted = []
    for effect in effects:
        if isinstance(effect, Prepare):
            wanted += coordinator.voted(effect.participant, effect.transaction, Vote.YES)
    return wanted


def decided(coordinator, command):
    """The command, all votes, and the decision."""
    (wanted,) = prepared(coordinator, coordinator.apply(command))
    return coordinator.apply(wanted.command)


def finished(coordinator, effects):
    for effect in effects:
        if isinstance(effect, Mark):
            for wanted in coordinator.marked(effect.participant, effect.markers[-1].number):
                coordinator.apply(wanted.command)


def test_a_transaction_is_decided_when_all_have_voted_and_done_when_all_have_marked():
    coordinator = TransactionCoordinator()
    asked = coordinator.apply(commit(0))
    assert [each.participant for each in asked] == [A, B, G]
    assert coordinator.voted(A, 1, Vote.YES) == []
    assert coordinator.voted(A, 1, Vote.YES) == []
    assert coordinator.voted(G, 1, Vote.YES) == []
    (wanted,) = coordinator.voted(B, 1, Vote.YES)
    assert wanted == Propose(Decide(1, Decision.COMMIT))
    assert coordinator.settled == 0
    effects = coordinator.apply(wanted.command)
    assert outcomes(effects) == [Committed(1, 7)]
    assert [each.participant for each in effects if isinstance(each, Mark)] == [G, A, B]
    assert coordinator.settled == 0
    assert coordinator.marked(A, 1) == []
    assert coordinator.marked(B, 1) == []
    assert coordinator.marked(G, 1) == [Propose(Finish(1))]
    coordinator.apply(Finish(1))
    assert coordinator.settled == 1
    assert not coordinator.knows(1)


def test_one_vote_against_it_aborts_it():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    (wanted,) = coordinator.voted(B, 1, Vote.MISSING)
    effects = coordinator.apply(wanted.command)
    assert outcomes(effects) == [Aborted(Vote.MISSING.value)]
    marks = [each for each in effects if isinstance(each, Mark)]
    assert {each.markers[0].decision for each in marks} == {Decision.ABORT}
    assert {each.markers[0].writers for each in marks} == {("w",), ()}


def test_nothing_is_marked_before_the_decision_is_in_the_log():
    coordinator = TransactionCoordinator()
    wanted = prepared(coordinator, coordinator.apply(commit(0)))
    assert not any(isinstance(each, Mark | Reply) for each in wanted)


def test_a_commit_done_twice_has_one_effect_and_the_same_answer():
    coordinator = TransactionCoordinator()
    first = decided(coordinator, commit(0))
    assert outcomes(coordinator.apply(commit(0))) == outcomes(first)
    finished(coordinator, first)
    assert outcomes(coordinator.apply(commit(0, writer="another try"))) == outcomes(first)


def test_what_is_staged_again_for_a_key_that_is_committed_is_dropped():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))
    *discards, _ = coordinator.apply(commit(0, writer="another try"))
    wanted = [Discard(each, key(0), ("another try",)) for each in (A, B)]
    assert discards == wanted
    *discards, _ = coordinator.apply(Abort(key(0), parts("another try"), 0))
    assert discards == wanted


def test_two_commits_of_one_key_that_race_are_one_transaction():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    assert coordinator.apply(commit(0)) == []  # answered when the first is decided
    busy = coordinator.apply(commit(0, writer="another try"))
    assert outcomes(busy) == [Refused(Refusal.BUSY)]


def test_a_producer_has_one_undecided_transaction():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    assert outcomes(coordinator.apply(commit(1))) == [Refused(Refusal.BUSY)]


def test_what_is_decided_stays_so():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))
    assert coordinator.apply(Decide(1, Decision.ABORT)) == []
    assert coordinator.voted(A, 1, Vote.MISSING) == []
    assert outcomes(coordinator.apply(commit(0))) == [Committed(1, 7)]


def test_a_crash_between_decision_and_markers_changes_nothing():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))  # and every effect is lost
    coordinator = TransactionCoordinator.decode(coordinator.encode())
    effects = coordinator.resume(10**9)
    assert [each.participant for each in effects] == [G, A, B]
    assert {each.markers[0].decision for each in effects} == {Decision.COMMIT}
    finished(coordinator, effects)
    assert coordinator.settled == 1


def test_a_crash_before_the_decision_asks_everyone_again():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    coordinator.voted(A, 1, Vote.YES)
    coordinator = TransactionCoordinator.decode(coordinator.encode())
    asked = coordinator.resume(1)
    assert [each.participant for each in asked] == [A, B, G]
    assert prepared(coordinator, asked) == [Propose(Decide(1, Decision.COMMIT))]


def test_lost_messages_are_sent_again_to_those_who_did_not_answer():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    coordinator.voted(A, 1, Vote.YES)
    assert [each.participant for each in coordinator.tick(1)] == [B, G]
    prepared(coordinator, coordinator.tick(1))
    assert coordinator.tick(2) == [Propose(Decide(1, Decision.COMMIT))]
    coordinator.apply(Decide(1, Decision.COMMIT))
    coordinator.marked(B, 1)
    assert [each.participant for each in coordinator.tick(3)] == [G, A]
    coordinator.marked(A, 1)
    coordinator.marked(G, 1)
    assert coordinator.tick(4) == [Propose(Finish(1))]


def test_a_transaction_that_nobody_answers_times_out_and_may_be_tried_again():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0, at_ms=5))
    assert not any(isinstance(each, Propose) for each in coordinator.tick(4 + PREPARE_MS))
    (wanted,) = coordinator.tick(5 + PREPARE_MS)
    effects = coordinator.apply(wanted.command)
    assert outcomes(effects) == [Aborted("timed out")]
    again = commit(0, writer="another try", at_ms=6 + PREPARE_MS)
    assert outcomes(coordinator.apply(again)) == [Refused(Refusal.BUSY)]
    finished(coordinator, effects)
    assert outcomes(decided(coordinator, again)) == [Committed(2, 7)]


def test_a_new_epoch_aborts_what_the_old_one_had_not_decided():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    effects = coordinator.apply(Open("query", 1))
    assert outcomes(effects) == [Aborted(Refusal.FENCED.value)]
    assert effects[-1] == Opened("query", 1, -1)
    assert coordinator.apply(Decide(1, Decision.COMMIT)) == []
    assert outcomes(coordinator.apply(commit(0))) == [Refused(Refusal.FENCED)]
    assert outcomes(decided(coordinator, commit(0, epoch=1))) == [Committed(2, 7)]


def test_a_new_epoch_does_not_undo_what_the_old_one_had_decided():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))
    assert coordinator.apply(Open("query", 1)) == [Opened("query", 1, 0)]
    assert outcomes(coordinator.apply(commit(0))) == [Committed(1, 7)]
    assert outcomes(coordinator.apply(commit(0, epoch=1))) == [Committed(1, 7)]


def test_a_zombie_is_not_told_committed_when_another_epoch_committed_its_sequence():
    coordinator = TransactionCoordinator()
    coordinator.apply(Open("query", 1))
    coordinator.apply(Open("query", 2))
    decided(coordinator, commit(0, epoch=2))
    assert outcomes(coordinator.apply(commit(0, epoch=1))) == [Refused(Refusal.FENCED)]


def test_an_epoch_that_was_never_given_out_is_refused():
    coordinator = TransactionCoordinator()
    assert outcomes(coordinator.apply(commit(0, epoch=3))) == [Refused(Refusal.FENCED)]


def test_abort_drops_what_is_staged_and_never_undoes():
    coordinator = TransactionCoordinator()
    effects = coordinator.apply(Abort(key(0), parts(), 0))
    assert effects[:2] == [Discard(A, key(0), ("w",)), Discard(B, key(0), ("w",))]
    assert isinstance(effects[2].outcome, Aborted)
    decided(coordinator, commit(0))
    assert outcomes(coordinator.apply(Abort(key(0), parts(), 0))) == [Committed(1, 7)]


def test_an_abort_is_told_to_nobody_who_waits_for_a_commit_of_the_same_key():
    coordinator = TransactionCoordinator()
    effects = coordinator.apply(Abort(key(0), parts("a failed attempt"), 0))
    assert outcomes(effects) == []
    assert isinstance(effects[-1], Told)


def test_an_attempt_that_failed_does_not_abort_what_is_being_decided_without_it():
    coordinator = TransactionCoordinator()
    asked = coordinator.apply(commit(0))
    effects = coordinator.apply(Abort(key(0), parts("a failed attempt"), 0))
    assert effects[0] == Discard(A, key(0), ("a failed attempt",))
    (wanted,) = prepared(coordinator, asked)
    assert outcomes(coordinator.apply(wanted.command)) == [Committed(1, 7)]
    coordinator.apply(commit(1))
    effects = coordinator.apply(Abort(key(1), parts(), 0))
    assert isinstance(outcomes(effects)[0], Aborted)


def test_abort_ends_a_transaction_that_is_being_decided():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    effects = coordinator.apply(Abort(key(0), (), 0))
    assert isinstance(outcomes(effects)[0], Aborted)
    assert coordinator.apply(Decide(1, Decision.COMMIT)) == []


def test_a_fenced_producer_cannot_abort():
    coordinator = TransactionCoordinator()
    coordinator.apply(Open("query", 1))
    coordinator.apply(commit(0, epoch=1))
    assert outcomes(coordinator.apply(Abort(key(0), (), 0))) == [Refused(Refusal.FENCED)]
    assert outcomes(coordinator.apply(Decide(1, Decision.COMMIT))) == [Committed(1, 7)]


def test_a_sequence_that_was_passed_is_not_taken_for_committed():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(5))
    assert outcomes(coordinator.apply(commit(4))) == [Refused(Refusal.PASSED)]


def test_the_last_results_are_kept():
    coordinator = TransactionCoordinator()
    for sequence in range(RESULTS_MAX + 1):
        finished(coordinator, decided(coordinator, commit(sequence)))
    assert outcomes(coordinator.apply(commit(0))) == [Refused(Refusal.PASSED)]
    assert outcomes(coordinator.apply(commit(1))) == [Committed(2, 7)]
    assert coordinator.last_committed("query") == RESULTS_MAX
    assert coordinator.last_committed("another") == -1


def test_a_transaction_of_nothing_commits_at_once():
    coordinator = TransactionCoordinator()
    effects = coordinator.apply(Commit(key(0), (), 0))
    assert effects == [Reply(key(0), Committed(1, 0)), Propose(Finish(1))]
    coordinator.apply(Finish(1))
    assert coordinator.settled == 1


def test_a_participant_gets_its_unconfirmed_markers_together_and_in_order():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))
    effects = decided(coordinator, commit(1))
    for mark in [each for each in effects if isinstance(each, Mark)]:
        assert [each.number for each in mark.markers] == [1, 2]
    coordinator.marked(A, 1)
    marks = {each.participant: each.markers for each in coordinator.tick(0)}
    assert [each.number for each in marks[A]] == [2]
    assert [each.number for each in marks[B]] == [1, 2]


def test_settled_stops_before_the_first_decision_that_is_not_everywhere():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(0))
    decided(coordinator, commit(1))
    coordinator.apply(Finish(2))
    assert coordinator.settled == 0
    coordinator.apply(Finish(1))
    assert coordinator.settled == 2


def test_a_replica_that_has_not_heard_of_a_transaction_does_not_deny_it():
    assert TransactionCoordinator().knows(1)


@pytest.mark.parametrize(
    "bad",
    [
        (PartitionPart(A, ()), PartitionPart(A, ())),
        (PartitionPart(A, (WriterRows("w", 1), WriterRows("w", 1))),),
        (PartitionPart(A, (WriterRows("w", -1),)),),
    ],
)
def test_what_makes_no_sense_is_refused(bad):
    effects = TransactionCoordinator().apply(Commit(key(0), bad, 0))
    assert outcomes(effects) == [Refused(Refusal.MALFORMED)]


def test_there_are_limits(monkeypatch):
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0))
    monkeypatch.setattr(transactions_module, "TRANSACTIONS_MAX", 1)
    other = Commit(TransactionKey("other", 0, 0), parts(), 0)
    assert outcomes(coordinator.apply(other)) == [Refused(Refusal.FULL)]
    monkeypatch.setattr(transactions_module, "TRANSACTIONS_MAX", 2)
    monkeypatch.setattr(transactions_module, "PRODUCERS_MAX", 1)
    assert outcomes(coordinator.apply(other)) == [Refused(Refusal.FULL)]
    refused = coordinator.apply(Open("other", 0))
    assert refused == [Reply(TransactionKey("other", 0, OPENING), Refused(Refusal.FULL))]
    monkeypatch.setattr(transactions_module, "PARTS_MAX", 2)
    assert outcomes(coordinator.apply(commit(1))) == [Refused(Refusal.MALFORMED)]


def test_idle_producers_are_forgotten_but_not_in_the_middle_of_a_transaction():
    coordinator = TransactionCoordinator()
    coordinator.apply(commit(0, at_ms=5))
    coordinator.apply(Expire(100, 100))
    assert outcomes(coordinator.apply(Decide(1, Decision.COMMIT))) == [Committed(1, 7)]
    coordinator.apply(Expire(5, 100))
    assert coordinator.last_committed("query") == 0
    coordinator.apply(Expire(6, 6))
    assert coordinator.last_committed("query") == -1


def test_a_producer_that_has_nothing_more_to_commit_is_forgotten_sooner():
    coordinator = TransactionCoordinator()
    decided(coordinator, commit(LAST_SEQUENCE, at_ms=5))
    coordinator.apply(Expire(0, 5))
    assert coordinator.last_committed("query") == LAST_SEQUENCE
    coordinator.apply(Expire(0, 6))
    assert coordinator.last_committed("query") == -1


@pytest.mark.parametrize(
    "command",
    [
        Open("query", 1),
        commit(3, epoch=2, at_ms=7),
        Abort(key(3), parts(), 7),
        Decide(9, Decision.ABORT, "timed out"),
        Finish(9),
        Expire(5, 6),
    ],
)
def test_commands_are_the_same_after_the_log(command):
    assert decode_command(encode_command(command)) == command


def test_a_checkpoint_is_the_whole_state():
    coordinator = TransactionCoordinator()
    coordinator.apply(Open("other", 1))
    finished(coordinator, decided(coordinator, commit(0)))
    decided(coordinator, commit(1))
    coordinator.apply(commit(2))
    copy = TransactionCoordinator.decode(coordinator.encode())
    assert copy.encode() == coordinator.encode()
    assert copy.resume(1) == coordinator.resume(1)
    assert copy.apply(commit(2)) == coordinator.apply(commit(2)) == []
