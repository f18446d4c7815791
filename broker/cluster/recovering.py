"""A member of a log as its disk has it.

What is committed is known only as far as the last checkpoint, or where the disk says more. The
machine is brought up to there; the rest of the log may be void, and waits for a leader's word.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import trio

from broker.hosted_log import MemberLog
from queues.commands import ranges_of
from queues.raft.config import Config, config_of
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.storage.errors import MissingEntryError
from queues.storage.log_store import GroupView, StoredEntry

if TYPE_CHECKING:
    from broker.log_host import LogHost

REPLAY_BYTES: Final = 8 * 1024 * 1024  # read at once
RETAIN_ENTRIES: Final = 8 * 1024  # looked at in one go: some milliseconds


def recovered(
    host: "LogHost", log: MemberLog, began_with: Config, make: Callable[..., Raft], now: float
) -> Raft:
    """Bring its machine back, and its group. CorruptRecordError, MissingEntryError."""
    assert log.gid is not None
    machine, store = log.machine, host.store
    assert machine is not None
    view = store.group(log.gid)
    offset, offset_term = 0, 0
    if view.snapshot is not None:
        offset, offset_term = view.snapshot.index, view.snapshot.term
        state = store.read_snapshot(log.gid)
        assert state is not None
        retain(host, log.gid, offset, machine.install(offset, state))
    committed = _known_committed(view, offset)
    runs: list[tuple[int, int]] = []
    configs: list[tuple[int, Config]] = []
    for entry in _entries_above(host, view, offset):
        if not runs or runs[-1][1] != entry.term:
            runs.append((entry.index, entry.term))
        config = config_of(entry.payload)
        if config is not None:
            configs.append((entry.index, config))
        elif entry.payload and entry.index <= committed:
            machine.apply(entry.index, entry.payload)
    base = Config.decode(view.config[1]) if view.config is not None else began_with
    return make(
        base,
        now,
        hard=(view.term, view.vote),
        log=RaftLog(offset, offset_term, runs, max(offset, view.last_index)),
        configs=configs,
        applied=committed,
    )


def _known_committed(view: GroupView, offset: int) -> int:
    """The rest of the log may yet be void: who leads will say."""
    return max(offset, min(view.commit, view.last_index))


def retain(host: "LogHost", gid: int, index: int, in_use: Sequence[int]) -> None:
    """Of what is at or under a checkpoint keep these entries, and no others.

    Where there are very many the rest goes by and by: nobody waits for it.
    """
    slices = _retaining(host, gid, index, in_use)
    if len(in_use) <= RETAIN_ENTRIES:
        for _ in slices:
            pass
    else:
        host.start_soon(_by_and_by, slices)


def _retaining(host: "LogHost", gid: int, index: int, in_use: Sequence[int]) -> Iterator[None]:
    """Release what lies between the entries in use, a slice of them at a time."""
    upto = bisect_right(in_use, index)
    below = 0  # all up to here is dealt with
    for start in range(0, upto, RETAIN_ENTRIES):
        some = in_use[start : min(start + RETAIN_ENTRIES, upto)]
        kept = [(first, first + count - 1) for first, count in ranges_of(some)]
        gaps = zip([below, *[last for _, last in kept]], kept, strict=False)
        gone = [(before + 1, first - 1) for before, (first, _) in gaps if first > before + 1]
        if not host.store.has(gid):
            return  # it was deleted meanwhile
        host.store.release(gid, gone)
        below = some[-1]
        yield
    if below < index and host.store.has(gid):
        host.store.release(gid, [(below + 1, index)])


async def _by_and_by(slices: Iterator[None]) -> None:
    for _ in slices:
        await trio.lowlevel.checkpoint()


def _entries_above(host: "LogHost", view: GroupView, offset: int) -> Iterator[StoredEntry]:
    first = offset + 1
    while first <= view.last_index:
        entries = host.store.read(view.gid, first, view.last_index, bytes_max=REPLAY_BYTES)
        for entry in entries:
            if entry.index != first:
                raise MissingEntryError(view.gid, first)
            yield entry
            first += 1
