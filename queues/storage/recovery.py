"""Recovery: from the files of a directory to the state that the store goes on from.

Segments come first: their entries were committed when they were copied, so they stand whatever the
log says. Then the log in order. A group that nothing registers or deletes is kept as damaged.
"""

import logging
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from queues.storage.disk import Disk, File
from queues.storage.entry_index import Located
from queues.storage.errors import StorageError
from queues.storage.files import (
    SEGMENT_PREFIX,
    SPARE_PREFIX,
    UNFINISHED_SUFFIX,
    FileTable,
    StoredFile,
    parse_name,
    spare_name,
)
from queues.storage.frames import (
    CONFIG,
    CRC_BYTES,
    DAMAGE,
    DEL,
    ENTRY,
    FILE_HEADER_BYTES,
    HARD,
    LOG_FILE,
    RECORD_BYTES,
    REG,
    SEAL,
    SEGMENT_FILE,
    SNAP,
    TRUNC,
    BadBytes,
    FileHeader,
    RecordHead,
    ScannedFrame,
    Witnesses,
    decode_file_header,
    decode_gids,
    decode_vote,
    position_of,
    scan_frames,
    seed_of,
)
from queues.storage.replay import Finding, Replay
from queues.storage.state import Group, State

logger = logging.getLogger(__name__)

_NO_GROUP: Final = Group(0)


@dataclass(slots=True)
class Recovery:
    """What was found. `spares` are the names of files that can be written over."""

    state: State
    witnesses: Witnesses
    spares: list[str]
    findings: list[Finding]
    cut: str | None
    records: int


def recover(disk: Disk, new_store_id: Callable[[], bytes]) -> Recovery:
    """Scan the directory and make good what a crash left half done."""
    scan = Scan(disk, new_store_id)
    scan.run()
    for finding in scan.findings:
        logger.error("corruption in %s at byte %d: %s", finding.file, finding.offset, finding.what)
    if scan.cut is not None:
        logger.warning("%s", scan.cut)
    scan.make_good()
    return scan.result()


