"""A partition on a log and a disk that both forget, beside the list of records it must hold.

A record counts from the moment that it can be read or is confirmed: from then on it stands at its
offset for ever. What was on its way when the power failed may be there or not, in its order.
"""

from contextlib import suppress
from random import Random

from broker.protocol.chunk import Producer, encode_chunk
from broker.protocol.stream_errors import OffsetOutOfRangeError
from queues.stream.options import StreamOptions
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.tail import TailBudget
from queues.stream.verdict import Verdict
from tests.durability.fake_log import FakeDisk, FakeLog
from tests.stream.fakes import ByHand, Holder, Receipt
from tests.stream.walk import EVERYTHING, PowerFailedError, fail_after
from tests.support.simdisk import SimDisk

SMALL_PARTITION = {
    "queues.stream.keeper.MOVE_BYTES": 1500,
    "queues.stream.keeper.MOVE_BYTES_FLOOR": 600,
    "queues.stream.keeper.MOVE_ENTRIES": 12,
    "queues.stream.keeper.MOVE_AGE_MS": 40,
    "queues.stream.partition.ENTRY_BYTES_MAX": 400,
    "queues.stream.partition.ENTRY_RECORDS_MAX": 10,
    "queues.stream.partition.TAIL_BYTES_MAX": 9000,
    "queues.stream.tail.CHUNK_OVERHEAD_BYTES": 10,
}
TAILS_BYTES = 2000


class Reader:
    """Reads from the start, now and then; what it has read it never reads again."""

    def __init__(self):
        self.offset = 0
        self.reading = False


