"""Partitions, a group, a coordinator, producers and readers on a network that loses and repeats."""

from collections import Counter
from random import Random

from queues.stream.names import PartitionId
from queues.stream.participant import GroupPart, PartitionPart
from queues.stream.staging import Staging
from queues.stream.transaction_commands import Opened
from queues.stream.transactions import PREPARE_MS, TransactionCoordinator
from tests.stream_groups.clients import Client
from tests.stream_groups.hosts import COORDINATOR, CoordinatorHost, GroupHost, PartitionHost
from tests.support.promises import check

MESSAGES_MAX = 400
STAGED_MS = 20_000


class Ledger:
    """What clients asked for and were told."""

    def __init__(self):
        self.attempts = {}  # writer → (key, attempt)
        self.parts = {}  # attempt → its parts
        self.committed = set()  # keys

    def began(self, key, attempt, parts):
        self.parts[attempt] = parts
        for part in parts:
            if isinstance(part, PartitionPart):
                for writer, _ in part.writers:
                    self.attempts[writer] = (key, attempt)

    def told_committed(self, key):
        self.committed.add(key)

    def rows_of(self, attempt, partitions):
        """(writer, partition, number) of everything that this attempt should show there."""
        return {
            (writer, part.partition, number)
            for part in self.parts[attempt]
            if isinstance(part, PartitionPart) and part.partition in partitions
            for writer, count in part.writers
            for number in range(count)
        }


