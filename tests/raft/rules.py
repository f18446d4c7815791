"""One scripted counterexample per rule; each takes the core to try, the sound one or a mutant."""

from collections.abc import Callable
from random import Random

from queues.raft.config import Config, Step
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.messages import (
    Append,
    AppendReply,
    Install,
    PreVoteReply,
    Snapshot,
    Vote,
    VoteReply,
)
from queues.raft.ready import Role
from tests.raft import mutants
from tests.raft.script import ME, OTHER, YOU, Script

NEW = 4


def an_acknowledgement_waits_for_the_disk(core_class: type[Raft]) -> None:
    script = Script(core_class)
    assert script.append(1, (0, 0), 1, 1) == []
    (reply,) = script.sync()
    assert isinstance(reply, AppendReply)
    assert (reply.ok, reply.index) == (True, 2)


def a_late_append_cuts_nothing_off(core_class: type[Raft]) -> None:
    script = Script(core_class)
    script.append(1, (0, 0), 1, 1, 1)
    script.sync()
    script.append(1, (0, 0), 1)
    assert script.log_terms() == [1, 1, 1]
    assert script.core.durable == 3


def an_append_after_an_unknown_entry_is_refused(core_class: type[Raft]) -> None:
    script = Script(core_class, terms=(1, 1, 2))
    script.append(4, (3, 3), 4)
    (reply,) = script.sync()
    assert isinstance(reply, AppendReply)
    assert (reply.ok, reply.hint_index, reply.hint_term) == (False, 3, 2)
    assert script.log_terms() == [1, 1, 2]


def a_heartbeat_vouches_only_for_what_it_covers(core_class: type[Raft]) -> None:
    """Entries 2 and 3 are a former leader's; the new one knows nothing of them."""
    script = Script(core_class, terms=(1, 2, 2))
    script.append(3, (1, 1))
    (reply,) = script.sync()
    assert isinstance(reply, AppendReply)
    assert (reply.ok, reply.index) == (True, 1)


def a_vote_outlives_a_crash(core_class: type[Raft]) -> None:
    script = Script(core_class, term=4)
    script.hear(Vote(ME, YOU, 5, 0, 0, transfer=False))
    hard = [write.hard for write in script.writes if write.hard is not None][-1]
    (reply,) = script.sync()
    assert reply == VoteReply(YOU, ME, 5, granted=True)
    again = core_class(ME, Config((ME, YOU, OTHER)), 0.0, Random(1), hard=hard, log=RaftLog())
    again.step(Vote(ME, OTHER, 5, 0, 0, transfer=False), 0.0)
    ready = again.ready()
    assert ready is not None
    assert list(ready.msgs) == [VoteReply(OTHER, ME, 5, granted=False)]


def an_entry_of_an_old_term_is_committed_only_by_one_of_this(core_class: type[Raft]) -> None:
    """Raft's figure 8: a majority has entry 2, and still another leader could overwrite it."""
    script = Script(core_class, terms=(1, 2), term=3)
    script.win()
    script.sync()
    script.ack(2)
    assert script.core.commit == 0
    script.ack(3)
    assert script.core.commit == 3


def a_write_of_entries_cut_off_since_proves_nothing(core_class: type[Raft]) -> None:
    script = Script(core_class)
    script.append(1, (0, 0), 1, 1, 1)
    (first,) = script.writes
    script.append(2, (1, 1), 2, frm=OTHER)
    script.core.persisted(first.wseq)
    assert script.core.durable == 1
    assert [reply.term for reply in script.out()] == [1]
    assert [reply.term for reply in script.sync()] == [2]
    assert script.core.durable == 2


def an_acknowledgement_of_an_old_term_counts_for_nothing(core_class: type[Raft]) -> None:
    """YOU acknowledged entry 2 to this node as leader of term 2, and has lost it to term 3."""
    script = Script(core_class, terms=(1,), term=1)
    script.win()
    assert (script.core.term, script.core.log.last) == (2, 2)
    script.sync()
    script.core.step(Vote(ME, OTHER, 3, 9, 2, transfer=True), script.now)
    script.sync()
    script.win()
    assert script.core.term == 4
    script.sync()
    script.ack(3, term=2)
    assert script.core.role is Role.LEADER
    assert script.core.commit == 0
    assert script.core.progress is not None
    assert script.core.progress[YOU].match == 0


