"""The definitions of a cluster: one replicated log that every node applies to its own vhosts.

A change is a request. The node that asks sends it to the log's leader, which proposes it; every
node applies it, in the order of the log and with the same result, and the node that asked answers
its client. Between nodes (kind META) these arrays go about, in CBOR:

    [0, boot, [[number, before, low, change], …]]   to the leader: requests of the sender (`Letter`)
    [1, question]                                   to the leader: what has been committed by now?
    [2, question, index]                            its answer
    [3, index]                                      to all: the sender has applied the log so far
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import cbor2

from broker import logs
from broker.cluster.checkpoint import changes_of, replace_state
from broker.cluster.kinds import Kind
from broker.cluster.nodes import NodeRecord
from broker.cluster.placement import Load, Placement, group_size, place_groups
from broker.cluster.requests import Clock, Letter, Requests
from broker.cluster.seams import Change, Owner, Result, Then
from broker.cluster.state import ASK, State
from broker.cluster.table import PeerInfo
from broker.journal import CHECKPOINT_CHANGES, FORMAT_VERSION, array, encode_change, encode_known
from broker.startup import StartupError
from queues.declared import Options
from queues.raft.messages import NodeId
from queues.stream.arguments import StreamQueueOptions

ENTRY_BYTES_MAX: Final = 256 * 1024  # an entry travels in one piece
LETTERS_MAX: Final = 256  # in a message
# What a node had in memory is given up when it was down this long: its clients come back elsewhere
# and declare their queues again. Longer than a pause of a process that lives.
GONE_MS: Final = 3000

_ASKED, _QUESTION, _BARRIER, _APPLIED = range(4)
_ABOUT_MEMBERS: Final = frozenset(
    {
        *(
            "founders",
            "node",
            "-node",
            "draining",
            "leaving",
            "boot",
            "place",
            "moved",
            "lead",
            "led",
        ),
        *("rebalance", "members"),
    }
)

_log = logs.get("catalog")


class Mail(Protocol):
    """The links to other nodes (`broker.cluster.mail.Mail`)."""

    def send(self, node: NodeId, kind: Kind, *pieces: bytes) -> None: ...
    def is_up(self, node: NodeId) -> bool: ...
    def up(self) -> set[NodeId]: ...


class Log(Protocol):
    """This node's member of the metadata log (`broker.hosted_log.MemberLog`)."""

    def changed(self, *, urgent: bool, size_bytes: int = 0) -> None: ...
    def release(self, indexes: list[int]) -> None: ...
    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None: ...
    def read_index(self, then: Callable[[Exception | None], None]) -> None: ...


