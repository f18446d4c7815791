"""Replication: feeding followers, the commit rule, loss and catching up, snapshots, reads."""

from random import Random

import pytest

from queues.raft.config import PATIENT, Config, Tunables
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.messages import Append, AppendReply, Entry, Install, Snapshot, Vote
from queues.raft.progress import Feed
from queues.raft.ready import ReadOp, ReadState, Role
from tests.raft.script import ME, NO_HINT, OTHER, YOU, Script

ALL = Config((ME, YOU, OTHER))
SMALL = Tunables(append_entries_max=1, window_bytes=3, cache_bytes=0)


def leading(terms=(), **more):
    """A leader whose no-op is on its own disk, and nowhere else yet."""
    script = Script(terms=terms, **more)
    script.win()
    script.sync()
    return script


def caught_up(**more):
    """A leader of term 1 with both followers at index 1, all of it committed and applied."""
    script = leading(**more)
    last = script.core.log.last
    for peer in (YOU, OTHER):
        script.ack(last, frm=peer)
        told(script, last, peer)
    script.core.applied(last)
    return script


def told(script, index, peer):
    """The peer answers with its commit index."""
    hint = {"hint_index": 0, "hint_term": 0, "read_round": 0}
    return script.hear(AppendReply(ME, peer, script.core.term, True, index, index, **hint))


def refuse(script, prev, hint, frm=YOU):
    reply = AppendReply(ME, frm, script.core.term, False, prev, 0, *hint, 0)
    return script.hear(reply)


def to(peer, messages):
    return [message for message in messages if message.to == peer]


def spans(messages):
    """(prev, number of entries) of each append."""
    return [(m.prev_index, len(m.entries)) for m in messages if isinstance(m, Append)]


@pytest.mark.parametrize(
    ("durable", "acks", "commit"),
    [
        (True, {}, 0),
        (True, {YOU: 2}, 2),
        (True, {YOU: 1, OTHER: 2}, 2),
        (False, {YOU: 2}, 1),
        (False, {YOU: 2, OTHER: 2}, 2),
    ],
)
def test_an_entry_is_committed_when_it_is_on_the_disks_of_a_majority(durable, acks, commit):
    script = Script()
    script.win()
    script.sync()
    script.core.propose(b"x")
    script.out()
    if durable:
        script.sync()
    for peer, index in acks.items():
        script.ack(index, frm=peer)
    assert script.core.commit == commit


def test_a_leader_applies_only_what_is_on_its_own_disk_too():
    script = leading()
    script.core.propose(b"x")
    script.out()
    script.ack(2)
    script.ack(2, frm=OTHER)
    assert script.core.commit == 2
    assert script.ready.apply_to == 1
    script.sync()
    assert script.ready.apply_to == 2


def test_proposals_flow_ahead_of_their_acknowledgements_up_to_a_window():
    script = caught_up(tunables=SMALL)
    sent = []
    for _ in range(5):
        script.core.propose(b"x")
        sent += script.out()
    assert spans(to(YOU, sent)) == [(1, 1), (2, 1), (3, 1)]
    assert spans(to(YOU, script.ack(2))) == [(4, 1)]
    assert spans(to(YOU, script.ack(4))) == [(5, 1)]


def test_many_proposals_travel_in_one_append():
    script = caught_up()
    for _ in range(10):
        script.core.propose(b"x")
    assert spans(to(YOU, script.out())) == [(1, 10)]


def test_an_append_has_at_least_one_entry_however_large():
    script = caught_up(tunables=Tunables(append_bytes_max=10))
    for size in (50, 4, 4, 4):
        script.core.propose(b"x" * size)
    assert spans(to(YOU, script.out())) == [(1, 1), (2, 2), (4, 1)]