def a_change_of_members_waits_for_the_one_before_it(core_class: type[Raft]) -> None:
    script = Script(core_class).lead()
    script.change(Step.ADD_LEARNER, NEW)
    refused = script.refusal(Step.REMOVE, OTHER)
    assert refused is not None
    assert refused.later
    script.sync()
    script.hear(script.reply(YOU, script.core.log.last))
    assert script.refusal(Step.REMOVE, OTHER) is None


def a_change_of_members_waits_for_the_term(core_class: type[Raft]) -> None:
    """Else two leaders in turn change members without either hearing of the other's change."""
    script = Script(core_class)
    script.win()
    refused = script.refusal(Step.REMOVE, OTHER)
    assert refused is not None
    assert refused.later


def a_configuration_holds_from_when_it_is_appended(core_class: type[Raft]) -> None:
    grown = Config((ME, YOU, OTHER), (NEW,))
    script = Script(core_class)
    script.append(1, (0, 0), 1, payload=grown.entry())
    assert script.core.config == grown
    leading = Script(core_class).lead()
    leading.change(Step.ADD_LEARNER, NEW)
    assert leading.core.config == grown


def a_configuration_goes_with_its_entry(core_class: type[Raft]) -> None:
    script = Script(core_class)
    script.append(1, (0, 0), 1, payload=Config((ME, YOU)).entry())
    assert script.core.config == Config((ME, YOU))
    script.append(2, (0, 0), 2, frm=OTHER)
    assert script.core.config == Config((ME, YOU, OTHER))


def what_a_learner_has_is_not_committed(core_class: type[Raft]) -> None:
    script = Script(core_class, learners=(NEW,)).lead()
    script.core.propose(b"x")
    script.sync()
    last = script.core.log.last
    script.hear(script.reply(NEW, last - 1))
    script.hear(script.reply(NEW, last))
    assert script.core.commit == last - 1
    script.hear(script.reply(YOU, last))
    assert script.core.commit == last


def only_voters_elect(core_class: type[Raft]) -> None:
    """The vote of a learner, or of one that was removed, may come; it is not counted."""
    script = Script(core_class, learners=(NEW,))
    script.time_passes()
    for stranger in (NEW, 99):
        script.hear(PreVoteReply(ME, stranger, 1, granted=True))
    assert script.core.role is Role.PRE_CANDIDATE
    script.hear(PreVoteReply(ME, YOU, 1, granted=True))
    script.sync()
    for stranger in (NEW, 99):
        script.hear(VoteReply(ME, stranger, 1, granted=True))
    assert script.core.role is Role.CANDIDATE


def a_snapshot_brings_its_configuration(core_class: type[Raft]) -> None:
    config = Config((YOU, OTHER, NEW), (ME,))
    script = Script(core_class)
    script.hear(Install(ME, YOU, 4, Snapshot(9, 4, config, "state")))
    assert script.core.config == config
    assert script.core.config_at(9) == config


def after_a_snapshot_the_next_entry_is_applied_next(core_class: type[Raft]) -> None:
    script = Script(core_class)
    script.hear(Install(ME, YOU, 4, Snapshot(9, 4, Config((ME, YOU, OTHER)), "state")))
    script.append(4, (9, 4), 4, 4, commit=9)
    script.sync()
    assert script.ready is not None
    assert script.ready.apply_to == 9


def a_removed_leader_steps_down_when_that_is_committed(core_class: type[Raft]) -> None:
    script = Script(core_class).lead()
    script.change(Step.REMOVE, ME)
    script.sync()
    last = script.core.log.last
    script.hear(script.reply(YOU, last))
    assert script.core.role is Role.LEADER  # it does not count itself
    assert script.core.commit == last - 1
    sent = script.hear(script.reply(OTHER, last))
    assert script.core.role is Role.FOLLOWER
    assert [(m.to, m.commit) for m in sent if isinstance(m, Append)] == [(YOU, last), (OTHER, last)]
    assert script.core.deadline is None


