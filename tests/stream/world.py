"""A partition with all that it stands on, each piece of which moves when it is told to."""

from broker.protocol.chunk import encode_chunk, encode_mark
from queues.stream.options import StreamOptions
from queues.stream.partition import StreamPartition
from queues.stream.tail import TailBudget
from tests.durability.fake_log import FakeDisk, FakeLog
from tests.stream.fakes import ByHand, Holder, ProducerTable, Receipt
from tests.stream.walk import EVERYTHING
from tests.support.simdisk import SimDisk


class World:
    """A partition with all that it stands on."""

    def __init__(self, options=None, make_producers=ProducerTable):
        self.disk = SimDisk()
        self.log_disk = FakeDisk()
        self.options = options or StreamOptions(segment_bytes=2000)
        self.budget = TailBudget(1 << 30)
        self.now_ms = 5000
        self._make_producers = make_producers
        self.open()

    def open(self):
        self.off_loop = ByHand()
        self.holder = Holder()
        self.producers = self._make_producers()
        self.log = FakeLog(self.log_disk)
        self.partition = StreamPartition(
            self.log,
            self.holder,
            self.disk,
            self.options,
            self.budget,
            lambda: self.now_ms,
            self.off_loop,
            self.producers,
        )
        self.log.machine = self.partition
        checkpoint, entries = self.log_disk.checkpoint, self.log_disk.above_checkpoint()
        assert self.partition.recover(checkpoint, entries) == []
        self.partition.start()

    def publish(self, *values, key=None):
        receipt = Receipt()
        count = len(values)
        self.partition.append([key] * count, list(values), [b""] * count, receipt)
        return receipt

    def send(self, *values, producer, flags=0, at_ms=None):
        receipt = Receipt()
        count = len(values)
        at_ms = self.now_ms if at_ms is None else at_ms
        chunk = encode_chunk(
            [None] * count, values, [b""] * count, at_ms, producer=producer, flags=flags
        )
        self.partition.append_chunk(chunk, receipt)
        return receipt

    def mark(self, mark, producer):
        self.partition.append_chunk(encode_mark(mark, producer, self.now_ms), Receipt())

    def settle(self):
        while self.log.dirty or self.log.writes or self.off_loop.jobs:
            self.log.settle_down()
            self.off_loop.run()

    def move(self):
        """Everything so far into segments."""
        self.settle()
        if self.partition._keeper._entries:
            self.partition._keeper._move()
        self.settle()
        assert not len(self.partition._tail)

    def read(self, offset, max_bytes=EVERYTHING, *, committed=True):
        answers = []
        self.partition.reader.read(offset, max_bytes, answers.append, committed=committed)
        self.off_loop.run()
        assert len(answers) == 1
        return answers[0]

    def values(self, offset=None, *, committed=True):
        """All values from an offset on."""
        offset = self.partition.first_offset if offset is None else offset
        found = []
        while True:
            batch = self.read(offset, committed=committed)
            found += [r.value for chunk in batch.chunks for r in chunk.slice(offset, EVERYTHING)]
            if batch.next_offset == offset:
                return found
            offset = batch.next_offset
