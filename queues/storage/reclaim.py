"""Reclaim: gives disk space back as entries are released, in bounded slices off the loop.

A log file counts until all older ones are gone: its TRUNC and DEL records speak about them. So log
files leave oldest first. One that is still needed by a few is evacuated: committed entries and
snapshots are copied to a segment, everything else is written to the log anew. Segments leave in any
order. A file is dropped only when whatever made its records dead is on disk itself.
"""

import errno
from collections.abc import Iterator
from typing import Final

from queues.storage.errors import CorruptRecordError, OutOfSpaceError
from queues.storage.files import StoredFile
from queues.storage.frames import (
    DEL,
    ENTRY,
    HARD,
    LOG_FILE,
    REG,
    SNAP,
    BadBytes,
    Record,
    RecordHead,
    position_of,
    scan_frames,
    seed_of,
)
from queues.storage.log_store import LogStore, hard_record
from queues.storage.segment import SegmentWriter

# Records looked at or moved while holding the store's lock: well under a millisecond.
SLICE_RECORDS: Final = 256
# Segments with less live than this are put together once there are enough of them.
SMALL_SEGMENTS_MAX: Final = 8


class Reclaimer:
    """Call `step` from one thread, over and over while it says that there is more to do."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._job: Iterator[None] | None = None
        self._untouchable: set[int] = set()  # corrupt: kept as they are

    def step(self) -> bool:
        """Do one slice. False if there was nothing to do, or nothing can be done now."""
        if self._job is None:
            self._job = self._next_job()
            if self._job is None:
                return False
        try:
            next(self._job)
        except StopIteration:
            self._job = None
        except OutOfSpaceError:
            self._job = None
            return False
        return True

    def _next_job(self) -> Iterator[None] | None:
        with self._store.lock:
            dead = self._dead_files()
            if dead:
                return self._drop(dead)
            victims = self._victims()
            return self._evacuate(victims) if victims else None

    # Choosing.

    def _sealed_logs(self) -> list[StoredFile]:
        """Log files that nothing is written to any more. The newest one is never among them."""
        newest_writing = self._store.durable_number
        logs = self._store.state.files.logs()[:-1]
        return [file for file in logs if not newest_writing or file.number < newest_writing]

    def _is_free(self, file: StoredFile) -> bool:
        evidence = any(gid in self._store.state.groups for gid in file.damaged_gids)
        return not (file.live_bytes or file.pins or evidence)

    def _dead_files(self) -> list[StoredFile]:
        dead = []
        for file in self._sealed_logs():
            if not self._is_free(file):
                break
            dead.append(file)
        return dead + [file for file in self._store.state.files.segments() if self._is_free(file)]

    def _victims(self) -> list[StoredFile]:
        options = self._store.options
        logs = self._sealed_logs()
        segments = [file for file in self._store.state.files.segments() if self._may_move(file)]
        log_slack = sum([file.size_bytes - file.live_bytes for file in logs])
        segment_slack = sum([file.size_bytes - file.live_bytes for file in segments])
        live = sum([file.live_bytes for file in logs + segments])
        allowed = max(options.slack_files * options.wal_file_bytes, options.slack_share * live)
        if log_slack + segment_slack > allowed:
            if log_slack >= segment_slack and logs and self._may_move(logs[0]):
                return logs[:1]
            if segments:
                return [min(segments, key=lambda file: file.live_bytes / file.size_bytes)]
        small = [s for s in segments if s.live_bytes * SMALL_SEGMENTS_MAX < options.wal_file_bytes]
        return small if len(small) > SMALL_SEGMENTS_MAX else []

    def _may_move(self, file: StoredFile) -> bool:
        return not (file.damaged_gids or file.number in self._untouchable)

    # Dropping.

    def _drop(self, files: list[StoredFile]) -> Iterator[None]:
        store = self._store
        barrier = store.submitted
        while store.durable < barrier:
            yield
        for file in files:
            with store.lock:
                if not self._is_free(file):
                    return
                store.state.files.remove(file.number)
            self._give_back(file)
            # A log file must not come back when a younger one is gone.
            store.disk.sync_directory()
            with store.lock:
                if file.kind != LOG_FILE:
                    store.state.segment_dropped(file.number)
            yield

    def _give_back(self, file: StoredFile) -> None:
        store = self._store
        fits = file.kind == LOG_FILE and file.size_bytes == store.options.wal_file_bytes
        if fits and len(store.spares) <= store.options.spare_files and not store.full:
            name = store.spares.new_name()
            store.disk.rename(file.name, name)
            store.disk.sync_directory()
            store.spares.put(file.size_bytes, name)
        else:
            store.disk.unlink(file.name)

    # Evacuating.

    def _evacuate(self, victims: list[StoredFile]) -> Iterator[None]:
        try:
            copies: list[tuple[RecordHead, int]] = []
            anew: list[tuple[RecordHead, int]] = []
            for victim in victims:
                for found in self._live_records(victim):
                    for head, position in found:
                        (copies if self._is_final(head) else anew).append((head, position))
                    yield
            if copies:
                yield from self._copy(sorted(copies, key=lambda c: (c[0].gid, c[0].index)))
            yield from self._write_anew(anew)
        except CorruptRecordError as error:
            self._untouchable.update(file.number for file in victims)
            with self._store.lock:
                self._store.state.damaged.setdefault(error.gid, str(error))

    def _live_records(self, file: StoredFile) -> Iterator[list[tuple[RecordHead, int]]]:
        """Slices of the records in a file that still count, with their positions."""
        store = self._store
        handle = store.disk.open(file.name)
        try:
            for frame in scan_frames(handle, seed_of(store.state.store_id, file.number)):
                if isinstance(frame, BadBytes):
                    continue
                heads = list(frame.heads())
                for start in range(0, len(heads), SLICE_RECORDS):
                    yield self._still_live(file.number, heads[start : start + SLICE_RECORDS])
        finally:
            handle.close()

    def _still_live(self, number: int, heads: list[RecordHead]) -> list[tuple[RecordHead, int]]:
        with self._store.lock:
            is_live = self._store.state.is_live
            found = [(head, position_of(number, head.offset)) for head in heads]
            return [(h, at) for h, at in found if is_live(h.kind, h.gid, h.index, at)]

    def _is_final(self, head: RecordHead) -> bool:
        """Whether it can go to a segment, from which nothing is ever truncated."""
        if head.kind == SNAP:
            return True
        group = self._store.state.groups.get(head.gid)
        return head.kind == ENTRY and group is not None and head.index <= group.commit

    def _copy(self, copies: list[tuple[RecordHead, int]]) -> Iterator[None]:
        store = self._store
        with store.lock:
            number = store.state.next_number
            store.state.next_number += 1
            next_gid = store.state.next_gid
        writer = SegmentWriter(store.disk, number, store.state.store_id, next_gid)
        sealed = False
        try:
            for head, position in copies:
                payload = store.read_position(head.gid, position, head.length)
                if writer.add((head.kind, head.gid, head.index, head.term, payload)):
                    yield
            segment = writer.seal()
            sealed = True
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OutOfSpaceError("no room for a segment") from error
        finally:
            if not sealed:
                writer.abandon()
        with store.lock:
            store.state.files.add(segment)
        yield
        yield from self._repoint(copies, writer.positions)

    def _repoint(
        self, copies: list[tuple[RecordHead, int]], positions: list[int]
    ) -> Iterator[None]:
        store = self._store
        for start in range(0, len(copies), SLICE_RECORDS):
            end = start + SLICE_RECORDS
            with store.lock:
                for (head, old), new in zip(copies[start:end], positions[start:end], strict=True):
                    store.state.moved(head.kind, head.gid, head.index, old, new, head.length)
            yield

    def _write_anew(self, records: list[tuple[RecordHead, int]]) -> Iterator[None]:
        store = self._store
        for start in range(0, len(records), SLICE_RECORDS):
            with store.lock:
                some = records[start : start + SLICE_RECORDS]
                live = [
                    (head, old)
                    for head, old in some
                    if store.state.is_live(head.kind, head.gid, head.index, old)
                ]
            payloads = [self._payload(head, old) for head, old in live]
            with store.lock:
                store.move_to_log(
                    [
                        (head, old, payload)
                        for (head, old), payload in zip(live, payloads, strict=True)
                        if store.state.is_live(head.kind, head.gid, head.index, old)
                    ]
                )
            yield

    def _payload(self, head: RecordHead, position: int) -> bytes:
        return self._store.read_position(head.gid, position, head.length)
