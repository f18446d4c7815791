"""Reading up to `stable` shows every transaction whole or not at all, on nodes that lag too."""

import random

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import Refused
from queues.stream import cuts, visibility
from queues.stream.cuts import NOTHING, Cuts, Standing
from queues.stream.names import OFFSETS_STREAM, PartitionId
from tests.stream_service.asking import CALLER, Told, opened, whole_end
from tests.stream_service.shared_log import Cluster

STREAMS = ("s", "t", "u", "v")
KEPT = STREAMS[:-1]  # the last one is deleted on the way


class World:
    """Transactions over several streams, while leaders change and replicas lag or begin anew."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.cluster = Cluster(*STREAMS)
        for name in self.cluster.logs:
            self.cluster.elect(name, self.random.choice("abc"))
        self.parts = {}  # by transaction: the streams that it is in
        self.shown = 0

    def transact(self):
        log = self.cluster.logs["transactions"]
        if log.leader is None:
            return
        transactions = self.cluster.transactions[log.leader]
        number = len(self.parts)
        streams = self.random.sample(
            [each for each in STREAMS if each in self.cluster.vhosts["a"].queues],
            self.random.randint(1, 3),
        )
        self.parts[number] = set(streams)
        key = wire.Key(f"p{number}", 0, 0)
        for name in streams:
            chunk = encode_chunk([None], [b"%d" % number], [b""], 1000)
            transactions.stage(CALLER, wire.Stage(key, name, 0, "w", 0, chunk), Told())
            if self.random.random() < 0.3 and self.cluster.logs[name].leader is not None:
                partition = self.cluster.logs[name].machines[self.cluster.logs[name].leader]
                partition.append([None], [b"alone"], [b""], None)
        self.cluster.settle()
        rows = 2 if self.random.random() < 0.2 else 1  # of which one is missing: it is aborted
        parts = tuple(
            wire.PartitionPart(wire.Partition(name, 0), (wire.WriterRows("w", rows),))
            for name in streams
        )
        transactions.commit(CALLER, wire.Commit(key, parts, ()), Told())

    def step(self):
        log = self.random.choice([each for each in self.cluster.logs if each != OFFSETS_STREAM])
        node, shared = self.random.choice("abc"), self.cluster.logs[log]
        chance = self.random.random()
        if chance < 0.3:
            self.transact()
        elif chance < 0.4:
            if shared.leader is not None:
                shared.depose(survives=self.random.randint(0, 1))
            self.cluster.elect(log, node)
        elif chance < 0.55 and node != shared.leader:
            shared.late.setdefault(node, [])
        elif chance < 0.6 and node != shared.leader:
            shared.begin_anew(node)
        elif chance < 0.75:
            shared.catch_up(node, self.random.choice([1, 2, 5, None]))
        elif chance < 0.85:
            self.cluster.clock.pass_by(1000)
        elif shared.leader is not None:
            shared.commit()
        if self.random.random() < 0.7:
            self.cluster.settle()

    def check(self):
        for node in self.cluster.names:
            seen = {}
            streams = [each for each in STREAMS if each in self.cluster.vhosts[node].queues]
            for stream in streams:
                end = whole_end(self.cluster, node, stream)
                for value in self.cluster.values(node, stream)[:end]:
                    if value != b"alone":
                        seen.setdefault(int(value), set()).add(stream)
            self.shown += len(seen)
            for number, found in seen.items():
                assert found == self.parts[number] & set(streams), f"half of {number} on {node}"

    def delete(self, stream):
        for node in self.cluster.names:
            del self.cluster.vhosts[node].queues[stream]

    def finish(self):
        for name, log in self.cluster.logs.items():
            for node in self.cluster.names:
                log.catch_up(node)
            if log.leader is None:
                self.cluster.elect(name, "a")
        for _ in range(40):
            self.cluster.clock.pass_by(1000)
            self.cluster.settle()
        self.check()
        for node in self.cluster.names:
            for stream in KEPT:
                partition = self.cluster.partition(node, stream)
                assert whole_end(self.cluster, node, stream) == partition.next_offset, "stuck"


@pytest.mark.parametrize("seed", range(12))
def test_no_node_shows_half_of_a_transaction(seed, monkeypatch):
    if seed % 2:
        monkeypatch.setattr(visibility, "COMMITS_MAX", 3)
        monkeypatch.setattr(cuts, "NUMBERS_MAX", 2)
    world = World(seed)
    for step in range(120):
        world.step()
        world.check()
        if step == 80:
            world.delete("v")
    world.finish()
    assert world.shown > 100


def test_a_new_stream_of_the_same_name_waits_for_nothing():
    cluster = Cluster("s", "t")
    for log in ("s", "t", OFFSETS_STREAM, "transactions"):
        cluster.elect(log, "a")
    key = opened(cluster)
    for name in "st":
        chunk = encode_chunk([None], [b"x"], [b""], 1000)
        cluster.transactions["a"].stage(CALLER, wire.Stage(key, name, 0, "w", 0, chunk), Told())
    cluster.settle()
    parts = tuple(
        wire.PartitionPart(wire.Partition(name, 0), (wire.WriterRows("w", 1),)) for name in "st"
    )
    told = Told()
    cluster.transactions["a"].commit(CALLER, wire.Commit(key, parts, ()), told)
    cluster.settle()
    assert not isinstance(told.only, Refused)
    replica = cluster.vhosts["b"].queues["t"]
    cluster.logs["t"].begin_anew("b")
    assert whole_end(cluster, "b", "s") == 0, "t has not carried it out"
    replica.uid = b"another"
    assert whole_end(cluster, "b", "s") == 1
    replica.uid, replica.damaged = b"t", "a bad sector"
    assert whole_end(cluster, "b", "s") == 1, "nobody can read the other half"


def test_streams_without_a_transaction_in_common_do_not_wait_for_each_other():
    found = Cuts()
    s, t, u = (PartitionId(name, 0) for name in "stu")
    found.committed(1, [(s, b"s"), (t, b"t")])
    found.committed(2, [(u, b"u")])
    at = {s: Standing(1, 0), t: Standing(0, 0), u: Standing(2, 0)}
    assert found.settled(b"s", 2, lambda name, _: at[name]) == 0
    assert found.settled(b"u", 2, lambda name, _: at[name]) == 2
    found.committed(3, [(u, b"u"), (t, b"t")])
    assert found.settled(b"u", 3, lambda name, _: at[name]) == 0
    copy = Cuts.of_rows(*found.rows())
    assert copy.rows() == found.rows()
    assert copy.settled(b"s", 3, lambda name, _: at[name]) == 0


def test_what_lies_before_all_that_is_remembered_is_hidden_everywhere():
    found = Cuts()
    s, t = PartitionId("s", 0), PartitionId("t", 0)
    found.committed(1, [(s, b"s"), (t, b"t")])
    found.committed(2, [(s, b"s"), (t, b"t")])
    at = {s: Standing(2, 1), t: Standing(0, 0)}
    assert found.settled(b"t", 2, lambda name, _: at[name]) == NOTHING
