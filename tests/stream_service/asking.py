"""Questions to the groups and transactions of a `Cluster`, and what was answered."""

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_wire import Refused
from broker.streams.records import Records
from broker.streams.service import Caller
from tests.stream_service.shared_log import VHOST

CALLER = Caller(VHOST, "guest")


class Told(list):
    """What was answered, once."""

    def __call__(self, answer):
        assert not self, "answered twice"
        self.append(answer)

    @property
    def only(self):
        (answer,) = self
        return answer

    @property
    def status(self):
        assert isinstance(self.only, Refused), self.only
        return self.only.status


def join(cluster, node, group="g", streams=("s",)):
    told = Told()
    request = wire.Join(group, "me", "", "", streams)
    cluster.groups[node].join(CALLER, request, told)
    return told


def commit_offset(cluster, node, member, generation, offset):
    told = Told()
    positions = (wire.Position(wire.Partition("s", 0), offset, ""),)
    request = wire.CommitOffsets("g", member, generation, positions)
    cluster.groups[node].commit_offsets(CALLER, request, told)
    return told


def fetch_offset(cluster, node):
    told = Told()
    cluster.groups[node].fetch_offsets(CALLER, wire.FetchOffsets("g", ()), told)
    return told


def stage(cluster, node, key, values, number=0, stream="s"):
    told = Told()
    count = len(values)
    chunk = encode_chunk([None] * count, values, [b""] * count, cluster.clock.now_ms())
    cluster.transactions[node].stage(CALLER, wire.Stage(key, stream, 0, "w", number, chunk), told)
    return told


def commit(cluster, node, key, rows, groups=(), streams=("s",)):
    told = Told()
    writers = (wire.WriterRows("w", rows),)
    parts = tuple(wire.PartitionPart(wire.Partition(each, 0), writers) for each in streams)
    cluster.transactions[node].commit(CALLER, wire.Commit(key, parts, groups), told)
    return told


def opened(cluster, node="a"):
    told = Told()
    cluster.transactions[node].open_transactions(CALLER, wire.OpenTransactions("p"), told)
    cluster.settle()
    return wire.Key("p", told.only.epoch, 0)


def whole_end(cluster, node, stream):
    """What METADATA calls `stable`, of the first partition."""
    told = Told()
    records = Records(
        {VHOST: cluster.vhosts[node]}, cluster.transactions[node].settled, lambda _: ""
    )
    records.metadata(CALLER, wire.Metadata((stream,)), told)
    return told.only.streams[0].partitions[0].stable_offset
