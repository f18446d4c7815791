"""Reclaim: gives disk space back as entries are released, in bounded slices off the loop.

A log file counts until all older ones are gone: its TRUNC and DEL records speak about them. So log
files leave oldest first. One that is still needed by a few is evacuated: committed entries and
snapshots are copied to a segment, everything else is written to the log anew. Segments leave in any
order. A file is dropped only when whatever made its records dead is on disk itself.
"""

import errno
import logging
from collections.abc import Generator, Iterator
from itertools import groupby
from typing import Final

from queues.storage.errors import CorruptRecordError, OutOfSpaceError, StoreFailedError
from queues.storage.files import CORRUPT_PREFIX, StoredFile
from queues.storage.frames import (
    ENTRY,
    FILE_HEADER_BYTES,
    HARD,
    LOG_FILE,
    SNAP,
    BadBytes,
    Record,
    RecordHead,
    position_of,
    scan_frames,
    seed_of,
)
from queues.storage.log_store import LogStore, hard_record
from queues.storage.manifest import listed
from queues.storage.segment import SegmentWriter

logger = logging.getLogger(__name__)

# Records looked at or moved while holding the store's lock: well under a millisecond.
SLICE_RECORDS: Final = 256
SLICE_BYTES: Final = 1024 * 1024
# Segments with less live than this are put together once there are enough of them.
SMALL_SEGMENTS_MAX: Final = 8
# A segment is written anew only if this share of it is dead.
WORTHWHILE_WASTE: Final = 0.2


