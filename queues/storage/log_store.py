"""The node's log store: entries, hard state and snapshots of many groups in one log.

`submit`, `release` and the rest are for one thread, the loop. `read` may be called from any thread,
and the reclaimer works in another. One lock guards the state; nobody holds it while on the disk.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from queues.storage.batch import WriteBatch
from queues.storage.disk import Disk
from queues.storage.entry_index import Located
from queues.storage.errors import CorruptRecordError, StoreFailedError
from queues.storage.files import StoredFile
from queues.storage.frames import (
    CONFIG,
    DAMAGE,
    DEL,
    ENTRY,
    HARD,
    LOSS_ACCEPTED,
    LOSS_GID,
    LOST,
    REG,
    SNAP,
    TRUNC,
    Frame,
    Record,
    decode_vote,
    encode_vote,
    position_of,
)
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reading import PendingFrames, Wanted, read_records
from queues.storage.recovery import Recovery, recover
from queues.storage.state import Group, SnapshotMeta, State
from queues.storage.wal import Spares, Wal, keep_spares
from queues.storage.writer import Writer


class StoredEntry(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    term: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as the store has it. `damaged` says why it must not be served, else it is None.

    The last index and term are those of the last entry or, if that is higher, of the snapshot.
    """

    gid: int
    uuid: bytes
    term: int
    vote: int | None
    commit: int
    snapshot: SnapshotMeta | None
    config: tuple[int, bytes] | None  # the last one set, with its index
    last_index: int
    last_term: int
    damaged: str | None


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    groups: int
    damaged_groups: int
    log_files: int
    segments: int
    spares: int
    disk_bytes: int
    live_bytes: int
    submitted: int
    durable: int
    pending_bytes: int
    full: bool