def a_member_that_comes_back_without_its_disk_starts_from_nothing(core_class: type[Raft]) -> None:
    script = Script(core_class).lead()
    before = script.core._read_round
    script.change(Step.REMOVE, OTHER)
    script.sync()
    script.hear(script.reply(YOU, script.core.log.last))
    script.change(Step.ADD_LEARNER, OTHER)
    script.hear(script.reply(OTHER, 1, read_round=before))  # of what it once had
    assert script.core.progress is not None
    assert script.core.progress[OTHER].match == 0
    script.hear(script.reply(OTHER, 0))
    script.hear(script.reply(OTHER, 1))
    assert script.core.progress[OTHER].match == 1


def an_answer_of_an_earlier_life_counts_for_nothing_during_an_install(
    core_class: type[Raft],
) -> None:
    script = Script(core_class).lead()
    before = script.core._read_round
    script.change(Step.REMOVE, OTHER)
    script.sync()
    script.hear(script.reply(YOU, script.core.log.last))
    core = script.core
    core.applied(core.commit)
    core.compacted(core.commit)
    script.change(Step.ADD_LEARNER, OTHER)
    peer = core.progress[OTHER] if core.progress is not None else None
    assert peer is not None
    script.hear(AppendReply(ME, OTHER, core.term, False, peer.next - 1, 0, 0, 0, core._read_round))
    script.out()
    core.snapshot(OTHER, Snapshot(2, 1, core.config_at(2), "state"))
    (install,) = [message for message in script.sync() if isinstance(message, Install)]
    script.hear(script.reply(OTHER, 2, read_round=before))
    assert peer.match == 0
    script.hear(script.reply(OTHER, 2, read_round=install.read_round))
    assert peer.match == 2


def a_read_confirmed_in_the_turn_of_a_deposition_is_dropped(core_class: type[Raft]) -> None:
    script = Script(core_class).lead()
    core = script.core
    core.read_index("r")
    script.out()
    core.step(script.reply(YOU, core.log.last), script.now)
    last = (core.log.last, core.log.last_term)
    core.step(Vote(ME, YOU, core.term + 1, *last, transfer=True), script.now)
    ready = core.ready()
    assert ready is not None
    assert list(ready.read_states) == []


def a_crowded_follower_gets_no_entries(core_class: type[Raft]) -> None:
    crowded: set[int] = set()
    script = Script(core_class, crowded=crowded).lead()
    crowded.add(YOU)
    script.core.propose(b"x")
    sent = script.out()
    assert [m.to for m in sent if isinstance(m, Append) and m.entries] == [OTHER]


RULES: dict[type[Raft], Callable[[type[Raft]], None]] = {
    mutants.AckBeforeFsync: an_acknowledgement_waits_for_the_disk,
    mutants.AlwaysTruncate: a_late_append_cuts_nothing_off,
    mutants.SkipPrevCheck: an_append_after_an_unknown_entry_is_refused,
    mutants.AckLastIndex: a_heartbeat_vouches_only_for_what_it_covers,
    mutants.VoteNotPersisted: a_vote_outlives_a_crash,
    mutants.CommitOldTerm: an_entry_of_an_old_term_is_committed_only_by_one_of_this,
    mutants.StaleWriteCompletion: a_write_of_entries_cut_off_since_proves_nothing,
    mutants.AckFromOldTerm: an_acknowledgement_of_an_old_term_counts_for_nothing,
    mutants.TwoChangesAtOnce: a_change_of_members_waits_for_the_one_before_it,
    mutants.ChangeBeforeCommit: a_change_of_members_waits_for_the_term,
    mutants.ConfigAtCommit: a_configuration_holds_from_when_it_is_appended,
    mutants.ConfigNotReverted: a_configuration_goes_with_its_entry,
    mutants.LearnerCounted: what_a_learner_has_is_not_committed,
    mutants.StrangersVoteCounted: only_voters_elect,
    mutants.ConfigLostInSnapshot: a_snapshot_brings_its_configuration,
    mutants.ApplyOffByOne: after_a_snapshot_the_next_entry_is_applied_next,
    mutants.RemovedLeaderStays: a_removed_leader_steps_down_when_that_is_committed,
    mutants.ReplyOfRemovedMember: a_member_that_comes_back_without_its_disk_starts_from_nothing,
    mutants.InstallRoundIgnored: (
        an_answer_of_an_earlier_life_counts_for_nothing_during_an_install
    ),
    mutants.ReadStatesKept: a_read_confirmed_in_the_turn_of_a_deposition_is_dropped,
    mutants.CongestionIgnored: a_crowded_follower_gets_no_entries,
}