def test_a_crowded_follower_gets_heartbeats_and_its_entries_once_there_is_room():
    crowded = set()
    script = caught_up(crowded=crowded)
    crowded.add(YOU)
    script.core.propose(b"x")
    sent = script.out()
    assert spans(to(YOU, sent)) == []
    assert spans(to(OTHER, sent)) == [(1, 1)]
    assert script.core.held_up
    script.time_passes()
    assert spans(to(YOU, script.time_passes())) == [(1, 0)]
    crowded.clear()
    script.core.has_room()
    assert spans(to(YOU, script.out())) == [(1, 1)]
    assert not script.core.held_up


def test_a_probe_carries_nothing_large_however_often_it_is_repeated():
    script = Script(tunables=Tunables(append_bytes_max=10), terms=(1,), term=1)
    script.win()
    script.core.propose(b"x" * 50)
    script.sync()
    refuse(script, 1, (0, 0))
    script.core.peer_up(YOU, script.now)
    sizes = [
        sum(len(entry.payload) for entry in message.entries)
        for _ in range(5)
        for message in [*to(YOU, script.out()), *to(YOU, script.time_passes())]
    ]
    assert max(sizes) <= 10


def test_a_leader_waits_longer_for_an_answer_to_what_is_large():
    """It comes when all of it is on the follower's disk."""
    tunables = Tunables(check_beats=2, patience_bytes=100)
    for size, checks in ((50, 1), (350, 4)):
        script = caught_up(tunables=tunables)
        script.core.propose(b"x" * size)
        script.out()
        beats = 0
        while script.core.role is Role.LEADER:
            script.time_passes()
            beats += 1
        assert beats == 2 * checks + 1


def test_a_new_leader_probes_with_one_append_until_it_is_answered():
    script = leading(terms=(1, 1))
    script.core.propose(b"x")
    assert to(YOU, script.out()) == []
    assert spans(to(YOU, script.ack(3))) == [(3, 1)]


def test_a_lost_append_is_found_by_an_empty_one_and_sent_again():
    script = caught_up()
    script.core.propose(b"lost")
    script.out()
    script.time_passes()
    (reminder,) = to(YOU, script.time_passes())
    assert (reminder.prev_index, reminder.entries) == (2, ())
    (again,) = to(YOU, refuse(script, 2, (1, 1)))
    assert [entry.payload for entry in again.entries] == [b"lost"]


def test_a_full_window_whose_acknowledgements_were_lost_opens_again():
    script = caught_up(tunables=SMALL)
    for _ in range(4):
        script.core.propose(b"x")
    script.out()
    script.time_passes()
    (reminder,) = to(YOU, script.time_passes())
    assert reminder.prev_index == 4
    assert spans(to(YOU, script.ack(4))) == [(4, 1)]


def test_a_group_where_everybody_has_everything_goes_quiet():
    script = caught_up()
    script.time_passes()
    if script.core.deadline is not None:
        script.time_passes()
    assert script.core.deadline is None
    assert script.core.ready() is None


def test_a_follower_that_missed_only_the_commit_index_is_told_again():
    script = leading()
    script.ack(1)
    script.ack(1, frm=OTHER)
    script.time_passes()
    assert [m.commit for m in to(YOU, script.time_passes())] == [1]


def test_a_leader_steps_back_over_whole_terms():
    script = leading(terms=(1, 1, 1, 4, 4, 4), term=6)
    (probe,) = to(YOU, refuse(script, 6, (6, 3)))
    assert (probe.prev_index, probe.prev_term) == (3, 1)


def test_an_answer_to_an_earlier_probe_moves_nothing():
    script = leading(terms=(1, 1, 1, 1), term=2)
    refuse(script, 4, (2, 1))
    assert script.core.progress[YOU].next == 3
    refuse(script, 4, (0, 0))
    assert script.core.progress[YOU].next == 3


def test_a_late_acknowledgement_does_not_end_a_probe():
    """Found by seed 2362: each one sent the whole window again, whose answers did the same."""
    script = caught_up()
    script.core.propose(b"x")
    script.core.propose(b"y")
    script.out()
    script.ack(2)
    refuse(script, 3, (2, 1))
    assert script.core.progress[YOU].feed is Feed.PROBE
    assert spans(to(YOU, script.ack(1))) == []
    assert script.core.progress[YOU].feed is Feed.PROBE
    script.ack(2)
    assert script.core.progress[YOU].feed is Feed.REPLICATE


