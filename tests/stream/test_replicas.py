"""Three replicas through crashes, changes of the leader and snapshots hold the same records."""

import pytest

from broker.protocol.chunk import encode_chunk
from queues.stream import cutting, outgoing, snapshot
from queues.stream.checkpoint import PartitionState
from queues.stream.outgoing import Outgoing
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.segments import Segments
from queues.stream.staged_rows import StagedRows
from queues.stream.verdict import NEW
from tests.stream.replicas import Transfer, World, run
from tests.stream.test_partition_simulation import COMPACTED, KEPT, RETAINED

OPTIONS = {"kept": KEPT, "retained": RETAINED, "compacted": COMPACTED}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(snapshot, "PART_BYTES", 800)
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 300)
    monkeypatch.setattr(outgoing, "WINDOW_BYTES_MAX", 1500)
    monkeypatch.setattr(outgoing, "ENTRY_BYTES_MAX", 400)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_replicas_hold_the_same_records_whatever_befalls_them(options):
    worlds = [run(seed, options) for seed in range(40)]
    assert sum(world.installs for world in worlds) > 20
    assert max(len(world.log) for world in worlds) > 100


def settled(seed=3, steps=600):
    world = World(seed, KEPT)
    for _ in range(steps):
        world.step()
    world.settle_down()
    return world


def begin(world, node):
    """All that the leader has goes to its segments, and from there to the node."""
    leader = world.leader
    if leader.partition._keeper._entries:
        leader.partition._keeper._move()
        leader.off_loop.run()
        leader.write()
    world.transfer = Transfer(world, leader, node)


def refill(world, node):
    begin(world, node)
    while world.transfer is not None:
        world.snapshot()
        for each in world.nodes:
            each.off_loop.run()


def follower(world):
    return next(node for node in world.nodes if node is not world.leader)


def test_a_replica_with_other_records_gets_all_of_them_anew():
    world = settled()
    node = follower(world)
    partition = node.partition
    while partition._keeper._entries:
        partition._keeper._move()
        node.off_loop.run()
        node.write()
    end = partition.next_offset
    partition._segments.begin_anew(0)
    other = encode_chunk(
        [None], [b"of another stream"], [b""], world.now_ms, span=end, relative=[0]
    )
    partition._segments.append([other])
    assert world.read_all(node)[0].value == b"of another stream"
    refill(world, node)
    assert partition.unsound is None
    world.check()


def test_a_replica_that_was_interrupted_in_its_refilling_is_not_served_until_it_is_whole():
    world = settled()
    node = follower(world)
    node.partition.unsound, node.partition._keeper = "damaged by hand", None
    begin(world, node)
    for _ in range(4):
        world.snapshot()
        for each in world.nodes:
            each.off_loop.run()
    assert world.transfer is not None, "there is more than that"
    world.crash(node)
    assert node.partition.unsound is not None
    assert node.holder.reasons
    assert node.partition.have() == b""
    refill(world, node)
    assert node.partition.unsound is None
    world.settle_down()
    world.check()


def test_a_move_that_a_state_overtakes_is_void():
    """The log has that state now: a checkpoint of before must not take its place."""
    world = settled()
    node = follower(world)
    while not node.partition._keeper._entries:
        world.publish()
        world.settle_down()
    node.partition._keeper._move()
    node.partition.install(node.applied, node.partition.state())
    assert node.partition.unsound is not None, "what is in its tail is not in its segments"
    node.off_loop.run()
    assert not node.writes
    refill(world, node)
    world.check()


def test_what_is_refused_is_told_and_what_follows_is_stored():
    world = World(1, KEPT)
    leader = world.leader
    told = []

    class Receipt:
        def lost(self):
            told.append("lost")

        def appended(self, verdict, offset):
            told.append((verdict.name, offset))

    node = follower(world)
    node.outgoing.append([None], [b"a"], [b""], Receipt())
    node.outgoing.flush()
    assert node.outgoing.size_bytes
    node.outgoing.refuse()
    assert told == ["lost"]
    assert not node.outgoing.size_bytes
    world.sent.clear()
    node.outgoing.append([None], [b"b"], [b""], Receipt())
    world.settle_down()
    assert told == ["lost", ("NEW", 0)]
    assert leader.partition.next_offset == 1


def test_a_partition_that_forgot_the_numbers_of_a_node_takes_what_it_sends():
    world = World(1, KEPT)
    node = follower(world)
    for value in (b"a", b"b"):
        node.outgoing.append([None], [value], [b""], None)
        world.settle_down()
    for each in world.nodes:
        each.partition._producers.restore(b"")
    node.outgoing.append([None], [b"c"], [b""], None)
    world.settle_down()
    assert [record.value for record in world.read_all(node)] == [b"a", b"b", b"c"]


