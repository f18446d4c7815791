"""A store on a simulated disk beside a model too simple to be wrong.

The model is the list of records submitted. After a crash the store must equal the model after some
prefix of them, at least as long as what was reported durable; released entries may come back.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from queues.storage.batch import WriteBatch
from queues.storage.errors import StoreFailedError
from queues.storage.frames import CONFIG, DEL, ENTRY, HARD, REG, SNAP, TRUNC, Record, decode_vote
from queues.storage.log_store import GroupView, LogStore, StoredEntry
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer
from tests.support.simdisk import SimDisk

OPTIONS = StoreOptions(wal_file_bytes=12 * 1024, free_bytes_min=0, reserve_bytes=6 * 1024)
STORE_ID = b"\x5a" * 16


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

    def _durable(self, number: int) -> None:
        assert not self.failures, "reported durable after a failure"
        assert number > self.durable
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

    def _reopen(self) -> None:
        floor, records = self.submits[self._known_durable()], self.records
        self.open()
        assert not self.store.recovery.findings, self.store.recovery.findings
        self.records = records
        groups = self._after(floor)
        found = {view.gid: self._found(view) for view in self.store.groups()}
        names = [group.uuid for group in found.values()]
        assert len(set(names)) == len(names), "two groups of one name"
        assert [self.store.gid_of(name) for name in names] == list(found)
        told = self._differences(found, groups)
        for record in records[floor:]:
            if not self._differences(found, groups):
                break
            apply(groups, record)
        assert not self._differences(found, groups), told
        self._go_on_from(groups)

    def _found(self, view: GroupView) -> ModelGroup:
        """A group as the store gives it back."""
        entries = self.store.read(view.gid, 0, 1 << 60, bytes_max=1 << 60)
        snapshot = view.snapshot and (*view.snapshot[:2], self.store.read_snapshot(view.gid))
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
            assert {e.index: e[1:] for e in entries} == group.needed()

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
