"""A store on a simulated disk beside a model too simple to be wrong.

The model is the list of records submitted. After a crash the store must equal the model after some
prefix of them, at least as long as what was reported durable; released entries may come back.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from queues.storage.batch import WriteBatch
from queues.storage.errors import CorruptRecordError, StoreFailedError
from queues.storage.files import parse_name
from queues.storage.frames import (
    CONFIG,
    DEL,
    ENTRY,
    FILE_HEADER_BYTES,
    HARD,
    LOG_FILE,
    REG,
    SEGMENT_FILE,
    SNAP,
    TRUNC,
    Record,
    decode_vote,
)
from queues.storage.log_store import GroupView, LogStore, StoredEntry
from queues.storage.manifest import MANIFEST_NAMES
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer
from tests.support.simdisk import SimDisk

OPTIONS = StoreOptions(wal_file_bytes=12 * 1024, free_bytes_min=0, reserve_bytes=6 * 1024)
STORE_ID = b"\x5a" * 16


class BrokenPromiseError(Exception):
    """The store lost, invented or kept silent about something."""


def promise(kept: object, text: object) -> None:
    if not kept:
        raise BrokenPromiseError(text)


class PowerFailedError(Exception):
    """Nothing of what the store does after this happens."""


@dataclass
class ModelGroup:
    uuid: bytes
    hard: tuple[int, int | None] = (0, None)
    snapshot: tuple[int, int, bytes] | None = None
    log: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # released entries too
    released: set[int] = field(default_factory=set)
    commit: int = 0
    config: tuple[int, bytes] | None = None

    def needed(self) -> dict[int, tuple[int, bytes]]:
        return {index: e for index, e in self.log.items() if index not in self.released}

    @property
    def last(self) -> int:
        return max([0, self.commit, *self.log])


def apply(groups: dict[int, ModelGroup], record: Record) -> None:
    kind, gid, index, term, payload = record
    if kind == REG:
        groups.setdefault(gid, ModelGroup(payload)).uuid = payload
    elif kind == HARD:
        groups[gid].hard = (index, decode_vote(payload))
    elif kind == ENTRY:
        groups[gid].log[index] = (term, payload)
        groups[gid].released.discard(index)
    elif kind == TRUNC:
        log = groups[gid].log
        groups[gid].log = {i: entry for i, entry in log.items() if i < index}
    elif kind == SNAP:
        groups[gid].snapshot = (index, term, payload)
    elif kind == CONFIG:
        groups[gid].config = (index, payload)
    else:
        assert kind == DEL
        del groups[gid]


class Walk:
    """Do anything with a store; `crash` and `check` say whether it kept its promise."""

    def __init__(self, seed: int, options: StoreOptions = OPTIONS) -> None:
        self.random = Random(seed)
        self.disk = SimDisk()
        self.options = options
        self.groups: dict[int, ModelGroup] = {}  # as submitted
        self.before: dict[int, ModelGroup] = {}  # as at the last recovery
        self.records: list[Record] = []  # since then
        self.submits: dict[int, int] = {}  # number → records up to its end
        self.durable = 0
        self.failures: list[BaseException] = []
        self.full: list[bool] = []
        self.hurt: set[int] = set()  # groups that were called damaged
        self.lost = False  # it was said that logs are lost of which not even the name is known
        self.cut_in = ""  # the last log file before the last crash
        self.uuids = 0
        self.bodies = 0
        self.open()

    def open(self) -> None:
        self.durable = 0
        self.failures = []
        events = StoreEvents(self._durable, self.failures.append, self.full.append)
        self.store = LogStore.open(
            self.disk, self.options, events, new_store_id=lambda: STORE_ID, threaded=False
        )
        self.reclaimer = Reclaimer(self.store)
        self.records = []
        self.submits = {0: 0}

    def attempt(self) -> None:
        """Open it once and throw that away; OSError if the disk does not let it."""
        events = StoreEvents(lambda _: None, lambda _: None, lambda _: None)
        LogStore.open(
            self.disk, self.options, events, new_store_id=lambda: STORE_ID, threaded=False
        )

    def _durable(self, number: int) -> None:
        promise(not self.failures, "reported durable after a failure")
        promise(number > self.durable, f"{number} is reported durable after {self.durable}")
        self.durable = number

    # What a host does.

    def pick(self) -> int | None:
        return self.random.choice(list(self.groups)) if self.groups else None

    def submit(self, batch: WriteBatch) -> None:
        for record in batch.records:
            apply(self.groups, record)
        self.records += batch.records
        number = self.store.submit(batch)
        self.submits[number] = len(self.records)

    def create(self) -> int:
        self.uuids += 1
        batch = self.store.batch()
        gid = batch.create_group(UUID(int=self.uuids).bytes)
        self.submit(batch)
        return gid

    def write(self) -> None:
        """A batch for a few groups, as one tick of the host makes it."""
        batch = self.store.batch()
        for gid in self.random.sample(list(self.groups), min(len(self.groups), 3)):
            group = self.groups[gid]
            if self.random.random() < 0.2:
                batch.set_hard(gid, group.hard[0] + 1, self.random.choice([None, 1, 2]))
            last = group.last
            if last > group.commit and self.random.random() < 0.3:
                last = self.random.randint(group.commit, last - 1)
                batch.truncate_from(gid, last + 1)
            batch.append(gid, [self._entry(group, last + n) for n in range(1, self._count() + 1)])
        self.submit(batch)

    def _count(self) -> int:
        return self.random.choice([0, 1, 1, 2, 5, 12])

    def _entry(self, group: ModelGroup, index: int) -> StoredEntry:
        self.bodies += 1
        size = self.random.choice([0, 1, 40, 40, 200, 900])
        payload = b"%d " % self.bodies + self.random.randbytes(size)
        return StoredEntry(index, group.hard[0] + 1, payload)

    def commit(self) -> None:
        """Commit what is durable; nothing else is ever committed."""
        durable = self._durable_groups()
        for gid, group in self.groups.items():
            kept = durable.get(gid)
            if kept is None:
                continue
            same = [i for i, e in kept.log.items() if group.log.get(i) == e and i > group.commit]
            if same:
                group.commit = self.random.choice(same)
                self.store.committed(gid, group.commit)

    def _durable_groups(self) -> dict[int, ModelGroup]:
        return self._after(self.submits[self._known_durable()])

    def _known_durable(self) -> int:
        return max([n for n in self.submits if n <= self.durable])

    def _after(self, count: int) -> dict[int, ModelGroup]:
        groups = {gid: _copy(group) for gid, group in self.before.items()}
        for record in self.records[:count]:
            apply(groups, record)
        return groups

    def release(self) -> None:
        gid = self.pick()
        if gid is None or not self.groups[gid].commit:
            return
        group = self.groups[gid]
        first = self.random.randint(1, group.commit)
        last = min(group.commit, first + self.random.choice([0, 3, 30, 300]))
        self.store.release(gid, [(first, last)])
        group.released |= set(range(first, last + 1)) & set(group.log)

    def snapshot(self) -> None:
        gid = self.pick()
        if gid is None:
            return
        group = self.groups[gid]
        if group.commit and (group.snapshot is None or group.commit > group.snapshot[0]):
            batch = self.store.batch()
            payload = self.random.randbytes(self.random.choice([5, 500, 3000]))
            batch.snapshot(gid, group.commit, group.hard[0], payload)
            self.submit(batch)

    def configure(self) -> None:
        gid = self.pick()
        if gid is not None:
            batch = self.store.batch()
            config = self.random.randbytes(self.random.choice([4, 12]))
            batch.set_config(gid, self.groups[gid].commit, config)
            self.submit(batch)

    def replace(self) -> None:
        """A group takes the place of another, as when its state comes from elsewhere."""
        if len(self.groups) > 1:
            old, new = self.random.sample(list(self.groups), 2)
            batch = self.store.batch()
            batch.replace_group(old, new, self.groups[old].uuid)
            self.submit(batch)

    def delete(self) -> None:
        gid = self.pick()
        if gid is not None:
            batch = self.store.batch()
            batch.delete_group(gid)
            self.submit(batch)

    def flush(self) -> None:
        self.store.flush()

    def reclaim(self, steps: int = 20) -> None:
        for _ in range(steps):
            if not self.reclaimer.step():
                break

    def step(self) -> None:
        """One of everything, the common things more often."""
        actions = [self.write] * 8 + [self.flush] * 6 + [self.commit] * 4 + [self.release] * 4
        actions += [self.reclaim] * 4 + [self.snapshot, self.create, self.check_reads]
        actions += [self.configure]
        if self.random.random() < 0.02:
            actions = [self.delete, self.replace]
        if not self.groups:
            actions = [self.create]
        self.random.choice(actions)()

    # What befalls it.

    def crash(self) -> None:
        self.disk.crash(self.random)
        self._reopen()

    def kill(self) -> None:
        self.disk.kill()
        self._reopen()

    def stop(self) -> None:
        self.disk.fault = None
        self.store.close()
        if self.failures:
            self._reopen()
            return
        self.durable = self.store.submitted
        self._reopen()

    def until_power_fails(self) -> None:
        """Go on until one of the next operations of the disk does not return."""
        left = self.random.randint(1, 40)

        def fault(operation: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise PowerFailedError(operation, name)

        self.disk.fault = fault
        try:
            for _ in range(30):
                self.step()
        except (PowerFailedError, StoreFailedError):
            pass

    def tear_a_write(self) -> None:
        """The power fails with several frames on their way: any of them may arrive."""
        for _ in range(self.random.randint(2, 6)):
            if self.groups:
                self.write()

        def fault(operation: str, name: str) -> None:
            if operation == "sync":
                raise PowerFailedError(operation, name)

        self.disk.fault = fault
        self.flush()

    def _reopen(self) -> None:
        floor, records = self.submits[self._known_durable()], self.records
        self.open()
        promise(not self.store.recovery.findings, self.store.recovery.findings)
        self.records = records
        groups = self._after(floor)
        found = {view.gid: self._found(view) for view in self.store.groups()}
        names = [group.uuid for group in found.values()]
        promise(len(set(names)) == len(names), "two groups of one name")
        promise([self.store.gid_of(name) for name in names] == list(found), "a name leads astray")
        told = self._differences(found, groups)
        for record in records[floor:]:
            if not self._differences(found, groups):
                break
            apply(groups, record)
        promise(not self._differences(found, groups), told)
        self._go_on_from(groups)

    def _found(self, view: GroupView) -> ModelGroup:
        """A group as the store gives it back."""
        try:
            entries = self.store.read(view.gid, 0, 1 << 60, bytes_max=1 << 60)
            snapshot = view.snapshot and (*view.snapshot[:2], self.store.read_snapshot(view.gid))
        except CorruptRecordError as error:
            raise BrokenPromiseError(f"called sound and cannot be read: {error}") from error
        log = {entry.index: entry[1:] for entry in entries}
        hard = (view.term, view.vote)
        return ModelGroup(view.uuid, hard, snapshot, log, config=view.config)

    def _differences(
        self, found: dict[int, ModelGroup], groups: dict[int, ModelGroup]
    ) -> list[str]:
        told = [f"group {gid} is only on one side" for gid in found.keys() ^ groups.keys()]
        for gid in found.keys() & groups.keys():
            told += self._differs(gid, found[gid], groups[gid])
        return told

    def _differs(self, gid: int, found: ModelGroup, model: ModelGroup) -> list[str]:
        """How a group in the store differs from the model's, but for released entries."""
        now = self.groups.get(gid)
        released = model.released | (now.released if now is not None else set(model.log))
        if (found.uuid, found.hard) != (model.uuid, model.hard):
            return [f"group {gid} has {found.hard} and not {model.hard}"]
        if found.config != model.config:
            return [f"group {gid} has {found.config} and not {model.config}"]
        if found.snapshot != model.snapshot:
            return [f"group {gid} has snapshot {found.snapshot} and not {model.snapshot}"]
        told = [f"group {gid} invents {i}" for i, e in found.log.items() if model.log.get(i) != e]
        lost = [i for i in model.log if i not in found.log and i not in released]
        return [*told, f"group {gid} lost {lost}"] if lost else told

    # Damage.

    def end(self) -> None:
        """Stop in good order: all that was written is promised, and vouched for."""
        self.disk.fault = None
        self.store.close()
        assert not self.failures

    def reopen_damaged(self) -> None:
        """After `end` and damage: who lost something is called damaged, and stays so for good.

        All others have what they had.
        """
        self.open()
        state = self.store.state
        damaged = set(state.damaged)
        found = {view.gid: view for view in self.store.groups()}
        for gid in self.hurt - damaged:
            promise(self.store.lost and gid not in found, f"damage of group {gid} is forgotten")
        promise(self.store.lost or not self.lost, "it is forgotten that logs are lost")
        for gid in found.keys() - self.groups.keys() - damaged:
            promise(False, f"group {gid} is back from the dead")
        for gid, group in self.groups.items():
            if gid not in found:
                promise(self.store.lost, f"group {gid} has vanished without a word")
            elif gid not in damaged:
                told = self._differs(gid, self._found(found[gid]), group)
                promise(not told, told)
        self.hurt, self.lost = damaged, bool(self.store.lost)
        kept = {gid: group for gid, group in self.groups.items() if gid in found.keys() - damaged}
        self._go_on_from(kept)

    def _go_on_from(self, groups: dict[int, ModelGroup]) -> None:
        """What came back is what the host finds and works with."""
        for gid, group in groups.items():
            group.released = set(group.log) - {e.index for e in self.store.entries(gid)}
            group.commit = max(group.commit, self.store.group(gid).commit)
        self.before = groups
        self.groups = {gid: _copy(group) for gid, group in groups.items()}
        self.records = []

    def check_reads(self) -> None:
        """Everything needed is readable, pending or not, before and after being moved."""
        for gid, group in self.groups.items():
            entries = self.store.read(gid, 0, 1 << 60, bytes_max=1 << 60)
            there = {e.index: e[1:] for e in entries}
            promise(there == group.needed(), f"group {gid} is read otherwise than it was written")

    def fails(self) -> None:
        """The disk fails from now on: the store must stop and say so once."""
        try:
            for _ in range(30):
                self.step()
            self.write()
            self.flush()
        except (StoreFailedError, OSError):
            pass


