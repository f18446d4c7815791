"""Elections: who may lead, who is asked, what is on disk before anybody hears of it."""

import pytest

from queues.raft.config import Config
from queues.raft.messages import (
    Append,
    AppendReply,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from queues.raft.ready import NotLeaderError, Role
from tests.raft.script import ME, NO_HINT, OTHER, YOU, Script


def kinds(messages):
    return [(type(message).__name__, message.to) for message in messages]


def test_a_sole_voter_leads_at_once_with_term_and_no_op_in_one_write():
    script = Script(voters=(ME,))
    script.out()
    (write,) = script.writes
    assert write.hard == (1, ME)
    assert [(entry.index, entry.payload) for entry in write.entries] == [(1, b"")]
    assert script.core.role is Role.LEADER
    assert script.core.commit == 0
    script.sync()
    assert script.core.commit == 1
    assert script.core.deadline is None


def test_a_restarted_sole_voter_writes_nothing_and_has_committed_all_it_has():
    script = Script(voters=(ME,), terms=(1, 1, 2), vote=ME)
    script.out()
    assert script.writes == []
    assert script.ready is not None
    assert (script.ready.role, script.ready.apply_to) == (Role.LEADER, 3)


def test_a_restarted_sole_voter_proposes_in_a_new_term():
    script = Script(voters=(ME,), terms=(1, 1), vote=ME)
    script.out()
    assert script.core.propose(b"x") == (2, 3)
    script.out()
    assert script.writes[0].hard == (2, ME)
    script.sync()
    assert script.core.commit == 3
    assert script.core.propose(b"y") == (2, 4)


def test_a_sole_voter_that_voted_for_another_campaigns_for_itself():
    script = Script(voters=(ME,), terms=(1,), vote=YOU)
    script.out()
    assert script.writes[0].hard == (2, ME)


def test_a_member_of_three_asks_before_it_campaigns():
    script = Script(terms=(1, 2))
    assert script.out() == []
    sent = script.time_passes()
    assert sent == [PreVote(peer, ME, 3, 2, 2) for peer in (YOU, OTHER)]
    assert script.writes == []
    assert (script.core.term, script.core.role) == (2, Role.PRE_CANDIDATE)


def test_votes_are_requested_only_when_the_own_vote_is_on_disk():
    script = Script()
    script.time_passes()
    assert script.hear(PreVoteReply(ME, YOU, 1, granted=True)) == []
    assert script.writes[-1].hard == (1, ME)
    assert script.sync() == [Vote(peer, ME, 1, 0, 0, transfer=False) for peer in (YOU, OTHER)]


def test_a_majority_of_votes_makes_a_leader_that_appends_a_no_op_without_waiting_for_its_disk():
    script = Script(terms=(1,))
    sent = script.win()
    assert [(m.to, m.prev_index, m.prev_term) for m in sent] == [(YOU, 1, 1), (OTHER, 1, 1)]
    assert all(message.entries[0].payload == b"" for message in sent)
    assert script.core.durable == 1


def test_a_refused_pre_vote_of_a_later_term_brings_the_term_and_no_election():
    script = Script(term=3)
    script.time_passes()
    script.hear(PreVoteReply(ME, YOU, 7, granted=False))
    assert (script.core.term, script.core.role) == (7, Role.FOLLOWER)


def test_a_pre_vote_changes_nothing_in_the_voter():
    script = Script(term=3, vote=OTHER)
    script.out()
    deadline = script.core.deadline
    sent = script.hear(PreVote(ME, YOU, 9, 5, 5))
    assert sent == [PreVoteReply(YOU, ME, 9, granted=True)]
    core = script.core
    assert (core.term, core.vote, core.role) == (3, OTHER, Role.FOLLOWER)
    assert core.deadline == deadline
    assert script.writes == []


@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(3, 2, True), (4, 2, True), (1, 3, True), (2, 2, False), (9, 1, False)],
)
def test_only_a_log_that_has_everything_gets_a_vote(last_index, last_term, granted):
    script = Script(terms=(1, 2, 2), term=3)
    script.hear(Vote(ME, YOU, 4, last_index, last_term, transfer=False))
    assert script.sync() == [VoteReply(YOU, ME, 4, granted=granted)]
    pre = Script(terms=(1, 2, 2), term=3)
    (reply,) = pre.hear(PreVote(ME, YOU, 4, last_index, last_term))
    assert reply.granted is granted


def test_a_vote_goes_to_one_candidate_a_term_however_often_it_asks():
    script = Script(term=1)
    asks = [
        (YOU, True),
        (OTHER, False),
        (YOU, True),
    ]
    for candidate, granted in asks:
        sent = script.hear(Vote(ME, candidate, 2, 0, 0, transfer=False)) + script.sync()
        assert sent == [VoteReply(candidate, ME, 2, granted=granted)]


