"""Who is in a group, and the numbers by which it works; both are shared between groups.

A change of members is a log entry that carries the whole new Config:

    offset 0   8 bytes  CONFIG_MARK, with which no machine's entry begins
           8   u16      number of voters
          10   u16      number of learners
          12   u32 …    the node numbers of the voters, then those of the learners
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final

from queues.raft.messages import NodeId

# Queue commands begin with a small kind byte, chunks with their magic, definitions with 0x9a.
CONFIG_MARK: Final = b"\xffMEMBERS"

_COUNTS: Final = Struct(">HH")


class ConfigError(ValueError):
    """Bytes that are no Config."""


class ConfChangeError(Exception):
    """A change of members that cannot be made; `later` if the same may do in a moment."""

    def __init__(self, reason: str, *, later: bool = False) -> None:
        super().__init__(reason)
        self.later = later


class Config:
    """Voters decide; learners get the log and are never counted. Immutable."""

    __slots__ = ("learners", "quorum", "voters")

    def __init__(self, voters: tuple[NodeId, ...], learners: tuple[NodeId, ...] = ()) -> None:
        assert voters
        assert len({*voters, *learners}) == len(voters) + len(learners)
        self.voters = voters
        self.learners = learners
        self.quorum = len(voters) // 2 + 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return (self.voters, self.learners) == (other.voters, other.learners)

    def __hash__(self) -> int:
        return hash((self.voters, self.learners))

    def __repr__(self) -> str:
        return f"Config({self.voters}, {self.learners})"

    def rank_after(self, leader: NodeId, node: NodeId) -> int:
        """Place in the line of succession: 0 for the voter after the lost leader, and so on."""
        voters = self.voters
        if node not in voters:
            return len(voters)
        start = voters.index(leader) + 1 if leader in voters else 0
        return (voters.index(node) - start) % len(voters)

    def encode(self) -> bytes:
        nodes = (*self.voters, *self.learners)
        counts = _COUNTS.pack(len(self.voters), len(self.learners))
        return counts + Struct(f">{len(nodes)}I").pack(*nodes)

    @classmethod
    def decode(cls, data: bytes) -> "Config":
        """Raises ConfigError."""
        if len(data) < _COUNTS.size:
            raise ConfigError("a configuration without its counts")
        voters, learners = _COUNTS.unpack_from(data)
        body = Struct(f">{voters + learners}I")
        if len(data) != _COUNTS.size + body.size:
            raise ConfigError("a configuration of the wrong length")
        nodes = body.unpack_from(data, _COUNTS.size)
        if not voters or len(set(nodes)) != len(nodes):
            raise ConfigError("a configuration without voters, or with one node twice")
        return cls(nodes[:voters], nodes[voters:])

    def entry(self) -> bytes:
        """The payload of the entry that makes it the group's configuration."""
        return CONFIG_MARK + self.encode()


def config_of(payload: bytes) -> Config | None:
    """The configuration that an entry brings, None for every other entry. Raises ConfigError."""
    if not payload.startswith(CONFIG_MARK):
        return None
    return Config.decode(payload[len(CONFIG_MARK) :])


class Step(Enum):
    ADD_LEARNER = "add learner"
    PROMOTE = "promote"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """One member at a time: two majorities, before and after, then always share a voter."""

    step: Step
    node: NodeId

    def applied_to(self, config: Config) -> Config:
        """The configuration after it. Raises ConfChangeError where it makes no sense."""
        voters, learners, node = config.voters, config.learners, self.node
        if self.step is Step.ADD_LEARNER:
            if node in voters or node in learners:
                raise ConfChangeError(f"{node} is a member already")
            return Config(voters, (*learners, node))
        if self.step is Step.PROMOTE:
            if node not in learners:
                raise ConfChangeError(f"{node} is no learner")
            return Config((*voters, node), _without(learners, node))
        if node in learners:
            return Config(voters, _without(learners, node))
        if node not in voters:
            raise ConfChangeError(f"{node} is no member")
        if len(voters) == 1:
            raise ConfChangeError(f"{node} is the only voter")
        return Config(_without(voters, node), learners)


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


@dataclass(frozen=True, slots=True)
class Tunables:
    """Times in seconds, sizes in bytes of payload."""

    election_s: float = 1.0  # a leaderless member waits one to two of these before it campaigns
    rank_s: float = 0.05  # after a lost leader successors campaign this far apart: few split votes
    hasty_tries: int = 5  # so often it asks again within some rank_s, when others may not hear yet
    first_tries: int = 12  # the same for a new group, which others have to create first: ~1 s
    heartbeat_s: float = 0.15  # how often a leader with unacknowledged work asks again
    check_beats: int = 8  # heartbeats without a quorum's answer before the leader steps down
    # A member that is sent so much more may be silent for one more check: it answers when an entry
    # has come, however large, and is on its disk. About 7 MB/s.
    patience_bytes: int = 8 << 20
    # Whether followers hear at once what is committed; else with the next append or heartbeat.
    eager_commit: bool = True
    transfer_beats: int = 8  # heartbeats that a transfer may take before proposals flow again
    snapshot_beats: int = 200  # heartbeats that an install may take before it is asked for again
    append_bytes_max: int = 256 << 10  # the transport's fragment size
    append_entries_max: int = 256  # keeps one message's handling well below a heartbeat
    fetch_bytes_max: int = 1 << 20  # read back at a time: 200 MB/s at 5 ms a read
    fetch_entries_max: int = 1024
    window_bytes: int = 4 << 20  # in flight per follower: 200 MB/s at 20 ms for a round trip
    cache_bytes: int = 1 << 20  # applied payloads kept for followers that are a little behind


DEFAULTS = Tunables()
# For logs of which nobody reads at followers: half as many messages.
PATIENT = Tunables(eager_commit=False)