def _copy(group: ModelGroup) -> ModelGroup:
    return ModelGroup(
        group.uuid,
        group.hard,
        group.snapshot,
        dict(group.log),
        set(group.released),
        group.commit,
        group.config,
    )


def run(seed: int, steps: int = 120, rounds: int = 4) -> Walk:
    """A whole life with crashes; raises if a promise is broken."""
    walk = Walk(seed)
    for _ in range(rounds):
        for _ in range(walk.random.randint(1, steps)):
            walk.step()
        if walk.random.random() < 0.7:
            walk.until_power_fails()
        walk.random.choice([walk.crash, walk.crash, walk.kill, walk.stop])()
        walk.check_reads()
    return walk


def run_damaged(seed: int, steps: int = 60) -> Walk:
    """A life with crashes, and then things that must not happen; raises if one is kept silent."""
    walk = Walk(seed)
    random = walk.random
    for _ in range(random.randint(0, 2)):
        _live(walk, random.randint(1, steps))
        random.choice([walk.until_power_fails, walk.tear_a_write])()
        walk.cut_in = max(_stored(walk, LOG_FILE), default="")
        walk.crash()
    if not _stored(walk):
        walk.create()
    for _ in range(random.randint(1, 3)):
        _live(walk, random.choice([0, 3, random.randint(1, steps)]))
        walk.end()
        random.choice(BLOWS)(walk)
        walk.reopen_damaged()
        # Traffic, by which the files with the evidence go.
        _live(walk, random.randint(1, steps))
        walk.flush()
        walk.reclaim(200)
        walk.end()
        walk.reopen_damaged()
    return walk


