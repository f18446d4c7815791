"""Staged rows on the node's own log host: through crashes, checkpoints and decisions."""

from random import Random

import pytest
import trio

from broker.protocol.chunk import encode_chunk
from queues.storage.reclaim import Reclaimer
from queues.stream.participant import Decision, Marker, TransactionKey, Vote, WriterRows
from queues.stream.staged_entries import (
    Discard,
    Expire,
    Forget,
    Mark,
    Prepare,
    Stage,
    decode_said,
    encode_said,
    is_said,
)
from queues.stream.staged_rows import (
    ABANDONED_MS,
    NODE_BYTES_MAX,
    RENEWED_MS,
    STAGED_BYTES_MAX,
    StagedRows,
)
from queues.stream.staging import STAGED_MS, StageAnswer
from queues.stream.tail import TailBudget
from tests.stream.fakes import Receipt
from tests.stream.test_on_a_log_host import Node
from tests.support.simdisk import SimDisk

KEY = TransactionKey("p", 3, 9)


def chunk_of(*values):
    return encode_chunk([None] * len(values), values, [b""] * len(values), 1000)


@pytest.mark.parametrize(
    "said",
    [
        Stage(KEY, "w", 4, 123, chunk_of(b"a", b"b")),
        Prepare(7, KEY, (WriterRows("w", 2), WriterRows("v", 0)), 123),
        Mark(
            5, (Marker(6, 7, KEY, Decision.COMMIT, ("w",)), Marker(7, 8, KEY, Decision.ABORT, ()))
        ),
        Discard(KEY, ("w", "v")),
        Forget(7),
        Expire(99),
    ],
    ids=lambda said: type(said).__name__,
)
def test_what_is_said_of_transactions_is_read_as_it_was_written(said):
    entry = encode_said(said)
    assert is_said(entry)
    assert decode_said(entry) == said


def test_a_chunk_is_not_mistaken_for_it():
    assert not is_said(chunk_of(b"a"))


class World:
    """One partition through its lives, and what it should hold."""

    def __init__(self):
        self.log_disk, self.disk = SimDisk(), SimDisk()
        self.visible = []
        self.open = {}  # sequence → values that are staged under it
        self.held = {}  # sequence → values of a prepared transaction
        self.decisions = 0
        self.sequence = 0
        self.begin()

    def begin(self):
        self.node = Node(self.log_disk, self.disk)
        self.staged = self.node.partition.staged

    def crash(self, random):
        self.log_disk.crash(random)
        self.disk.crash(random)
        self.begin()

    def reclaim(self):
        """What the log does not keep any more is really gone."""
        reclaimer = Reclaimer(self.node.store)
        while reclaimer.step():
            self.node.turn()
        reclaimer.close()

    def ask(self, call, *arguments):
        answers = []
        call(*arguments, answers.append)
        self.node.turn()
        assert len(answers) == 1, "one answer, when it is durable"
        return answers[0]

    def key(self, sequence):
        return TransactionKey("p", 0, sequence)

    def stage(self, values):
        self.sequence += 1
        key, chunk = self.key(self.sequence), chunk_of(*values)
        answer = self.ask(self.node.partition.stage, key, "w", 0, chunk)
        assert answer is StageAnswer.STAGED
        self.open[self.sequence] = values

    def prepare(self, sequence):
        values = self.open.pop(sequence)
        rows = (WriterRows("w", len(values)),)
        assert self.ask(self.staged.prepare, sequence, self.key(sequence), rows) is Vote.YES
        self.held[sequence] = values

    def decide(self, sequence, decision):
        values = self.held.pop(sequence)
        self.decisions += 1
        marker = Marker(self.decisions, sequence, self.key(sequence), decision, ("w",))
        assert self.ask(self.staged.mark, (marker,), 0) == self.decisions
        if decision is Decision.COMMIT:
            self.visible += values

    def publish(self, values):
        count = len(values)
        self.node.partition.append([None] * count, values, [b""] * count, Receipt())
        self.node.turn()
        self.visible += values

    def step(self, random):
        choice = random.random()
        values = [random.randbytes(random.randint(1, 1500)) for _ in range(random.randint(1, 4))]
        if choice < 0.35:
            self.publish(values)
        elif choice < 0.6:
            self.stage(values)
        elif choice < 0.75 and self.open:
            self.prepare(random.choice(sorted(self.open)))
        elif choice < 0.92 and self.held:
            self.decide(random.choice(sorted(self.held)), random.choice(list(Decision)))
        elif choice < 0.95 and self.open:
            sequence = random.choice(sorted(self.open))
            self.staged.discard(self.key(sequence), ("w",))
            self.node.turn()
            del self.open[sequence]
        elif choice > 0.985:
            self.reclaim()
            self.crash(random)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
