"""One core driven by hand: its peers, its disk and its clock are the test."""

from collections.abc import Container, Sequence
from random import Random

from queues.raft.config import DEFAULTS, Change, ConfChangeError, Config, Step, Tunables
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.messages import (
    Append,
    AppendReply,
    Entry,
    Message,
    PreVoteReply,
    Vote,
    VoteReply,
)
from queues.raft.ready import Ready, Role, WriteOp

ME, YOU, OTHER = 1, 2, 3


class Script:
    """`terms` are those of the entries on disk at the start: (1, 1, 2) is a log of three."""

    def __init__(
        self,
        core_class: type[Raft] = Raft,
        *,
        terms: Sequence[int] = (),
        term: int | None = None,
        vote: int | None = None,
        voters: tuple[int, ...] = (ME, YOU, OTHER),
        learners: tuple[int, ...] = (),
        configs: Sequence[tuple[int, Config]] = (),
        tunables: Tunables = DEFAULTS,
        down: tuple[int, ...] = (),
        crowded: Container[int] = (),
    ) -> None:
        runs = [(place + 1, number) for place, number in enumerate(terms)]
        self.now = 0.0
        self.core = core_class(
            ME,
            Config(voters, learners),
            self.now,
            Random(1),
            hard=(max(terms, default=0) if term is None else term, vote),
            log=RaftLog(0, 0, runs, len(terms)),
            configs=configs,
            tunables=tunables,
            down=down,
            crowded=crowded,
        )
        self.writes: list[WriteOp] = []  # not yet durable
        self.ready: Ready | None = None

    def out(self) -> list[Message]:
        """What the core sends now."""
        sent: list[Message] = []
        while (ready := self.core.ready()) is not None:
            self.ready = ready
            sent += ready.msgs
            self.writes += ready.writes
        return sent

    def sync(self) -> list[Message]:
        """Everything written so far is on disk; what that lets go."""
        sent = self.out()
        if self.writes:
            self.core.persisted(self.writes.pop().wseq)
            self.writes.clear()
        return sent + self.out()

    def hear(self, message: Message) -> list[Message]:
        self.core.step(message, self.now)
        return self.out()

    def append(
        self,
        term: int,
        prev: tuple[int, int],
        *terms: int,
        frm: int = YOU,
        commit: int = 0,
        payload: bytes = b"p",
    ) -> list[Message]:
        """An append from a leader, with entries of these terms after `prev` (index, term)."""
        entries = [Entry(prev[0] + 1 + n, number, payload) for n, number in enumerate(terms)]
        return self.hear(Append(ME, frm, term, *prev, entries, commit, 0))

    def ack(self, index: int, *, frm: int = YOU, term: int | None = None) -> list[Message]:
        term = self.core.term if term is None else term
        return self.hear(AppendReply(ME, frm, term, ok=True, index=index, commit=0, **NO_HINT))

    def lead(self) -> "Script":
        """Win, and have everything so far on the disks of both followers, committed and applied."""
        self.win()
        self.sync()
        for peer in (YOU, OTHER):
            self.hear(self.reply(peer, self.core.log.last))
        self.core.applied(self.core.commit)
        self.out()
        return self

    def reply(self, frm: int, index: int, read_round: int | None = None) -> AppendReply:
        """An acknowledgement of all up to `index`, in the present round."""
        core = self.core
        number = core._read_round if read_round is None else read_round
        return AppendReply(
            core.node, frm, core.term, True, index, core.commit, 0, 0, read_round=number
        )

    def change(self, step: Step, node: int) -> list[Message]:
        self.core.propose_conf(Change(step, node))
        return self.out()

    def refusal(self, step: Step, node: int) -> ConfChangeError | None:
        try:
            self.core.propose_conf(Change(step, node))
        except ConfChangeError as error:
            return error
        return None

    def time_passes(self) -> list[Message]:
        """The clock reaches the deadline."""
        assert self.core.deadline is not None
        self.now = max(self.now, self.core.deadline)
        self.core.tick(self.now)
        return self.out()

    def win(self) -> list[Message]:
        """Time out, and be elected by YOU; what the new leader sends."""
        self.out()
        self.time_passes()
        self.hear(PreVoteReply(ME, YOU, self.core.term + 1, granted=True))
        votes = [message for message in self.sync() if isinstance(message, Vote)]
        assert votes
        sent = self.hear(VoteReply(ME, YOU, self.core.term, granted=True))
        assert self.core.role is Role.LEADER
        return sent

    def log_terms(self) -> list[int]:
        log = self.core.log
        return [log.term_at(index) for index in range(log.offset + 1, log.last + 1)]


NO_HINT = {"hint_index": 0, "hint_term": 0, "read_round": 0}
