"""A simulated disk for one group: writes become durable in order; a crash keeps any prefix."""

from collections.abc import Iterator
from random import Random

from queues.raft.config import Config, config_of
from queues.raft.messages import Entry, NodeId, Snapshot
from queues.raft.ready import WriteOp

Hard = tuple[int, NodeId | None]
Record = tuple[str, object]


class Image:
    """What a scan of the disk would find."""

    def __init__(self) -> None:
        self.hard: Hard = (0, None)
        self.snapshot = Snapshot(0, 0, Config((1,)), 0)  # index 0: there is none
        self.entries: list[Entry] = []
        self.configs: list[tuple[int, Config]] = []  # those in the entries

    def copy(self) -> "Image":
        twin = Image()
        twin.hard, twin.snapshot, twin.entries = self.hard, self.snapshot, list(self.entries)
        twin.configs = list(self.configs)
        return twin

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.entries)

    def term_at(self, index: int) -> int:
        offset = self.snapshot.index
        return self.snapshot.term if index == offset else self.entries[index - offset - 1].term

    def read(self, first: int, last: int) -> list[Entry]:
        offset = self.snapshot.index
        assert first > offset, "a live entry is not readable"
        found = self.entries[first - offset - 1 : last - offset]
        assert found, "what is to be read was never written"
        assert found[0].index == first
        return found

    def runs(self) -> Iterator[tuple[int, int]]:
        term = self.snapshot.term
        for entry in self.entries:
            if entry.term != term:
                term = entry.term
                yield entry.index, term

    def config(self, first: Config) -> Config:
        """The one that holds by what is here; `first` is that of a new group."""
        if self.configs:
            return self.configs[-1][1]
        return self.snapshot.config if self.snapshot.index else first

    def has(self, index: int, term: int) -> bool:
        """Whether this disk vouches for that entry; what a snapshot covers was committed."""
        offset = self.snapshot.index
        return index <= offset or (index <= self.last and self.term_at(index) == term)

    def write(self, kind: str, value: object) -> None:
        if kind == "hard":
            self.hard = value  # type: ignore[assignment]
        elif kind == "entry":
            assert isinstance(value, Entry)
            assert value.index == self.last + 1, "a gap on the disk"
            self.entries.append(value)
            config = config_of(value.payload)
            if config is not None:
                self.configs.append((value.index, config))
        elif kind == "truncate":
            assert isinstance(value, int)
            del self.entries[value - self.snapshot.index - 1 :]
            self.configs = [known for known in self.configs if known[0] < value]
        elif kind == "install":
            assert isinstance(value, Snapshot)
            self.snapshot, self.entries, self.configs = value, [], []
        else:
            assert isinstance(value, Snapshot)
            if value.index > self.snapshot.index:
                del self.entries[: value.index - self.snapshot.index]
                self.snapshot = value
                self.configs = [known for known in self.configs if known[0] > value.index]


class SimDisk:
    def __init__(self) -> None:
        self.durable = Image()
        self.latest = Image()
        self.pending: list[tuple[int | None, list[Record]]] = []  # None: a snapshot, no wseq

    def stage(self, write: WriteOp, install: Snapshot | None) -> None:
        records: list[Record] = []
        if install is not None:
            records.append(("install", install))
        if write.hard is not None:
            records.append(("hard", write.hard))
        if write.truncate_from is not None:
            records.append(("truncate", write.truncate_from))
        records += [("entry", entry) for entry in write.entries]
        self._stage(write.wseq, records)

    def stage_snapshot(self, snapshot: Snapshot) -> None:
        self._stage(None, [("snapshot", snapshot)])

    def _stage(self, wseq: int | None, records: list[Record]) -> None:
        for record in records:
            self.latest.write(*record)
        self.pending.append((wseq, records))

    def sync(self, count: int) -> tuple[int | None, int | None]:
        """Make the oldest `count` writes durable; last wseq and last snapshot among them."""
        wseq = snapshot = None
        for number, records in self.pending[:count]:
            for record in records:
                self.durable.write(*record)
            if number is None:
                snapshot = self.durable.snapshot.index
            else:
                wseq = number
        del self.pending[:count]
        return wseq, snapshot

    def crash(self, random: Random) -> None:
        """Of what was not synced any prefix may be there, down to a part of one write."""
        records = [record for _, some in self.pending for record in some]
        for record in records[: random.randint(0, len(records))]:
            self.durable.write(*record)
        self.pending.clear()
        self.latest = self.durable.copy()
