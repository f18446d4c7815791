"""Who leads which log, as far as this node has heard; whether it has a member of it or not.

A node that begins or ceases to lead tells all others, and tells a node that comes up all that it
leads. LEADS is one record after the other, numbers big-endian:

    offset 0   16 bytes  uid of the log
          16   u64       term
          24   u8        1: the sender leads it; 0: it does so no more
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from queues.raft.messages import NodeId

_RECORD: Final = Struct(">16sQ?")
RECORDS_MAX: Final = 8192  # in one message: about 200 KB
# Deleted logs of which late news is not heard: what was on its way is seconds old.
FORGOTTEN_MAX: Final = 16384

Watcher: TypeAlias = Callable[[NodeId | None], None]


class Lead(NamedTuple):
    term: int
    leader: NodeId | None


NOBODY: Final = Lead(0, None)


class LeaderBook:
    """One per node. Watchers are called at once, and only when the leader is another one."""

    def __init__(self, me: NodeId, mail: Mail) -> None:
        self.me = me
        self._mail = mail
        self._leads: dict[bytes, Lead] = {}
        self._fixed: dict[bytes, NodeId] = {}
        self._mine: dict[bytes, int] = {}  # what this node leads → term
        self._watchers: dict[bytes, list[Watcher]] = {}
        self._forgotten: dict[bytes, None] = {}  # the oldest first
        self.on_lead: Callable[[bytes], None] = lambda _: None  # this node begins to lead that log

    # For whoever wants to know.

    def leader_of(self, uid: bytes) -> NodeId | None:
        fixed = self._fixed.get(uid)
        return fixed if fixed is not None else self._leads.get(uid, NOBODY).leader

    def term_of(self, uid: bytes) -> int:
        """The term of the last leader that was heard of."""
        return self._leads.get(uid, NOBODY).term

    def leaders(self) -> list[NodeId]:
        """The leader of each log that has one."""
        return [lead.leader for lead in self._leads.values() if lead.leader is not None]

    def watch(self, uid: bytes, watcher: Watcher) -> None:
        """Call back with the new leader, or None, whenever that changes."""
        self._watchers.setdefault(uid, []).append(watcher)

    def unwatch(self, uid: bytes, watcher: Watcher) -> None:
        watchers = self._watchers.get(uid, [])
        watchers.remove(watcher)
        if not watchers:
            del self._watchers[uid]

    def fix(self, uid: bytes, home: NodeId) -> None:
        """This one lives on one node and is led there for ever, whether that is up or not."""
        before = self.leader_of(uid)
        self._fixed[uid] = home
        self._changed(uid, before)

    def forget(self, uid: bytes) -> None:
        """Its queue or stream is deleted: late news of it is not heard any more.

        Whoever watches it still has to stop doing so.
        """
        for known in (self._leads, self._fixed, self._mine):
            known.pop(uid, None)
        self._forgotten[uid] = None
        if len(self._forgotten) > FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    # What this node's own members say.

    def i_lead(self, uid: bytes, term: int) -> None:
        if uid in self._forgotten:
            return  # its member goes once the deletion is durable
        self._mine[uid] = term
        self._heard(uid, term, self.me)
        self._tell(self._mail.up(), [(uid, term, True)])
        self.on_lead(uid)

    def i_lead_no_more(self, uid: bytes, term: int | None = None) -> None:
        """Not even where it had begun and did not come to `i_lead`, if a term is given."""
        term = self._mine.pop(uid, term)
        if term is not None:
            self._gone(uid, term, self.me)
            self._tell(self._mail.up(), [(uid, term, False)])

    def heard(self, uid: bytes, term: int, leader: NodeId) -> None:
        """A member here follows that leader."""
        self._heard(uid, term, leader)

    # What the links say.

    def received(self, node: NodeId, body: bytes | memoryview) -> list[bytes]:
        """A message of kind LEADS; the logs that its sender leads no more. ValueError: it is none.

        A late word of a log that it leads again, in a later term, is not among them.
        """
        if len(body) % _RECORD.size:
            raise ValueError("a list of leads of the wrong length")
        resigned = []
        for uid, term, leads in _RECORD.iter_unpack(body):
            if leads:
                self._heard(uid, term, node)
            elif term >= self.term_of(uid):
                self._gone(uid, term, node)
                resigned.append(uid)
        return resigned

    def node_up(self, node: NodeId) -> None:
        self._tell([node], [(uid, term, True) for uid, term in self._mine.items()])

    def node_down(self, node: NodeId) -> None:
        for uid, lead in list(self._leads.items()):
            if lead.leader == node:
                self._gone(uid, lead.term, node)

    def _heard(self, uid: bytes, term: int, leader: NodeId) -> None:
        if uid in self._forgotten:
            return
        known = self._leads.get(uid, NOBODY)
        if term > known.term or (term == known.term and known.leader is None):
            before = self.leader_of(uid)
            self._leads[uid] = Lead(term, leader)
            self._changed(uid, before)

    def _gone(self, uid: bytes, term: int, leader: NodeId) -> None:
        if self._leads.get(uid) == (term, leader):
            before = self.leader_of(uid)
            self._leads[uid] = Lead(term, None)
            self._changed(uid, before)

    def _changed(self, uid: bytes, before: NodeId | None) -> None:
        leader = self.leader_of(uid)
        if leader != before:
            for watcher in list(self._watchers.get(uid, ())):
                watcher(leader)

    def _tell(self, nodes: Iterable[NodeId], records: list[tuple[bytes, int, bool]]) -> None:
        for start in range(0, len(records), RECORDS_MAX):
            some = records[start : start + RECORDS_MAX]
            body = b"".join([_RECORD.pack(*record) for record in some])
            for node in nodes:
                self._mail.send(node, Kind.LEADS, body)