def test_nobody_gets_a_vote_while_the_leader_lives():
    script = Script()
    script.append(1, (0, 0))
    script.sync()
    assert script.hear(Vote(ME, OTHER, 5, 9, 9, transfer=False)) == []
    assert script.core.term == 1
    assert script.hear(PreVote(ME, OTHER, 2, 9, 9)) == [PreVoteReply(OTHER, ME, 1, granted=False)]
    script.core.suspect_leader(script.now)
    assert script.hear(PreVote(ME, OTHER, 2, 9, 9)) == [PreVoteReply(OTHER, ME, 2, granted=True)]


def test_a_hand_over_overrides_the_peace_of_the_leader():
    script = Script()
    script.append(1, (0, 0))
    script.sync()
    script.hear(Vote(ME, OTHER, 2, 9, 9, transfer=True))
    assert script.sync() == [VoteReply(OTHER, ME, 2, granted=True)]


def test_a_leader_that_campaigns_is_no_longer_thought_to_lead():
    script = Script()
    script.append(1, (0, 0))
    script.sync()
    assert script.hear(PreVote(ME, YOU, 2, 0, 0)) == [PreVoteReply(YOU, ME, 2, granted=True)]


def test_a_late_pre_vote_of_the_present_leader_does_not_unseat_it():
    script = Script()
    script.append(1, (0, 0))
    script.sync()
    script.hear(PreVote(ME, YOU, 1, 0, 0))
    assert script.core.leader == YOU


def test_a_stranger_that_lacks_something_neither_gets_a_vote_nor_raises_the_term():
    """It was removed, and does not know."""
    script = Script(terms=(1, 1), term=1)
    script.out()
    assert script.hear(Vote(ME, 99, 7, 1, 1, transfer=True)) == []
    assert script.hear(PreVote(ME, 99, 7, 1, 1)) == []
    assert script.core.term == 1
    assert script.hear(Vote(ME, 99, 1, 1, 1, transfer=False)) == []


def test_a_stranger_that_has_everything_may_be_a_voter_not_heard_of_and_gets_a_vote():
    script = Script(terms=(1, 1), term=1)
    script.out()
    assert script.hear(PreVote(ME, 99, 2, 3, 1)) == [PreVoteReply(99, ME, 2, granted=True)]
    script.hear(Vote(ME, 99, 2, 3, 1, transfer=False))
    assert script.sync() == [VoteReply(99, ME, 2, granted=True)]


def test_a_stranger_does_not_disturb_a_group_with_a_leader():
    script = Script()
    script.append(1, (0, 0))
    script.sync()
    assert script.hear(Vote(ME, 99, 5, 9, 9, transfer=False)) == []
    assert script.hear(PreVote(ME, 99, 5, 9, 9)) == [PreVoteReply(99, ME, 1, granted=False)]
    assert script.core.term == 1


def test_votes_of_strangers_are_not_counted():
    script = Script()
    script.time_passes()
    script.hear(PreVoteReply(ME, 99, 1, granted=True))
    assert script.core.role is Role.PRE_CANDIDATE


def test_a_follower_with_a_leader_holds_no_timer_until_the_leader_is_suspected():
    script = Script(voters=(YOU, ME, OTHER))
    script.append(1, (0, 0))
    assert script.core.deadline is None
    script.core.suspect_leader(10.0)
    first_in_line = script.core.tunables.rank_s
    assert 10.0 <= script.core.deadline <= 10.0 + first_in_line


def test_successors_of_a_lost_leader_stand_in_line():
    config = Config((4, 5, 6))
    assert [config.rank_after(5, node) for node in (6, 4)] == [0, 1]
    assert [config.rank_after(9, node) for node in (4, 5, 6, 7)] == [0, 1, 2, 3]


def test_a_leader_answers_a_restarted_member_with_an_append():
    script = Script()
    script.win()
    script.sync()
    script.ack(1, frm=OTHER)
    sent = script.hear(PreVote(ME, OTHER, 1, 0, 0))
    assert kinds(sent) == [("PreVoteReply", OTHER), ("Append", OTHER)]


def test_a_leader_steps_down_for_a_later_term_in_any_reply():
    script = Script()
    script.win()
    script.hear(AppendReply(ME, YOU, 9, ok=False, index=0, commit=0, **NO_HINT))
    assert (script.core.role, script.core.term, script.core.leader) == (Role.FOLLOWER, 9, None)


def test_an_old_leader_is_told_the_new_term():
    script = Script(term=5)
    (reply,) = script.append(3, (0, 0), 3)
    assert (reply.term, reply.ok) == (5, False)
    assert script.log_terms() == []


def test_a_leader_that_hears_no_quorum_steps_down():
    script = Script()
    script.win()
    script.sync()
    for _ in range(script.core.tunables.check_beats + 1):
        assert script.core.role is Role.LEADER
        script.time_passes()
    assert (script.core.role, script.core.leader) == (Role.FOLLOWER, None)


