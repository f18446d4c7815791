"""How a leader feeds its followers: appends from memory or from disk, snapshots, first contact."""

from collections.abc import Sequence
from typing import TypeAlias

from queues.raft.follower import Follower
from queues.raft.log import batches
from queues.raft.messages import Append, Entry, Install, NodeId, Snapshot
from queues.raft.progress import Feed, Progress
from queues.raft.ready import ReadOp
from queues.raft.replica import AT_ONCE

# The entries to send from an index on, and their size: the same list for all that wait there, so
# that it is encoded once.
_Batches: TypeAlias = dict[int, tuple[list[Entry], int]]


class Feeder(Follower):
    __slots__ = ()

    def _wake(self) -> None:
        """There is unacknowledged work: heartbeats are needed, from the next tick on."""
        self._dirty = True
        if self.deadline is None:
            self.deadline = AT_ONCE

    def _feed_all(self, progress: dict[NodeId, Progress]) -> None:
        shared: _Batches = {}
        for peer in progress.values():
            if not peer.down and peer.feed is not Feed.SNAPSHOT:
                self._feed(peer, shared)

    def _feed(self, peer: Progress, shared: _Batches) -> None:
        log = self.log
        tunables = self.tunables
        while (
            peer.next <= log.last
            and not peer.paused
            and not peer.fetching
            and peer.inflight_bytes < tunables.window_bytes
            and peer.next > log.offset
            and not self._is_crowded(peer)
        ):
            batch = shared.get(peer.next)
            if batch is None:
                batch = shared[peer.next] = log.batch(
                    peer.next, tunables.append_entries_max, tunables.append_bytes_max
                )
            if batch[0] and (peer.feed is not Feed.PROBE or batch[1] <= tunables.append_bytes_max):
                self._append_to(peer, *batch)
            elif peer.feed is Feed.PROBE:
                # First see where the logs meet, then read from disk, or send what is large: a
                # probe is repeated with each heartbeat.
                self._append_to(peer, ())
            else:
                self._fetch(peer)
        if peer.next <= log.offset:
            self._want_snapshot(peer)
        elif peer.beat_due or (
            tunables.eager_commit and peer.commit_sent < self.commit and not peer.paused
        ):
            self._append_to(peer, ())

    def _is_crowded(self, peer: Progress) -> bool:
        """Whether its entries have to wait; heartbeats and probes do not."""
        if peer.node in self.crowded:
            self.held_up = True
            return True
        return False

    def has_room(self) -> None:
        """Those that were crowded may take more, or not all of them are any longer."""
        self._dirty = True

    def _append_to(self, peer: Progress, entries: Sequence[Entry], size: int = 0) -> None:
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
            peer.sent(entries[-1].index, size)

    def _fetch(self, peer: Progress) -> None:
        peer.fetching = True
        tunables = self.tunables
        last = min(self.log.held_from - 1, peer.next + tunables.fetch_entries_max - 1)
        op = ReadOp(peer.node, peer.next, last, tunables.fetch_bytes_max)
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
            tunables = self.tunables
            for batch, size in batches(
                entries, tunables.append_entries_max, tunables.append_bytes_max
            ):
                self._append_to(peer, batch, size)

    def _want_snapshot(self, peer: Progress) -> None:
        peer.await_snapshot()
        self._snapshots = [*(self._snapshots or ()), peer.node]

    def snapshot(self, node: NodeId, snapshot: Snapshot | None) -> None:
        """Answer to Ready.snapshots; None if it came to nothing and has to be asked for again."""
        peer = self._peer(node)
        if peer is None or peer.feed is not Feed.SNAPSHOT:
            return
        if snapshot is None:
            self._greet(peer)
            return
        assert snapshot.index <= self.applied_index
        peer.installing = True
        peer.beats = 0
        self._send(Install(node, self.node, self.term, snapshot, self._read_round))

    def _peer(self, node: NodeId) -> Progress | None:
        return self.progress.get(node) if self.progress else None

    def _reach(self, node: NodeId) -> None:
        peer = self._peer(node)
        if peer is not None:
            peer.down = False
            self._greet(peer)

    def _greet(self, peer: Progress) -> None:
        """Tell it who leads, and find where it is; what was on its way to it may be lost.

        Where it needs a snapshot it hears an append first all the same: until it knows its leader
        it asks for votes, and each time all would start anew.
        """
        end = self.log.last + 1
        place = max(peer.match + 1, min(peer.next, end))
        peer.probe(place if place > self.log.offset else end)
        peer.beat_due = True
        self._wake()
