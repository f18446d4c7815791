"""A partition on the node's own log host and store: what its fakes promise holds there too."""

from random import Random

import trio

from broker.log_host import LogHost
from broker.off_loop import at_once
from broker.timers import Timers
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions
from queues.stream.options import StreamOptions
from queues.stream.partition import StreamPartition
from queues.stream.tail import TailBudget
from queues.stream.verdict import Verdict
from tests.stream.fakes import ByHand, Holder, ProducerTable, Receipt
from tests.stream.walk import EVERYTHING
from tests.support.simdisk import SimDisk

UID = b"stream partition"


class Node:
    """One partition on one log of one store, without threads: `turn` does what is to be done."""

    def __init__(self, log_disk, disk):
        self.host = LogHost(Timers(), lambda: None, lambda full: None, at_once)
        failures = []
        self.store = LogStore.open(
            log_disk,
            StoreOptions(wal_file_bytes=32 * 1024, free_bytes_min=0, reserve_bytes=8192),
            StoreEvents(self.host._durable, failures.append, failures.append),
            new_store_id=lambda: b"\x5a" * 16,
            threaded=False,
        )
        self.host.use(self.store)
        self.off_loop = ByHand()
        self.log = self.host.open(UID)
        self.partition = StreamPartition(
            self.log,
            Holder(),
            disk,
            StreamOptions(segment_bytes=3000),
            TailBudget(),
            lambda: 1000,
            self.off_loop,
            ProducerTable(),
        )
        self.log.machine = self.partition
        kept = self.partition.recover(
            self.host.checkpoint_of(self.log),
            self.host.replay(self.log),
            lambda indexes: self.host.entries(self.log, indexes),
        )
        self.host.retain(self.log, kept)
        self.partition.start()

    def turn(self):
        self.host.flush()
        self.store.flush()
        self.off_loop.run()
        self.host.flush()
        self.store.flush()

    def values(self):
        found = []
        offset = self.partition.first_offset
        while offset < self.partition.next_offset:
            answers = []
            self.partition.reader.read(offset, EVERYTHING, answers.append)
            self.off_loop.run()
            found += [record.value for chunk in answers[0].chunks for record in chunk]
            offset = answers[0].next_offset
        return found


async def test_confirmed_records_survive_crashes_and_the_log_gives_up_what_moved():
    log_disk, disk, random = SimDisk(), SimDisk(), Random(4)
    published: list[bytes] = []
    for _ in range(6):
        node = Node(log_disk, disk)
        assert node.values() == published
        for _ in range(40):
            receipt = Receipt()
            values = [b"%d" % len(published), b"x" * 50]
            node.partition.append([None, None], values, [b"", b""], receipt)
            node.turn()
            assert (receipt.verdict, receipt.first_offset) == (Verdict.NEW, len(published))
            published += values
        assert node.values() == published
        assert len(node.store.entries(node.log.gid)) < 20, "what is in segments is in the log too"
        await trio.lowlevel.checkpoint()
        log_disk.crash(random)
        disk.crash(random)
    assert len(Node(log_disk, disk).partition.segments()) > 2


async def test_a_deleted_partition_is_gone_from_log_and_disk():
    log_disk, disk = SimDisk(), SimDisk()
    node = Node(log_disk, disk)
    node.partition.append([None], [b"a" * 2000], [b""], Receipt())
    node.turn()
    node.partition.append([None], [b"b"], [b""], Receipt())
    assert len(node.partition.close()) == 1
    node.partition.remove()
    node.turn()
    assert disk.list() == []
    assert node.store.gid_of(UID) is None
    await trio.lowlevel.checkpoint()