class LogStore:
    """Opened with `LogStore.open`; `recovery` says what was found."""

    def __init__(
        self, disk: Disk, options: StoreOptions, events: StoreEvents, recovery: Recovery
    ) -> None:
        self.disk = disk
        self.options = options
        self.recovery = recovery
        self.state: State = recovery.state
        self.lock = Lock()
        self.spares = Spares(disk, recovery.spares)
        self.manifest = recovery.manifest
        self.wal = Wal(
            disk, options, self.state, self.spares, recovery.witnesses, recovery.manifest
        )
        self.submitted = 0  # submits handed over; numbers begin with 1
        self.durable = 0  # submits known to be on disk
        self.full = False
        self.free_bytes = 0  # on the disk, when space was last checked
        self._events = events
        self._pending = PendingFrames()
        # No later frame says yet that the last one was synced.
        self._unvouched = recovery.unvouched
        self._writer = Writer(self.wal, self._synced, events.failed, self._stalled)

    @classmethod
    def open(
        cls,
        disk: Disk,
        options: StoreOptions,
        events: StoreEvents,
        *,
        new_store_id: Callable[[], bytes],
        threaded: bool = True,
    ) -> "LogStore":
        """Lock the directory and recover what is there. Without a thread, `flush` writes."""
        disk.lock()
        try:
            store = cls(disk, options, events, recover(disk, new_store_id))
            store.note_damage()
            store.check_space()
        except BaseException:
            disk.unlock()
            raise
        if threaded:
            store._writer.start()
        return store

    def close(self) -> None:
        """Write what was submitted and a last frame that vouches for it; let the directory go."""
        self._writer.close()
        self._vouch()
        self._writer.close()
        self.wal.close()
        self.state.files.close()
        self.disk.unlock()

    # Writing.

    def batch(self) -> WriteBatch:
        return WriteBatch(self._allocate_gid)

    def _allocate_gid(self) -> int:
        with self.lock:
            gid = self.state.next_gid
            self.state.next_gid += 1
            return gid

    def submit(self, batch: WriteBatch) -> int:
        """Hand a batch to the writer; `events.durable` names this number, or a later one.

        An empty batch gives the number of the last one, which may be durable already.
        """
        with self.lock:
            for frame in self._place(batch.records):
                self._apply(frame)
            return self.submitted

    def move_to_log(self, records: list[tuple[Record, int]]) -> None:
        """Write live records, given with their positions, once more. For holders of the lock."""
        old = iter(records)
        for frame in self._place([record for record, _ in records]):
            for (kind, gid, index, _, payload), offset in frame.placed():
                new = position_of(frame.number, offset)
                self.state.moved(kind, gid, index, next(old)[1], new, len(payload))

    def add_segment(self, segment: StoredFile) -> None:
        """A segment is on disk. Of groups deleted meanwhile the DEL has to outlast it."""
        with self.lock:
            state = self.state
            state.files.add(segment)
            gone = [gid for gid in segment.gids if gid not in state.groups]
            for gid in gone:
                if gid in state.graves:
                    state.graves[gid].segments.add(segment.number)
            gone = [gid for gid in gone if gid not in state.graves]
            for frame in self._place([(DEL, gid, 0, 0, b"") for gid in gone]):
                for record, offset in frame.placed():
                    state.buried(record[1], position_of(frame.number, offset))

    def note_damage(self) -> None:
        """Write down what is damaged: files that prove it will be gone one day."""
        with self.lock:
            state = self.state
            new = state.damaged.keys() & state.groups.keys() - state.damage_notes.keys()
            records = [(DAMAGE, gid, 0, 0, state.damaged[gid].encode()) for gid in sorted(new)]
            if state.lost is not None and (state.loss_note is None or state.loss_accepted):
                records.append((DAMAGE, LOSS_GID, LOST, 0, state.lost.encode()))
            for frame in self._place(records):
                for (_, gid, what, _, why), offset in frame.placed():
                    position = position_of(frame.number, offset)
                    if gid == LOSS_GID:
                        state.loss_noted(what, why.decode(), position, len(why))
                    else:
                        state.damage_noted(gid, why.decode(), position, len(why))

    def accept_loss(self) -> None:
        """Whoever runs the node knows what is lost: logs that are not there are new ones again.

        Groups without a name go, since nobody can ask for them.
        """
        with self.lock:
            state = self.state
            known = "\n".join(sorted({finding.where for finding in self.recovery.findings}))
            records: list[Record] = [(DEL, gid, 0, 0, b"") for gid in state.nameless()]
            records.append((DAMAGE, LOSS_GID, LOSS_ACCEPTED, 0, known.encode()))
            for frame in self._place(records):
                for (kind, gid, what, _, text), offset in frame.placed():
                    position = position_of(frame.number, offset)
                    if kind == DEL:
                        state.deleted(gid, position)
                    else:
                        state.loss_noted(what, text.decode(), position, len(text))

    def _place(self, records: list[Record]) -> list[Frame]:
        """Give records their places and hand them to the writer, as one submit."""
        if self._writer.failure is not None:
            raise StoreFailedError("the log has failed") from self._writer.failure
        if not records:
            return []
        frames = self.wal.plan(records)
        self.submitted += 1
        frames[-1].submit = self.submitted
        self._pending.add(frames)
        self._writer.put(frames)
        return frames

    def _apply(self, frame: Frame) -> None:
        state = self.state
        for (kind, gid, index, term, payload), offset in frame.placed():
            position = position_of(frame.number, offset)
            if kind == ENTRY:
                state.appended(gid, index, term, position, len(payload))
            elif kind == HARD:
                state.hard_set(gid, index, decode_vote(payload), term, position)
            elif kind == TRUNC:
                state.truncated(gid, index)
            elif kind == SNAP:
                state.snapshotted(gid, index, term, position, len(payload))
            elif kind == REG:
                state.registered(gid, payload, position)
            elif kind == CONFIG:
                state.config_set(gid, index, payload, position)
            else:
                assert kind == DEL
                state.deleted(gid, position)

    def flush(self) -> None:
        """Write all that was submitted, in a store without a thread."""
        self._writer.flush()

    def _synced(self, frames: list[Frame]) -> None:
        numbers = [frame.submit for frame in frames if frame.submit is not None]
        with self.lock:
            self._pending.drop(len(frames))
            self._unvouched = bool(frames[-1].records)
            if numbers:
                self.durable = numbers[-1]
        if numbers:
            self._events.durable(numbers[-1])
        if not (self.full or self.spares.count(self.options.wal_file_bytes)):
            self._events.low()

    def fail(self, error: BaseException) -> None:
        """The disk cannot be trusted any more: as after a failed write."""
        self._writer.fail(error)

    @property
    def failed(self) -> bool:
        return self._writer.failure is not None

    def _vouch(self) -> None:
        """Say that the last frame was synced: damage to it is then no torn write."""
        with self.lock:
            if not self._unvouched or self._pending.first() or self._writer.failure is not None:
                return
            frame = self.wal.plan_empty()
            self._pending.add([frame])
            self._writer.put([frame])

    @property
    def durable_number(self) -> int:
        """The oldest file that the writer still has to do with; 0 before the first write."""
        first = self._pending.first()
        if first is not None:
            return first.number
        return self.wal.active.number if self.wal.active is not None else 0

    # Memory of what is needed.

    def committed(self, gid: int, index: int) -> None:
        """Entries up to here are final: they may be moved to a segment. Lazily is soon enough."""
        group = self.state.groups[gid]
        group.commit = max(group.commit, index)

    def release(self, gid: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Entries, as ranges of first and last index, are needed no more. Any order will do.

        They may come back after a restart: the host then says again what it needs with `retain`.
        """
        with self.lock:
            entries = self.state.groups[gid].entries
            for first, last in ranges:
                self.state.files.dead(entries.remove(first, last))

    def retain(self, gid: int, ranges: Iterable[tuple[int, int]], *, upto: int) -> None:
        """Release all entries up to `upto` but those in the ranges, which ascend."""
        gaps = []
        first = 0
        for start, end in ranges:
            if start > first:
                gaps.append((first, min(start - 1, upto)))
            first = end + 1
        if first <= upto:
            gaps.append((first, upto))
        self.release(gid, gaps)

    # Reading.

    def groups(self) -> Iterator[GroupView]:
        """All groups on disk. Nothing is deleted because the host does not know it."""
        for group in list(self.state.groups.values()):
            yield self._view(group)

    def group(self, gid: int) -> GroupView:
        return self._view(self.state.groups[gid])

    @property
    def store_id(self) -> bytes:
        """Made with the store, and on disk with its manifest."""
        return self.state.store_id

    @property
    def lost(self) -> str | None:
        """Why logs may be lost of which not even the name is known, until that is accepted."""
        return self.state.lost

    def has(self, gid: int) -> bool:
        return gid in self.state.groups

    def gid_of(self, uuid: bytes) -> int | None:
        return self.state.by_uuid.get(uuid)

    def _view(self, group: Group) -> GroupView:
        snapshot, last = group.snapshot, group.entries.get(group.entries.last)
        ends = [(end.index, end.term) for end in (snapshot, last) if end is not None]
        last_index, last_term = max(ends, default=(0, 0))
        return GroupView(
            group.gid,
            group.uuid,
            group.term,
            group.vote,
            group.commit,
            group.snapshot,
            group.config[:2] if group.config is not None else None,
            last_index,
            last_term,
            self.state.damaged.get(group.gid),
        )

    def entries(self, gid: int) -> list[Located]:
        """Index, term, position and length of all live entries, ascending."""
        with self.lock:
            return list(self.state.groups[gid].entries)

    def gap(self, gid: int) -> int | None:
        """The first entry above the snapshot that is missing, though later ones are there."""
        with self.lock:
            group = self.state.groups[gid]
            above = group.snapshot.index + 1 if group.snapshot is not None else 1
            return group.entries.gap(above, group.entries.last)

    def missing(self, gid: int, ranges: Iterable[tuple[int, int]]) -> int | None:
        """The first entry of some ranges of first and last index that is not there."""
        with self.lock:
            entries = self.state.groups[gid].entries
            gaps = (entries.gap(first, last) for first, last in ranges)
            return next((gap for gap in gaps if gap is not None), None)

    def damage(self, gid: int, why: str) -> None:
        """The host found out that a group must not be served: keep that in mind, durably."""
        self.state.damaged.setdefault(gid, why)
        self.note_damage()

    def read(self, gid: int, first: int, last: int, *, bytes_max: int) -> list[StoredEntry]:
        """Live entries of a range, as many as fit but at least one. From any thread."""
        with self.lock:
            return self._read(gid, self.state.groups[gid].entries.select(first, last), bytes_max)

    def read_indexes(
        self, gid: int, indexes: Iterable[int], *, bytes_max: int
    ) -> list[StoredEntry]:
        """As `read`, for ascending indexes; those not live are left out."""
        get = self.state.groups[gid].entries.get
        with self.lock:
            located = [entry for index in indexes if (entry := get(index)) is not None]
            return self._read(gid, located, bytes_max)

    def _read(self, gid: int, located: Iterable[Located], bytes_max: int) -> list[StoredEntry]:
        chosen: list[Located] = []
        size = 0
        for entry in located:
            size += entry.length
            if chosen and size > bytes_max:
                break
            chosen.append(entry)
        payloads = self._fetch(gid, [(entry.position, entry.length) for entry in chosen])
        return [
            StoredEntry(entry.index, entry.term, payload)
            for entry, payload in zip(chosen, payloads, strict=True)
        ]

    def read_snapshot(self, gid: int) -> bytes | None:
        """The payload of the group's snapshot. From any thread."""
        with self.lock:
            snapshot = self.state.groups[gid].snapshot
            if snapshot is None:
                return None
            return self._fetch(gid, [(snapshot.position, snapshot.length)])[0]

    def read_positions(self, gid: int, records: list[tuple[int, int]]) -> list[bytes]:
        """Payloads of records by position and length, of a file that is not being dropped."""
        with self.lock:
            return self._fetch(gid, records)

    def _fetch(self, gid: int, records: list[tuple[int, int]]) -> list[bytes]:
        """Called with the lock; gives it away while on the disk, with the files pinned."""
        wanted = Wanted(self.state, self._pending, records)
        wanted.pin()
        self.lock.release()
        try:
            return read_records(wanted, gid)
        except CorruptRecordError as error:
            self.state.damaged.setdefault(gid, str(error))
            raise
        finally:
            self.lock.acquire()
            wanted.unpin()

    # Room on the disk.

    def check_space(self) -> None:
        """Have spares, look how much is free; the host calls this now and then, off the loop."""
        self.free_bytes = self.disk.free_bytes()
        enough = self.free_bytes >= self.options.free_bytes_min
        reserve = keep_spares(self.spares, self.options)
        self._set_full(full=not (enough and reserve))
        self._vouch()
        self._writer.poke()

    def _stalled(self) -> None:
        self._set_full(full=True)

    def _set_full(self, *, full: bool) -> None:
        if full != self.full:
            self.full = full
            self._events.full(full)

    def statistics(self) -> StoreStatistics:
        state = self.state
        with self.lock:
            logs, segments = state.files.logs(), state.files.segments()
            files = logs + segments
            return StoreStatistics(
                groups=len(state.groups),
                damaged_groups=len(state.damaged),
                log_files=len(logs),
                segments=len(segments),
                spares=len(self.spares),
                disk_bytes=sum([file.size_bytes for file in files]) + self.spares.size_bytes,
                live_bytes=sum([file.live_bytes for file in files]),
                submitted=self.submitted,
                durable=self.durable,
                pending_bytes=self._pending.size_bytes,
                full=self.full,
            )


def hard_record(group: Group) -> Record:
    """A group's hard state as it is now, for writing it anew."""
    return (HARD, group.gid, group.term, group.commit, encode_vote(group.vote))