def test_a_node_that_was_silent_for_long_begins_a_new_epoch():
    world = World(1, KEPT)
    node = follower(world)
    node.outgoing.append([None], [b"a"], [b""], None)
    world.settle_down()
    world.now_ms += outgoing.RENEW_MS
    node.outgoing.append([None], [b"b"], [b""], None)
    world.settle_down()
    assert node.outgoing._epoch == 1
    assert [record.value for record in world.read_all(node)] == [b"a", b"b"]


# Planted bugs


def what_is_sent_has_no_number(monkeypatch):
    monkeypatch.setattr(outgoing, "with_producer", lambda chunk, producer: chunk)
    real = outgoing.encode_chunk

    def unnumbered(keys, values, properties, time_ms, *, producer):
        return real(keys, values, properties, time_ms)

    monkeypatch.setattr(outgoing, "encode_chunk", unnumbered)


def sent_again_in_another_order(monkeypatch):
    def rewind(self):
        self.attempt += 1
        self._again.extendleft(self._sent)
        self._sent.clear()
        self._sent_bytes = 0

    def number_again(self):
        rewind(self)
        self._new_epoch()
        for batch in self._again:
            if batch.is_ours:
                batch.chunk = outgoing.with_producer(batch.chunk, self._numbers(batch.records))

    monkeypatch.setattr(Outgoing, "_rewind", rewind)
    monkeypatch.setattr(Outgoing, "_number_again", number_again)


def followers_do_not_know_the_producers(monkeypatch):
    real = StreamPartition.apply

    def apply(self, index, entry):
        judge, self._producers.apply = self._producers.apply, lambda *_: NEW
        real(self, index, entry)
        self._producers.apply = judge

    monkeypatch.setattr(StreamPartition, "apply", apply)


def installed_without_its_producers(monkeypatch):
    monkeypatch.setattr(IdempotentProducers, "restore", lambda self, state: None)


def installed_without_what_is_staged(monkeypatch):
    monkeypatch.setattr(StagedRows, "restore", lambda self, state, fetch: [])


def parts_are_not_cut(monkeypatch):
    monkeypatch.setattr(snapshot, "cut", lambda chunk, first: chunk.encode())
    monkeypatch.setattr(cutting, "cut", lambda chunk, first, end=0: chunk.encode())


def replaced_segments_are_not_marked(monkeypatch):
    monkeypatch.setattr(Segments, "mark_replaced", lambda self: None)


def parts_are_stored_without_a_sync(monkeypatch):
    real = snapshot.store_part

    def store_part(segments, part):
        write = segments._write

        def unsynced(chunks, headers):
            segments._open_growing()
            file = segments._growing.file
            file.datasync = lambda: None
            try:
                write(chunks, headers)
            finally:
                del file.datasync

        segments._write = unsynced
        try:
            return real(segments, part)
        finally:
            del segments._write

    monkeypatch.setattr("queues.stream.partition.store_part", store_part)


def a_state_is_taken_without_its_records(monkeypatch):
    def go_on(self):
        if self.world.random.random() < 0.3:
            self.parts = iter(())
        real(self)

    def install(self, index, state):
        found = PartitionState.decode(state)
        kept = real_install(self, index, state)
        if self.unsound is not None and self._keeper is not None:
            self.unsound, self._segments.anew = None, False
            self.next_offset, self.applied_index = found.next_offset, index
            self._keeper.installed(index, found.next_offset)
        return kept

    real, real_install = Transfer.go_on, StreamPartition.install
    monkeypatch.setattr(Transfer, "go_on", go_on)
    monkeypatch.setattr(StreamPartition, "install", install)


def told_before_it_is_committed(monkeypatch):
    real = StreamPartition._from_source

    def from_source(self):
        entry = real(self)
        if entry is not None:
            for _, receipt in self._proposed[-1].receipts:
                receipt.appended(NEW.verdict, None)
            self._proposed[-1].receipts.clear()
        return entry

    monkeypatch.setattr(StreamPartition, "_from_source", from_source)


def void_proposals_are_waited_for(monkeypatch):
    def follow(self):
        self.leads = False

    monkeypatch.setattr(StreamPartition, "follow", follow)


PLANTS = [
    what_is_sent_has_no_number,
    sent_again_in_another_order,
    followers_do_not_know_the_producers,
    installed_without_its_producers,
    installed_without_what_is_staged,
    parts_are_not_cut,
    replaced_segments_are_not_marked,
    parts_are_stored_without_a_sync,
    a_state_is_taken_without_its_records,
    told_before_it_is_committed,
    void_proposals_are_waited_for,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(150):
        try:
            run(seed, list(OPTIONS.values())[seed % 3])
        except Exception:
            return
    pytest.fail(f"{plant.__name__} was not noticed")
