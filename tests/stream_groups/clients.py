"""Transactional producers of the simulation, their restarts and their zombies."""

from queues.stream.group_records import Position
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import GroupPart, PartitionPart, TransactionKey, WriterRows
from queues.stream.staging import StageAnswer
from queues.stream.transaction_commands import (
    Abort,
    Aborted,
    Commit,
    Committed,
    Open,
    Refusal,
    Refused,
)
from tests.stream_groups.hosts import COORDINATOR
from tests.support.promises import check


class Client:
    """One process of a producer. It repeats every request until it is answered."""

    def __init__(self, world, producer, name, epoch, sequence):
        self.world = world
        self.producer = producer
        self.name = name
        self.epoch = epoch  # None: to be opened
        self.sequence = sequence
        self.current = True
        self.alive = True
        self.attempts = 0
        self.requests = {}  # (partition, writer, number) → records that are not staged yet
        self.parts = ()
        self.gives_up = False
        if epoch is not None:
            self.begin()

    @property
    def key(self):
        return TransactionKey(self.producer, self.epoch, self.sequence)

    def begin(self):
        """Stage by one or two writers that will be asked for and maybe one that will not."""
        random = self.world.random
        self.attempts += 1
        self.requests = {}
        rows = {}
        attempt = f"{self.name}.{self.epoch}.{self.sequence}.{self.attempts}"
        for number in range(random.randint(1, 2)):
            writer = f"{attempt}.{number}"
            for partition in random.sample(self.world.partition_names, random.randint(1, 3)):
                count = self.write(partition, writer, random)
                rows.setdefault(partition, []).append(WriterRows(writer, count))
        if random.random() < 0.3:
            self.write(random.choice(self.world.partition_names), f"{attempt}.failed", random)
        self.parts = tuple(PartitionPart(p, tuple(writers)) for p, writers in rows.items())
        if random.random() < 0.7:
            self.parts += (self.group_part(attempt),)
        self.world.ledger.began(self.key, attempt, self.parts)
        self.gives_up = random.random() < 0.1

    def group_part(self, attempt):
        position = Position(self.sequence + 1, attempt)
        return GroupPart(GroupId("g"), "", 0, {PartitionId(self.producer, 0): position})

    def write(self, partition, writer, random):
        count = 0
        for number in range(random.randint(1, 2)):
            records = [
                (self.key, writer, partition, count + n) for n in range(random.randint(1, 2))
            ]
            self.requests[partition, writer, number] = records
            count += len(records)
        return count

    def act(self):
        if not self.alive:
            return
        if self.epoch is None:
            if self.world.random.random() < 0.3:  # each one fences the one before it
                self.world.send(COORDINATOR, ("request", self.name, self.opening()))
        elif self.requests:
            for (partition, writer, number), records in self.requests.items():
                message = ("stage", self.name, self.key, writer, number, records)
                self.world.send(partition, message)
        else:
            kind = Abort if self.gives_up else Commit
            command = kind(self.key, self.parts, self.world.now)
            self.world.send(COORDINATOR, ("request", self.name, command))

    def opening(self):
        return Open(self.producer, self.world.now)

    def staged(self, partition, key, writer, number, answer):
        if key != self.key or (partition, writer, number) not in self.requests:
            return
        if answer in (StageAnswer.STAGED, StageAnswer.DUPLICATE):
            del self.requests[partition, writer, number]
        elif number == 0 or (partition, writer, number - 1) not in self.requests:
            self.begin()  # what was staged is gone

    def opened(self, epoch, last):
        if self.alive and self.epoch is None:
            self.epoch, self.sequence = epoch, last + 1
            self.begin()

    def answered(self, key, outcome):
        if not self.alive or key != self.key:
            return
        match outcome:
            case Committed():
                self.world.ledger.told_committed(key)
                self.sequence += 1
                self.attempts = 0
                self.begin()
            case Aborted():
                self.begin()
            case Refused(Refusal.FENCED):
                self.epoch = None
                self.alive = self.current
            case Refused(refusal):
                check(refusal is Refusal.BUSY, self.name, "is refused:", refusal)
