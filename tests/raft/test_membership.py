"""Members come and go: a group of one grows, shrinks back, and restarts as what it was."""

import pytest

from queues.raft.config import Change, ConfChangeError, Config, Step, Tunables
from queues.raft.messages import Append, PreVote, PreVoteReply, TimeoutNow, Vote, VoteReply
from queues.raft.ready import NotLeaderError, ReadState, Role
from tests.raft.links import Links
from tests.raft.script import ME, OTHER, YOU, Script
from tests.raft.sim import Simulation

NEW = 4
TRIO = (ME, YOU, OTHER)


def grown_pair():
    """A group of one that has become a group of two, all of it committed."""
    script = Script(voters=(ME,))
    script.sync()
    script.change(Step.ADD_LEARNER, YOU)
    script.sync()
    script.hear(script.reply(YOU, 0))
    script.hear(script.reply(YOU, script.core.log.last))
    script.change(Step.PROMOTE, YOU)
    script.sync()
    script.hear(script.reply(YOU, script.core.log.last))
    assert script.core.commit == script.core.log.last
    return script


@pytest.mark.parametrize(
    ("step", "node", "voters", "learners"),
    [
        (Step.ADD_LEARNER, 5, (1, 2, 3), (4, 5)),
        (Step.PROMOTE, 4, (1, 2, 3, 4), ()),
        (Step.REMOVE, 4, (1, 2, 3), ()),
        (Step.REMOVE, 2, (1, 3), (4,)),
    ],
)
def test_a_change_is_of_one_member(step, node, voters, learners):
    assert Change(step, node).applied_to(Config(TRIO, (NEW,))) == Config(voters, learners)


