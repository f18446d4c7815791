"""A member that follows: appends, commit index and snapshots from the leader of its term."""

from queues.raft.messages import Append, AppendReply, Install
from queues.raft.replica import FOLLOWER, LEADER, Replica


class Follower(Replica):
    __slots__ = ()

    def _on_append(self, msg: Append, now: float) -> None:
        self._follow(msg, now)
        if not self._prev_matches(msg):
            hint_index, hint_term = self.log.hint(msg.prev_index, msg.prev_term)
            self._answer(msg, msg.prev_index, ok=False, hint=(hint_index, hint_term))
            return
        known = max(self.commit - msg.prev_index, 0)  # committed entries are equal everywhere
        entries = msg.entries[known:] if known else msg.entries
        start = self._first_new(msg, entries)
        if start is not None:
            if start <= self.log.last:
                self._truncate(start)
            self.log.extend(entries[start - entries[0].index :])
            self._dirty = True
        end = msg.prev_index + len(msg.entries)
        self._commit_to(min(msg.commit, end))
        self._answer(msg, self._ack_index(msg), ok=True)

    def _follow(self, msg: Append | Install, now: float) -> None:
        assert self.role is not LEADER, "two leaders in one term"
        if self.leader is None:
            self._become_follower(msg.term, msg.frm, now)
        assert self.role is FOLLOWER
        assert self.leader == msg.frm, "two leaders in one term"

    def _prev_matches(self, msg: Append) -> bool:
        return msg.prev_index <= self.commit or self.log.matches(msg.prev_index, msg.prev_term)

    def _first_new(self, msg: Append, entries: Append.entries) -> int | None:  # type: ignore[valid-type]
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
        self._send(
            AppendReply(
                msg.frm,
                self.node,
                self.term,
                True,
                self.commit,
                self.commit,
                0,
                0,
                0,  # noqa: FBT003
            )
        )

    def _answer(self, msg: Append, index: int, *, ok: bool, hint: tuple[int, int] = (0, 0)) -> None:
        self._send(
            AppendReply(
                msg.frm, self.node, self.term, ok, index, self.commit, *hint, msg.read_round
            )
        )
