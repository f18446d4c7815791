"""A stream in memory, its threads worked by hand, and readers that are watched."""

from random import Random

from pamqp import commands

from flow_control.credit import Credit
from queues.consumers import Consumer
from queues.message import Message
from queues.stream.arguments import StreamQueueOptions
from queues.stream.options import StreamOptions
from queues.stream.partition import StreamPartition
from queues.stream.stream import Stream
from queues.stream.tail import TailBudget
from queues.stream.wishes import read_wishes
from tests.channel.fakes import contents
from tests.durability.fake_log import FakeDisk, FakeLog
from tests.queues.fakes import FakeContext
from tests.stream.fakes import ByHand
from tests.support.simdisk import SimDisk


class Context(FakeContext):
    def __init__(self):
        super().__init__()
        self.unreadable = []
        self.waiting = []  # for definitions to be durable

    def when_durable(self, action):
        self.waiting.append(action)

    def stream_unreadable(self, stream, reason):
        self.unreadable.append(reason)


class Sink:
    """A channel that notes what it gets, and holds it until told to ack."""

    def __init__(self):
        self.credit = Credit()
        self.paused = False
        self.got = []  # (partition, offset, body)
        self.slices = []  # (partition, number of records)
        self.unacked = []
        self.redelivered = []  # of each slice
        self.cancelled = []

    def deliver_records(self, consumer, records):
        assert records.offsets, "an empty delivery"
        places = [(records.partition, offset) for offset in records.offsets]
        assert len(places) == len(records.values) == len(records.properties)
        self.got += [(*place, value) for place, value in zip(places, records.values, strict=True)]
        self.slices.append((records.partition, len(places)))
        self.unacked += places
        self.redelivered.append(records.redelivered)

    def consumer_cancelled(self, consumer):
        self.cancelled.append(consumer.tag)


class Receipt:
    def __init__(self):
        self.told = 0

    def stored(self, refused):
        assert not refused
        self.told += 1


class Scene:
    """`settle_down` does all that is to be done; without it nothing happens by itself."""

    def __init__(self, partitions=1, storage=None):
        self.context = Context()
        self.off_loop = ByHand()
        self.logs = []
        self.disks = []
        self.touches = []
        self.crowds = []
        self.forgotten = []
        self.options = StreamQueueOptions(
            partitions=partitions, storage=storage or StreamOptions(segment_bytes=3000)
        )
        self.stream = Stream("s", self.context, self.options, arguments={})
        self.stream.keep_in(self, self.make)
        for partition in self.stream.partitions:
            partition.recover(None, [])

    def make(self, number, end):
        log, disk = FakeLog(FakeDisk()), SimDisk()
        log.machine = StreamPartition(
            log,
            end,
            disk,
            self.options.storage,
            TailBudget(5000),
            self.context.now_ms,
            self.off_loop,
        )
        self.logs.append(log)
        self.disks.append(disk)
        return log.machine

    # The stream's upkeep

    def touched(self, partition):
        self.touches.append(partition)

    def crowded(self, partition):
        self.crowds.append(partition)

    def forget(self, partition):
        self.forgotten.append(partition)

    # What tests do

    def publish(self, *bodies, exchange="", key="s", **properties):
        receipt = Receipt()
        self.stream.publish(messages(*bodies, exchange=exchange, key=key, **properties), receipt)
        return receipt

    def consume(self, prefetch=10, offset="first", **arguments):
        given = {f"x-stream-{name}": value for name, value in arguments.items()}
        given["x-stream-offset"] = offset
        wishes = read_wishes(given, len(self.stream.partitions), self.context.now)
        consumer = Consumer("c", self.stream, Sink(), prefetch=prefetch)
        self.stream.subscribe(consumer, wishes)
        self.stream.start_consumer(consumer)
        return consumer

    def ack(self, consumer, count=None):
        places = consumer.sink.unacked[:count]
        del consumer.sink.unacked[:count]
        consumer.release(len(places))
        self.stream.settle(consumer, places)

    def settle_down(self):
        while self.off_loop.jobs or any(log.dirty or log.writes for log in self.logs):
            for log in self.logs:
                log.settle_down()
            self.off_loop.run()

    def tick(self, ms=100):
        self.context.advance(ms)
        for partition in self.stream.partitions:
            partition.tick(self.context.now)

    def move_all(self):
        """Everything that is in tails goes to segments."""
        for _ in range(3):
            self.tick()
            self.settle_down()


