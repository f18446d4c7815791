"""A member that leads: feeding followers, the commit rule, reads, hand-over, quorum check."""

from collections.abc import Sequence

from queues.raft.follower import Follower
from queues.raft.messages import (
    NO_OP,
    Append,
    AppendReply,
    Entry,
    Install,
    NodeId,
    Snapshot,
    TimeoutNow,
)
from queues.raft.progress import Feed, Progress
from queues.raft.ready import ReadOp, ReadState
from queues.raft.replica import AT_ONCE, LEADER


class Leader(Follower):
    __slots__ = ()

    def _become_leader(self) -> None:
        self.role = LEADER
        self.leader = self.node
        self._votes = None
        self._read_round = 0
        self.deadline = None
        peers = [voter for voter in self.config.voters if voter != self.node]
        if peers:
            assert not self._hard_dirty, "a leader's term is on disk"
            self.progress = {peer: Progress(peer, self.log.last + 1) for peer in peers}
            self._wake()
        self._term_start = self.log.append(self.term, NO_OP)
        self._dirty = True

    def _wake(self) -> None:
        """There is unacknowledged work: heartbeats are needed, from the next tick on."""
        self._dirty = True
        if self.deadline is None:
            self.deadline = AT_ONCE

    # Feeding.

    def _feed_all(self, progress: dict[NodeId, Progress]) -> None:
        for peer in progress.values():
            if not peer.down and peer.feed is not Feed.SNAPSHOT:
                self._feed(peer)

    def _feed(self, peer: Progress) -> None:
        log = self.log
        tunables = self.tunables
        while (
            peer.next <= log.last
            and not peer.paused
            and not peer.fetching
            and peer.inflight_bytes < tunables.window_bytes
            and peer.next > log.offset
        ):
            entries = log.batch(peer.next, tunables.append_entries_max, tunables.append_bytes_max)
            if entries is not None:
                self._append_to(peer, entries)
            elif peer.feed is Feed.PROBE:
                self._append_to(peer, ())  # first see where the logs meet, then read from disk
            else:
                self._fetch(peer)
        if peer.next <= log.offset:
            self._want_snapshot(peer)
        elif peer.beat_due or (peer.commit_sent < self.commit and not peer.paused):
            self._append_to(peer, ())

    def _append_to(self, peer: Progress, entries: Sequence[Entry]) -> None:
        """The leader's own appends do not wait for its disk: both run side by side."""
        prev = peer.next - 1
        self._msgs.append(
            Append(
                peer.node,
                self.node,
                self.term,
                prev,
                self.log.term_at(prev),
                entries,
                self.commit,
                self._read_round,
            )
        )
        peer.commit_sent = self.commit
        peer.beat_due = False
        if peer.feed is Feed.PROBE:
            peer.paused = True
        elif entries:
            peer.sent(entries[-1].index, sum(len(entry.payload) for entry in entries))

    def _fetch(self, peer: Progress) -> None:
        peer.fetching = True
        tunables = self.tunables
        last = min(self.log.held_from - 1, peer.next + tunables.append_entries_max - 1)
        op = ReadOp(peer.node, peer.next, last, tunables.append_bytes_max)
        self._reads = [*(self._reads or ()), op]

    def fetched(self, node: NodeId, entries: Sequence[Entry]) -> None:
        """Answer to Ready.reads; empty if compacted since. What no longer fits is dropped."""
        peer = self._peer(node)
        if peer is None or not peer.fetching:
            return
        peer.fetching = False
        self._dirty = True
        if not entries or entries[0].index != peer.next or peer.next <= self.log.offset:
            return
        last = entries[-1]
        if self.log.matches(last.index, last.term) and not peer.paused:
            self._append_to(peer, entries)

    def _want_snapshot(self, peer: Progress) -> None:
        peer.await_snapshot()
        self._snapshots = [*(self._snapshots or ()), peer.node]

    def snapshot(self, node: NodeId, snapshot: Snapshot) -> None:
        """Answer to Ready.snapshots."""
        assert snapshot.index <= self.applied_index
        peer = self._peer(node)
        if peer is not None and peer.feed is Feed.SNAPSHOT:
            self._send(Install(node, self.node, self.term, snapshot))

    def _peer(self, node: NodeId) -> Progress | None:
        return self.progress.get(node) if self.progress else None

    def _on_append_reply(self, msg: AppendReply, _now: float) -> None:
        peer = self._peer(msg.frm)
        if peer is None:
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

    def _on_ack(self, peer: Progress, index: int) -> None:
        assert index <= self.log.last, "a follower acknowledged what was never sent"
        news = peer.acked(index)
        if peer.feed is Feed.PROBE:
            if index >= peer.next - 1:  # the probe's answer, not that of an earlier append
                peer.replicate()
        elif peer.feed is Feed.SNAPSHOT and peer.match >= self.log.offset:
            peer.replicate()
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

    def _quorum_index(self) -> int:
        if self.progress is None:
            return self.durable
        matches = [peer.match for peer in self.progress.values()]
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
            peer.beats += 1
            if peer.beats < self.tunables.snapshot_beats:
                return
            peer.probe(max(peer.match + 1, peer.next))
        peer.paused = False
        peer.beat_due = True

    def _hears_quorum(self, progress: dict[NodeId, Progress]) -> bool:
        heard = 1
        for peer in progress.values():
            heard += peer.active or not (peer.down or self._is_behind(peer))
            peer.active = False
        return heard >= self.config.quorum

    def peer_down(self, node: NodeId, now: float) -> None:
        """That node is gone: nothing is sent to it; without a quorum the leader steps down."""
        peer = self._peer(node)
        if peer is None or self.progress is None:
            return
        peer.down = True
        up = 1 + sum(not other.down for other in self.progress.values())
        if up < self.config.quorum:
            self._become_follower(self.term, None, now)

    def peer_up(self, node: NodeId) -> None:
        """That node is back, or has started anew: tell it who leads and find where it is."""
        peer = self._peer(node)
        if peer is not None:
            peer.down = False
            self._greet(peer)

    def _greet(self, peer: Progress) -> None:
        if peer.feed is not Feed.SNAPSHOT:
            peer.probe(max(peer.match + 1, min(peer.next, self.log.last + 1)))
            peer.beat_due = True
        self._wake()

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

    def _confirm_reads(self) -> None:
        waiting = self._reads_waiting
        if waiting is None or self.progress is None:
            return
        rounds = [peer.read_round for peer in self.progress.values()]
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