def test_match_never_falls_within_a_term():
    script = caught_up()
    script.core.propose(b"x")
    script.out()
    script.ack(2)
    script.ack(1)
    refuse(script, 1, (0, 0))
    assert script.core.progress[YOU].match == 2


def test_payloads_leave_memory_once_applied_and_come_back_from_disk_for_a_slow_follower():
    script = leading(tunables=Tunables(cache_bytes=0))
    stored = [Entry(1, 1, b"")]
    for number in range(3):
        script.core.propose(b"%d" % number)
        stored.append(Entry(number + 2, 1, b"%d" % number))
    script.sync()
    script.ack(1)
    script.ack(4)
    script.core.applied(4)
    assert script.core.log.held_bytes == 0
    assert script.core.entries(1, 4) is None
    (probe,) = to(OTHER, refuse(script, 0, (0, 0), OTHER) + script.ack(0, frm=OTHER))
    assert probe.entries == ()
    assert script.ready.reads == [ReadOp(OTHER, 1, 4, 1 << 20)]
    script.core.fetched(OTHER, stored[:2])
    assert spans(script.out()) == [(0, 2)]
    assert script.ready.reads == [ReadOp(OTHER, 3, 4, 1 << 20)]
    script.core.fetched(OTHER, stored[2:])
    assert spans(script.out()) == [(2, 2)]


def test_entries_read_for_a_follower_in_an_earlier_term_are_not_sent():
    script = leading(terms=(1, 1), term=5)
    refuse(script, 2, (0, 0))
    script.ack(0)
    assert script.ready.reads[0].first == 1
    script.core.fetched(YOU, [Entry(1, 1, b""), Entry(2, 3, b"not ours")])
    assert spans(to(YOU, script.out())) == []


def test_applied_payloads_stay_in_the_cache_for_a_follower_that_is_a_little_behind():
    script = caught_up()
    script.core.propose(b"x")
    script.sync()
    script.ack(2)
    script.core.applied(2)
    assert script.core.log.held_bytes == 1
    script.ack(2, frm=OTHER)
    assert script.core.log.held_bytes == 0


def compacted_leader():
    script = caught_up()
    for _ in range(4):
        script.core.propose(b"x")
    script.sync()
    script.ack(5)
    script.core.applied(5)
    script.core.compacted(4)
    refuse(script, 5, (1, 1), OTHER)
    return script


def test_a_follower_behind_the_compacted_log_gets_a_snapshot_and_goes_on_after_it():
    script = compacted_leader()
    assert list(script.ready.snapshots) == [OTHER]
    snapshot = Snapshot(4, 1, ALL, "state")
    script.core.snapshot(OTHER, snapshot)
    assert script.out() == [Install(OTHER, ME, 1, snapshot)]
    assert spans(script.ack(4, frm=OTHER)) == [(4, 1)]
    assert script.core.progress[OTHER].feed is Feed.REPLICATE


def test_a_follower_that_differs_at_the_compacted_index_gets_a_snapshot():
    """Found by seed 2039: the leader probed at its own first index over and over."""
    script = leading(terms=(4,), term=4)
    script.ack(2)
    script.core.applied(2)
    script.core.compacted(1)
    refuse(script, 1, (1, 1), OTHER)
    assert list(script.ready.snapshots) == [OTHER]


def test_a_follower_that_is_behind_again_when_its_snapshot_is_in_place_gets_the_next_at_once():
    script = compacted_leader()
    script.core.snapshot(OTHER, Snapshot(4, 1, ALL, "state"))
    script.core.compacted(5)
    script.ack(4, frm=OTHER)
    assert list(script.ready.snapshots) == [OTHER]


def test_a_snapshot_is_asked_for_again_when_the_node_was_away_or_it_came_to_nothing():
    for ends in (
        lambda core: core.peer_up(OTHER, 0.0),
        lambda core: core.snapshot(OTHER, None),
    ):
        script = compacted_leader()
        ends(script.core)
        (probe,) = to(OTHER, script.out())
        refuse(script, probe.prev_index, (1, 1), OTHER)
        assert list(script.ready.snapshots) == [OTHER]


