"""Looks at a stopped data directory: what is in it, and whether all of it can be read."""

from dataclasses import dataclass

from queues.storage.disk import Disk
from queues.storage.files import CORRUPT_PREFIX, SPARE_PREFIX, parse_name
from queues.storage.frames import FORMAT_VERSION, SEGMENT_FILE
from queues.storage.manifest import MANIFEST_NAMES
from queues.storage.reading import PendingFrames, Wanted, read_records
from queues.storage.recovery import Scan
from queues.storage.replay import Finding

_NO_STORE = b"\0" * 16


@dataclass(frozen=True, slots=True)
class FileReport:
    """`live_bytes` counts as live what a restart would: released entries still on disk too."""

    name: str
    kind: str
    version: int | None  # None if it has no header that counts
    size_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    gid: int
    uuid: bytes
    term: int
    vote: int | None
    snapshot_index: int | None
    entries: int
    last_index: int
    bytes: int
    damaged: str | None


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    store_id: bytes
    files: list[FileReport]
    groups: list[GroupReport]
    records: int
    findings: list[Finding]
    lost: str | None  # why logs may be lost of which not even the name is known
    torn: str | None  # a write that a crash cut short: no error
    payloads: list[bytes]  # of the group that was asked for: snapshot first, entries above it

    @property
    def sound(self) -> bool:
        damaged = any(group.damaged for group in self.groups)
        return not (self.findings or damaged or self.lost)


def check_directory(disk: Disk, *, payloads_of: bytes | None = None) -> DirectoryReport:
    """Read and verify everything, change nothing. DirectoryInUseError if a broker runs on it.

    `payloads_of` names a group whose contents are wanted too.
    """
    disk.lock()
    try:
        scan = Scan(disk, lambda: _NO_STORE)
        scan.run()
        report = DirectoryReport(
            scan.state.store_id,
            _files(disk, scan),
            _groups(scan),
            scan.records,
            scan.findings,
            scan.state.lost,
            scan.cut,
            _payloads(scan, payloads_of) if payloads_of is not None else [],
        )
        scan.state.files.close()
        return report
    finally:
        disk.unlock()


def _files(disk: Disk, scan: Scan) -> list[FileReport]:
    reports = []
    for name in scan.names:
        parsed = parse_name(name)
        if parsed is None:
            if name.startswith((SPARE_PREFIX, CORRUPT_PREFIX)) or name in MANIFEST_NAMES:
                file = disk.open(name)
                kind = name.partition("-")[0]
                reports.append(FileReport(name, kind, None, file.size_bytes(), 0))
                file.close()
            continue
        kind = "segment" if parsed[0] == SEGMENT_FILE else "log"
        version = FORMAT_VERSION if scan.headers[name] is not None else None
        stored = scan.state.files[parsed[1]]
        reports.append(FileReport(name, kind, version, stored.size_bytes, stored.live_bytes))
    return reports


def _payloads(scan: Scan, uuid: bytes) -> list[bytes]:
    """What a restart would replay of this group; nothing if it is damaged or not there."""
    gid = scan.state.by_uuid.get(uuid)
    if gid is None or gid in scan.state.damaged:
        return []
    group = scan.state.groups[gid]
    wanted = [(e.position, e.length) for e in group.entries]
    if group.snapshot is not None:
        wanted = [(e.position, e.length) for e in group.entries if e.index > group.snapshot.index]
        wanted.insert(0, (group.snapshot.position, group.snapshot.length))
    return read_records(Wanted(scan.state, PendingFrames(), wanted), gid)


def _groups(scan: Scan) -> list[GroupReport]:
    reports = []
    for gid, group in sorted(scan.state.groups.items()):
        entries = list(group.entries)
        reports.append(
            GroupReport(
                gid,
                group.uuid,
                group.term,
                group.vote,
                group.snapshot.index if group.snapshot is not None else None,
                len(entries),
                group.entries.last,
                sum([entry.length for entry in entries]),
                scan.state.damaged.get(gid),
            )
        )
    return reports
