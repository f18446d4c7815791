"""Bringing a member up to date whose missing entries are gone: kept entries, then the state.

The leader sends what it keeps at or under its last checkpoint and what the machine has in files of
its own, then the checkpoint. The member puts that in a *staged* group, beside copies of the entries
that it has itself; when all is there, the leader's Install lets the staged group take the place of
the member's own in one write. A crash finds the one or the other; a staged group is dropped then.

A member whose log is sound while the files of its machine are not asks for those and the checkpoint
only; what its own log has beyond is applied again. Nothing of that is Raft's.

Messages, numbers big-endian, in parcels:

    offset 0   u8        what it is
           1   16 bytes  uid of the log
          17   u64       number of the transfer, given by the leader
          25   …         OFFER    u64 index, u64 term of the checkpoint
                         WANT     u64 the index up to which it has all, then what it has in files
                         ENTRIES  (u64 index, u64 term, u32 length, payload) …
                         FILES    a part, as the machine made it
                         STATE    a part of the checkpoint
                         END      u64 length of the checkpoint
                         TAKEN    u64 bytes taken in so far: of ENTRIES, FILES and STATE
                         DONE     -   all of it is durable, or none of it is needed
                         NEED     -   the member's files are damaged
                         REPAIR   as OFFER, in answer to that
"""

from typing import TYPE_CHECKING

from broker.cluster.incoming import Incoming, staged_name
from broker.cluster.kinds import Kind
from broker.cluster.outgoing import Lane, Outgoing
from broker.cluster.parcels import Parcels, send_parcel
from broker.cluster.recovering import retain
from broker.cluster.transfers import HEAD, From, decode_head
from broker.hosted_log import MemberLog
from queues.raft.core import Raft
from queues.raft.messages import Install, NodeId, Snapshot

if TYPE_CHECKING:
    from broker.cluster.replication import Replication


