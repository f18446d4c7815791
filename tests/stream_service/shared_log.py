"""One log for machines on several nodes, and clocks and vhosts for what stands on them."""

from functools import partial
from types import SimpleNamespace

from broker.internal_errors import InternalErrors
from broker.streams.group_host import GroupHost
from broker.streams.transaction_host import TransactionHost
from queues.stream.arguments import parse_stream_options
from queues.stream.forwarding import encode_say, handle_forwarded, said_then
from queues.stream.names import OFFSETS_STREAM
from queues.stream.partition import StreamPartition
from queues.stream.partition_producers import IdempotentProducers
from queues.stream.staged_rows import Lost
from queues.stream.stream import Stream
from queues.stream.tail import TailBudget
from tests.stream.fakes import ByHand
from tests.support.simdisk import SimDisk

VHOST = "/"


class SharedLog:
    """Commits what its leader proposes, when told to, and shows it to the others."""

    def __init__(self):
        self.machines = {}
        self.entries = []
        self.proposed = []
        self.leader = None
        self.checkpoints = {}
        self.late = {}  # nodes that lag: entries that they have not applied

    def member(self, node):
        return Member(self, node)

    def elect(self, node):
        self.catch_up(node)
        self.leader = node
        self.machines[node].lead()

    def depose(self, *, survives=0):
        """So many of the proposals are in the log of the next leader."""
        node, self.leader = self.leader, None
        kept, self.proposed = self.proposed[:survives], []
        self.machines[node].follow()
        for entry in kept:
            self.entries.append(entry)
            for machine in self.machines.values():
                machine.apply(len(self.entries), entry)

    def propose(self):
        machine = self.machines[self.leader]
        while (entry := machine.next_entry()) is not None:
            self.proposed.append(entry)

    def commit(self):
        """Everything; whether there was anything."""
        self.propose()
        moved = bool(self.proposed)
        while self.proposed:
            entry = self.proposed.pop(0)
            self.entries.append(entry)
            for node, machine in self.machines.items():
                if node == self.leader:
                    machine.applied(len(self.entries))
                elif node in self.late:
                    self.late[node].append((len(self.entries), entry))
                else:
                    machine.apply(len(self.entries), entry)
        return moved

    def catch_up(self, node, count=None):
        """Apply what a node lacks, all of it by default: then it lags no more."""
        waiting = self.late.get(node, [])
        for index, entry in waiting[:count]:
            self.machines[node].apply(index, entry)
        if count is None:
            self.late.pop(node, None)
        else:
            del waiting[:count]

    def begin_anew(self, node):
        """The node has lost its log, and gets it once more."""
        assert self.machines[node].begin_anew()
        self.late[node] = list(enumerate(self.entries, 1))


class Member:
    """The `Log` of one machine."""

    def __init__(self, shared, node):
        self.shared = shared
        self.node = node

    def changed(self, *, urgent, size_bytes=0):
        pass

    def release(self, indexes):
        pass

    def checkpoint(self, index, state, then):
        self.shared.checkpoints[self.node] = (index, state)
        then()


class Clock:
    def __init__(self):
        self.time_ms = 1000
        self.calls = []
        self.errors = InternalErrors()

    def now_ms(self):
        return self.time_ms

    def call_at(self, at_ms, action):
        self.calls.append((at_ms, action))

    def pass_by(self, milliseconds):
        self.time_ms += milliseconds
        due = [action for at_ms, action in self.calls if at_ms <= self.time_ms]
        self.calls = [each for each in self.calls if each[0] > self.time_ms]
        for action in due:
            action()
        assert not self.errors.total


class Upkeep:
    def touched(self, partition):
        pass

    def crowded(self, appender):
        pass

    def forget(self, partition):
        pass


class Cluster:
    """Streams, groups and transactions of one vhost on several nodes."""

    def __init__(self, *streams, nodes=("a", "b", "c")):
        self.clock = Clock()
        self.off_loop = ByHand()
        self.names = nodes
        self.behind = set()  # nodes that do not have all definitions
        self.logs = {name: SharedLog() for name in (OFFSETS_STREAM, "transactions", *streams)}
        self.groups, self.transactions, self.vhosts = {}, {}, {}
        for name in nodes:
            self.vhosts[name] = SimpleNamespace(
                name=VHOST, uid=b"", queues={each: self.stream(name, each) for each in self.streams}
            )
            node = SimpleNamespace(timers=self.clock, vhosts={VHOST: self.vhosts[name]})
            self.groups[name] = GroupHost(node, replicated=True)
            definitions = partial(self.definitions, name)
            self.groups[name].books[VHOST].definitions = definitions
            self.groups[name].start()

            def join(vhost, uid, make, name=name):
                log = self.logs["transactions"]
                log.machines[name] = make(log.member(name))

            self.transactions[name] = TransactionHost(
                node,
                self.groups[name],
                None,
                lost_logs=False,
                join=join,
                elsewhere=self,
                definitions=definitions,
            )
            self.transactions[name].start()

    def definitions(self, node, then):
        then(ConnectionError("the definitions are being read") if node in self.behind else None)

    @property
    def streams(self):
        return [each for each in self.logs if each != "transactions"]

    def stream(self, node, name):
        options = parse_stream_options({"x-queue-type": "stream"})
        stream = Stream(name, self.clock, options, arguments={})
        stream.uid = name.encode()
        log = self.logs[name]

        def make(number, end):
            partition = StreamPartition(
                log.member(node),
                end,
                SimDisk(),
                options.storage,
                TailBudget(),
                self.clock.now_ms,
                self.off_loop,
                IdempotentProducers(),
                replicated=True,
            )
            partition.recover(None, [])
            log.machines[node] = partition

            def elsewhere(entry, then):
                if log.leader is None:
                    then(Lost.LOST)
                else:
                    leader = log.machines[log.leader]
                    handle_forwarded(leader, encode_say(entry), said_then(then))

            partition.elsewhere = elsewhere
            return partition

        stream.keep_in(Upkeep(), make)
        return stream

    def ask(self, vhost, body, then):
        """As the way to the groups."""
        leader = self.logs[OFFSETS_STREAM].leader
        if leader is None:
            then(None)
        else:
            self.transactions[leader].handle_group(vhost, body, then)

    def elect(self, name, node):
        self.logs[name].elect(node)
        self.off_loop.run()

    def settle(self):
        moving = True
        while moving:
            moving = False
            for log in self.logs.values():
                moving |= log.leader is not None and log.commit()
            self.off_loop.run()

    def partition(self, node, stream):
        return self.vhosts[node].queues[stream].partitions[0]

    def values(self, node, stream):
        answers = []
        partition = self.partition(node, stream)
        partition.reader.read(0, 1 << 30, answers.append)
        return [record.value for chunk in answers[0].chunks for record in chunk]