def test_a_leader_that_hears_a_quorum_stays():
    script = Script()
    script.win()
    script.sync()
    for _ in range(3 * script.core.tunables.check_beats):
        script.time_passes()
        script.ack(1)
    assert script.core.role is Role.LEADER


def test_a_leader_whose_peers_are_all_down_steps_down_at_once():
    script = Script()
    script.win()
    script.core.peer_down(YOU, script.now)
    assert script.core.role is Role.LEADER
    script.core.peer_down(OTHER, script.now)
    assert script.core.role is Role.FOLLOWER


def test_leadership_is_handed_over_once_the_target_has_everything():
    script = Script()
    script.win()
    script.sync()
    script.core.transfer(YOU)
    assert "TimeoutNow" not in dict(kinds(script.out()))
    with pytest.raises(NotLeaderError) as refused:
        script.core.propose(b"x")
    assert refused.value.leader == YOU
    assert TimeoutNow(YOU, ME, 1) in script.ack(1)


def test_a_hand_over_that_fails_ends_and_proposals_flow_again():
    script = Script()
    script.win()
    script.sync()
    script.ack(1)
    script.core.transfer(YOU)
    for _ in range(script.core.tunables.transfer_beats + 2):
        script.time_passes()
        script.ack(1)
        script.ack(1, frm=OTHER)
    assert script.core.propose(b"x") == (1, 2)


def test_the_target_of_a_hand_over_campaigns_at_once():
    script = Script(terms=(1,))
    script.append(1, (1, 1))
    script.hear(TimeoutNow(ME, YOU, 1))
    assert Vote(YOU, ME, 2, 1, 1, transfer=True) in script.sync()


def test_only_a_leader_takes_proposals_reads_and_hand_overs():
    script = Script()
    script.append(1, (0, 0))
    for ask in (
        lambda: script.core.propose(b"x"),
        lambda: script.core.read_index("r"),
        lambda: script.core.transfer(OTHER),
    ):
        with pytest.raises(NotLeaderError) as refused:
            ask()
        assert refused.value.leader == YOU


def test_two_leaders_in_one_term_stop_the_member_that_sees_them():
    script = Script()
    script.append(1, (0, 0))
    with pytest.raises(AssertionError, match="two leaders"):
        script.append(1, (0, 0), frm=OTHER)


def test_a_candidate_follows_the_winner_of_its_term():
    script = Script()
    script.time_passes()
    script.hear(PreVoteReply(ME, YOU, 1, granted=True))
    script.sync()
    script.hear(Append(ME, OTHER, 1, 0, 0, (), 0, 0))
    assert (script.core.role, script.core.leader) == (Role.FOLLOWER, OTHER)


def test_of_two_that_ask_each_other_at_once_one_gives_way():
    for asker, role in ((OTHER, Role.PRE_CANDIDATE), (0, Role.FOLLOWER)):
        script = Script(voters=(0, ME, OTHER))
        script.time_passes()
        deadline = script.core.deadline
        assert script.hear(PreVote(ME, asker, 1, 0, 0)) == [
            PreVoteReply(asker, ME, 1, granted=True)
        ]
        assert script.core.role is role
        assert script.core.deadline == deadline  # it asks again, should the other come to nothing


def lost_leader(down: tuple[int, ...]) -> Script:
    """It has lost its leader YOU, and stands."""
    script = Script(down=down)
    script.append(1, (0, 0))
    script.core.suspect_leader(script.now)
    script.time_passes()
    script.hear(PreVoteReply(ME, OTHER, 2, granted=True))
    script.sync()
    assert script.core.role is Role.CANDIDATE
    return script


def test_a_candidate_that_cannot_win_any_more_tries_again_soon():
    script = lost_leader(down=(YOU,))
    script.hear(VoteReply(ME, OTHER, 2, granted=False))
    assert script.core.deadline - script.now <= 2 * script.core.tunables.rank_s
    assert script.time_passes() == [PreVote(peer, ME, 3, 0, 0) for peer in (YOU, OTHER)]


def test_a_candidate_waits_for_those_who_may_yet_vote_for_it():
    script = lost_leader(down=())
    script.hear(VoteReply(ME, OTHER, 2, granted=False))
    assert script.core.deadline - script.now >= script.core.tunables.election_s
    script.hear(VoteReply(ME, YOU, 2, granted=True))
    assert script.core.role is Role.LEADER


def test_split_votes_do_not_follow_each_other_in_haste_for_ever():
    script = lost_leader(down=(YOU,))
    tries = script.core.tunables.hasty_tries
    waits = []
    for _ in range(tries + 1):
        script.hear(VoteReply(ME, OTHER, script.core.term, granted=False))
        waits.append(script.core.deadline - script.now)
        script.time_passes()
        script.hear(PreVoteReply(ME, OTHER, script.core.term + 1, granted=True))
        script.sync()
    hasty = [wait < script.core.tunables.election_s for wait in waits]
    assert hasty == [True] * (tries - 1) + [False] * 2
