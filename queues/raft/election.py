"""How a group finds its leader: pre-vote, vote, the peace a living leader has, the sole voter.

A member that knows a leader holds no timer: that the leader's node lives is heard once per node,
not per group, and the host calls `suspect_leader` when it does not. Until then votes are refused.
"""

from queues.raft.leader import Leader
from queues.raft.messages import NodeId, PreVote, PreVoteReply, TimeoutNow, Vote, VoteReply
from queues.raft.ready import Role
from queues.raft.replica import FOLLOWER, LEADER


class Elector(Leader):
    __slots__ = ()

    def _lead_alone(self) -> None:
        """The sole voter leads at once: nobody else can, and nobody saw its unwritten entries.

        After a restart all that is on its disk is committed, and it writes nothing until there is
        something to propose: a node has many idle groups. Learners have seen unwritten entries:
        where there are any it begins a new term, on disk before they hear of it.
        """
        if self.config.learners:
            self._stand()
        elif self.vote == self.node:
            self.role = LEADER
            self.leader = self.node
            self._resumed = True
            self._commit_to(self.log.last)
        else:
            self._stand()
            self._become_leader()

    def _renew_term(self) -> None:
        """Entries lost in the crash had places in the old term: no place is used twice."""
        self._stand()
        self.role = LEADER
        self.leader = self.node
        self._votes = None
        self._resumed = False
        self._term_start = self.log.last + 1

    def campaign(self, now: float) -> None:
        """Lead if the others agree, without waiting for a time-out: for the first of a new group.

        The others may not have the group yet: it asks again soon, a few times.
        """
        if self.leader is None and self._may_stand() and self.role is not Role.CANDIDATE:
            self._tries = self.tunables.first_tries
            self._campaign(now)

    def _campaign(self, now: float) -> None:
        """Ask first whether an election could be won: nothing changes anywhere if it could not."""
        if self._tries:
            rank = self._place_in_line()
            self._stand_in_line(1.0 + rank, now, self._tries - 1)
        else:
            self._await_election(now)
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._votes = {}
        if self._collect(self.node, granted=True):
            self._request_votes(now, transfer=False)  # the sole voter
            return
        for to in self._others():
            self._send(PreVote(to, self.node, self.term + 1, self.log.last, self.log.last_term))

    def _place_in_line(self) -> float:
        """Who led last goes first; the others spread, so that not one node leads all groups."""
        if self.vote == self.node or not self.term:
            return 0.0
        return 1.0 + self.random.random() * (len(self.config.voters) - 1)

    def peer_up(self, node: NodeId, now: float) -> None:
        """That node is back, or has started anew: find a leader together, or tell it who leads."""
        if self.role is LEADER:
            self._reach(node)
        elif self.leader is None and self.role is not Role.CANDIDATE and self._may_stand():
            self._stand_in_line(self._place_in_line(), now, self.tunables.hasty_tries)

    def _stand(self) -> None:
        self.role = Role.CANDIDATE
        self.term += 1
        self.vote = self.node
        self.leader = None
        self._hard_dirty = True
        self._votes = {self.node: True}
        self._dirty = True

    def _win_alone(self) -> None:
        """The sole voter's own vote elects it, once that is on disk."""
        if self.config.voters == (self.node,) and not self._hard_dirty and not self._outstanding:
            self._become_leader()

    def _request_votes(self, now: float, *, transfer: bool) -> None:
        self._await_election(now)
        self._stand()
        log = self.log
        for to in self._others():
            self._send(Vote(to, self.node, self.term, log.last, log.last_term, transfer))

    def _others(self) -> list[NodeId]:
        return [voter for voter in self.config.voters if voter != self.node]

    def _on_timeout_now(self, _msg: TimeoutNow, now: float) -> None:
        if self.role is FOLLOWER and self._may_stand():
            self._request_votes(now, transfer=True)

    def _on_pre_vote(self, msg: PreVote, now: float) -> None:
        if not self._may_be_voter(msg):
            return
        if msg.term > self.term and msg.frm == self.leader:
            self.suspect_leader(now)  # it campaigns, so it leads no more
        granted = (
            msg.term > self.term
            and self.leader is None
            and self.log.is_up_to_date(msg.last_index, msg.last_term)
        )
        if granted and self.role is Role.PRE_CANDIDATE and msg.frm < self.node:
            # Two that ask each other at once would both go on, and split the votes: one gives way.
            self.role = FOLLOWER
            self._votes = None
        term = msg.term if granted else self.term
        self._send(PreVoteReply(msg.frm, self.node, term, granted))
        self._tell_who_leads(msg.frm)

    def _may_be_voter(self, msg: PreVote | Vote) -> bool:
        """Strangers are those removed, who disturb nobody, and voters that this log does not know.

        The latter matter: a majority may need the one to be elected and the other's vote for it.
        They can be told apart by what they have. Who is counted is for the candidate to say.
        """
        return msg.frm in self.config.voters or self.log.is_up_to_date(
            msg.last_index, msg.last_term
        )

    def _on_vote(self, msg: Vote, now: float) -> None:
        if not self._may_be_voter(msg):
            return
        granted = (
            self.vote in (None, msg.frm)
            and self.leader is None
            and self.log.is_up_to_date(msg.last_index, msg.last_term)
        )
        if granted and self.vote is None:
            self.vote = msg.frm
            self._hard_dirty = True
        if granted:
            self._await_election(now)
        self._send(VoteReply(msg.frm, self.node, self.term, granted))

    def _heeds_vote(self, msg: Vote) -> bool:
        """Removed members and those that only lost sight of a living leader disturb nobody."""
        if not self._may_be_voter(msg):
            return False
        if msg.transfer or self.leader is None or self.leader == msg.frm:
            return True
        self._tell_who_leads(msg.frm)
        return False

    def _tell_who_leads(self, node: NodeId) -> None:
        """A leader answers a campaign with an append: the other end learns of it, or objects."""
        peer = self._peer(node)
        if peer is not None:
            self._greet(peer)

    def _on_pre_vote_reply(self, msg: PreVoteReply, now: float) -> None:
        asked = self.role is Role.PRE_CANDIDATE and msg.term == self.term + 1
        if asked and self._collect(msg.frm, granted=msg.granted):
            self._request_votes(now, transfer=False)

    def _on_vote_reply(self, msg: VoteReply, now: float) -> None:
        if self.role is not Role.CANDIDATE:
            return
        if self._collect(msg.frm, granted=msg.granted):
            self._become_leader()
        elif self._tries and self._cannot_win():
            self._stand_in_line(1.0 + self._place_in_line(), now, self._tries)

    def _cannot_win(self) -> bool:
        """Whether so many have refused that those who may yet answer do not suffice."""
        votes, voters = self._votes or {}, self.config.voters
        hopes = sum(votes.get(voter, voter not in self.down) for voter in voters)
        return hopes < self.config.quorum

    def _collect(self, frm: NodeId, *, granted: bool) -> bool:
        """Take in a vote; whether a quorum is reached."""
        assert self._votes is not None
        self._votes[frm] = granted
        return self._tally(self._votes) >= self.config.quorum

    def _tally(self, votes: dict[NodeId, bool]) -> int:
        """Only voters count, be it this node itself."""
        return sum(votes.get(voter, False) for voter in self.config.voters)
