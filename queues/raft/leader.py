"""A member that leads: its members, the commit rule, reads, hand-over, quorum check."""

from queues.raft.config import Config
from queues.raft.feeder import Feeder
from queues.raft.messages import (
    NO_OP,
    AppendReply,
    NodeId,
    TimeoutNow,
)
from queues.raft.progress import Feed, Progress
from queues.raft.ready import ReadState
from queues.raft.replica import AT_ONCE, LEADER


class Leader(Feeder):
    __slots__ = ()

    def _become_leader(self) -> None:
        self.role = LEADER
        self.leader = self.node
        self._votes = None
        self._read_round = 0
        self.deadline = None
        self._tries = 0
        self._meet_members()
        assert self.progress is None or not self._hard_dirty, "a leader's term is on disk"
        self._term_start = self.log.append(self.term, NO_OP)
        self._dirty = True

    def _meet_members(self) -> None:
        """Feed exactly the other members of the configuration, as what they are in it."""
        config, known = self.config, self.progress or {}
        progress: dict[NodeId, Progress] = {}
        for node in (*config.voters, *config.learners):
            if node != self.node:
                peer = known.get(node)
                if peer is None:
                    peer = Progress(
                        node,
                        self.log.last + 1,
                        voter=True,
                        down=node in self.down,
                        since=self._read_round,
                    )
                peer.voter = node in config.voters
                progress[node] = peer
        self.progress = progress or None
        if progress:
            self._wake()
        else:
            self.deadline = None
        if self._transferee not in config.voters:
            self._transferee = None

    def _change_members(self, config: Config) -> int:
        """Append the configuration, and go by it from here on."""
        index = self.log.append(self.term, config.entry())
        self._dirty = True
        self._adopt(index, config)
        self._read_round += 1
        self._meet_members()
        self._confirm_reads()  # a smaller quorum may have answered already
        self._advance_commit()
        return index

    def _retire(self) -> None:
        """Its own removal is committed: tell the others so, who then find another leader."""
        for peer in (self.progress or {}).values():
            if not peer.down and peer.feed is not Feed.SNAPSHOT:
                self._append_to(peer, ())
        self._become_follower(self.term, None, AT_ONCE)
        assert self.deadline is None, "who is removed does not campaign"

    def _on_append_reply(self, msg: AppendReply, _now: float) -> None:
        peer = self._peer(msg.frm)
        if peer is None or self._is_of_an_earlier_life(peer, msg):
            return
        peer.active = True
        self._dirty = True
        peer.commit = max(peer.commit, msg.commit)
        if msg.read_round > peer.read_round:
            peer.read_round = msg.read_round
            self._confirm_reads()
        if msg.ok:
            self._on_ack(peer, msg.index)
        else:
            self._on_mismatch(peer, msg)

    def _is_of_an_earlier_life(self, peer: Progress, msg: AppendReply) -> bool:
        """Whether it answers what was sent before the member was added: its disk was another."""
        return msg.read_round < peer.since

    def _on_ack(self, peer: Progress, index: int) -> None:
        assert index <= self.log.last, "a follower acknowledged what was never sent"
        news = peer.acked(index)
        if peer.feed is Feed.PROBE:
            if index >= peer.next - 1:  # the probe's answer, not that of an earlier append
                peer.replicate()
        elif peer.feed is Feed.SNAPSHOT:
            if peer.match >= self.log.offset:
                peer.replicate()
            elif news and peer.installing:  # the log was cut again meanwhile: the next, at once
                peer.probe(peer.match + 1)
        if news:
            self._advance_commit()
            self._release()
            if peer.node == self._transferee:
                self._hand_over(peer)

    def _on_mismatch(self, peer: Progress, msg: AppendReply) -> None:
        if peer.feed is Feed.SNAPSHOT or msg.index <= peer.match:
            return
        if peer.feed is Feed.PROBE and msg.index != peer.next - 1:
            return  # an answer to an earlier probe
        index, _ = self.log.hint(msg.hint_index, msg.hint_term)
        peer.probe(max(peer.match, index) + 1)

    # The commit rule.

    def _advance_commit(self) -> None:
        index = self._quorum_index()
        if index > self.commit and self._is_of_this_term(index):
            self._commit_to(index)
            if not self._votes_here and not self._change_under_way():
                self._retire()

    def _quorum_index(self) -> int:
        if self.progress is None:
            return self.durable
        matches = [peer.match for peer in self.progress.values() if peer.voter]
        if self._votes_here:
            matches.append(self.durable)
        matches.sort(reverse=True)
        return matches[self.config.quorum - 1]

    def _is_of_this_term(self, index: int) -> bool:
        """An older entry on a majority may still be overwritten; one of this term seals it."""
        return index >= self._term_start

    def _release(self) -> None:
        """Drop payloads that are applied and, within the cache, sent to all that keep up."""
        upto = self.applied_index
        if self.progress and self.log.held_bytes <= self.tunables.cache_bytes:
            for peer in self.progress.values():
                if peer.feed is Feed.REPLICATE and not peer.down:
                    upto = min(upto, peer.match)
        self.log.release(upto)

    # Heartbeats, only while somebody is behind.

    def _beat(self, now: float) -> None:
        progress = self.progress
        assert progress is not None, "a leader without followers has no timers"
        if self.deadline == AT_ONCE:
            self.beats = 0
            for peer in progress.values():
                peer.active = False
            self.deadline = now + self.tunables.heartbeat_s
            self._dirty = True
            return
        self.beats += 1
        if self.beats % self.tunables.check_beats == 0 and not self._hears_quorum(progress):
            self._become_follower(self.term, None, now)
            return
        busy = self._transfer_goes_on()
        for peer in progress.values():
            if self._is_behind(peer):
                busy = True
                self._remind(peer)
        self.deadline = now + self.tunables.heartbeat_s if busy else None
        self._dirty = True

    def _is_behind(self, peer: Progress) -> bool:
        return not peer.down and (
            peer.match < self.log.last
            or peer.commit < self.commit
            or (self._reads_waiting is not None and peer.read_round < self._read_round)
        )

    def _remind(self, peer: Progress) -> None:
        """An empty append finds out what was lost; a snapshot gets more patience."""
        if peer.feed is Feed.SNAPSHOT:
            peer.beats += peer.installing
            if peer.beats < self.tunables.snapshot_beats:
                return
            peer.probe(max(peer.match + 1, peer.next))
        peer.paused = False
        peer.beat_due = True

    def _hears_quorum(self, progress: dict[NodeId, Progress]) -> bool:
        heard = int(self._votes_here)
        for peer in progress.values():
            peer.silent_checks = 0 if peer.active else peer.silent_checks + 1
            heard += peer.voter and not peer.down and (peer.active or self._may_be_silent(peer))
            peer.active = False
        return heard >= self.config.quorum

    def _may_be_silent(self, peer: Progress) -> bool:
        """Nothing is asked of it; or what it was sent is large, and takes its time."""
        patience = peer.inflight_bytes // self.tunables.patience_bytes
        return not self._is_behind(peer) or peer.silent_checks <= patience

    def peer_down(self, node: NodeId, now: float) -> None:
        """That node is gone: nothing is sent to it; without a quorum the leader steps down."""
        peer = self._peer(node)
        if peer is None or self.progress is None:
            return
        peer.down = True
        if node == self._transferee:
            self._transferee = None
        up = sum(other.voter and not other.down for other in self.progress.values())
        if up + self._votes_here < self.config.quorum:
            self._become_follower(self.term, None, now)

    # Reads and hand-over.

    def _start_read(self, context: object) -> None:
        """Linearizable at `index` once a quorum has answered a round that starts now.

        Nothing before this term's first entry is known to be committed until that entry is.
        """
        state = ReadState(context, max(self.commit, self._term_start))
        if self.progress is None:
            self._read_states = [*(self._read_states or ()), state]
            self._dirty = True
            return
        self._read_round += 1
        if self._reads_waiting is None:
            self._reads_waiting = []
        self._reads_waiting.append((self._read_round, state))
        for peer in self.progress.values():
            peer.beat_due = True
        self._wake()
        self._confirm_reads()  # at once where there are only learners to ask

    def _confirm_reads(self) -> None:
        waiting = self._reads_waiting
        if waiting is None:
            return
        rounds = [peer.read_round for peer in (self.progress or {}).values() if peer.voter]
        if self._votes_here:
            rounds.append(self._read_round)
        rounds.sort(reverse=True)
        confirmed = rounds[self.config.quorum - 1]
        self._read_states = self._read_states or []
        self._read_states += [state for number, state in waiting if number <= confirmed]
        self._reads_waiting = [read for read in waiting if read[0] > confirmed] or None

    def _start_transfer(self, peer: Progress) -> None:
        self._transferee = peer.node
        self._transfer_beats = self.tunables.transfer_beats
        self._hand_over(peer)
        self._wake()

    def _hand_over(self, peer: Progress) -> None:
        if peer.match == self.log.last:
            self._send(TimeoutNow(peer.node, self.node, self.term))

    def _transfer_goes_on(self) -> bool:
        if self._transferee is None:
            return False
        self._transfer_beats -= 1
        if self._transfer_beats <= 0:
            self._transferee = None
        return True
