"""One member of a Raft group without I/O: what a host calls, and what the host owes in return.

    step(msg, now)  tick(now)  campaign(now)
    suspect_leader(now)  peer_down(node, now)  peer_up(node, now)
    propose(payload)  propose_conf(change)  read_index(context)  transfer(to)
    persisted(wseq)  applied(index)  compacted(index)  fetched(peer, entries)  snapshot(peer, snap)
    has_room()
    ready() → Ready | None

After any of these calls the host takes `ready()`, and
- writes in order, one disk order per group, and reports each durable write by `persisted(wseq)`,
  which stands for all before it; a failed write ends the node, it is never reported or retried;
- sends the messages; they may be lost, doubled, or come in any order (but appends that overtake
  each other are sent again: all of them, also empty ones, belong in one lane);
- applies committed entries up to `apply_to` (payloads by `entries(first, last)`, or from its own
  store where that gives None) and then calls `applied(apply_to)`; empty entries and those that
  `config_of` knows are the core's own, and no state machine's;
- keeps `config_at(index)` with each snapshot it makes, and finds the configurations in the log
  above it when it starts again;
- calls `tick` at `next_deadline`; an idle group has none;
- bounds what it proposes: payloads stay in memory (`log.held_bytes`) until they are applied;
- may say that enough is on its way to some nodes (`crowded`); these get no entries until it calls
  `has_room`, or till the next heartbeat;
- hears of dead, living and restarted nodes itself, and says so: `suspect_leader` within an election
  time of the last sign of life, `peer_down`, `peer_up` (also for a node with a new boot id). What
  was on its way is then lost: snapshots that were asked for are asked for again. Between `down`
  and `up` no message of that node comes: one would be taken for a sign of life.

A failed assertion means that this replica can no longer vouch for its log: the host must stop it.
"""

from collections.abc import Container, Sequence
from random import Random

