"""Replicated machines as a simulation sees them: a log that is durable late, and crashes."""

import copy
from collections import deque

from queues.stream.groups import ConsumerGroup, load_groups
from queues.stream.names import GroupId
from queues.stream.staging import StagedChunk, Staging
from queues.stream.transaction_commands import (
    Discard,
    Mark,
    Open,
    Opened,
    Prepare,
    Propose,
    Reply,
    Told,
    decode_command,
    encode_command,
)
from queues.stream.transactions import TransactionCoordinator
from tests.support.promises import check

COORDINATOR = "coordinator"


class Host:
    """What was proposed becomes durable in order; a crash keeps some of what was not yet."""

    def __init__(self, world):
        self.world = world
        self.log = []
        self.pending = deque()  # (entry, who asked)
        self.checkpoint = (0, self.blank())
        self.start()

    def propose(self, entry, asker=None):
        self.pending.append((entry, asker))

    def sync(self, count):
        for _ in range(min(count, len(self.pending))):
            entry, asker = self.pending.popleft()
            self.log.append(entry)
            self.apply(entry, asker)

    def crash(self, random):
        for entry, _ in list(self.pending)[: random.randint(0, len(self.pending))]:
            self.log.append(entry)
        self.pending.clear()
        self.start()

    def start(self):
        index, state = self.checkpoint
        self.load(state)
        for entry in self.log[index:]:
            self.apply(entry, None, replay=True)

    def take_checkpoint(self):
        self.checkpoint = (len(self.log), self.save())


class CoordinatorHost(Host):
    def blank(self):
        return TransactionCoordinator().encode()

    def save(self):
        return self.machine.encode()

    def load(self, state):
        self.machine = self.world.coordinator_class.decode(state)
        self.waiting = {}  # key → clients

    def receive(self, message):
        kind, *body = message
        if kind == "request":
            client, command = body
            if not isinstance(command, Open):
                self.waiting.setdefault(command.key, set()).add(client)
            self.propose(encode_command(command), client)
        elif kind == "voted":
            self.carry_out(self.machine.voted(*body))
        elif kind == "marked":
            self.carry_out(self.machine.marked(*body))
        elif kind == "knows":
            participant, transaction = body
            if not self.machine.knows(transaction):
                self.world.send(participant, ("forget", transaction))

    def apply(self, entry, asker, *, replay=False):
        effects = self.machine.apply(decode_command(entry))
        if not replay:
            self.carry_out(effects, asker)

    def carry_out(self, effects, asker=None):
        for effect in effects:
            match effect:
                case Propose(command):
                    self.propose(encode_command(command))
                case Prepare() | Mark() | Discard():
                    self.world.send(effect.participant, effect)
                case Reply(key, outcome):
                    for client in sorted(self.waiting.pop(key, ())):
                        self.world.send(client, (key, outcome))
                case Told(key, outcome) if asker is not None:
                    self.world.send(asker, (key, outcome))
                case Opened() if asker is not None:
                    self.world.send(asker, effect)

    def tick(self):
        self.carry_out(self.machine.tick(self.world.now))

    def crash(self, random):
        super().crash(random)
        self.carry_out(self.machine.resume(self.world.now))


class PartitionHost(Host):
    """`rows` is what a reader can see: the records by offset."""

    def __init__(self, world, name):
        self.name = name
        super().__init__(world)

    def blank(self):
        return Staging().encode(), [], {}

    def save(self):
        return self.machine.encode(), list(self.rows), copy.deepcopy(self.chunks)

    def load(self, state):
        encoded, rows, chunks = state
        self.machine = self.world.staging_class.decode(encoded)
        self.rows, self.chunks = list(rows), dict(chunks)

    def receive(self, message):
        match message:
            case ("stage", client, key, writer, number, records):
                self.propose(("stage", key, writer, number, records, self.world.now), client)
            case ("forget", transaction):
                self.propose(("forget", transaction))
            case Prepare(_, transaction, key, part):
                entry = ("prepare", transaction, key, part.writers, self.world.now)
                self.propose(entry, COORDINATOR)
            case Mark(_, markers, settled):
                self.propose(("mark", markers, settled), COORDINATOR)
            case Discard(_, key, writers):
                self.propose(("discard", key, writers))

    def apply(self, entry, asker, *, replay=False):
        kind, *body = entry
        answer = getattr(self, f"apply_{kind}")(*body)
        if asker is not None and not replay:
            self.world.send(asker, answer)

    def apply_stage(self, key, writer, number, records, at_ms):
        ref = max(self.chunks, default=0) + 1
        chunk = StagedChunk(ref, len(records), 10)
        answer = self.machine.stage(key, writer, number, chunk, at_ms)
        if answer.name == "STAGED":
            self.chunks[ref] = records
        self.append_what_the_machine_let_out()
        return ("staged", self.name, key, writer, number, answer)

    def append_what_the_machine_let_out(self):
        """A planted bug may show rows at once."""
        for ref in getattr(self.machine, "let_out", ()):
            self.rows += self.chunks[ref]

    def apply_prepare(self, transaction, key, writers, at_ms):
        vote = self.machine.prepare(transaction, key, writers, at_ms)
        return ("voted", self.name, transaction, vote)

    def apply_mark(self, markers, _settled):
        appended, dropped = self.machine.mark(markers, len(self.rows))
        for ref, offset, count in appended:
            check(offset == len(self.rows), self.name, "appends at", offset, "of", len(self.rows))
            check(count == len(self.chunks[ref]), self.name, "appends part of", ref)
            self.rows += self.chunks[ref]
        self.drop(dropped)
        return ("marked", self.name, self.machine.decided)

    def apply_discard(self, key, writers):
        self.drop(self.machine.discard(key, writers))

    def apply_expire(self, before_ms):
        self.drop(self.machine.expire(before_ms))

    def apply_forget(self, transaction):
        self.drop(self.machine.forget(transaction))

    def drop(self, refs):
        for ref in refs:
            del self.chunks[ref]

    def tick(self):
        self.propose(("expire", self.world.now - self.world.staged_ms))
        for transaction in self.machine.held:
            self.world.send(COORDINATOR, ("knows", self.name, transaction))


class GroupHost(Host):
    """Its log is of records; the group changes before they are durable, the answers wait."""

    def __init__(self, world, name):
        self.name = GroupId(name)
        super().__init__(world)

    def blank(self):
        return None

    def save(self):
        return None

    def load(self, state):
        groups = load_groups(record for records in self.log for record in records)
        self.machine = groups.get(self.name.name) or ConsumerGroup(self.name.name)

    def take_checkpoint(self):
        """The records are all there is."""

    def receive(self, message):
        match message:
            case ("forget", transaction):
                self.machine.forget(transaction)
                self.answer(None)
            case Prepare(_, transaction, _, part):
                vote = self.machine.prepare(transaction, part, self.world.now)
                self.answer(("voted", self.name, transaction, vote))
            case Mark(_, markers, _):
                self.machine.mark(markers)
                self.answer(("marked", self.name, self.machine.decided))

    def answer(self, message):
        self.propose(self.machine.take_records(), message)

    def apply(self, entry, asker, *, replay=False):
        if asker is not None and not replay:
            self.world.send(COORDINATOR, asker)

    def tick(self):
        for transaction in self.machine.held:
            self.world.send(COORDINATOR, ("knows", self.name, transaction))
