"""One snapshot on its way from the leader: the side of the member that lags."""

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import trio

from broker import logs
from broker.cluster.kinds import Kind
from broker.cluster.parcels import send_parcel
from broker.cluster.recovering import retain
from broker.cluster.snapshot_source import source_of
from broker.cluster.transfers import HEAD, NUMBER, PLACE, From, decode_entries
from broker.hosted_log import MemberLog
from broker.protocol.stream_errors import StreamError
from queues.raft.config import CONFIG_MARK
from queues.raft.messages import NodeId
from queues.storage.errors import CorruptRecordError, MissingEntryError, OutOfSpaceError

if TYPE_CHECKING:
    from broker.cluster.replication import Replication

COPY_BYTES: Final = 1024 * 1024  # of the member's own entries, copied at once

_log = logs.get("replication")


def staged_name(uid: bytes) -> bytes:
    """Of the group that is made ready to take the place of the one of this name."""
    return sha256(b"staged " + uid).digest()[:16]


class Incoming:
    """A task takes it in, part by part, in the order in which they were sent."""

    def __init__(
        self,
        replication: "Replication",
        log: MemberLog,
        node: NodeId,
        number: int,
        offer: bytes,
        *,
        repair: bool,
    ) -> None:
        """`repair`: of files only; the log is sound."""
        if len(offer) != PLACE.size:
            raise ValueError("not the offer of a snapshot")
        self.node = node
        self.number = number
        self.uid = log.uid
        self.repair = repair
        self.gid: int | None = None  # of the staged group
        self.state: list[bytes] = []
        self._replication = replication
        self._host = replication.host
        self._log = log
        self._index, self._term = PLACE.unpack(offer)
        self._parts: list[tuple[From, bytes]] = []  # bounded by what the leader may have in flight
        self._news = trio.Event()
        self._scope = trio.CancelScope()
        self._last = 0  # the last index that was staged
        self._taken_bytes = 0
        self.is_complete = False

    def is_needless(self) -> bool:
        raft = self._log.raft
        assert raft is not None
        if self.repair:  # what is above the checkpoint has to be in this member's log
            return self._log.leads or not raft.log.offset <= self._index <= raft.applied_index
        return self._index <= raft.commit or raft.log.matches(self._index, self._term)

    def has(self, index: int, term: int) -> bool:
        return self.is_complete and (self._index, self._term) == (index, term)

    def put(self, what: From, rest: bytes) -> None:
        self._parts.append((what, rest))
        self._news.set()

    def cancel(self) -> None:
        """What was staged goes. The task, if it still runs, stages no more."""
        self._scope.cancel()
        if self.gid is not None:
            self._host.delete_group(self.gid)
            self.gid = None

    async def run(self) -> None:
        try:
            with self._scope:
                if self.repair:
                    self._want(self._index)
                else:
                    await self._stage_own()
                while not self.is_complete:
                    self._host.end_turn()  # what was said goes out
                    while not self._parts:
                        self._news = trio.Event()
                        await self._news.wait()
                    await self._take(*self._parts.pop(0))
        except (CorruptRecordError, MissingEntryError) as error:
            self._replication.damage(self._log, str(error))
        except OSError as error:
            self._host.fail(error)
        except (ValueError, StreamError, OutOfSpaceError) as error:
            # The leader hears nothing more, and begins anew some time later.
            _log.error("bad_snapshot", log=self.uid.hex(), node=self.node, reason=str(error))
            self.cancel()
        self._host.end_turn()

    async def _stage_own(self) -> None:
        """Entries that are committed and here need not be sent; the leader hears how far."""
        log, host = self._log, self._host
        gid, raft = log.gid, log.raft
        assert gid is not None
        assert raft is not None
        after = raft.applied_index
        self.gid = staged = host.batch.create_group(staged_name(log.uid))
        await host.written()
        first = 1
        while True:
            fetch = partial(host.store.read, gid, first, after, bytes_max=COPY_BYTES)
            entries = await host.off_loop(fetch)
            await trio.lowlevel.checkpoint_if_cancelled()  # threads know nothing of that
            if not entries:
                break
            host.batch.append(staged, entries)
            first = entries[-1].index + 1
            await host.written()
        self._last = after
        self._want(after)

    def _want(self, after: int) -> None:
        source = source_of(self._log.machine)
        have = source.have() if source is not None else b""
        self._say(From.WANT, NUMBER.pack(after), have)

    async def _take(self, what: From, rest: bytes) -> None:
        host = self._host
        if what is From.ENTRIES:
            self._stage(rest)
            await host.written()
        elif what is From.FILES:
            source = source_of(self._log.machine)
            if source is None:
                raise ValueError("files for a machine that has none")
            await host.off_loop(partial(source.take, rest))
            await trio.lowlevel.checkpoint_if_cancelled()
        elif what is From.STATE:
            self.state.append(rest)
        else:
            if what is not From.END or rest != NUMBER.pack(sum(map(len, self.state))):
                raise ValueError("the checkpoint is not whole")
            self.is_complete = True
            if self.repair:
                self._install_here()
            self.say_done()
            return
        self._taken_bytes += len(rest)
        self._say(From.TAKEN, NUMBER.pack(self._taken_bytes))

    def _install_here(self) -> None:
        """Files and checkpoint are the leader's; what this log has beyond is applied again."""
        log, host = self._log, self._host
        gid, raft, machine = log.gid, log.raft, log.machine
        if gid is None or raft is None or machine is None or self.is_needless():
            return
        state = b"".join(self.state)
        kept = machine.install(self._index, state)
        first, last = self._index + 1, raft.applied_index
        while first <= last:  # as much as a replica moves at once
            entries = host.store.read(gid, first, last, bytes_max=COPY_BYTES)
            if not entries or entries[0].index != first:
                raise MissingEntryError(gid, first)
            for entry in entries:
                if entry.payload and not entry.payload.startswith(CONFIG_MARK):
                    machine.apply(entry.index, entry.payload)
            first = entries[-1].index + 1
        host.checkpoint(log, self._index, state, lambda: retain(host, gid, self._index, kept))
        _log.info("repaired", log=self.uid.hex(), node=self.node)

    def _stage(self, rest: bytes) -> None:
        entries = decode_entries(rest)
        assert self.gid is not None
        for entry in entries:
            if not self._last < entry.index <= self._index:
                raise ValueError("entries out of order")
            self._last = entry.index
        self._host.batch.append(self.gid, entries)

    def say_done(self) -> None:
        self._say(From.DONE)

    def _say(self, what: From, *pieces: bytes) -> None:
        head = HEAD.pack(what, self._log.uid, self.number)
        send_parcel(self._replication.mail, self.node, Kind.SNAPSHOT, [head, *pieces])
