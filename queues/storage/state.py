"""What the store knows: groups, graves and files, changed by records old and new."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from queues.storage.entry_index import EntryIndex
from queues.storage.files import FileTable
from queues.storage.frames import (
    CONFIG,
    DAMAGE,
    DEL,
    ENTRY,
    HARD,
    LOSS_GID,
    LOST,
    REG,
    SNAP,
)

REG_LENGTH: Final = 16
HARD_LENGTH: Final = 16


class SnapshotMeta(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    term: int
    position: int
    length: int


class ConfigMeta(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    config: bytes
    position: int


class Group:
    """One replicated log."""

    __slots__ = (
        "commit",
        "config",
        "entries",
        "gid",
        "hard_position",
        "reg_position",
        "snapshot",
        "term",
        "uuid",
        "vote",
    )

    def __init__(self, gid: int) -> None:
        self.gid = gid
        self.uuid = b""
        self.term = 0
        self.vote: int | None = None
        self.commit = 0  # a lower bound: what is known never to be truncated
        self.entries = EntryIndex()
        self.snapshot: SnapshotMeta | None = None
        self.config: ConfigMeta | None = None  # none in groups of this node alone
        self.reg_position: int | None = None
        self.hard_position: int | None = None

    def live_records(self) -> Iterable[tuple[int, int]]:
        yield from [(entry.position, entry.length) for entry in self.entries]
        if self.snapshot is not None:
            yield self.snapshot.position, self.snapshot.length
        if self.reg_position is not None:
            yield self.reg_position, REG_LENGTH
        if self.hard_position is not None:
            yield self.hard_position, HARD_LENGTH
        if self.config is not None:
            yield self.config.position, len(self.config.config)


class Grave(NamedTuple):
    """A deleted group: its DEL is live while a segment that outlasts the log names the group."""

    position: int
    segments: set[int]


@dataclass(slots=True)
class State:
    """Everything that recovery finds and that the store then goes on from."""

    files: FileTable
    store_id: bytes
    next_gid: int = 1
    next_number: int = 1
    next_sequence: int = 1
    groups: dict[int, Group] = field(default_factory=dict)
    by_uuid: dict[bytes, int] = field(default_factory=dict)
    graves: dict[int, Grave] = field(default_factory=dict)
    damaged: dict[int, str] = field(default_factory=dict)  # gid → why
    damage_notes: dict[int, tuple[int, int]] = field(default_factory=dict)  # position, length
    lost: str | None = None  # why logs may be lost of which not even the name is known, if so
    loss_note: tuple[int, int] | None = None  # position and length of what the log says about that
    loss_accepted: frozenset[str] = frozenset()  # findings that are no news any more

    def registered(self, gid: int, uuid: bytes, position: int) -> None:
        group = self.groups.get(gid) or self._new_group(gid)
        if group.reg_position is not None:
            self.files.dead([(group.reg_position, REG_LENGTH)])
        self.files.live(position, REG_LENGTH)
        group.reg_position = position
        if self.by_uuid.get(group.uuid) == gid:
            del self.by_uuid[group.uuid]
        group.uuid = uuid
        self.by_uuid[uuid] = gid

    def nameless(self) -> list[int]:
        """Groups whose name is lost."""
        return [gid for gid, group in self.groups.items() if not group.uuid]

    def _new_group(self, gid: int) -> Group:
        group = self.groups[gid] = Group(gid)
        self.next_gid = max(self.next_gid, gid + 1)
        return group

    def hard_set(self, gid: int, term: int, vote: int | None, commit: int, position: int) -> None:
        group = self.groups[gid]
        if group.hard_position is not None:
            self.files.dead([(group.hard_position, HARD_LENGTH)])
        self.files.live(position, HARD_LENGTH)
        group.hard_position = position
        group.term, group.vote = term, vote
        group.commit = max(group.commit, commit)

    def config_set(self, gid: int, index: int, config: bytes, position: int) -> None:
        group = self.groups[gid]
        if group.config is not None:
            self.files.dead([(group.config.position, len(group.config.config))])
        self.files.live(position, len(config))
        group.config = ConfigMeta(index, config, position)

    def appended(self, gid: int, index: int, term: int, position: int, length: int) -> None:
        self.files.live(position, length)
        self.groups[gid].entries.append(index, term, position, length)

    def truncated(self, gid: int, first: int) -> None:
        group = self.groups[gid]
        assert first > group.commit, (
            f"group {gid}: truncation at {first} under commit {group.commit}"
        )
        self.files.dead(group.entries.remove(first, group.entries.last))

    def snapshotted(self, gid: int, index: int, term: int, position: int, length: int) -> None:
        group = self.groups[gid]
        old = group.snapshot
        assert old is None or index >= old.index, (gid, index, old)
        if old is not None:
            self.files.dead([(old.position, old.length)])
        self.files.live(position, length)
        group.snapshot = SnapshotMeta(index, term, position, length)
        group.commit = max(group.commit, index)

    def deleted(self, gid: int, position: int) -> None:
        group = self.groups.pop(gid)
        self.files.dead(group.live_records())
        if self.by_uuid.get(group.uuid) == gid:
            del self.by_uuid[group.uuid]
        self.damaged.pop(gid, None)
        if gid in self.damage_notes:
            self.files.dead([self.damage_notes.pop(gid)])
        self.buried(gid, position)

    def damage_noted(self, gid: int, why: str, position: int, length: int) -> None:
        """A group's damage is on record, and outlasts the file that has it."""
        if gid in self.damage_notes:
            self.files.dead([self.damage_notes[gid]])
        self.files.live(position, length)
        self.damage_notes[gid] = (position, length)
        self.damaged.setdefault(gid, why)

    def loss_noted(self, what: int, text: str, position: int, length: int) -> None:
        """The log says that logs were lost, or that this was accepted."""
        if self.loss_note is not None:
            self.files.dead([self.loss_note])
        self.files.live(position, length)
        self.loss_note = (position, length)
        self.lost = text if what == LOST else None
        self.loss_accepted = frozenset(text.split("\n")) if what != LOST else frozenset()

    def buried(self, gid: int, position: int) -> None:
        """Keep the DEL alive for as long as segments bring the group's records back."""
        old = self.graves.pop(gid, None)
        if old is not None:
            self.files.dead([(old.position, 0)])
        segments = {file.number for file in self.files.segments() if file.names_group(gid)}
        if segments:
            self.files.live(position, 0)
            self.graves[gid] = Grave(position, segments)

    def segment_dropped(self, number: int) -> None:
        for gid in [gid for gid, grave in self.graves.items() if number in grave.segments]:
            grave = self.graves[gid]
            grave.segments.discard(number)
            if not grave.segments:
                self.files.dead([(grave.position, 0)])
                del self.graves[gid]

    def is_live(self, kind: int, gid: int, index: int, position: int) -> bool:
        """Whether the record at this position is still the one that counts."""
        if kind == DEL:
            grave = self.graves.get(gid)
            return grave is not None and grave.position == position
        if gid == LOSS_GID:
            return self.loss_note is not None and self.loss_note[0] == position
        group = self.groups.get(gid)
        if group is None:
            return False
        if kind == ENTRY:
            entry = group.entries.get(index)
            return entry is not None and entry.position == position
        if kind == SNAP:
            return group.snapshot is not None and group.snapshot.position == position
        if kind == DAMAGE:
            return self.damage_notes.get(gid, (0, 0))[0] == position
        if kind == CONFIG:
            return group.config is not None and group.config.position == position
        if kind == REG:
            return group.reg_position == position
        return kind == HARD and group.hard_position == position

    def moved(self, kind: int, gid: int, index: int, old: int, new: int, length: int) -> None:
        """A record that counts was copied; the copy counts from now on."""
        if not self.is_live(kind, gid, index, old):
            return
        self.files.live(new, length)
        self.files.dead([(old, length)])
        if kind == DEL:
            self.graves[gid] = self.graves[gid]._replace(position=new)
            return
        if gid == LOSS_GID:
            self.loss_note = (new, length)
            return
        if kind == DAMAGE:
            self.damage_notes[gid] = (new, length)
            return
        group = self.groups[gid]
        if kind == ENTRY:
            group.entries.move(index, old, new)
        elif kind == SNAP:
            assert group.snapshot is not None
            group.snapshot = group.snapshot._replace(position=new)
        elif kind == CONFIG:
            assert group.config is not None
            group.config = group.config._replace(position=new)
        elif kind == REG:
            group.reg_position = new
        else:
            group.hard_position = new
