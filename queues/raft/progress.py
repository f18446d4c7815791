"""How far a follower is, as its leader knows it, and how much may be sent to it now."""

from enum import Enum

from queues.raft.messages import NodeId


class Feed(Enum):
    PROBE = "probe"  # where the logs meet is not known: one append at a time
    REPLICATE = "replicate"  # appends flow ahead of their replies, up to a window of bytes
    SNAPSHOT = "snapshot"  # what it needs is compacted: nothing until it has a snapshot


class Progress:
    __slots__ = (
        "active",
        "beat_due",
        "beats",
        "commit",
        "commit_sent",
        "down",
        "feed",
        "fetching",
        "inflight_bytes",
        "installing",
        "match",
        "next",
        "node",
        "paused",
        "read_round",
        "silent_checks",
        "since",
        "unacked",
        "voter",
    )

    def __init__(
        self, node: NodeId, next_index: int, *, voter: bool, down: bool, since: int
    ) -> None:
        self.node = node
        self.since = since  # replies of earlier rounds are of a member removed since, disk and all
        self.voter = voter  # else a learner: fed alike, never counted
        self.feed = Feed.PROBE
        self.match = 0  # on its disk and equal to ours up to here; never falls within a term
        self.next = next_index
        self.commit = 0  # the commit index that it has told
        self.commit_sent = 0
        self.read_round = 0
        self.active = False  # heard from since the last quorum check
        self.silent_checks = 0  # those in a row before which it was not
        self.down = down  # its node is gone, says the host
        self.paused = False  # a probe is under way
        self.beat_due = False  # owed an append, be it empty
        self.fetching = False  # the host reads entries for it
        self.installing = False  # its snapshot was sent
        self.beats = 0  # heartbeats since then
        self.unacked: list[tuple[int, int]] = []  # (last index, bytes) of appends under way
        self.inflight_bytes = 0

    def probe(self, next_index: int) -> None:
        self._change(Feed.PROBE, next_index)

    def replicate(self) -> None:
        self._change(Feed.REPLICATE, self.match + 1)

    def await_snapshot(self) -> None:
        self._change(Feed.SNAPSHOT, self.next)

    def _change(self, feed: Feed, next_index: int) -> None:
        assert next_index > self.match
        self.feed = feed
        self.next = next_index
        self.paused = self.fetching = self.installing = False
        self.beats = 0
        self.unacked.clear()
        self.inflight_bytes = 0

    def sent(self, last_index: int, size: int) -> None:
        self.next = last_index + 1
        self.unacked.append((last_index, size))
        self.inflight_bytes += size

    def acked(self, index: int) -> bool:
        """It has everything up to `index`; whether that is news."""
        unacked = self.unacked
        done = 0
        while done < len(unacked) and unacked[done][0] <= index:
            self.inflight_bytes -= unacked[done][1]
            done += 1
        del unacked[:done]
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        return True
