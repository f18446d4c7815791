"""Who is in a group, and the numbers by which it works; both are shared between groups."""

from dataclasses import dataclass

from queues.raft.messages import NodeId


class Config:
    """The voters of a group. Fixed for now; a change will be an entry that carries a Config."""

    __slots__ = ("quorum", "voters")

    def __init__(self, voters: tuple[NodeId, ...]) -> None:
        assert voters
        assert len(set(voters)) == len(voters)
        self.voters = voters
        self.quorum = len(voters) // 2 + 1

    def rank_after(self, leader: NodeId | None, node: NodeId) -> int:
        """Place in the line of succession: 0 for the voter after the lost leader, and so on."""
        voters = self.voters
        start = voters.index(leader) + 1 if leader in voters else 0
        return (voters.index(node) - start) % len(voters)


@dataclass(frozen=True, slots=True)
class Tunables:
    """Times in seconds, sizes in bytes of payload."""

    election_s: float = 1.0  # a leaderless member waits one to two of these before it campaigns
    rank_s: float = 0.05  # after a lost leader successors campaign this far apart: few split votes
    heartbeat_s: float = 0.15  # how often a leader with unacknowledged work asks again
    check_beats: int = 8  # heartbeats without a quorum's answer before the leader steps down
    transfer_beats: int = 8  # heartbeats that a transfer may take before proposals flow again
    snapshot_beats: int = 200  # heartbeats that an install may take before it is sent again
    append_bytes_max: int = 256 << 10  # the transport's fragment size
    append_entries_max: int = 256  # keeps one message's handling well below a heartbeat
    window_bytes: int = 1 << 20  # in flight per follower: a round trip's worth on a fast disk
    cache_bytes: int = 1 << 20  # applied payloads kept for followers that are a little behind


DEFAULTS = Tunables()