class Snapshots:
    """The transfers of a node, to others and from others."""

    def __init__(self, replication: "Replication") -> None:
        self._replication = replication
        self._parcels = Parcels()
        self._outgoing: dict[tuple[bytes, NodeId], Outgoing] = {}
        self._incoming: dict[bytes, Incoming] = {}
        self._heeded: dict[bytes, Incoming] = {}  # to be installed at the end of the turn
        self._lanes: dict[NodeId, Lane] = {}
        self._number = replication.random.getrandbits(63)

    def start(self, log: MemberLog, node: NodeId) -> None:
        """That member needs one. Asked again, a transfer that gets on is left alone."""
        before = self._outgoing.get((log.uid, node))
        if before is not None and before.gets_on():
            return
        if before is not None:
            before.cancel()
        self._begin(log, node, repair=False)

    def need(self, log: MemberLog) -> None:
        """The files of this node's machine are damaged: ask whoever leads for others."""
        leader = log.leader
        if leader is None or leader == self._replication.me or log.uid in self._incoming:
            return
        head = HEAD.pack(From.NEED, log.uid, 0)
        send_parcel(self._replication.mail, leader, Kind.SNAPSHOT, [head])

    def _begin(self, log: MemberLog, node: NodeId, *, repair: bool) -> None:
        self._number += 1
        lane = self._lanes.setdefault(node, Lane())
        out = Outgoing(self._replication, log, node, self._number, lane, repair=repair)
        self._outgoing[log.uid, node] = out
        self._replication.host.start_soon(self._send, out)

    async def _send(self, out: Outgoing) -> None:
        await out.run()
        if self._outgoing.get((out.log.uid, out.node)) is out:
            del self._outgoing[out.log.uid, out.node]

    def received(self, node: NodeId, message: bytes | memoryview) -> None:
        """A message of kind SNAPSHOT. ValueError if it is none."""
        body = self._parcels.taken(node, message)
        if body is None:
            return
        what, uid, number = decode_head(body)
        rest = bytes(body[HEAD.size :])
        log = self._replication.logs.get(uid)
        if log is None or log.raft is None:
            self._replication.strangers += 1
        elif what in (From.OFFER, From.REPAIR):
            self._offered(log, node, number, rest, repair=what is From.REPAIR)
        elif what is From.NEED:
            if log.leads and (uid, node) not in self._outgoing:
                self._begin(log, node, repair=True)
        elif what in (From.WANT, From.TAKEN, From.DONE):
            out = self._outgoing.get((uid, node))
            if out is not None and out.number == number:
                out.heard(what, rest)
        else:
            coming = self._incoming.get(uid)
            if coming is not None and (coming.node, coming.number) == (node, number):
                coming.put(what, rest)

    def _offered(
        self, log: MemberLog, node: NodeId, number: int, rest: bytes, *, repair: bool
    ) -> None:
        if log.uid in self._heeded:
            return  # what it would be put beside is about to be replaced: it is offered again
        self._drop(log.uid)
        coming = Incoming(self._replication, log, node, number, rest, repair=repair)
        if coming.is_needless():
            coming.say_done()
        else:
            self._incoming[log.uid] = coming
            self._replication.host.start_soon(self._receive, coming)

    async def _receive(self, coming: Incoming) -> None:
        await coming.run()
        # What is whole waits for the leader's Install; a repair is over either way.
        over = coming.repair or not coming.is_complete
        if over and self._incoming.get(coming.uid) is coming:
            del self._incoming[coming.uid]

    def is_here(self, log: MemberLog, raft: Raft, install: Install) -> bool:
        """Whether an Install can be heeded: all of it is here, or it says nothing new.

        What it needs is kept for `install` then, whatever else comes in this turn.
        """
        snapshot = install.snapshot
        if snapshot.index <= raft.commit or raft.log.matches(snapshot.index, snapshot.term):
            self._drop(log.uid)
            return True
        coming = self._incoming.get(log.uid)
        if coming is None or not coming.has(snapshot.index, snapshot.term):
            return False
        self._heeded[log.uid] = self._incoming.pop(log.uid)
        return True

    def not_heeded(self, log: MemberLog) -> None:
        """The core had another reason not to: of an earlier term, say."""
        coming = self._heeded.pop(log.uid, None)
        if coming is not None:
            coming.cancel()

    def install(self, log: MemberLog, raft: Raft, snapshot: Snapshot) -> None:
        """The core heeds it: let the staged group take the place of the old one."""
        coming = self._heeded.pop(log.uid)
        assert coming.has(snapshot.index, snapshot.term)
        assert log.gid is not None
        assert coming.gid is not None
        assert log.machine is not None
        host = self._replication.host
        batch, gid, state = host.batch, coming.gid, b"".join(coming.state)
        batch.set_config(gid, snapshot.index, snapshot.config.encode())
        batch.snapshot(gid, snapshot.index, snapshot.term, state)
        batch.set_hard(gid, raft.term, raft.vote)
        batch.replace_group(log.gid, gid, log.uid)
        host.want_submit()
        log.gid = gid
        retain(host, gid, snapshot.index, log.machine.install(snapshot.index, state))

    # Ends that are none.

    def lost(self, node: NodeId) -> None:
        """The link to that node broke: whoever still needs something asks for it again."""
        self._parcels.lost(node)
        self._lanes.pop(node, None)
        for key in [key for key in self._outgoing if key[1] == node]:
            self._outgoing.pop(key).cancel()
        for uid in [uid for uid, coming in self._incoming.items() if coming.node == node]:
            self._drop(uid)

    def forget(self, log: MemberLog) -> None:
        """The log is gone, or damaged."""
        for key in [key for key in self._outgoing if key[0] == log.uid]:
            self._outgoing.pop(key).cancel()
        self._drop(log.uid)
        self.not_heeded(log)

    def stand_down(self, log: MemberLog) -> None:
        """It leads no more."""
        for key in [key for key in self._outgoing if key[0] == log.uid]:
            self._outgoing.pop(key).cancel()

    def _drop(self, uid: bytes) -> None:
        coming = self._incoming.pop(uid, None)
        if coming is not None:
            coming.cancel()

    def forget_staged(self, uid: bytes) -> None:
        """What a crash left of a transfer."""
        host = self._replication.host
        gid = host.gid_of(staged_name(uid))
        if gid is not None:
            host.delete_group(gid)