class World:
    def __init__(
        self,
        seed,
        *,
        coordinator=TransactionCoordinator,
        staging=Staging,
        coordinator_host=CoordinatorHost,
        partition_host=PartitionHost,
    ):
        self.random = Random(seed)
        self.coordinator_class = coordinator
        self.staging_class = staging
        self.staged_ms = STAGED_MS
        self.now = 1_000_000
        self.quiet = False  # nothing is lost, repeated or crashed any more
        self.messages = []
        self.ledger = Ledger()
        self.partition_names = [PartitionId("s", n) for n in range(4)]
        self.coordinator = coordinator_host(self)
        self.partitions = {name: partition_host(self, name) for name in self.partition_names}
        self.group = GroupHost(self, "g")
        self.hosts = {
            COORDINATOR: self.coordinator,
            **self.partitions,
            self.group.name: self.group,
        }
        self.clients = {}
        self.cut = None  # (settled, {partition: rows}) of a reader in the middle of its questions
        for producer in ("p", "q", "r"):
            self.new_client(producer, None if producer == "p" else 0, 0)

    def new_client(self, producer, epoch, sequence):
        for client in self.clients.values():
            if client.producer == producer:
                client.current = False
                client.alive = client.alive and self.random.random() < 0.5
        name = f"{producer}-{len(self.clients)}"
        self.clients[name] = Client(self, producer, name, epoch, sequence)

    def send(self, to, message):
        if len(self.messages) < MESSAGES_MAX:
            self.messages.append((to, message))

    # One step

    def run(self, steps):
        for _ in range(steps):
            self.step()

    def step(self):
        random = self.random
        roll = random.random()
        if roll < 0.62:
            self.deliver()
        elif roll < 0.90:
            random.choice(list(self.hosts.values())).sync(random.randint(1, 3))
        elif roll < 0.94:
            random.choice(list(self.clients.values())).act()
        elif roll < 0.97:
            self.now += random.choice([10, 100, 1000])
            random.choice(list(self.hosts.values())).tick()
        elif roll < 0.99:
            random.choice(list(self.hosts.values())).take_checkpoint()
        elif not self.quiet:
            self.misfortune(random)
        self.read()

    def misfortune(self, random):
        roll = random.random()
        if roll < 0.70:
            random.choice(list(self.hosts.values())).crash(random)
        elif roll < 0.80:
            self.now += random.choice([PREPARE_MS, STAGED_MS])
        elif len(self.clients) < 20:
            # q and r are like Spark queries: restarted without an epoch, by one driver at a time.
            self.new_client("p", None, 0)

    def deliver(self):
        if not self.messages:
            return
        random = self.random
        place = random.randrange(len(self.messages))
        fate = 1.0 if self.quiet else random.random()
        to, message = self.messages[place]
        if not 0.1 < fate < 0.25:  # else it comes once more
            self.messages[place] = self.messages[-1]
            self.messages.pop()
        if fate > 0.1:
            self.hand_over(to, message)

    def hand_over(self, to, message):
        if to in self.hosts:
            self.hosts[to].receive(message)
        elif isinstance(message, Opened):
            self.clients[to].opened(message.epoch, message.last)
        elif message[0] == "staged":
            self.clients[to].staged(*message[1:])
        else:
            self.clients[to].answered(*message)

    # What is seen

    def read(self):
        """A reader takes its cut question by question, while everything goes on."""
        if self.cut is None:
            if self.random.random() < 0.2:
                self.cut = (self.coordinator.machine.settled, {})
            return
        settled, seen = self.cut
        left = [name for name in self.partition_names if name not in seen]
        if not left:
            self.check(seen)
            self.cut = None
            return
        host = self.partitions[self.random.choice(left)]
        end = host.machine.visibility.end(settled, len(host.rows))
        if end is None:
            self.cut = None
        else:
            seen[host.name] = list(host.rows[:end])

    def check(self, seen):
        """No transaction in part, none twice, nothing that nobody asked to commit."""
        attempts = {}  # attempt → rows
        for partition, rows in seen.items():
            counts = Counter((writer, place, number) for _, writer, place, number in rows)
            check(all(count == 1 for count in counts.values()), "twice in", partition)
            for row in counts:
                check(row[0] in self.ledger.attempts, row, "was never asked for")
                attempts.setdefault(self.ledger.attempts[row[0]], set()).add(row)
        for (_, attempt), rows in attempts.items():
            check(rows == self.ledger.rows_of(attempt, seen), "half of", attempt)
        keys = Counter((key.producer, key.sequence) for key, _ in attempts)
        check(all(count == 1 for count in keys.values()), "committed twice:", keys)
        return attempts

    def settle_down(self):
        """Let everyone finish, then everything must be in its place."""
        self.quiet = True
        for client in self.clients.values():
            client.alive = False
        for _ in range(60):
            self.now += 1000
            for host in self.hosts.values():
                host.tick()
                host.sync(len(host.pending))
            for _ in range(len(self.messages)):
                self.deliver()
        for host in self.hosts.values():
            host.sync(len(host.pending))
        self.check_the_end()

    def check_the_end(self):
        attempts = self.check({name: host.rows for name, host in self.partitions.items()})
        coordinator = self.coordinator.machine
        check(not coordinator._transactions, "transactions never end")
        for host in (*self.partitions.values(), self.group):
            check(host.machine.strays == 0, host.name, "has strays")
            check(not host.machine.held, host.name, "holds", host.machine.held)
        for host in self.partitions.values():
            shown = set(host.rows)
            left = [rows for rows in host.chunks.values() if not shown >= set(rows)]
            check(not left, "rows left behind:", left)
            check(not list(host.machine.refs()), host.name, "keeps staged rows")
            end = host.machine.visibility.end(coordinator.settled, len(host.rows))
            check(end == len(host.rows), host.name, "shows", end, "of", len(host.rows))
        visible = {key for key, _ in attempts}
        check(self.ledger.committed <= visible, "told committed and not seen")
        self.check_offsets(attempts)

    def check_offsets(self, attempts):
        """The offsets are those of the last visible transaction that had any."""
        expected = {}
        for key, attempt in sorted(attempts, key=lambda each: each[0].sequence):
            for part in self.ledger.parts[attempt]:
                if isinstance(part, GroupPart):
                    expected[PartitionId(key.producer, 0)] = (key.sequence + 1, attempt)
        found = {
            partition: (committed.offset, committed.metadata)
            for partition, committed in self.group.machine.offsets.items()
        }
        check(found == expected, "offsets are", found, "and not", expected)