def test_a_snapshot_under_way_has_all_the_time_it_needs_until_it_is_sent():
    script = compacted_leader()
    for _ in range(3 * script.core.tunables.snapshot_beats):
        script.time_passes()
        told(script, 5, YOU)
    assert script.core.progress[OTHER].feed is Feed.SNAPSHOT


def test_a_snapshot_that_never_arrives_is_asked_for_again():
    script = compacted_leader()
    script.core.snapshot(OTHER, Snapshot(4, 1, ALL, "state"))
    for _ in range(script.core.tunables.snapshot_beats + 1):
        script.time_passes()
        told(script, 5, YOU)
    refuse(script, script.core.progress[OTHER].next - 1, (1, 1), OTHER)
    assert script.core.progress[OTHER].feed is Feed.SNAPSHOT


def test_an_installed_snapshot_replaces_the_log_and_is_acknowledged_when_it_is_on_disk():
    script = Script(terms=(1, 1, 1))
    snapshot = Snapshot(9, 4, ALL, "state")
    assert script.hear(Install(ME, YOU, 4, snapshot)) == []
    assert script.ready.install == snapshot
    assert (script.core.log.offset, script.core.log.last, script.core.commit) == (9, 9, 9)
    assert script.core.durable <= 3
    assert [(reply.ok, reply.index) for reply in script.sync()] == [(True, 9)]
    assert script.core.durable == 9


def test_a_snapshot_may_reach_the_disk_before_the_term_that_came_with_it():
    """Found by a crash in between: the member would never start again."""
    log = RaftLog(9, 4)
    core = Raft(ME, ALL, 0.0, Random(1), hard=(2, YOU), log=log)
    assert (core.term, core.vote) == (4, None)


def test_the_first_entry_after_an_installed_snapshot_is_the_next_one_applied():
    script = Script()
    script.hear(Install(ME, YOU, 4, Snapshot(9, 4, ALL, "state")))
    script.append(4, (9, 4), 4, 4, commit=10)
    script.sync()
    assert script.ready.apply_to == 10
    assert [entry.index for entry in script.core.entries(10, 10)] == [10]


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_snapshot_of_what_is_already_here_only_moves_the_commit_index(index):
    script = Script(terms=(1, 1, 2))
    script.append(3, (1, 1), commit=1)
    term = (1, 1, 2)[index - 1]
    script.hear(Install(ME, YOU, 3, Snapshot(index, term, ALL, "state")))
    script.sync()
    assert script.ready.install is None
    assert script.log_terms() == [1, 1, 2]
    assert script.core.commit == index


def test_a_write_under_way_when_a_snapshot_replaced_the_log_proves_nothing():
    script = Script()
    script.append(1, (0, 0), *[1] * 20)
    (first,) = script.writes
    script.hear(Install(ME, OTHER, 2, Snapshot(9, 2, ALL, "state")))
    script.core.persisted(first.wseq)
    assert script.core.durable == 0
    script.sync()
    assert script.core.durable == 9


def test_a_conflict_cuts_the_log_there_and_the_write_says_so():
    script = Script(terms=(1, 2, 2))
    script.append(3, (1, 1), 3)
    (write,) = script.writes
    assert (write.truncate_from, [entry.term for entry in write.entries]) == (2, [3])
    assert script.log_terms() == [1, 3]


def test_a_conflict_below_the_commit_index_stops_the_member():
    script = Script(terms=(1, 1, 1))
    script.append(1, (3, 1), commit=3)
    with pytest.raises(AssertionError):
        script.core._truncate(3)


def test_an_append_that_starts_before_the_compacted_log_is_taken_from_where_it_matters():
    script = Script(terms=(1, 1, 1))
    script.append(1, (3, 1), commit=3)
    script.core.applied(3)
    script.core.compacted(3)
    script.append(1, (1, 1), 1, 1, 1)
    assert [reply.index for reply in script.sync()] == [4]
    assert script.core.log.last == 4