class Reclaimer:
    """Call `step` from one thread, over and over while it says that there is more to do."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._job: Iterator[bool] | None = None
        self._untouchable: set[int] = set()  # corrupt: kept as they are

    def step(self) -> bool:
        """Do one slice. False if there is nothing to do before something else happens."""
        if self._store.failed:
            return False
        if self._job is None:
            self._job = self._next_job()
            if self._job is None:
                return False
        try:
            return next(self._job)
        except StopIteration:
            self._job = None
            return True
        except OutOfSpaceError:
            self._job = None
            return False
        except StoreFailedError:
            return False
        except OSError as error:
            self._store.fail(error)
            return False

    def close(self) -> None:
        """Leave what is under way; a restart does it again."""
        if isinstance(self._job, Generator):
            self._job.close()
        self._job = None

    def _next_job(self) -> Iterator[bool] | None:
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
        return not (file.live_bytes or file.pins)

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
        log_waste = sum(map(_waste, logs))
        waste = log_waste + sum(map(_waste, segments))
        live = sum([file.live_bytes for file in logs + segments])
        allowed = max(options.slack_files * options.wal_file_bytes, options.slack_share * live)
        if waste > allowed:
            if 2 * log_waste >= waste and self._may_move(logs[0]):
                return logs[:1]
            worst = max(segments, key=lambda file: _waste(file) / file.size_bytes, default=None)
            if worst is not None and _waste(worst) > WORTHWHILE_WASTE * worst.size_bytes:
                return [worst]
        small = [s for s in segments if s.live_bytes * SMALL_SEGMENTS_MAX < options.wal_file_bytes]
        return small if len(small) > SMALL_SEGMENTS_MAX else []

    def _may_move(self, file: StoredFile) -> bool:
        return file.number not in self._untouchable

    # Dropping.

    def _drop(self, files: list[StoredFile]) -> Iterator[bool]:
        store = self._store
        barrier = store.submitted
        while store.durable < barrier:
            yield False
        self._unlist(files)
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
            yield True

    def _unlist(self, files: list[StoredFile]) -> None:
        """What they held is elsewhere: from now on the segments have to be there, and not they."""
        store = self._store
        dropped = {file.number for file in files}
        with store.lock:
            kept = [file for file in store.state.files.segments() if file.number not in dropped]
            added = [listed(file) for file in kept]
        store.manifest.change(added, dropped)

    def _give_back(self, file: StoredFile) -> None:
        store = self._store
        size = store.options.wal_file_bytes
        fits = file.kind == LOG_FILE and file.size_bytes == size
        if file.corrupt:
            store.disk.rename(file.name, CORRUPT_PREFIX + file.name)
        elif fits and store.spares.count(size) < store.options.spare_files and not store.full:
            name = store.spares.new_name()
            store.disk.rename(file.name, name)
            store.disk.sync_directory()
            store.spares.put(file.size_bytes, name)
        else:
            store.disk.unlink(file.name)

    # Evacuating.

    def _evacuate(self, victims: list[StoredFile]) -> Iterator[bool]:
        try:
            copies: list[tuple[RecordHead, int]] = []
            anew: list[tuple[RecordHead, int]] = []
            for victim in victims:
                for found in self._live_records(victim):
                    for head, position in found:
                        (copies if self._is_final(head) else anew).append((head, position))
                    yield True
            if copies:
                yield from self._copy(sorted(copies, key=lambda c: (c[0].gid, c[0].index)))
            yield from self._write_anew(anew)
            self._shun_if_needed(victims)
        except CorruptRecordError as error:
            self._untouchable.update(file.number for file in victims)
            self._store.note_damage()
            logger.error("%s", error)

    def _shun_if_needed(self, victims: list[StoredFile]) -> None:
        """What still counts in a file after all was moved could not be found in it again."""
        for file in victims:
            if file.live_bytes:
                logger.error("%s has live records that cannot be read back", file.name)
                self._untouchable.add(file.number)

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

    def _copy(self, copies: list[tuple[RecordHead, int]]) -> Iterator[bool]:
        store = self._store
        with store.lock:
            number = store.state.next_number
            store.state.next_number += 1
            next_gid = store.state.next_gid
        writer = SegmentWriter(store.disk, number, store.state.store_id, next_gid)
        try:
            for some in _slices(copies):
                for (head, _), payload in zip(some, self._payloads(some), strict=True):
                    writer.add((head.kind, head.gid, head.index, head.term, payload))
                yield True
            segment = writer.seal()
        except GeneratorExit:
            writer.close()
            raise
        except CorruptRecordError:
            writer.abandon()
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC or writer.named:
                writer.close()
                raise
            writer.abandon()
            raise OutOfSpaceError("no room for a segment") from error
        store.add_segment(segment)
        yield True
        yield from self._repoint(copies, writer.positions)

    def _repoint(
        self, copies: list[tuple[RecordHead, int]], positions: list[int]
    ) -> Iterator[bool]:
        store = self._store
        for start in range(0, len(copies), SLICE_RECORDS):
            end = start + SLICE_RECORDS
            with store.lock:
                for (head, old), new in zip(copies[start:end], positions[start:end], strict=True):
                    store.state.moved(head.kind, head.gid, head.index, old, new, head.length)
            yield True

    def _write_anew(self, records: list[tuple[RecordHead, int]]) -> Iterator[bool]:
        store = self._store
        for some in _slices(records):
            payloads = self._payloads(some)
            with store.lock:
                store.move_to_log(
                    [
                        (self._record(head, payload), old)
                        for (head, old), payload in zip(some, payloads, strict=True)
                        if store.state.is_live(head.kind, head.gid, head.index, old)
                    ]
                )
            yield True

    def _record(self, head: RecordHead, payload: bytes) -> Record:
        if head.kind == HARD:
            return hard_record(self._store.state.groups[head.gid])
        return (head.kind, head.gid, head.index, head.term, payload)

    def _payloads(self, records: list[tuple[RecordHead, int]]) -> list[bytes]:
        payloads = []
        for gid, of_group in groupby(records, key=lambda record: record[0].gid):
            wanted = [(position, head.length) for head, position in of_group]
            payloads += self._store.read_positions(gid, wanted)
        return payloads


def _waste(file: StoredFile) -> int:
    return file.size_bytes - FILE_HEADER_BYTES - file.live_bytes


def _slices(
    records: list[tuple[RecordHead, int]],
) -> Iterator[list[tuple[RecordHead, int]]]:
    """Cut into pieces of limited count and size."""
    some: list[tuple[RecordHead, int]] = []
    size = 0
    for record in records:
        some.append(record)
        size += record[0].length
        if len(some) >= SLICE_RECORDS or size >= SLICE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