from queues.raft.config import DEFAULTS, Change, ConfChangeError, Config, Step, Tunables
from queues.raft.election import Elector
from queues.raft.log import RaftLog
from queues.raft.messages import (
    NO_OP,
    Append,
    AppendReply,
    Entry,
    Install,
    Message,
    NodeId,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from queues.raft.ready import NotLeaderError, Ready, Role
from queues.raft.replica import LEADER


class Raft(Elector):
    __slots__ = ()

    def __init__(
        self,
        node: NodeId,
        config: Config,
        now: float,
        random: Random,
        *,
        hard: tuple[int, NodeId | None] = (0, None),
        log: RaftLog | None = None,
        configs: Sequence[tuple[int, Config]] = (),
        applied: int | None = None,
        tunables: Tunables = DEFAULTS,
        down: Container[NodeId] = (),
        crowded: Container[NodeId] = (),
    ) -> None:
        """A new member, or one as its disk has it: everything in `log` is durable.

        `config` is that of the snapshot, else the one that the group began with; a node that is
        to be added is not in it. `configs`: index and configuration of each entry above the
        snapshot that brings one. `applied` is how far the host's state is: at the last snapshot,
        or beyond it. `down` is the host's own set of nodes that are not up, which it changes
        before it says so: a leader looks there when it meets its followers. `crowded` are those
        that are to get no entries for now.
        """
        log = RaftLog() if log is None else log
        super().__init__(
            node,
            ((log.offset, config), *configs),
            hard=hard,
            log=log,
            applied=log.offset if applied is None else applied,
            tunables=tunables,
            random=random,
            down=down,
            crowded=crowded,
        )
        if self.config.voters == (node,):
            self._lead_alone()
        else:
            self._await_election(now)

    def step(self, msg: Message, now: float) -> None:
        """Take in a message. This is the one place where terms are compared (rule 3)."""
        assert msg.to == self.node
        if msg.term > self.term:
            if not self._enter_term(msg, now):
                return
        elif msg.term < self.term:
            self._refuse_stale(msg)
            return
        if isinstance(msg, AppendReply):
            self._on_append_reply(msg, now)
        elif isinstance(msg, Append):
            self._on_append(msg, now)
        elif isinstance(msg, Install):
            self._on_install(msg, now)
        else:
            self._step_election(msg, now)

    def _step_election(
        self, msg: PreVote | PreVoteReply | Vote | VoteReply | TimeoutNow, now: float
    ) -> None:
        if isinstance(msg, PreVote):
            self._on_pre_vote(msg, now)
        elif isinstance(msg, PreVoteReply):
            self._on_pre_vote_reply(msg, now)
        elif isinstance(msg, Vote):
            self._on_vote(msg, now)
        elif isinstance(msg, VoteReply):
            self._on_vote_reply(msg, now)
        else:
            self._on_timeout_now(msg, now)

    def _enter_term(self, msg: Message, now: float) -> bool:
        """A later term is entered, except that pre-votes change nothing; whether to go on."""
        if isinstance(msg, PreVote) or (isinstance(msg, PreVoteReply) and msg.granted):
            return True
        if isinstance(msg, Vote) and not self._heeds_vote(msg):
            return False
        leads = isinstance(msg, Append | Install)
        self._become_follower(msg.term, msg.frm if leads else None, now)
        return True

    def _refuse_stale(self, msg: Message) -> None:
        """Tell a leader or candidate of an earlier term that time has moved on."""
        if isinstance(msg, Append | Install):
            self._answer(msg.frm, 0, ok=False)
        elif isinstance(msg, PreVote):
            self._send(PreVoteReply(msg.frm, self.node, self.term, granted=False))
        elif isinstance(msg, Vote):
            self._send(VoteReply(msg.frm, self.node, self.term, granted=False))

    def tick(self, now: float) -> None:
        if self.deadline is None or now < self.deadline:
            return
        if self.role is LEADER:
            self._beat(now)
        else:
            self._campaign(now)

    @property
    def installs(self) -> bool:
        """A snapshot takes the place of the log with the next `ready`."""
        return self._install is not None

    @property
    def takes_proposals(self) -> bool:
        return self.role is LEADER and self._transferee is None

    def propose(self, payload: bytes) -> tuple[int, int]:
        """Append to the log; (term, index). Raises NotLeaderError.

        The entry is committed only when `applied` reaches the index in that term; if another term
        takes the place, it is lost or, after a crash, perhaps not: the proposer asks again.
        """
        if self.role is not LEADER or self._transferee is not None:
            raise NotLeaderError(self.leader if self.role is not LEADER else self._transferee)
        assert payload, "an empty payload is the no-op"
        if self._resumed:
            self._renew_term()
        index = self.log.append(self.term, payload)
        self._dirty = True
        if self.deadline is None and self.progress is not None:
            self._wake()
        return self.term, index

    def propose_conf(self, change: Change) -> tuple[int, int]:
        """Append a change of members, which holds at once; (term, index).

        One at a time, and none before this term has committed an entry: only so do any two
        majorities that may decide share a voter. Raises NotLeaderError, ConfChangeError.
        """
        if not self.takes_proposals:
            raise NotLeaderError(self.leader if self.role is not LEADER else self._transferee)
        if self._resumed:
            self._renew_term()
            self._term_start = self.log.append(self.term, NO_OP)
            self._dirty = True
        self._check_timely(change)
        index = self._change_members(change.applied_to(self.config))
        return self.term, index

    def _check_timely(self, change: Change) -> None:
        if self._change_under_way():
            raise ConfChangeError("another change of members is under way", later=True)
        if self.commit < self._term_start:
            raise ConfChangeError("the leader has committed nothing in its term yet", later=True)
        if change.step is Step.PROMOTE:
            peer = self._peer(change.node)
            # It must have the entry that made it a learner, however short the log is: one that was
            # removed for having forgotten all must not vote in a term that it may have voted in.
            wanted = max(self.log.last - self.tunables.append_entries_max, self._configs[-1][0])
            if peer is not None and (peer.down or peer.match < wanted):
                raise ConfChangeError(f"{change.node} has not caught up", later=True)

    def read_index(self, context: object) -> None:
        """Ask for a ReadState; dropped if the role changes first. Raises NotLeaderError."""
        if self.role is not LEADER:
            raise NotLeaderError(self.leader)
        self._start_read(context)

    def transfer(self, to: NodeId) -> None:
        """Hand leadership over; proposals are refused meanwhile. Raises NotLeaderError.

        To one whose node is down nothing happens.
        """
        if self.role is not LEADER:
            raise NotLeaderError(self.leader)
        peer = self._peer(to)
        assert peer is not None, "no such voter to hand over to"
        assert peer.voter, "no such voter to hand over to"
        if not peer.down:
            self._start_transfer(peer)

    def persisted(self, wseq: int) -> None:
        """That write and all before it are on disk. Only this makes anything durable (rule 2)."""
        self._settle(wseq)
        if self.role is LEADER:
            self._advance_commit()
        elif self.role is Role.CANDIDATE:
            self._win_alone()

    def entries(self, first: int, last: int) -> list[Entry] | None:
        """Entries not yet applied; None after a restart, when only the disk has them."""
        return self.log.held(first, last)

    def applied(self, index: int) -> None:
        """The host's state has everything up to `index`: its payloads leave the memory."""
        assert index <= self._apply_handed, "applied before it was committed and on disk"
        if index > self.applied_index:
            self.applied_index = index
            self._release()

    def compacted(self, index: int) -> None:
        """A durable snapshot covers the log up to `index`."""
        assert index <= self.applied_index
        if index > self.log.offset:
            self.log.compact(index)
            configs = self._configs
            while len(configs) > 1 and configs[1][0] <= index:
                del configs[0]

    def ready(self) -> Ready | None:
        """Everything to be done since the last call; None if that is nothing."""
        if not self._dirty:
            return None
        self._dirty = False
        self.held_up = False
        if self.progress is not None:
            self._feed_all(self.progress)
        writes = self._stage()
        msgs = self._msgs or ()
        if msgs:
            self._msgs = []
        self._apply_handed = max(self._apply_handed, min(self.commit, self.durable))
        ready = Ready(
            writes,
            msgs,
            self._apply_handed,
            self._install,
            self.role,
            self.term,
            self.leader,
            self._read_states or (),
            self._reads or (),
            self._snapshots or (),
            self.deadline,
        )
        self._install = self._read_states = self._reads = self._snapshots = None
        return ready