def test_a_follower_commits_no_more_than_the_append_vouches_for():
    script = Script(terms=(1, 2, 2))
    script.append(3, (1, 1), commit=3)
    assert script.core.commit == 1


def test_a_read_waits_for_a_round_that_a_quorum_answers():
    script = caught_up()
    script.core.read_index("r")
    asked = script.out()
    assert [message.read_round for message in asked] == [1, 1]
    script.ack(1)
    assert list(script.ready.read_states) == []
    script.hear(AppendReply(ME, YOU, 1, True, 1, 1, 0, 0, 1))
    assert script.ready.read_states == [ReadState("r", 1)]


def test_a_read_of_a_new_leader_waits_for_the_first_entry_of_its_term():
    script = leading(terms=(1, 1), term=1)
    script.core.read_index("r")
    script.out()
    script.hear(AppendReply(ME, YOU, 2, True, 2, 0, 0, 0, 1))
    assert script.ready.read_states == [ReadState("r", 3)]


def test_a_read_that_is_confirmed_in_the_turn_of_a_deposition_is_dropped():
    script = caught_up()
    script.core.read_index("r")
    script.out()
    script.core.step(AppendReply(ME, YOU, 1, True, 1, 1, 0, 0, 1), script.now)
    script.core.step(Vote(ME, YOU, 2, 1, 1, transfer=True), script.now)
    ready = script.core.ready()
    assert ready.role is Role.FOLLOWER
    assert list(ready.read_states) == []


def test_a_sole_voter_reads_at_once():
    script = Script(voters=(ME,), terms=(1, 1), vote=ME)
    script.core.read_index("r")
    script.out()
    assert script.ready.read_states == [ReadState("r", 2)]


def test_nothing_is_sent_to_a_node_that_is_down_until_it_is_back():
    script = caught_up()
    script.core.peer_down(OTHER, script.now)
    script.core.propose(b"x")
    assert to(OTHER, script.out()) == []
    script.sync()
    told(script, 2, YOU)
    told(script, 2, YOU)
    while script.core.deadline is not None:
        assert to(OTHER, script.time_passes()) == []
    script.core.peer_up(OTHER, script.now)
    assert spans(to(OTHER, script.out())) == [(1, 1)]


def test_a_write_is_durable_only_when_it_is_reported():
    script = Script(voters=(ME,))
    script.sync()
    script.core.propose(b"x")
    script.out()
    script.core.propose(b"y")
    script.out()
    first, second = script.writes
    assert (script.core.durable, script.core.commit) == (1, 1)
    script.core.persisted(second.wseq)
    assert (script.core.durable, script.core.commit) == (3, 3)
    script.core.persisted(first.wseq)
    assert script.core.durable == 3


def test_a_write_never_handed_out_cannot_be_reported():
    script = Script(voters=(ME,))
    script.sync()
    with pytest.raises(AssertionError, match="handed out"):
        script.core.persisted(99)


def test_an_acknowledgement_beyond_the_log_stops_the_leader():
    script = leading()
    with pytest.raises(AssertionError, match="never sent"):
        script.hear(AppendReply(ME, YOU, 1, True, 5, 0, **NO_HINT))


def test_followers_of_a_patient_group_hear_of_a_commit_with_the_next_append_or_heartbeat():
    script = Script(tunables=PATIENT)
    script.lead()
    script.core.propose(b"first")
    script.sync()
    assert script.hear(script.reply(YOU, 2)) == []
    assert script.core.commit == 2
    script.core.propose(b"second")
    assert [(m.commit, len(m.entries)) for m in script.out()] == [(2, 1), (2, 1)]
    script.sync()
    assert script.hear(script.reply(YOU, 3)) == []
    assert script.core.commit == 3
    reminders = script.time_passes() or script.time_passes()
    assert [(m.to, m.commit, list(m.entries)) for m in reminders] == [(YOU, 3, []), (OTHER, 3, [])]