def _live(walk: Walk, steps: int) -> None:
    for _ in range(steps):
        walk.step()


def _stored(walk: Walk, kind: int | None = None) -> list[str]:
    """Log files and segments, of one kind or of both."""
    parsed = [(name, parse_name(name)) for name in sorted(walk.disk.list())]
    return [name for name, which in parsed if which and kind in (None, which[0])]


def flip(walk: Walk) -> None:
    """One bit, anywhere behind a header."""
    name = walk.random.choice(_stored(walk))
    size = len(walk.disk.content(name).rstrip(b"\0"))
    if size > FILE_HEADER_BYTES:
        place = walk.random.randrange(FILE_HEADER_BYTES, size)
        walk.disk.flip(name, place, walk.random.randrange(8))


def flip_first_frame(walk: Walk) -> None:
    """One bit in the header of the first frame of a log file, often one begun after a crash."""
    names = _stored(walk, LOG_FILE)
    after_the_cut = [name for name in names if name > walk.cut_in][:1]
    name = walk.random.choice(names + 3 * after_the_cut)
    if len(walk.disk.content(name).rstrip(b"\0")) > FILE_HEADER_BYTES:
        walk.disk.flip(name, FILE_HEADER_BYTES + walk.random.randrange(4, 44))


def vanish(walk: Walk) -> None:
    """One file is gone."""
    kind = walk.random.choice([LOG_FILE, SEGMENT_FILE])
    walk.disk.unlink(walk.random.choice(_stored(walk, kind) or _stored(walk)))
    walk.disk.sync_directory()


def hurt_manifest(walk: Walk) -> None:
    """One copy is gone or bad: the other serves."""
    name = walk.random.choice(MANIFEST_NAMES)
    if walk.random.random() < 0.5:
        walk.disk.flip(name, walk.random.randrange(48))
        return
    walk.disk.unlink(name)
    walk.disk.sync_directory()


BLOWS = (flip, flip_first_frame, flip_first_frame, vanish, vanish, hurt_manifest)