async def test_staged_rows_are_there_until_they_are_decided_and_not_for_longer(seed):
    world, random = World(), Random(seed)
    for _ in range(300):
        world.step(random)
        assert world.node.values() == world.visible
        assert sorted(world.staged.held) == sorted(world.held)
        await trio.lowlevel.checkpoint()
    for sequence in sorted(world.open):
        world.prepare(sequence)
    world.crash(random)
    assert len(world.held) > 5, "too few to prove anything"
    for sequence in sorted(world.held):
        world.decide(sequence, Decision.COMMIT)
    assert world.node.values() == world.visible
    world.publish([bytes(5000)])  # enough for a move, which lets go of what is decided
    world.node.turn()
    kept = world.node.store.entries(world.node.log.gid)
    assert len(kept) < 5, "what is decided and in the segments is still in the log"
    world.crash(random)
    assert world.node.values() == world.visible
    assert not world.staged.held


async def test_rows_of_a_transaction_that_nobody_ends_go_by_themselves():
    world = World()
    world.stage([b"a"])
    await trio.lowlevel.checkpoint()
    world.node.partition.tick(1000 + STAGED_MS)
    world.node.turn()
    rows = (WriterRows("w", 1),)
    assert world.ask(world.staged.prepare, 1, world.key(1), rows) is Vote.YES
    world.node.partition.tick(1001 + STAGED_MS)
    world.node.turn()
    assert world.staged.held == [1], "what is prepared waits for its decision"
    world.stage([b"b"])
    world.node.partition.tick(1001 + STAGED_MS)
    world.node.turn()
    assert world.ask(world.staged.prepare, 2, world.key(2), rows) is Vote.MISSING


async def test_who_waits_at_a_partition_that_is_deleted_is_told():
    world = World()
    answers = []
    world.node.partition.stage(KEY, "w", 0, chunk_of(b"a"), answers.append)
    for receipt in world.node.partition.close():
        receipt.dropped()
    await trio.lowlevel.checkpoint()
    assert answers == [None]


class Rows:
    """Staged rows on a log that commits at once, with a clock by hand."""

    def __init__(self):
        self.now_ms = 0
        self.index = 0
        self.rows = StagedRows(self.propose, lambda: self.now_ms, TailBudget(NODE_BYTES_MAX))

    def propose(self, entry, then):
        self.index += 1
        then(self.rows.apply(self.index, entry, 0).answer)

    def stage(self, producer, chunk):
        answers = []
        self.rows.stage(TransactionKey(producer, 1, 0), "w", 0, chunk, answers.append)
        return answers

    def prepare(self, producer):
        votes = []
        wanted = (WriterRows("w", 1),)
        self.rows.prepare(self.index, TransactionKey(producer, 1, 0), wanted, votes.append)
        return votes


def test_abandoned_rows_make_room_the_oldest_first_and_those_that_are_alive_stay():
    staged, large = Rows(), chunk_of(bytes(20 * 1024 * 1024))
    for staged.now_ms, producer in enumerate(["renewed", "first", "second"]):
        assert staged.stage(producer, large) == [StageAnswer.STAGED]
    staged.now_ms = 2 + RENEWED_MS
    staged.rows.renew(TransactionKey("renewed", 1, 0), lambda _: None)
    staged.now_ms = ABANDONED_MS + 1
    assert staged.stage("rerun", large) == [StageAnswer.FULL]
    staged.now_ms = ABANDONED_MS + 3
    assert staged.stage("rerun", large) == [StageAnswer.STAGED]
    votes = [staged.prepare(each) for each in ("first", "second", "renewed", "rerun")]
    assert votes == [[Vote.MISSING], [Vote.YES], [Vote.YES], [Vote.YES]]
    assert staged.stage("too much", large) == [StageAnswer.FULL], "what is prepared never goes"


def test_nothing_is_dropped_where_that_would_not_be_room_enough():
    staged = Rows()
    assert staged.stage("first", chunk_of(bytes(1024))) == [StageAnswer.STAGED]
    staged.now_ms = ABANDONED_MS + 1
    assert staged.stage("second", chunk_of(bytes(STAGED_BYTES_MAX))) == [StageAnswer.FULL]
    assert staged.prepare("first") == [Vote.YES]
