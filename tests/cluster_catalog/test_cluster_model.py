"""Catalogs through lost messages, leader changes, partitions, restarts: they agree, and clients
cannot tell that there are several."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pamqp import commands

from broker.cluster.placement import Placement
from tests.cluster_catalog.clients import Client, CountingFront
from tests.cluster_catalog.fakes import Cluster, Node, snapshot
from tests.cluster_catalog.linearizable import Operation, is_linearizable
from tests.support.promises import check

NODES = (1, 2, 3)
ABSENT = "absent"
node = st.sampled_from(NODES)
exchange = st.sampled_from(["x1", "x2"])
UNANSWERED_MAX = 6  # the checker tries all their subsets
OPERATIONS = ("declare", "declare", "delete", "find", "bind", "unbind")


def method_of(operation, exchange, kind):
    binding = {"queue": "q", "exchange": exchange, "routing_key": "k"}
    if operation == "declare":
        options = {"durable": True, "auto_delete": True}
        return commands.Exchange.Declare(exchange=exchange, exchange_type=kind, **options)
    if operation == "delete":
        return commands.Exchange.Delete(exchange=exchange, if_unused=True)
    if operation == "find":
        return commands.Exchange.Declare(exchange=exchange, passive=True)
    return (
        commands.Queue.Bind(**binding) if operation == "bind" else commands.Queue.Unbind(**binding)
    )


def step(state, operation):
    """One auto-delete exchange: absent, or its type and whether it is bound to the queue."""
    kind, bound = state
    there = kind != ABSENT
    answer, done = operation.answer, operation.returned != float("inf")
    name = operation.name
    if name == "declare":
        wanted = 406 if there and kind != operation.argument else "ok"
        after = state if there else (operation.argument, False)
    elif name == "delete":
        wanted = 406 if bound else "ok"
        after = state if bound else (ABSENT, False)
    elif name == "find":
        wanted, after = ("ok" if there else 404), state
    elif name == "bind":
        wanted, after = ("ok", (kind, True)) if there else (404, state)
    else:
        wanted, after = "ok", ((ABSENT, False) if bound else state)
    return after if not done or answer == wanted else None


class ClusterLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.cluster = Cluster(3, CountingFront)
        self.events = 0
        self.histories = {"x1": [], "x2": []}
        self.waiting = []  # (operation, client, node)
        self.known = {}  # index → what a node that has applied so much knows
        self.looked_at = {}
        for number in NODES:
            self.cluster.start(number)
        self.cluster.elect(1)
        self._all_hear()
        home = Placement(home=1, boot=1).encode()
        self.cluster.nodes[1].catalog.request(
            ["queue", "/", "q", b"q" * 16, False, "classic", {}, True, None, home]
        )
        self.cluster.settle()

    def _all_hear(self):
        for number in NODES:
            self.cluster.hear_of_leader(number)

    # Clients

    @rule(number=node, name=exchange, what=st.sampled_from(OPERATIONS), kind=st.booleans())
    def call(self, number, name, what, kind):
        unanswered = [o for o in self.histories[name] if o.returned == float("inf")]
        if len(unanswered) >= UNANSWERED_MAX:
            return
        kind = "direct" if kind else "topic"
        client = Client(self.cluster, number)
        self.events += 1
        operation = Operation(what, kind, self.events)
        self.histories[name].append(operation)
        self.waiting.append((operation, client, self.cluster.nodes[number]))
        client.send(method_of(what, name, kind))
        self._collect()

    @invariant()
    def _collect(self):
        self.events += 1
        for entry in list(self.waiting):
            operation, client, at = entry
            if self.cluster.nodes[at.number] is not at:
                self.waiting.remove(entry)  # its node has died, and took the answer along
                continue
            error = client.link.closed_with
            if error is None and not client.link.outbox.size:
                continue
            self.waiting.remove(entry)
            if error is None or error.code != 506:
                operation.returned = self.events
                operation.answer = "ok" if error is None else error.code

    # The world

    @rule(a=node, b=node, count=st.integers(1, 4))
    def deliver(self, a, b, count):
        for _ in range(count):
            self.cluster.deliver(a, b)

    @rule()
    def deliver_all(self):
        self.cluster.deliver_all()

    @rule()
    def commit(self):
        self.cluster.commit()

    @rule(number=node, count=st.integers(1, 3))
    def apply(self, number, count):
        self.cluster.apply(number, count)

    @rule(number=node, adopted=st.integers(0, 2))
    def elect(self, number, adopted):
        if self.cluster.has_quorum(number):
            self.cluster.elect(number, adopted)

    @rule(number=node)
    def hear_of_leader(self, number):
        self.cluster.hear_of_leader(number)

    @rule(a=node, b=node)
    def lose_messages(self, a, b):
        """A link breaks and is back at once."""
        if a != b and frozenset((a, b)) in self.cluster.links:
            self.cluster.disconnect(a, b)
            self.cluster.connect(a, b)

    @rule(a=node, b=node)
    def disconnect(self, a, b):
        self.cluster.disconnect(a, b)

    @rule(a=node, b=node)
    def connect(self, a, b):
        if a != b and frozenset((a, b)) not in self.cluster.links:
            self.cluster.connect(a, b)

    @rule(ms=st.sampled_from([1, 1, 1, 600, 3100]))
    def pass_time(self, ms):
        self.cluster.clock.advance(ms)

    @precondition(lambda self: self.cluster.leader is not None)
    @rule(number=node)
    def install(self, number):
        one = self.cluster.nodes[number]
        if not one.leading and one.at < self.cluster.leader.at:
            self.cluster.install(number)

    @rule(number=node)
    def checkpoint(self, number):
        one = self.cluster.nodes[number]
        one.checkpoint(one.at, one.catalog.encoded_state(), lambda: None)

    @rule(number=node)
    def restart(self, number):
        self.cluster.restart(number)
        self.cluster.start(number)

    @rule()
    def quiet(self):
        self._heal()
        self.cluster.settle(3)

    def _heal(self):
        for a in NODES:
            for b in NODES:
                self.connect(a, b)
        if self.cluster.leader is None:
            self.cluster.elect(2)
        self._all_hear()

    # What is promised

    @invariant()
    def nodes_agree_at_the_same_index(self):
        for one in self.cluster.nodes.values():
            if self.looked_at.get(one) != one.at:
                self.looked_at[one] = one.at
                now = snapshot(one)
                same = self.known.setdefault(one.at, now) == now
                check(same, f"at {one.at} node {one.number} knows something else")

    def teardown(self):
        self._heal()
        for _ in range(20):
            self.cluster.settle(2)
            self.cluster.clock.advance(600)
        self._collect()
        check(not self.waiting, "never answered")
        everything = [snapshot(one) for one in self.cluster.nodes.values()]
        check(everything[0] == everything[1] == everything[2], "nodes differ:", everything)
        replayed = Node(self.cluster, 1, 99)
        while replayed.at < len(self.cluster.log):
            replayed.catalog.apply(replayed.at + 1, self.cluster.log[replayed.at][1])
            replayed.at += 1
        check(snapshot(replayed) == everything[0], "a replay comes to something else")
        for history in self.histories.values():
            check(is_linearizable(history, step, (ABSENT, False)), "cannot be:", history)


class TestClusterLife(ClusterLife.TestCase):
    settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_the_checker_knows_what_one_copy_could_not_have_said():
    def history(*operations):
        return [
            Operation(name, kind, called, returned, answer)
            for name, kind, called, returned, answer in operations
        ]

    never = float("inf")
    found_late = history(
        ("declare", "topic", 1, 2, "ok"), ("find", "", 3, 4, 404), ("find", "", 5, 6, "ok")
    )
    found_while_declared = history(("declare", "topic", 1, 5, "ok"), ("find", "", 2, 3, 404))
    made_twice = history(
        ("declare", "topic", 1, never, None),
        ("find", "", 2, 3, "ok"),
        ("delete", "", 4, 5, "ok"),
        ("find", "", 6, 7, "ok"),
    )
    assert not is_linearizable(found_late, step, (ABSENT, False))
    assert is_linearizable(found_while_declared, step, (ABSENT, False))
    assert not is_linearizable(made_twice, step, (ABSENT, False))