def publishes(*bodies, exchange="", key="s", **properties):
    given = commands.Basic.Properties(**properties)
    return [
        {"payload": body, "properties": given, "exchange": exchange, "routing_key": key}
        for body in bodies
    ]


def messages(*bodies, **how):
    made = []
    for args, frames, header_bytes, flags, body_bytes in contents(*publishes(*bodies, **how)):
        address = args[2:-1]
        made.append(Message(address, frames, header_bytes, flags, body_bytes, 1))
    return made


class Walk:
    """Everything happens in a random order; each reader must get each partition as it is."""

    def __init__(self, seed, storage, partitions):
        self.random = Random(seed)
        self.scene = Scene(partitions, storage)
        self.compact = storage.compact
        self.written = {}  # (partition, offset) → body, as the first reader to see it saw it
        self.published = 0
        self.receipts = []
        self.readers = []  # consumer and how much of what it got was looked at

    def publish(self):
        count = self.random.choice([1, 1, 5, 20])
        size = self.random.choice([0, 10, 60])
        bodies = [b"%d " % (self.published + n) + bytes(size) for n in range(count)]
        self.published += count
        headers = self.random.choice([{}, {"x-partition-key": self.random.choice("abcd")}])
        self.receipts.append(self.scene.publish(*bodies, headers=headers))

    def commit(self):
        log = self.random.choice(self.scene.logs)
        log.submit()
        log.commit(self.random.choice([1, 2, None]))

    def work(self):
        jobs = self.scene.off_loop.jobs
        jobs.rotate(self.random.randrange(3))
        self.scene.off_loop.run(1)

    def tick(self):
        self.scene.tick(self.random.choice([1, 10, 50]))

    def consume(self):
        if len(self.readers) < 5:
            offset = self.random.choice(["first", "first", "next", "last", 3])
            prefetch = self.random.choice([1, 3, 50, 1000])
            self.readers.append([self.scene.consume(prefetch, offset), 0, {}])

    def ack(self):
        if self.readers:
            consumer = self.random.choice(self.readers)[0]
            self.scene.ack(consumer, self.random.choice([1, 5, None]))

    def pause(self):
        if self.readers:
            consumer = self.random.choice(self.readers)[0]
            consumer.sink.paused = not consumer.sink.paused
            self.scene.stream.consumer_ready(consumer)

    def leave(self):
        if self.readers and self.random.random() < 0.2:
            consumer = self.readers.pop(self.random.randrange(len(self.readers)))[0]
            self.scene.stream.remove_consumer(consumer)

    def step(self):
        actions = [self.publish] * 4 + [self.commit] * 8 + [self.work] * 5 + [self.ack] * 6
        actions += [self.tick] * 2 + [self.consume, self.pause, self.leave]
        self.random.choice(actions)()
        self.look()

    def look(self):
        """Offsets ascend for every reader; what is skipped was taken by retention or compaction."""
        for reader in self.readers:
            consumer, seen, last = reader
            for partition, offset, body in consumer.sink.got[seen:]:
                assert self.written.setdefault((partition, offset), body) == body
                before = last.get(partition)
                if before is not None:
                    assert offset > before, "again, or backwards"
                    first = self.scene.stream.partitions[partition].first_offset
                    skipped = range(before + 1, offset)
                    assert self.compact or not skipped or skipped[-1] < first, "left out"
                last[partition] = offset
            reader[1] = len(consumer.sink.got)
            room = consumer.credit.limit - consumer.credit.used
            assert room >= 0

    def finish(self):
        """All readers get to the end of all partitions."""
        for reader in self.readers:
            reader[0].sink.paused = False
            self.scene.stream.consumer_ready(reader[0])
        self.scene.settle_down()
        while any(reader[0].sink.unacked for reader in self.readers):
            for reader in self.readers:
                self.scene.ack(reader[0])
            self.scene.settle_down()
            self.look()
        assert all(receipt.told == 1 for receipt in self.receipts)
        ends = {n: one.next_offset for n, one in enumerate(self.scene.stream.partitions)}
        assert sum(ends.values()) == self.published
        for consumer, _, last in self.readers:
            positions = self.scene.stream.subscription_of(consumer).cursors
            assert {number: cursor.next for number, cursor in positions.items()} == ends
            if not self.compact:
                assert all(offset == ends[number] - 1 for number, offset in last.items())
