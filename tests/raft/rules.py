"""One scripted counterexample per rule; each takes the core to try, the sound one or a mutant."""

from collections.abc import Callable
from random import Random

from queues.raft.config import Config
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.messages import AppendReply, Vote, VoteReply
from queues.raft.ready import Role
from tests.raft import mutants
from tests.raft.script import ME, OTHER, YOU, Script


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


RULES: dict[type[Raft], Callable[[type[Raft]], None]] = {
    mutants.AckBeforeFsync: an_acknowledgement_waits_for_the_disk,
    mutants.AlwaysTruncate: a_late_append_cuts_nothing_off,
    mutants.SkipPrevCheck: an_append_after_an_unknown_entry_is_refused,
    mutants.AckLastIndex: a_heartbeat_vouches_only_for_what_it_covers,
    mutants.VoteNotPersisted: a_vote_outlives_a_crash,
    mutants.CommitOldTerm: an_entry_of_an_old_term_is_committed_only_by_one_of_this,
    mutants.StaleWriteCompletion: a_write_of_entries_cut_off_since_proves_nothing,
    mutants.AckFromOldTerm: an_acknowledgement_of_an_old_term_counts_for_nothing,
}
