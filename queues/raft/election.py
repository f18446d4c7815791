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
        something to propose: a node has many idle groups.
        """
        if self.vote == self.node:
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

    def suspect_leader(self, now: float) -> None:
        """The leader's node is gone, or says that it leads this group no more."""
        if self.leader is not None and self.leader != self.node:
            rank = self.config.rank_after(self.leader, self.node)
            self.leader = None
            wait = (rank + self.random.random()) * self.tunables.rank_s
            self.deadline = now + wait
            self._dirty = True

    def _campaign(self, now: float) -> None:
        """Ask first whether an election could be won: nothing changes anywhere if it could not."""
        self._await_election(now)
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._votes = {self.node: True}
        for to in self._others():
            self._send(PreVote(to, self.node, self.term + 1, self.log.last, self.log.last_term))

    def _stand(self) -> None:
        self.role = Role.CANDIDATE
        self.term += 1
        self.vote = self.node
        self.leader = None
        self._hard_dirty = True
        self._votes = {self.node: True}
        self._dirty = True

    def _request_votes(self, now: float, *, transfer: bool) -> None:
        self._await_election(now)
        self._stand()
        log = self.log
        for to in self._others():
            self._send(Vote(to, self.node, self.term, log.last, log.last_term, transfer))

    def _others(self) -> list[NodeId]:
        return [voter for voter in self.config.voters if voter != self.node]

    def _on_timeout_now(self, _msg: TimeoutNow, now: float) -> None:
        if self.role is FOLLOWER:
            self._request_votes(now, transfer=True)

    def _on_pre_vote(self, msg: PreVote, now: float) -> None:
        if msg.frm not in self.config.voters:
            return
        if msg.term > self.term and msg.frm == self.leader:
            self.suspect_leader(now)  # it campaigns, so it leads no more
        granted = (
            msg.term > self.term
            and self.leader is None
            and self.log.is_up_to_date(msg.last_index, msg.last_term)
        )
        term = msg.term if granted else self.term
        self._send(PreVoteReply(msg.frm, self.node, term, granted))
        self._tell_who_leads(msg.frm)

    def _on_vote(self, msg: Vote, now: float) -> None:
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
        if msg.frm not in self.config.voters:
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
        if asked and self._tally(msg.frm, granted=msg.granted):
            self._request_votes(now, transfer=False)

    def _on_vote_reply(self, msg: VoteReply, _now: float) -> None:
        if self.role is Role.CANDIDATE and self._tally(msg.frm, granted=msg.granted):
            self._become_leader()

    def _tally(self, frm: NodeId, *, granted: bool) -> bool:
        """Count a vote; whether a quorum is reached."""
        assert self._votes is not None
        if frm in self.config.voters:
            self._votes[frm] = granted
        return sum(self._votes.values()) >= self.config.quorum
