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
    LOSS_GID,
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
from queues.storage.manifest import MANIFEST_NAMES, ListedFile, Manifest, listed, read_manifest
from queues.storage.replay import Finding, Replay
from queues.storage.state import Group, State

logger = logging.getLogger(__name__)

_NO_GROUP: Final = Group(0)
MISSING: Final = "the file is missing"


@dataclass(slots=True)
class Recovery:
    """What was found. `spares` are the names of files that can be written over."""

    state: State
    witnesses: Witnesses
    spares: list[str]
    findings: list[Finding]
    cut: str | None
    records: int
    unvouched: bool  # frames count of which nothing says that they were synced
    manifest: Manifest


def recover(disk: Disk, new_store_id: Callable[[], bytes]) -> Recovery:
    """Scan the directory and make good what a crash left half done."""
    scan = Scan(disk, new_store_id)
    scan.run()
    for finding in scan.findings:
        logger.error("corruption in %s", finding.where)
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
        self.listing = read_manifest(disk, self.names)
        known = [header for header in self.headers.values() if header is not None]
        stored = [name for name in self.names if parse_name(name) is not None]
        store_ids = {h.store_id for n, h in self.headers.items() if h and parse_name(n)}
        if self.listing is not None:
            store_ids.add(self.listing.store_id)
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
        numbers += [file.number for file in self._listed()]
        self.state.next_number = max(numbers, default=0) + 1
        self.findings: list[Finding] = []
        self.cut: str | None = None
        self.records = 0
        self._replay = Replay(self._apply_log)
        self._used_logs: set[int] = set()
        self._deleted: set[int] = set()  # groups whose end is in the log
        generation = self.listing.generation if self.listing is not None else 0
        self.manifest = Manifest(disk, store_id, generation)

    def _header(self, name: str) -> FileHeader | None:
        if parse_name(name) is None and not name.startswith(SPARE_PREFIX):
            return None
        file = self._disk.open(name)
        try:
            return decode_file_header(file.pread(FILE_HEADER_BYTES, 0), name)
        finally:
            file.close()

    def _listed(self) -> list[ListedFile]:
        return self.listing.files if self.listing is not None else []

    def run(self) -> None:
        self._find_vanished()
        firsts = self._first_sequences()
        for kind, scan in ((SEGMENT_FILE, self._scan_segment), (LOG_FILE, self._scan_log)):
            for name in self.names:
                parsed = parse_name(name)
                if parsed is not None and parsed[0] == kind:
                    self._check_header(name, parsed)
                    handle = self._add_file(kind, parsed[1])
                    if kind == LOG_FILE:
                        self._replay.begin_file(name, parsed[1], *_bounds(firsts, parsed[1]))
                    scan(name, parsed[1], handle)
        self.cut = self._replay.end()
        self.state.next_sequence = self._replay.next_sequence
        self.findings += self._replay.findings
        self._mark_damage()
        if self.state.lost is None:
            self.state.lost = self._loss()

    def _find_vanished(self) -> None:
        for file in self._listed():
            if file.name not in self.headers:
                hurt = frozenset(file.gids) if file.gids is not None else None
                self.findings.append(Finding(file.name, 0, MISSING, hurt))
        if self.listing is None and any(h and h.first_sequence for h in self.headers.values()):
            what = "no copy can be read: files that are missing would not be noticed"
            self.findings.append(Finding(MANIFEST_NAMES[0], 0, what, frozenset([LOSS_GID])))

    def _first_sequences(self) -> list[tuple[int, int]]:
        """Number and first sequence of each log file that says it, vanished ones too; ascending."""
        firsts = {file.number: file.first_sequence for file in self._listed()}
        for name, header in self.headers.items():
            parsed = parse_name(name)
            if header is not None and parsed == (LOG_FILE, header.number):
                firsts[header.number] = header.first_sequence or firsts.get(header.number, 0)
        return sorted([(number, first) for number, first in firsts.items() if first])

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
        if head.gid == LOSS_GID:
            if not bad:
                text = frame.payload(head).decode()
                state.loss_noted(head.index, text, position, head.length)
            return
        if head.kind == DEL and not bad:
            self._deleted.add(head.gid)
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
            _, number = parse_name(finding.file) or (None, 0)
            if number in state.files:
                state.files[number].corrupt = True
            number = max(number, finding.until)
            # The numbers of groups that are lost altogether are not given again.
            state.next_gid = max(state.next_gid, max(finding.gids or (), default=0) + 1)
            gids = self._groups_before(number) if finding.gids is None else finding.gids
            for gid in gids:
                if gid in state.groups and not self._superseded(finding.record, number):
                    state.damaged.setdefault(gid, finding.where)
        for gid, group in state.groups.items():
            if group.reg_position is None:
                state.damaged.setdefault(gid, "nothing says which group this is")

    def _loss(self) -> str | None:
        """Why there may have been logs of which not even the name is known, if so."""
        hurt = [finding.where for finding in self.findings if self._hurts_unknown(finding)]
        hurt = [where for where in hurt if where not in self.state.loss_accepted]
        nameless = [f"group {gid} has no name" for gid in self.state.nameless()]
        return next(iter(hurt + nameless), None)

    def _hurts_unknown(self, finding: Finding) -> bool:
        if finding.gids is None:
            return True
        unknown = finding.gids - self._deleted - self.state.groups.keys()
        return bool(unknown)

    def _groups_before(self, number: int) -> Iterable[int]:
        """The groups that may have had records in a file: not those made after the next one was."""
        headers = [header for name, header in self.headers.items() if header and parse_name(name)]
        later = [h.next_gid for h in headers if h.kind == LOG_FILE and h.number > number]
        bound = min(later, default=self.state.next_gid)
        return [gid for gid in self.state.groups if gid < bound]

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
        empty = self._empty_logs()
        self.manifest.change(self._to_be_listed(empty), ())
        for file in empty:
            self._make_spare(file)
        self._disk.sync_directory()

    def _to_be_listed(self, empty: list[StoredFile]) -> list[ListedFile]:
        """What is here; and what has vanished, until the log says whom that hurts."""
        firsts = dict(self._first_sequences())
        files = self.state.files
        kept = [file for file in files.logs() + files.segments() if file not in empty]
        here = [listed(file, firsts.get(file.number, 0)) for file in kept]
        untold = {finding.file for finding in self.findings if not self._is_noted(finding)}
        return here + [file for file in self._listed() if file.name in untold]

    def _is_noted(self, finding: Finding) -> bool:
        state = self.state
        _, number = parse_name(finding.file) or (None, 0)
        gids = self._groups_before(number) if finding.gids is None else finding.gids
        groups_noted = all(gid in state.damage_notes for gid in gids if gid in state.groups)
        return groups_noted and (not self._hurts_unknown(finding) or state.loss_note is not None)

    def _write_unsynced_again(self) -> None:
        """Frames may be only in the kernel's memory, even marked clean by a failed sync."""
        written = set()
        for number, frame in self._replay.unsynced():
            self.state.files.handle(number).pwritev([bytes(frame.body)], frame.offset)
            written.add(number)
        for number in written:
            self.state.files.handle(number).datasync()

    def _empty_logs(self) -> list[StoredFile]:
        """Log files of which nothing counts."""
        suspect = {finding.file for finding in self.findings}
        return [
            file
            for file in self.state.files.logs()
            if file.number not in self._used_logs and file.name not in suspect
        ]

    def _make_spare(self, file: StoredFile) -> None:
        used = [int(n.removeprefix(SPARE_PREFIX)) for n in self.names if n.startswith(SPARE_PREFIX)]
        name = spare_name(max(used, default=0) + 1)
        self.state.files.remove(file.number)
        self._disk.rename(file.name, name)
        self.names.append(name)

    def result(self) -> Recovery:
        spares = [name for name in self.names if name.startswith(SPARE_PREFIX)]
        return Recovery(
            self.state,
            self._replay.witnesses(),
            spares,
            self.findings,
            self.cut,
            self.records,
            any(frame.records for _, frame in self._replay.unsynced()),
            self.manifest,
        )


def _bounds(firsts: list[tuple[int, int]], number: int) -> tuple[int, int | None]:
    """The first sequence of a log file, and that of the next one; 0 and None if not known."""
    first = next((first for at, first in firsts if at == number), 0)
    return first, next((first for at, first in firsts if at > number), None)