class Life:
    def __init__(self, seed, options=None):
        self.random = Random(seed)
        self.options = options or StreamOptions(segment_bytes=3000)
        self.disk = SimDisk()
        self.log_disk = FakeDisk()
        self.now_ms = 1000
        self.names = 0
        self.committed = []  # value by offset: what counts
        self.in_flight = []  # values in the order in which they were given, not counting yet
        self.sent = {}  # idempotent producer → the batches that it has to send
        self.acked = set()  # producer and number of the batches that are confirmed
        self.readers = [Reader(), Reader()]
        self.open()

    def open(self):
        self.off_loop = ByHand()
        self.holder = Holder()
        self.log = FakeLog(self.log_disk)
        self.partition = StreamPartition(
            self.log,
            self.holder,
            self.disk,
            self.options,
            TailBudget(TAILS_BYTES),
            lambda: self.now_ms,
            self.off_loop,
            IdempotentProducers(),
        )
        self.log.machine = self.partition
        covered = self.log_disk.checkpoint
        self.partition.recover(covered, self.log_disk.above_checkpoint())
        for reader in self.readers:
            reader.reading = False

    # What happens

    def name(self):
        self.names += 1
        return b"%d" % self.names + bytes(self.random.choice([0, 20, 90]))

    def publish(self):
        values = [self.name() for _ in range(self.random.choice([1, 1, 3, 8]))]
        keys = [self.random.choice([None, b"k", b"l"]) for _ in values]
        receipt = Receipt(lambda verdict, first: self.confirmed(verdict, first, values))
        self.partition.append(keys, values, [b"p"] * len(values), receipt)
        self.in_flight += values

    def confirmed(self, verdict, first, values):
        assert verdict is Verdict.NEW
        self.see(first, values)

    def send(self):
        """A producer that sends all batches without an answer again, as after a lost connection."""
        producer = self.random.choice([7, 8])
        batches = self.sent.setdefault(producer, [])
        batches.append([self.name() for _ in range(self.random.choice([1, 2, 5]))])
        start = 0
        for number, part in enumerate(batches):
            if (producer, number) not in self.acked:
                self.send_part(producer, number, start, part)
            start += len(part)

    def send_part(self, producer, number, start, part):
        def appended(verdict, first):
            assert verdict in (Verdict.NEW, Verdict.DUPLICATE)
            if first is not None:  # a duplicate of long ago
                self.see(first, part)
            self.acked.add((producer, number))

        count = len(part)
        chunk = encode_chunk(
            [None] * count, part, [b""] * count, self.now_ms, producer=Producer(producer, 1, start)
        )
        self.partition.append_chunk(chunk, Receipt(appended))

    def see(self, offset, values):
        """These values are at these offsets, and stay there."""
        for place, value in enumerate(values, offset):
            assert place <= len(self.committed), "offsets are not contiguous"
            if place == len(self.committed):
                self.committed.append(value)
                if value in self.in_flight:
                    assert self.in_flight[0] == value, "overtaken"
                    del self.in_flight[0]
            assert self.committed[place] == value, "another record at the same offset"

    def submit(self):
        self.log.submit()

    def commit(self):
        self.log.commit(self.random.choice([1, 2, None]))

    def work(self):
        """Any of the jobs: the partition sees to it that those which must not overtake do not."""
        self.off_loop.jobs.rotate(self.random.randrange(3))
        self.off_loop.run(1)

    def tick(self):
        self.now_ms += self.random.choice([1, 10, 30])
        self.partition.tick(self.now_ms)

    def read(self):
        reader = self.random.choice(self.readers)
        if reader.reading:
            return
        reader.reading = True
        size = self.random.choice([1, 500, EVERYTHING])
        before, there = reader.offset, self.partition.next_offset

        def then(found):
            reader.reading = False
            if isinstance(found, OffsetOutOfRangeError):
                assert reader.offset < found.first_offset
                reader.offset = found.first_offset
                return
            for chunk in found.chunks:
                for record in chunk.slice(reader.offset, EVERYTHING):
                    if not self.options.compact:
                        assert record.offset == reader.offset, "records left out"
                    self.see_one(record)
                    reader.offset = record.offset + 1
            assert reader.offset <= found.next_offset
            reader.offset = found.next_offset
            assert reader.offset > before or before == there, "committed records are hidden"

        self.partition.reader.read(reader.offset, size, then)

    def see_one(self, record):
        assert record.offset < self.partition.next_offset
        if record.offset < len(self.committed):
            assert self.committed[record.offset] == record.value
        else:
            self.see(record.offset, [record.value])

    def seek(self):
        """By time: everything before the answer is older, as far as it is still there."""
        time_ms = self.random.randint(995, self.now_ms + 2)
        first = self.partition.first_offset

        def then(offset):
            assert first <= offset <= self.partition.next_offset

        self.partition.reader.seek_time(time_ms, then)

    def step(self):
        actions = [self.publish] * 4 + [self.send] * 2 + [self.submit] * 4 + [self.commit] * 5
        actions += [self.work] * 5 + [self.read] * 4 + [self.tick, self.seek]
        self.random.choice(actions)()

    # What befalls it

    def until_power_fails(self, operations=None):
        left = self.random.randint(0, 25) if operations is None else operations
        fail_after(self.disk, left)
        with suppress(PowerFailedError):
            for _ in range(60):
                self.step()

    def crash(self):
        """Both disks keep what they please of what was not synced."""
        if self.off_loop.jobs and self.random.random() < 0.3:
            with suppress(PowerFailedError):
                self.off_loop.work_without_telling()
        fail_after(self.disk, 0)
        self.end()
        kept = self.random.randint(0, len(self.log.writes))
        released = list(self.log_disk.released)
        back = [index for index in released if self.random.random() < 0.5]
        self.log.crash(kept, back)
        self.disk.crash(self.random)
        self.reopen()

    def end(self):
        """Whatever the dead process still holds must not touch the disk."""
        compactor = self.partition._keeper._compactor
        if compactor is not None:
            with suppress(PowerFailedError):
                compactor.close()

    def reopen(self):
        self.open()
        self.check()
        self.in_flight.clear()
        self.partition.start()

    # What must hold

    def check(self):
        """Everything is there that counts, and nothing but a beginning of what was on its way."""
        partition = self.partition
        found = self.read_all()
        assert len(self.committed) <= partition.next_offset
        offsets = [record.offset for record in found]
        if not self.options.compact:
            assert offsets == list(range(partition.first_offset, partition.next_offset))
        assert offsets == sorted(set(offsets))
        for record in found:
            if record.offset < len(self.committed):
                assert self.committed[record.offset] == record.value
        if self.options.compact:  # what is new was not compacted away before anybody saw it
            self.committed += [None] * (partition.next_offset - len(self.committed))
            for record in found:
                self.committed[record.offset] = record.value
        else:
            self.see(partition.first_offset, [record.value for record in found])
        for producer, batches in self.sent.items():
            values = [value for batch in batches for value in batch]
            there = [value for value in self.committed if value in set(values)]
            assert there == values[: len(there)], "a producer's records twice or out of order"
            acked = [batch for n, batch in enumerate(batches) if (producer, n) in self.acked]
            assert len(there) >= sum(map(len, acked))

    def read_all(self):
        records = []
        offset = self.partition.first_offset
        while offset < self.partition.next_offset:
            answers = []
            self.partition.reader.read(offset, 700, answers.append)
            if not answers:
                work, then = self.off_loop.jobs.pop()
                then(work())
            for chunk in answers[0].chunks:
                records += chunk.slice(offset, EVERYTHING)
            assert answers[0].next_offset > offset
            offset = answers[0].next_offset
        return records

    def settle_down(self):
        """Until nothing moves any more."""
        while self.log.dirty or self.log.writes or self.off_loop.jobs:
            self.log.settle_down()
            self.off_loop.run()


def run(seed, options=None, rounds=4, steps=80):
    life = Life(seed, options)
    for _ in range(rounds):
        for _ in range(life.random.randint(1, steps)):
            life.step()
        if life.random.random() < 0.8:
            life.until_power_fails()
        life.crash()
    life.settle_down()
    life.check()
    assert not life.in_flight, "records were never stored"
    return life