@pytest.mark.parametrize(
    ("config", "step", "node"),
    [
        (Config(TRIO), Step.ADD_LEARNER, ME),
        (Config(TRIO, (NEW,)), Step.ADD_LEARNER, NEW),
        (Config(TRIO), Step.PROMOTE, ME),
        (Config(TRIO), Step.PROMOTE, NEW),
        (Config(TRIO), Step.REMOVE, NEW),
        (Config((ME,), (NEW,)), Step.REMOVE, ME),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_for_good(config, step, node):
    with pytest.raises(ConfChangeError) as refused:
        Change(step, node).applied_to(config)
    assert not refused.value.later


def test_only_the_leader_changes_members():
    script = Script()
    script.append(1, (0, 0))
    with pytest.raises(NotLeaderError):
        script.core.propose_conf(Change(Step.REMOVE, OTHER))


def test_a_group_of_one_grows():
    script = grown_pair()
    assert script.core.config == Config((ME, YOU))
    script.core.propose(b"x")
    script.sync()
    last = script.core.log.last
    assert script.core.commit == last - 1
    script.hear(script.reply(YOU, last))
    assert script.core.commit == last


def test_a_restarted_group_of_one_takes_a_change_once_its_new_term_has_an_entry():
    script = Script(voters=(ME,), terms=(1, 1), vote=ME)
    refused = script.refusal(Step.ADD_LEARNER, YOU)
    assert refused is not None
    assert refused.later
    script.sync()
    assert script.core.term == 2
    sent = script.change(Step.ADD_LEARNER, YOU)
    assert [message.to for message in sent] == [YOU]


def test_a_learner_that_is_behind_is_not_promoted():
    script = Script(tunables=Tunables(append_entries_max=1), learners=(NEW,)).lead()
    script.core.propose(b"x")
    script.core.propose(b"y")
    refused = script.refusal(Step.PROMOTE, NEW)
    assert refused is not None
    assert refused.later
    script.sync()
    script.hear(script.reply(YOU, 3))
    for index in range(4):
        script.hear(script.reply(NEW, index))
    assert script.refusal(Step.PROMOTE, NEW) is None
    assert script.core.config == Config((*TRIO, NEW))


def test_a_learner_with_nothing_is_not_promoted_however_short_the_log_is():
    """It may have been a voter that forgot its votes: it must know of its own removal first."""
    script = Script().lead()
    script.sync()
    script.hear(script.reply(YOU, script.core.log.last))
    script.change(Step.ADD_LEARNER, NEW)
    script.sync()
    last = script.core.log.last
    script.hear(script.reply(YOU, last))
    assert script.core.commit == last
    refused = script.refusal(Step.PROMOTE, NEW)
    assert refused is not None
    assert refused.later
    for index in range(last + 1):
        script.hear(script.reply(NEW, index))
    assert script.refusal(Step.PROMOTE, NEW) is None


def test_a_leader_that_is_alone_after_a_removal_goes_on_alone():
    script = grown_pair()
    script.core.read_index("r")
    script.change(Step.REMOVE, YOU)
    assert script.core.progress is None
    assert script.core.deadline is None
    assert list(script.ready.read_states) == [ReadState("r", script.core.commit)]
    script.sync()
    script.core.propose(b"x")
    script.sync()
    assert script.core.commit == script.core.log.last


def test_a_sole_voter_with_a_learner_reads_at_once():
    script = Script(voters=(ME,), learners=(NEW,))
    script.sync()
    script.core.read_index("r")
    script.out()
    assert [state.context for state in script.ready.read_states] == ["r"]


def test_a_sole_voter_with_a_learner_leads_when_its_term_is_on_disk():
    """The learner has seen entries of the old term that this disk may have lost."""
    script = Script(voters=(ME,), learners=(NEW,), terms=(1, 1), vote=ME)
    assert script.out() == []
    assert script.core.role is Role.CANDIDATE
    (first, *_) = script.sync()
    assert isinstance(first, Append)
    assert (script.core.role, first.term) == (Role.LEADER, 2)


def test_who_lost_an_election_never_takes_its_term_for_its_own():
    """It stood in term 2, OTHER won, and led the group down to this one voter."""
    script = Script(terms=(1,))
    script.time_passes()
    script.hear(PreVoteReply(ME, YOU, 2, granted=True))
    script.append(2, (1, 1), 2, frm=OTHER, payload=Config((ME,)).entry())
    assert [write.hard for write in script.writes][-1] == (2, OTHER)


def test_members_are_what_the_disk_says():
    script = Script(terms=(1, 1), voters=(ME,), configs=[(1, Config((ME, YOU))), (2, Config(TRIO))])
    assert script.core.config == Config(TRIO)
    assert script.core.config_at(1) == Config((ME, YOU))
    assert script.core.role is Role.FOLLOWER
    script.append(2, (0, 0), 2, frm=OTHER)
    assert script.core.config == Config((ME,))


def test_a_compacted_log_still_knows_its_members():
    script = Script()
    script.append(1, (0, 0), 1, payload=Config(TRIO, (NEW,)).entry())
    script.append(1, (1, 1), 1, payload=Config((*TRIO, NEW)).entry())
    script.append(1, (2, 1), 1, commit=3)
    script.sync()
    script.core.applied(3)
    script.core.compacted(3)
    assert script.core.config_at(3) == script.core.config == Config((*TRIO, NEW))


def test_a_learner_never_campaigns():
    script = Script(voters=(YOU, OTHER), learners=(ME,))
    assert script.core.deadline is None
    script.append(1, (0, 0))
    script.core.suspect_leader(script.now)
    script.core.peer_up(OTHER, script.now)
    script.core.campaign(script.now)
    script.hear(TimeoutNow(ME, YOU, 1))
    script.out()
    assert (script.core.deadline, script.core.role) == (None, Role.FOLLOWER)


def test_a_learner_gives_its_vote_for_it_may_be_a_voter_and_not_know_yet():
    script = Script(voters=(YOU, OTHER), learners=(ME,))
    script.hear(Vote(ME, YOU, 1, 0, 0, transfer=False))
    assert script.sync() == [VoteReply(YOU, ME, 1, granted=True)]


def test_a_leader_whose_removal_is_not_committed_may_be_the_only_one_to_be_elected():
    """YOU cannot win, for its log is shorter; so this node stands, and counts only YOU."""
    script = Script(voters=(ME, YOU), terms=(1, 1), configs=[(2, Config((YOU,)))])
    assert script.time_passes() == [PreVote(YOU, ME, 2, 2, 1)]
    script.hear(PreVoteReply(ME, YOU, 2, granted=True))
    script.sync()
    script.hear(VoteReply(ME, YOU, 2, granted=True))
    assert script.core.role is Role.LEADER
    script.sync()
    assert script.core.commit == 0
    script.hear(script.reply(YOU, 3))
    assert (script.core.commit, script.core.role) == (3, Role.FOLLOWER)


def test_followers_look_for_another_leader_when_the_removal_of_theirs_is_committed():
    script = Script(voters=(YOU, ME, OTHER))
    script.append(1, (0, 0), 1, payload=Config((ME, OTHER)).entry())
    assert script.core.leader == YOU
    script.append(1, (1, 1), commit=1)
    assert script.core.leader is None
    assert script.core.deadline - script.now <= 2 * script.core.tunables.rank_s


def test_a_leader_that_is_not_yet_known_as_a_voter_is_followed_all_the_same():
    script = Script(voters=(ME, YOU), terms=(1,))
    script.append(2, (1, 1), 1, frm=OTHER, commit=1)
    assert script.core.leader == OTHER


def test_nodes_that_are_down_are_not_fed_by_a_new_leader():
    script = Script()
    script.core.down = {OTHER}
    assert {message.to for message in script.win()} == {YOU}


def test_a_campaign_on_demand_asks_again_soon_until_others_have_the_group():
    script = Script()
    script.core.campaign(0.0)
    for _ in range(script.core.tunables.first_tries):
        assert [type(message) for message in script.out()] == [PreVote, PreVote]
        wait = script.core.deadline - script.now
        assert 0.05 <= wait <= 0.1
        script.now = script.core.deadline
        script.core.tick(script.now)
    assert script.core.deadline - script.now >= script.core.tunables.election_s


def test_a_campaign_on_demand_does_not_disturb_a_leader():
    script = Script()
    script.append(1, (0, 0))
    script.core.campaign(script.now)
    assert script.core.role is Role.FOLLOWER


def test_a_hand_over_ends_when_its_target_goes_down():
    script = Script().lead()
    script.core.propose(b"x")
    script.core.transfer(YOU)
    assert not script.core.takes_proposals
    script.core.peer_down(YOU, script.now)
    assert script.core.takes_proposals
    script.core.transfer(YOU)
    assert script.core.takes_proposals


def calm(seed):
    """Three nodes with good links and disks; nothing happens to them but what a test does."""
    sim = Simulation(seed)
    weather = sim.weather
    weather.links, weather.delay_s, weather.sync_s = True, 0.001, 0.003
    sim.links, sim.tunables = Links(sim), Tunables()
    sim.members.clear()
    sim.events.clear()
    for node in TRIO:
        sim.add_member(node, Config(TRIO))
    for node in TRIO:
        sim.restart(node)
    sim.links.connect()
    return sim


def until_led(sim):
    start = sim.now
    while not any(member.leads for member in sim.members.values()):
        sim.run_until(sim.now + 0.001)
        assert sim.now < start + 10.0, "no leader"
    return sim.now - start


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_dead_leader_is_replaced_within_some_hundred_milliseconds(first):
    for seed in range(first, first + 20):
        sim = calm(seed)
        until_led(sim)
        sim.run_until(sim.now + 1.0)
        (leader,) = [member for member in sim.members.values() if member.leads]
        sim.operator.lost.add(leader.node)
        sim.crash(leader.node)
        assert until_led(sim) < 0.5, f"seed {seed}"