class Catalog:
    """The metadata machine of a node (see `broker.hosted_log.MemberMachine`)."""

    def __init__(
        self,
        me: NodeId,
        boot: int,
        mail: Mail,
        clock: Clock,
        state: State,
        *,
        leaders: Callable[[], Mapping[NodeId, int]] | None = None,
    ) -> None:
        self.me = me
        self.boot = boot
        self.state = state
        self.applied_index = 0
        self.ready = False  # this node's start is part of the definitions: it is up to date
        self.on_members: list[Callable[[], None]] = []  # nodes or members of groups have changed
        self.on_change: list[Callable[[], None]] = []  # whatever was applied
        self._mail = mail
        self._clock = clock
        self._leaders = leaders  # how many groups each node leads now
        self._log: Log | None = None
        self._leads = False
        self._known_leader: NodeId | None = None
        self._requests = Requests(
            clock, send=self._send_requests, ask=self._ask_barrier, behind=self._behind
        )
        self._reports: dict[NodeId, int] = {}  # what others that are up have applied
        self._reporting = False
        self._starting: Callable[[], None] | None = None
        self._when_ready: list[Callable[[], None]] = []
        self._owners: dict[int, tuple[object, Owner]] = {}  # by the id of the connection
        self._connections = 0
        # Of the leader
        self._pending: deque[bytes] = deque()  # changes to propose
        self._proposed: deque[bytes] = deque()  # entries that are not applied yet
        self._received: dict[NodeId, tuple[int, int]] = {}  # boot, last number
        # Checkpoints
        self._indexes: list[int] = []  # entries above the last one
        self._since_checkpoint = 0
        self._checkpointing = False

    def use(self, log: Log) -> None:
        """The log, once it is joined; until then nothing can be asked of it."""
        self._log = log

    def start(
        self,
        record: NodeRecord,
        boots: Callable[[], Mapping[NodeId, int]],
        then: Then,
        *,
        table: Mapping[NodeId, PeerInfo] | None = None,
    ) -> None:
        """Tell the others that this node was started anew, as soon as there is a leader.

        `boots` are the nodes that are up by then, with their boot numbers. When `then` is called
        all that was changed before is known here, and clients may come. `table` are the members
        as the links know them. In a new cluster they are all part of it at once, whichever node
        is heard first: else logs would be taken from those that have not got round to it.
        """
        founders = [[number, *info] for number, info in (table or {}).items()]
        details = (record.number, record.name, record.uuid, record.address)
        change = ["node", *details, record.amqp, record.http]

        def started(result: Result) -> None:
            self.ready = result is None
            actions, self._when_ready = self._when_ready, []
            for action in actions:
                action()
            then(result)

        def begin() -> None:
            if any(number not in self.state.nodes.by_number for number, *_ in founders):
                self.request(["founders", founders], lasting=True)
            self.request(["boot", self.me, self.boot, dict(boots())], lasting=True)
            self.request(change, started, lasting=True)

        self._starting = begin
        self.leader_changed(self._known_leader)

    def when_ready(self, action: Callable[[], None]) -> None:
        """Act once this node is up to date: what was deleted long ago is not begun again."""
        if self.ready:
            action()
        else:
            self._when_ready.append(action)

    # What vhosts and channels ask

    def request(
        self, change: Change, then: Then = lambda _: None, *, lasting: bool = False
    ) -> None:
        self._requests.request(encode_change(change), then, lasting=lasting)

    def read(self, then: Then) -> None:
        self._requests.read(then)

    def owner_of(self, link: object) -> Owner | None:
        known = self._owners.get(id(link))
        return None if known is None else known[1]

    def claim(self, link: object) -> Owner:
        owner = self.owner_of(link)
        if owner is None:
            self._connections += 1
            owner = (self.me, self.boot, self._connections)
            self._owners[id(link)] = (link, owner)
        return owner

    def forget_owner(self, link: object, then: Callable[[], None] = lambda: None) -> None:
        known = self._owners.pop(id(link), None)
        if known is not None:
            self.request(["-owner", *known[1]], lambda _: then(), lasting=True)
        else:
            then()

    def place(
        self,
        options: Options,
        arguments: Mapping[str, object],
        *,
        lasting: bool,
        planned: Load | None = None,
    ) -> Placement:
        if options.type == "classic" or not lasting:
            return Placement(home=self.me, boot=self.boot)
        load = self.state.load
        if self._leaders is not None:
            load = Load(load.replicas, Counter(self._leaders()))
        if planned is not None:
            load = Load(load.replicas + planned.replicas, load.leaders + planned.leaders)
        return Placement(
            place_groups(
                options.partitions if isinstance(options, StreamQueueOptions) else 1,
                group_size(arguments),
                me=self.me,
                candidates=self.state.nodes.usable() or [self.me],
                load=load,
                up=self._mail.up(),
            )
        )

    def members(self) -> list[NodeId]:
        nodes = self.state.nodes.by_number.values()
        return sorted(node.number for node in nodes if not node.leaving)

    @property
    def leads(self) -> bool:
        """Whether this node leads the metadata log, and all that was committed is applied."""
        return self._leads

    # Between nodes

    def _leader(self) -> NodeId | None:
        if self._leads:
            return self.me
        return None if self._known_leader == self.me else self._known_leader

    def _send_requests(self, letters: list[Letter]) -> None:
        leader = self._leader()
        if leader == self.me:
            self._take(self.me, self.boot, letters)
        elif leader is not None:
            for first in range(0, len(letters), LETTERS_MAX):
                self._tell(leader, _ASKED, self.boot, letters[first : first + LETTERS_MAX])

    def _ask_barrier(self, question: int) -> None:
        leader = self._leader()
        if leader == self.me:
            self._find_barrier(lambda: self._barrier_at(question, self.applied_index))
        elif leader is not None:
            self._tell(leader, _QUESTION, question)

    def _tell(self, node: NodeId, *message: object) -> None:
        self._mail.send(node, Kind.META, cbor2.dumps(message))

    def received(self, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind META."""
        kind, *details = cbor2.loads(bytes(body))
        if kind == _ASKED:
            self._take(node, *details)
        elif kind == _QUESTION:
            (question,) = details
            self._find_barrier(lambda: self._tell(node, _BARRIER, question, self.applied_index))
        elif kind == _BARRIER:
            self._barrier_at(*details)
        elif kind == _APPLIED:
            self._reported(node, *details)
        else:
            raise ValueError(f"unknown message {kind!r} about definitions")

    def _take(self, node: NodeId, boot: int, letters: Sequence[Any]) -> None:
        """Requests to be proposed, if this node leads.

        One that was proposed is not proposed again. One whose predecessor has not come, because
        that was sent to another leader or got lost, waits to be sent again together with it.
        """
        if self._log is None or not self._leads:
            return
        for number, before, low, change in letters:
            known_boot, last = self._received.get(node, (0, 0))
            if boot < known_boot:
                return
            if boot > known_boot:
                last = 0
            if before <= last < number:
                self._received[node] = (boot, number)
                parts = [cbor2.dumps(part) for part in (ASK, node, boot, number, low)]
                self._pending.append(array([*parts, change]))
        if self._pending:
            self._log.changed(urgent=True)

    def _find_barrier(self, then: Callable[[], None]) -> None:
        def found(error: Exception | None) -> None:
            if error is None:  # else whoever asked asks again
                then()

        if self._log is not None and self._leads:
            self._log.read_index(found)

    def _barrier_at(self, question: int, index: int) -> None:
        self._requests.barrier_at(question, index)
        self._requests.advance(self.applied_index)

    def _reported(self, node: NodeId, index: int) -> None:
        self._reports[node] = index
        if index >= self.applied_index:
            self._requests.silent.discard(node)
        self._requests.advance(self.applied_index)

    def _behind(self, index: int) -> set[NodeId]:
        known = self.state.nodes.by_number
        return {
            node
            for node in self._mail.up()
            if self._reports.get(node, 0) < index and (node in known or not known)
        }

    def _report(self) -> None:
        self._reporting = False
        for node in self._mail.up():
            self._tell(node, _APPLIED, self.applied_index)

    # What happens around it

    def leader_changed(self, leader: NodeId | None) -> None:
        """Somebody else leads the metadata log, or nobody."""
        self._known_leader = leader
        if self._leader() is None:
            return
        if self._starting is not None:
            begin, self._starting = self._starting, None
            begin()
        else:
            self._requests.send_again()

    def node_up(self, node: NodeId) -> None:
        self._tell(node, _APPLIED, self.applied_index)
        if node == self._leader():
            self.leader_changed(node)

    def node_down(self, node: NodeId) -> None:
        self._reports.pop(node, None)
        self._requests.silent.discard(node)
        self._requests.advance(self.applied_index)
        self._watch(node)

    def _watch(self, node: NodeId) -> None:
        self._clock.call_at(self._clock.now_ms() + GONE_MS, lambda: self._give_up(node))

    def _give_up(self, node: NodeId) -> None:
        boot = self.state.boots.get(node)
        if not self._leads or boot is None or self._mail.is_up(node):
            return

        def given_up(error: Result) -> None:
            if error is not None:
                self._watch(node)

        if self.state.has_passing(node, boot):
            self.request(["gone", node, boot], given_up)

    # The machine

    def next_entry(self) -> bytes | None:
        if not self._pending:
            return None
        changes = [cbor2.dumps(FORMAT_VERSION)]
        size = 0
        while self._pending and (not size or size + len(self._pending[0]) <= ENTRY_BYTES_MAX):
            changes.append(self._pending.popleft())
            size += len(changes[-1])
        entry = array(changes)
        self._proposed.append(entry)
        return entry

    def applied(self, index: int) -> None:
        self.apply(index, self._proposed.popleft())

    def apply(self, index: int, entry: bytes) -> None:
        changes = _decode(entry)
        self.applied_index = index
        self._indexes.append(index)
        self._since_checkpoint += len(changes)
        about_members = False
        for kind, *details in changes:
            if kind != ASK:
                self.state.apply([kind, *details])
                continue
            node, boot, number, _, change = details
            made = self.state.apply_asked(*details)
            if made is not None and (node, boot) == (self.me, self.boot):
                self._requests.made(number, index, *made)
            about_members = about_members or change[0] in _ABOUT_MEMBERS
        self._after_apply(about_members=about_members)
        if self._since_checkpoint >= CHECKPOINT_CHANGES and not self._checkpointing:
            self._checkpoint(index)

    def _after_apply(self, *, about_members: bool) -> None:
        if not self._reporting:
            self._reporting = True
            self._clock.call_at(self._clock.now_ms(), self._report)
        for act in [*self.on_change, *(self.on_members if about_members else ())]:
            act()
        self._requests.advance(self.applied_index)

    def lead(self) -> None:
        self._leads = True
        self._received.clear()
        self.leader_changed(self.me)
        for node in self.state.nodes.by_number:
            if node != self.me and not self._mail.is_up(node):
                self._watch(node)

    def follow(self) -> None:
        """Whoever asked for what is void now asks the next leader."""
        self._leads = False
        self._pending.clear()
        self._proposed.clear()
        self._received.clear()

    def install(self, index: int, state: bytes) -> list[int]:
        replace_state(self.state, _decode(state))
        self.applied_index = index
        self._indexes = []
        self._since_checkpoint = 0
        asked = self.state.asked.get(self.me)
        if asked is not None and asked.boot == self.boot:
            self._requests.made_unseen(asked.last, asked.results, index)
        self._after_apply(about_members=True)
        return []

    def damaged(self, reason: str) -> None:
        """Without them a node can serve nothing."""
        raise StartupError(
            f"the definitions are damaged: {reason}. The other nodes have them: empty this node's "
            f"data directory, have it removed on another node (leveret cluster remove), start it, "
            f"and have it added (leveret cluster add)"
        )

    def encoded_state(self) -> bytes:
        """A checkpoint of all that is applied."""
        changes = map(encode_known, changes_of(self.state))
        return array([cbor2.dumps(FORMAT_VERSION), *changes])

    def _checkpoint(self, index: int) -> None:
        if self._log is None or not self.ready:
            return  # being brought back: a later change comes round to it
        self._checkpointing = True
        covered, self._indexes = self._indexes, []
        self._since_checkpoint = 0
        log = self._log

        def durable() -> None:
            self._checkpointing = False
            log.release(covered)

        log.checkpoint(index, self.encoded_state(), durable)


def _decode(entry: bytes) -> list[list[Any]]:
    version, *changes = cbor2.loads(entry)
    found: list[list[Any]] = changes
    if version != FORMAT_VERSION:
        raise ValueError(f"definitions of format {version}, expected {FORMAT_VERSION}")
    return found
