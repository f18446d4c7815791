"""One snapshot on its way to a member that lags: the leader's side."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from broker import logs
from broker.cluster.kinds import Kind
from broker.cluster.parcels import send_parcel
from broker.cluster.snapshot_source import source_of
from broker.cluster.transfers import HEAD, NUMBER, PART_BYTES_MAX, PLACE, From, encode_entries
from broker.hosted_log import MemberLog
from broker.protocol.stream_errors import StreamError
from queues.raft.messages import NodeId, Snapshot
from queues.storage.errors import CorruptRecordError
from queues.storage.log_store import StoredEntry

if TYPE_CHECKING:
    from broker.cluster.replication import Replication

TRANSFERS_MAX: Final = 2  # to one node at a time: the others wait their turn
FLIGHT_BYTES_MAX: Final = 8 * 1024 * 1024  # to one node and not taken in yet
INDEXES_MAX: Final = 1024  # entries asked for in one read
STALL_S: Final = 30.0  # without a sign of the other side the transfer is given up
RETRY_S: Final = 1.0  # after it came to nothing, that it does not come to nothing all the time

_log = logs.get("replication")


class Lane:
    """What is under way to one node."""

    def __init__(self) -> None:
        self.slots = trio.Semaphore(TRANSFERS_MAX)
        self.flight_bytes = 0
        self.news = trio.Event()

    def landed(self, size_bytes: int) -> None:
        self.flight_bytes -= size_bytes
        self.news.set()
        self.news = trio.Event()


class Outgoing:
    """A task sends it; what the other side says comes through `heard`."""

    def __init__(
        self,
        replication: "Replication",
        log: MemberLog,
        node: NodeId,
        number: int,
        lane: Lane,
        *,
        repair: bool,
    ) -> None:
        """`repair`: of files only, for a member whose log is sound."""
        self._repair = repair
        self.log = log
        self.node = node
        self.number = number
        self._replication = replication
        self._host = replication.host
        self._lane = lane
        self._scope = trio.CancelScope()
        self._news = trio.Event()
        self._want: bytes | None = None
        self._done = False
        self._heard = False  # since it was last asked whether this gets on
        self._waits = True  # for its turn
        self._sent_bytes = self._taken_bytes = 0

    def cancel(self) -> None:
        self._scope.cancel()

    def gets_on(self) -> bool:
        heard, self._heard = self._heard, False
        return heard or self._waits

    def heard(self, what: From, rest: bytes) -> None:
        self._heard = True
        if what is From.WANT and len(rest) >= NUMBER.size:
            self._want = rest
        elif what is From.TAKEN and len(rest) == NUMBER.size:
            taken = min(NUMBER.unpack(rest)[0], self._sent_bytes)
            self._lane.landed(taken - self._taken_bytes)
            self._taken_bytes = taken
        elif what is From.DONE:
            self._done = True
        self._news.set()
        self._news = trio.Event()

    async def run(self) -> None:
        snapshot = None
        raft = self.log.raft
        try:
            with self._scope:
                async with self._lane.slots:
                    self._waits = False
                    snapshot = await self._transfer()
                if snapshot is None:
                    await trio.sleep(RETRY_S)
        except CorruptRecordError as error:
            self._replication.damage(self.log, str(error))
        except OSError as error:
            self._host.fail(error)
        except StreamError as error:  # of its own files: others have to do
            _log.error("unreadable", log=self.log.uid.hex(), reason=str(error))
            await trio.sleep(RETRY_S)
        except KeyError:
            if self.log.raft is raft:
                raise  # else the group was deleted meanwhile
        finally:
            self._lane.landed(self._sent_bytes - self._taken_bytes)
        over = self._repair or self._scope.cancelled_caught
        if raft is not None and self.log.raft is raft and not over:
            raft.snapshot(self.node, snapshot)
            self._replication.touch(self.log)
        self._host.end_turn()

    async def _transfer(self) -> Snapshot | None:
        """All of it, or None if it came to nothing."""
        log, store = self.log, self._host.store
        gid, raft = log.gid, log.raft
        if gid is None or raft is None:
            return None
        meta = store.group(gid).snapshot
        if meta is None:
            return None
        config = raft.config_at(meta.index)
        indexes = [entry.index for entry in store.entries(gid) if entry.index <= meta.index]
        state = await self._host.off_loop(lambda: store.read_snapshot(gid))
        now = store.group(gid).snapshot
        if state is None or now is None or now.index != meta.index:
            return None  # there is a newer one: that is worth more
        offer = From.REPAIR if self._repair else From.OFFER
        self._say(offer, PLACE.pack(meta.index, meta.term))
        if not await self._until(lambda: self._want is not None or self._done):
            return None
        if not self._done and not await self._send_all(gid, indexes, meta.index, state):
            return None
        return Snapshot(meta.index, meta.term, config, b"")

    async def _send_all(self, gid: int, indexes: list[int], index: int, state: bytes) -> bool:
        assert self._want is not None
        after, have = NUMBER.unpack_from(self._want)[0], self._want[NUMBER.size :]
        missing = [] if self._repair else [place for place in indexes if place > after]
        sent = await self._send_entries(gid, missing)
        source = source_of(self.log.machine)
        if sent and source is not None:
            sent = await self._send_files(source.parts(index, have))
        for start in range(0, len(state), PART_BYTES_MAX):
            sent = sent and await self._part(From.STATE, [state[start : start + PART_BYTES_MAX]])
        if not sent:
            return False
        self._say(From.END, NUMBER.pack(len(state)))
        return await self._until(lambda: self._done)

    async def _send_entries(self, gid: int, indexes: list[int]) -> bool:
        """Those that die meanwhile are left out: what killed them comes after the checkpoint."""
        place = 0
        while place < len(indexes):
            some = indexes[place : place + INDEXES_MAX]
            entries = await self._read(gid, some)
            place += len(some)
            if entries:
                last = entries[-1].index
                while indexes[place - 1] > last:
                    place -= 1
                if not await self._part(From.ENTRIES, encode_entries(entries)):
                    return False
        return True

    async def _read(self, gid: int, indexes: list[int]) -> list[StoredEntry]:
        store = self._host.store
        return await self._host.off_loop(
            lambda: store.read_indexes(gid, indexes, bytes_max=PART_BYTES_MAX)
        )

    async def _send_files(self, parts: Iterator[bytes]) -> bool:
        while True:
            part = await self._host.off_loop(lambda: next(parts, None))
            if part is None:
                return True
            if not await self._part(From.FILES, [part]):
                return False

    async def _part(self, what: From, pieces: list[bytes]) -> bool:
        """Send when there is room; False if there is none for too long."""
        lane, size = self._lane, sum(map(len, pieces))
        deadline = trio.current_time() + STALL_S
        while lane.flight_bytes and lane.flight_bytes + size > FLIGHT_BYTES_MAX:
            taken = self._taken_bytes
            with trio.move_on_at(deadline):
                await lane.news.wait()
            if self._taken_bytes > taken:
                deadline = trio.current_time() + STALL_S
            elif trio.current_time() >= deadline:
                return False
        lane.flight_bytes += size
        self._sent_bytes += size
        self._say(what, *pieces)
        return True

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for the other side; False if nothing is heard of it for too long."""
        while not condition():
            with trio.move_on_after(STALL_S) as scope:
                await self._news.wait()
            if scope.cancelled_caught:
                return False
        return True

    def _say(self, what: From, *pieces: bytes) -> None:
        head = HEAD.pack(what, self.log.uid, self.number)
        send_parcel(self._replication.mail, self.node, Kind.SNAPSHOT, [head, *pieces])
        self._host.end_turn()
