"""A member that follows: appends, commit index and snapshots from the leader of its term."""

from collections.abc import Sequence

from queues.raft.config import CONFIG_MARK, config_of
from queues.raft.messages import Append, AppendReply, Entry, Install, NodeId
from queues.raft.replica import FOLLOWER, LEADER, Replica


class Follower(Replica):
    __slots__ = ()

    def _on_append(self, msg: Append, now: float) -> None:
        self._follow(msg, now)
        if not self._prev_matches(msg):
            hint = self.log.hint(msg.prev_index, msg.prev_term)
            self._answer(msg.frm, msg.prev_index, ok=False, hint=hint, read_round=msg.read_round)
            return
        known = max(self.commit - msg.prev_index, 0)  # committed entries are equal everywhere
        entries = msg.entries[known:] if known else msg.entries
        start = self._first_new(entries)
        if start is not None:
            if start <= self.log.last:
                self._truncate(start)
            self._extend(entries[start - entries[0].index :])
        self._commit_to(min(msg.commit, msg.prev_index + len(msg.entries)))
        self._answer(msg.frm, self._ack_index(msg), ok=True, read_round=msg.read_round)
        if self._outlives_leader():
            self.suspect_leader(now)

    def _extend(self, entries: Sequence[Entry]) -> None:
        self.log.extend(entries)
        for entry in [entry for entry in entries if entry.payload.startswith(CONFIG_MARK)]:
            config = config_of(entry.payload)
            assert config is not None
            self._adopt(entry.index, config)
        self._dirty = True

    def _outlives_leader(self) -> bool:
        """Whether its leader has led the group to its own removal, and so leads no more.

        A leader that is not known as a voter may also be one whose promotion is not here yet; but
        its own term's entries come after that.
        """
        if self.leader in self.config.voters or self._change_under_way():
            return False
        return self.log.last_term == self.term

    def suspect_leader(self, now: float) -> None:
        """The leader's node is gone, or says that it leads this group no more."""
        if self.leader is None or self.leader == self.node:
            return
        rank = self.config.rank_after(self.leader, self.node)
        self.leader = None
        self._stand_in_line(rank, now, self.tunables.hasty_tries)

    def _stand_in_line(self, rank: float, now: float, tries: int) -> None:
        """Campaign soon, and again soon if nobody listens yet: others hear of it in their time."""
        self._dirty = True
        self._tries = tries
        if self._may_stand():
            self.deadline = now + (rank + self.random.random()) * self.tunables.rank_s
        else:
            self.deadline = None

    def _follow(self, msg: Append | Install, now: float) -> None:
        assert self.role is not LEADER, "two leaders in one term"
        if self.leader is None:
            self._become_follower(msg.term, msg.frm, now)
            if self.vote == self.node:
                # It stood in this term and lost. A vote for itself would say, should it be the
                # only voter some day, that the entries of this term are its own (_lead_alone).
                self.vote = msg.frm
                self._hard_dirty = True
        assert self.role is FOLLOWER
        assert self.leader == msg.frm, "two leaders in one term"

    def _prev_matches(self, msg: Append) -> bool:
        return msg.prev_index <= self.commit or self.log.matches(msg.prev_index, msg.prev_term)

    def _first_new(self, entries: Sequence[Entry]) -> int | None:
        """Where this log ends or differs. A late or repeated append must not cut off the rest."""
        return self.log.conflict(entries)

    def _ack_index(self, msg: Append) -> int:
        """Only what this message proves: what follows in the log may be a former leader's."""
        return msg.prev_index + len(msg.entries)

    def _on_install(self, msg: Install, now: float) -> None:
        self._follow(msg, now)
        snapshot = msg.snapshot
        if snapshot.index > self.commit:
            if self.log.matches(snapshot.index, snapshot.term):
                self._commit_to(snapshot.index)
            else:
                self._replace_by(snapshot)
        self._answer(msg.frm, self.commit, ok=True, read_round=msg.read_round)

    def _answer(
        self,
        to: NodeId,
        index: int,
        *,
        ok: bool,
        hint: tuple[int, int] = (0, 0),
        read_round: int = 0,
    ) -> None:
        self._send(AppendReply(to, self.node, self.term, ok, index, self.commit, *hint, read_round))
