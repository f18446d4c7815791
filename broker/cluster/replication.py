"""Drives the logs that have members on several nodes: what they say, write, apply; who leads them.

At the end of each turn (`LogHost.flush`) every log that something happened to is asked what is to
be done. Its writes join those of the whole node; what it has to say goes out in one bundle per
node and lane, while the disk is at work. Committed entries are applied in slices, a bounded amount
in each turn. That a node is gone or back is heard once, and told to its logs in slices too.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from broker import logs
from broker.cluster.applying import Applier
from broker.cluster.bundles import Bundles
from broker.cluster.deadlines import Deadlines
from broker.cluster.disk_reads import DiskReads
from broker.cluster.incoming import staged_name
from broker.cluster.kinds import Kind
from broker.cluster.leaders import LeaderBook
from broker.cluster.leadership import Leadership
from broker.cluster.mail import Mail
from broker.cluster.node_news import NodeNews
from broker.cluster.recovering import recovered
from broker.cluster.snapshots import Snapshots
from broker.hosted_log import MemberLog, MemberMachine
from queues.raft.codec import decode_bundle
from queues.raft.config import DEFAULTS, ConfChangeError, Config, Tunables
from queues.raft.core import Raft
from queues.raft.messages import Append, Install, Message, NodeId
from queues.raft.ready import NotLeaderError, Ready
from queues.raft.replica import AT_ONCE, LEADER
from queues.storage.errors import CorruptRecordError, MissingEntryError

if TYPE_CHECKING:
    from broker.log_host import LogHost

_log = logs.get("replication")


class _NotUp:
    """The nodes that cannot be reached, for a leader that meets its followers."""

    def __init__(self, me: NodeId, mail: Mail) -> None:
        self._me = me
        self._mail = mail

    def __contains__(self, node: object) -> bool:
        return isinstance(node, int) and node != self._me and not self._mail.is_up(node)


class _Crowded:
    """The nodes to which enough of one log is on its way."""

    __slots__ = ("_key", "_mail")

    def __init__(self, uid: bytes, mail: Mail) -> None:
        self._key = (Kind.RAFT_BULK, uid)
        self._mail = mail

    def __contains__(self, node: object) -> bool:
        return isinstance(node, int) and self._mail.congested(node, self._key)


class Replication:
    """One per node of a cluster. For the loop's thread."""

    def __init__(self, host: "LogHost", me: NodeId, mail: Mail, book: LeaderBook) -> None:
        self.host = host
        self.me = me
        self.mail = mail
        self.book = book
        self.logs: dict[bytes, MemberLog] = {}
        self.on_damaged: list[Callable[[bytes, str], None]] = []  # uid of a log, and why
        self.lost_logs = False  # damage took logs of which not even the name is known
        self.strangers = 0  # messages for logs that are not here
        self.random = Random()  # noqa: S311 - spreads elections
        self.snapshots = Snapshots(self)
        self.leadership = Leadership(self)
        self.disk_reads = DiskReads(self)
        self._down = _NotUp(me, mail)
        self._touched: list[MemberLog] = []
        self._held_up: set[MemberLog] = set()  # logs with entries for nodes that have enough
        self._applier = Applier(self)
        self._bundles = Bundles(mail)
        self._deadlines = Deadlines(host.timers, self._tick)
        self._news = NodeNews(self)

    # Joining and leaving.

    def join(
        self,
        uid: bytes,
        voters: tuple[NodeId, ...],
        make: Callable[[MemberLog], MemberMachine],
        *,
        first: NodeId,
        may_be_new: bool,
        tunables: Tunables = DEFAULTS,
    ) -> MemberLog:
        assert uid not in self.logs, "it has joined already"
        host, now = self.host, trio.current_time()
        log = MemberLog(host, self, uid, host.gid_of(uid))
        log.machine = make(log)
        self.logs[uid] = log
        self.snapshots.forget_staged(uid)
        if log.gid is None:
            if self.lost_logs and not may_be_new:
                self.damage(log, "logs are lost, and this is one of them")
                return log
            self._create(log, Config(voters), now, tunables)
            if first == self.me:
                self.campaign(log)
            return log
        reason = host.store.group(log.gid).damaged
        if reason is None:
            try:
                make_raft = partial(self._make, log.uid, tunables=tunables)
                log.raft = recovered(host, log, Config(voters), make_raft, now)
            except (CorruptRecordError, MissingEntryError) as error:
                reason = str(error)
        if reason is not None:
            self.damage(log, reason)
        else:
            self.touch(log)
            if log.postponed is not None:
                log.postponed()
                log.postponed = None
        return log

    def _create(self, log: MemberLog, config: Config, now: float, tunables: Tunables) -> None:
        log.gid = self.host.batch.create_group(log.uid)
        self.host.batch.set_config(log.gid, 0, config.encode())
        self.host.want_submit()
        log.raft = self._make(log.uid, config, now, tunables=tunables)
        self.touch(log)

    def _make(self, uid: bytes, config: Config, now: float, **found: object) -> Raft:
        ways = {"down": self._down, "crowded": _Crowded(uid, self.mail)}
        return Raft(self.me, config, now, self.random, **ways, **found)  # type: ignore[arg-type]

    def leave(self, log: MemberLog) -> None:
        """The log is deleted, or can no longer be trusted."""
        if self.logs.get(log.uid) is log:
            del self.logs[log.uid]
        self._stop(log, None)

    def damage(self, log: MemberLog, reason: str) -> None:
        """This member neither votes nor leads nor acknowledges any more: it has to be replaced."""
        if log.machine is None or log.damaged is not None:
            return
        _log.error("damaged", log=log.uid.hex(), reason=reason)
        log.damaged = reason
        self._stop(log, None)
        log.machine.damaged(reason)
        for told in self.on_damaged:
            told(log.uid, reason)

    def renew(self, log: MemberLog, others: tuple[NodeId, ...]) -> None:
        """A damaged member that the others have removed begins again, with nothing, as no voter.

        What the disk has of it is replaced in one write: a crash finds the one or the other.
        """
        assert log.damaged is not None
        assert self.me not in others
        batch, config = self.host.batch, Config(others)
        self.snapshots.forget_staged(log.uid)
        gid = batch.create_group(log.uid if log.gid is None else staged_name(log.uid))
        batch.set_config(gid, 0, config.encode())
        if log.gid is not None:
            batch.replace_group(log.gid, gid, log.uid)
        self.host.want_submit()
        log.gid = gid
        log.damaged = log.postponed = None
        log.apply_to, log.applying = 0, False
        log.raft = self._make(log.uid, config, trio.current_time())
        self.touch(log)

    def _stop(self, log: MemberLog, leader: NodeId | None) -> None:
        self.leadership.stand_down(log, leader)
        self.snapshots.forget(log)
        log.raft = None
        log.deadline = None

    # What is asked of a log.

    def touch(self, log: MemberLog) -> None:
        """Its group may have something to be done, at the end of the turn."""
        if not log.touched:
            log.touched = True
            self._touched.append(log)

    def campaign(self, log: MemberLog) -> None:
        if log.raft is not None:
            log.raft.campaign(trio.current_time())
            self.touch(log)

    def transfer(self, log: MemberLog, to: NodeId) -> None:
        if log.raft is None:
            raise NotLeaderError(None)
        if to not in log.raft.config.voters or to == self.me:
            raise ConfChangeError(f"{to} is no other voter")
        log.raft.transfer(to)
        self.touch(log)

    # A turn.

    def turn(self) -> None:
        """Everything that was said and written since the last one has its effect."""
        more_news = self._news.tell_some()
        self._take_readies()
        more_to_apply = self._applier.some()
        self._take_readies()
        if more_news or more_to_apply:
            self.host.go_on_soon()

    def post(self) -> None:
        """Send what the logs have to say, the disk being at work."""
        self._bundles.post()

    def _take_readies(self) -> None:
        now = trio.current_time()
        while self._touched:
            touched, self._touched = self._touched, []
            for log in touched:
                self.take_ready(log, now)

    def take_ready(self, log: MemberLog, now: float) -> None:
        log.touched = False
        raft = log.raft
        if raft is None:
            return
        if raft.deadline == AT_ONCE:
            raft.tick(now)
        ready = raft.ready()
        if ready is None:
            return
        if raft.held_up:
            self._held_up.add(log)
        if ready.term != log.lead_term or ready.role is not LEADER:
            self.leadership.on_role(log, ready)
        if ready.install is not None:
            self.snapshots.install(log, raft, ready.install)
        for write in ready.writes:
            self.host.write(log, write, commit=raft.applied_index)
        for message in ready.msgs:
            self._bundles.add(log.uid, message)
        if ready.apply_to > raft.applied_index:
            log.apply_to = ready.apply_to
            self._applier.want(log)
        if ready.next_deadline != log.deadline:
            self._deadlines.set(log, ready.next_deadline)
        self._see_to_the_rest(log, raft, ready)

    def _see_to_the_rest(self, log: MemberLog, raft: Raft, ready: Ready) -> None:
        for state in ready.read_states:
            self.leadership.confirmed(log, state.context, state.index)
        for read in ready.reads:
            self.disk_reads.feed(log, raft, read)
        for node in ready.snapshots:
            self.snapshots.start(log, node)
        if log.held_back:
            self.leadership.resume(log)
        if log.lead_term and not log.leads:
            self.leadership.applied(log)  # a sole voter may have nothing to wait for

    # What comes in.

    def received(self, kind: Kind, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind RAFT or RAFT_BULK. ValueError, CodecError: it is none."""
        bundle = self._bundles.taken(node, kind, body)
        if bundle is None:
            return
        now = trio.current_time()
        for uid, message in decode_bundle(bundle, self.me, node):
            log = self.logs.get(uid)
            if log is None:
                self.strangers += 1  # never made or deleted by a message
            elif log.raft is not None:
                self._step(log, log.raft, message, now)

    def _step(self, log: MemberLog, raft: Raft, message: Message, now: float) -> None:
        if isinstance(message, Install) and not self.snapshots.is_here(log, raft, message):
            return
        if isinstance(message, Append) and message.entries and log.is_full and log.is_full():
            return  # as if it was lost on the way: it comes again
        try:
            raft.step(message, now)
        except AssertionError as error:
            self.damage(log, f"its log contradicts what node {message.frm} says: {error}")
        else:
            self.touch(log)
            if isinstance(message, Install) and not raft.installs:
                self.snapshots.not_heeded(log)

    def _leads_received(self, node: NodeId, body: bytes | memoryview) -> None:
        """A node that leads a log no more may be one that cannot even campaign for it."""
        for uid in self.book.received(node, body):
            log = self.logs.get(uid)
            if log is not None and log.raft is not None and log.raft.leader == node:
                log.raft.suspect_leader(trio.current_time())
                self.touch(log)

    def handlers(self) -> dict[Kind, Callable[[NodeId, bytes], None]]:
        """What to do with which kind of message."""
        return {
            Kind.RAFT: partial(self.received, Kind.RAFT),
            Kind.RAFT_BULK: partial(self.received, Kind.RAFT_BULK),
            Kind.SNAPSHOT: self.snapshots.received,
            Kind.LEADS: self._leads_received,
        }

    def _tick(self, log: MemberLog, now: float) -> None:
        if log.raft is None:
            return
        try:
            log.raft.tick(now)
        except Exception as error:  # noqa: BLE001 - told from what a timer of a client's does
            self.host.broken(error)
        self.touch(log)

    # Nodes that are gone, that are back, and that take more.

    def relieved(self) -> None:
        """Some node takes more. Whoever still has to wait asks again."""
        held_up, self._held_up = self._held_up, set()
        for log in held_up:
            if log.raft is not None:
                log.raft.has_room()
                self.touch(log)
        self.disk_reads.go_on()

    def node_down(self, node: NodeId) -> None:
        self._bundles.lost(node)
        self.snapshots.lost(node)
        self.disk_reads.node_down(node)
        self.book.node_down(node)
        self._news.down(node)

    def node_up(self, node: NodeId, *, restarted: bool) -> None:
        self.book.node_up(node)
        self._news.up(node, restarted=restarted)
