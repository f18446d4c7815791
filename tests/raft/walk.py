"""Random walks without a clock: any message, write, time-out or crash may come next.

It reaches orders of events that timers make rare: old messages that come after elections, votes
around crashes, commits of older terms. One seed is one walk.
"""

from random import Random
from types import UnionType

from queues.raft.config import Change, Config, Step, Tunables
from queues.raft.core import Raft
from queues.raft.messages import Message, PreVote, PreVoteReply, Vote, VoteReply
from tests.raft.ledger import Ledger
from tests.raft.member import Member

Ballot = PreVote | Vote
BallotReply = PreVoteReply | VoteReply

BAG_MAX = 60  # messages under way; beyond that the oldest are lost


class Walk:
    def __init__(self, seed: int, core_class: type[Raft] = Raft) -> None:
        self.random = random = Random(seed)
        self.bag: list[Message] = []
        self.ledger = Ledger()
        self.payloads = 0
        self.now = 0.0
        voters = tuple(range(1, random.choice((2, 3, 3, 5)) + 1))
        spare = random.choice((0, 1, 2))  # nodes that may be added
        tunables = Tunables(
            append_entries_max=random.choice((1, 1, 3)),
            window_bytes=random.choice((1, 20)),
            cache_bytes=random.choice((0, 10_000)),
            check_beats=1_000_000,  # deaf leaders linger: more terms side by side
        )
        self.members = [
            Member(
                node,
                Config(voters),
                self.bag.append,
                ledger=self.ledger,
                random=random,
                tunables=tunables,
                core_class=core_class,
            )
            for node in range(1, len(voters) + spare + 1)
        ]
        for member in self.members:
            member.members = {member.node: member for member in self.members}
            member.start(0.0)
        self.actions = (
            (self.deliver, random.choice((30, 60))),
            (self.sync, random.choice((10, 30))),
            (self.time_out, random.choice((2, 6))),
            (self.elect, random.choice((1, 4, 10))),
            (self.suspect, random.choice((0, 2, 6))),
            (self.propose, random.choice((2, 8))),
            (self.crash, random.choice((0, 1, 3))),
            (self.compact, random.choice((0, 1))),
            (self.serve, 3),
            (self.transfer, random.choice((0, 0, 1))),
            (self.change, random.choice((0, 2, 6))),
        )

    def run(self, steps: int = 600) -> "Walk":
        actions, weights = zip(*self.actions, strict=True)
        for action in self.random.choices(actions, weights, k=steps):
            self.now += 0.001
            action(self.random.choice(self.members))
            del self.bag[:-BAG_MAX]
        return self

    def deliver(self, _member: Member) -> None:
        if self.bag:
            place = self.random.randrange(len(self.bag))
            message = self.bag[place]
            if self.random.random() > 0.1:
                del self.bag[place]
            self.members[message.to - 1].step(message, self.now)

    def sync(self, member: Member) -> None:
        if member.disk.pending:
            member.sync(self.random.randint(1, len(member.disk.pending)))

    def time_out(self, member: Member) -> None:
        assert member.core is not None
        if member.core.deadline is not None:
            member.tick(max(self.now, member.core.deadline))

    def elect(self, member: Member) -> None:
        """An election among some members, who believe the leader gone; appends stay under way."""
        some = self.random.sample(self.members, self.random.randint(2, len(self.members)))
        if member.leads or member not in some:
            return
        for voter in some:
            self.suspect(voter)
        self.time_out(member)
        for _ in range(2):  # pre-votes, then votes
            self.settle_votes(some, Ballot)
            self.settle_votes(some, BallotReply)

    def settle_votes(self, some: list[Member], kind: UnionType) -> None:
        nodes = {member.node for member in some}
        for member in some:
            member.sync()
        for message in list(self.bag):
            if isinstance(message, kind) and {message.frm, message.to} <= nodes:
                self.bag.remove(message)
                self.members[message.to - 1].step(message, self.now)
        for member in some:
            if self.random.random() < 0.9:
                member.sync()

    def suspect(self, member: Member) -> None:
        assert member.core is not None
        member.core.suspect_leader(self.now)
        member.pump()

    def propose(self, member: Member) -> None:
        self.payloads += 1
        leaders = [member for member in self.members if member.leads]
        if leaders:
            self.random.choice(leaders).propose(b"%d" % self.payloads)

    def crash(self, member: Member) -> None:
        member.crash()
        member.start(self.now)

    def compact(self, member: Member) -> None:
        member.compact()

    def serve(self, member: Member) -> None:
        member.serve()

    def transfer(self, member: Member) -> None:
        if member.core is not None and member.leads:
            others = member.core._others()
            if others:
                member.core.transfer(self.random.choice(others))
                member.pump()

    def change(self, _member: Member) -> None:
        """Any change, sensible or not, asked of any leader."""
        leaders = [member for member in self.members if member.leads]
        if leaders:
            node = self.random.randint(1, len(self.members))
            self.random.choice(leaders).propose_conf(Change(self.random.choice(list(Step)), node))