class Scan:
    """Reads all files into a new state. Changes nothing on disk before `make_good`."""

    def __init__(self, disk: Disk, new_store_id: Callable[[], bytes]) -> None:
        self._disk = disk
        self.names = sorted(disk.list())
        self.headers = {name: self._header(name) for name in self.names}
        known = [header for header in self.headers.values() if header is not None]
        stored = [name for name in self.names if parse_name(name) is not None]
        store_ids = {h.store_id for n, h in self.headers.items() if h and parse_name(n)}
        if stored and not store_ids:
            raise StorageError(f"no file has a readable header, {stored[0]} among them")
        if len(store_ids) > 1:
            raise StorageError("the directory mixes files of several stores")
        store_id = store_ids.pop() if store_ids else new_store_id()
        self.state = State(FileTable(disk), store_id)
        self.state.next_gid = max([h.next_gid for h in known], default=1)
        # Spares count too: their bytes were sealed with the number that they last had.
        numbers = [header.number for header in known]
        numbers += [parsed[1] for name in self.names if (parsed := parse_name(name))]
        self.state.next_number = max(numbers, default=0) + 1
        self.findings: list[Finding] = []
        self.cut: str | None = None
        self.records = 0
        self._replay = Replay(self._apply_log)
        self._used_logs: set[int] = set()

    def _header(self, name: str) -> FileHeader | None:
        if parse_name(name) is None and not name.startswith(SPARE_PREFIX):
            return None
        file = self._disk.open(name)
        try:
            return decode_file_header(file.pread(FILE_HEADER_BYTES, 0), name)
        finally:
            file.close()

    def run(self) -> None:
        for kind, scan in ((SEGMENT_FILE, self._scan_segment), (LOG_FILE, self._scan_log)):
            for name in self.names:
                parsed = parse_name(name)
                if parsed is not None and parsed[0] == kind:
                    self._check_header(name, parsed)
                    handle = self._add_file(kind, parsed[1])
                    scan(name, parsed[1], handle)
        self.cut = self._replay.end()
        self.state.next_sequence = self._replay.next_sequence
        self.findings += self._replay.findings
        self._mark_damage()

    def _check_header(self, name: str, parsed: tuple[int, int]) -> None:
        header = self.headers[name]
        if header is None or (header.kind, header.number) != parsed:
            self.findings.append(Finding(name, 0, "bad file header", frozenset()))

    def _add_file(self, kind: int, number: int) -> File:
        file = StoredFile(kind, number, 0)
        self.state.files.add(file)
        handle = self.state.files.handle(number)
        file.size_bytes = handle.size_bytes()
        return handle

    # Segments.

    def _scan_segment(self, name: str, number: int, handle: File) -> None:
        seed = seed_of(self.state.store_id, number)
        expected = 1
        lost: list[tuple[int, str, frozenset[int] | None, RecordHead | None]] = []
        last: RecordHead | None = None
        for event in scan_frames(handle, seed):
            if isinstance(event, BadBytes):
                continue
            if event.sequence != expected:
                known = event.witness_from <= expected
                gids = frozenset(event.witnesses) if known else None
                lost.append((event.offset, f"lost frames before {event.sequence}", gids, None))
            expected = event.sequence + 1
            heads = list(event.heads())
            bad = event.bad_payloads(seed)
            for_bad = [heads[place] for place in bad]
            lost += [(h.offset, "bad payload", frozenset([h.gid]), h) for h in for_bad]
            self._apply_segment(number, event, heads, set(bad))
            last = heads[-1]
        if last is None or last.kind != SEAL:
            lost.append((handle.size_bytes(), "the end of the segment is lost", None, None))
        sealed = frozenset(self.state.files[number].gids) or None
        for offset, what, gids, record in lost:
            hurt = sealed if gids is None and last and last.kind == SEAL else gids
            self.findings.append(Finding(name, offset, what, hurt, record))

    def _apply_segment(
        self, number: int, frame: ScannedFrame, heads: list[RecordHead], bad: set[int]
    ) -> None:
        self.records += len(heads)
        file = self.state.files[number]
        for place, head in enumerate(heads):
            if head.kind == SEAL:
                if place not in bad:
                    file.gids = array("I", decode_gids(frame.payload(head)))
                continue
            if not file.names_group(head.gid):
                file.gids.append(head.gid)  # they ascend
            group = self._group(head.gid)
            if place in bad:
                continue
            position = position_of(number, head.offset)
            if head.kind == ENTRY:
                self._put(group, Located(head.index, head.term, position, head.length))
            else:
                assert head.kind == SNAP
                self._snapshot(group, head, position)
            group.commit = max(group.commit, head.index)

    def _group(self, gid: int) -> Group:
        group = self.state.groups.get(gid)
        if group is None:
            group = self.state.groups[gid] = Group(gid)
            self.state.next_gid = max(self.state.next_gid, gid + 1)
        return group

    def _put(self, group: Group, entry: Located) -> None:
        files = self.state.files
        files.live(entry.position, entry.length)
        old = group.entries.put(entry)
        if old is not None:
            files.dead([(old.position, old.length)])

    def _snapshot(self, group: Group, head: RecordHead, position: int) -> None:
        if group.snapshot is None or head.index >= group.snapshot.index:
            self.state.snapshotted(head.gid, head.index, head.term, position, head.length)

    # The log.

    def _scan_log(self, name: str, number: int, handle: File) -> None:
        seed = seed_of(self.state.store_id, number)
        for event in scan_frames(handle, seed):
            if isinstance(event, BadBytes):
                self._replay.bad_bytes(name, event.offset, event.sequence)
            else:
                self._replay.frame(name, number, event, event.bad_payloads(seed))

    def _apply_log(self, number: int, frame: ScannedFrame, bad: list[int]) -> None:
        self._used_logs.add(number)
        self.records += frame.records
        groups = self.state.groups
        place = position_of(number, frame.first_record)
        new_bytes = 0
        group = _NO_GROUP
        for at, (kind, gid, index, term, length) in enumerate(frame.table()):
            position = place
            place += CRC_BYTES + length
            if kind != ENTRY:
                head = RecordHead(kind, gid, index, term, length, position & 0xFFFFFFFF)
                self._apply_control(head, position, frame, bad=at in bad)
                group = _NO_GROUP
                continue
            if gid != group.gid:
                group = groups.get(gid) or self._group(gid)
            if bad and at in bad:
                continue
            if index > group.entries.last:
                new_bytes += length + RECORD_BYTES
                group.entries.append(index, term, position, length)
            else:
                self._entry_again(group, Located(index, term, position, length))
        self.state.files[number].live_bytes += new_bytes

    def _entry_again(self, group: Group, entry: Located) -> None:
        """An index below the last: written anew by the reclaimer, or known from a segment."""
        old = group.entries.get(entry.index)
        if old is None or self.state.files[old.position >> 32].kind == LOG_FILE:
            self._put(group, entry)

    def _apply_control(
        self, head: RecordHead, position: int, frame: ScannedFrame, *, bad: bool
    ) -> None:
        state = self.state
        if head.kind == DEL and not bad:
            if head.gid in state.groups:
                state.deleted(head.gid, position)
            else:
                state.buried(head.gid, position)
            return
        group = self._group(head.gid)
        if bad:
            return
        if head.kind == REG:
            state.registered(head.gid, frame.payload(head), position)
        elif head.kind == HARD:
            vote = decode_vote(frame.payload(head))
            state.hard_set(head.gid, head.index, vote, head.term, position)
        elif head.kind == SNAP:
            self._snapshot(group, head, position)
        elif head.kind == CONFIG:
            state.config_set(head.gid, head.index, frame.payload(head), position)
        elif head.kind == DAMAGE:
            why = frame.payload(head).decode()
            state.damage_noted(head.gid, why, position, head.length)
        else:
            assert head.kind == TRUNC
            self._truncate(group, head.index)

    def _truncate(self, group: Group, first: int) -> None:
        files = self.state.files
        void = [
            entry.index
            for entry in group.entries.select(first, group.entries.last)
            if files[entry.position >> 32].kind == LOG_FILE
        ]
        for index in void:
            files.dead(group.entries.remove(index, index))

    # What follows from it all.

    def _mark_damage(self) -> None:
        state = self.state
        for finding in self.findings:
            gids: Iterable[int] = list(state.groups) if finding.gids is None else finding.gids
            where = f"{finding.file} at byte {finding.offset}: {finding.what}"
            parsed = parse_name(finding.file)
            assert parsed is not None
            state.files[parsed[1]].corrupt = True
            for gid in gids:
                if gid in state.groups and not self._superseded(finding.record, parsed[1]):
                    state.damaged.setdefault(gid, where)
        for gid, group in state.groups.items():
            if group.reg_position is None:
                state.damaged.setdefault(gid, "nothing says which group this is")

    def _superseded(self, record: RecordHead | None, number: int) -> bool:
        """Whether a record that is lost would not count anyway."""
        if record is None:
            return False
        group = self.state.groups[record.gid]
        position = position_of(number, record.offset)
        if record.kind == ENTRY:
            return group.entries.get(record.index) is not None
        if record.kind == SNAP:
            return group.snapshot is not None and group.snapshot.index >= record.index
        if record.kind == HARD:
            return group.hard_position is not None and group.hard_position > position
        if record.kind == CONFIG:
            return group.config is not None and group.config.position > position
        if record.kind == REG:
            return group.reg_position is not None and group.reg_position > position
        return False

    def make_good(self) -> None:
        """Bring the directory to what the state says, durably."""
        for name in self.names:
            if name.startswith(SEGMENT_PREFIX) and name.endswith(UNFINISHED_SUFFIX):
                self._disk.unlink(name)
        self._write_unsynced_again()
        self._empty_logs_become_spares()
        self._disk.sync_directory()

    def _write_unsynced_again(self) -> None:
        """Frames may be only in the kernel's memory, even marked clean by a failed sync."""
        written = set()
        for number, frame in self._replay.unsynced():
            self.state.files.handle(number).pwritev([bytes(frame.body)], frame.offset)
            written.add(number)
        for number in written:
            self.state.files.handle(number).datasync()

    def _empty_logs_become_spares(self) -> None:
        suspect = {finding.file for finding in self.findings}
        used = [int(n.removeprefix(SPARE_PREFIX)) for n in self.names if n.startswith(SPARE_PREFIX)]
        next_spare = max(used, default=0) + 1
        for file in self.state.files.logs():
            if file.number not in self._used_logs and file.name not in suspect:
                self.state.files.remove(file.number)
                self._disk.rename(file.name, spare_name(next_spare))
                self.names.append(spare_name(next_spare))
                next_spare += 1

    def result(self) -> Recovery:
        spares = [name for name in self.names if name.startswith(SPARE_PREFIX)]
        return Recovery(
            self.state,
            self._replay.witnesses(),
            spares,
            self.findings,
            self.cut,
            self.records,
        )
