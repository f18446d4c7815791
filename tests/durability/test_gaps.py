"""Entries that are gone without a word: noticed by their numbers, whatever took them."""

import pytest
import trio

from broker.hosted_log import HostedLog
from broker.stored_logs import StoredLogs
from queues.storage.errors import MissingEntryError
from queues.storage.log_store import StoredEntry
from tests.storage.walk import Walk

UID = b"q" * 16


def stored(*indexes: int, checkpoint: int = 0) -> tuple[StoredLogs, HostedLog, Walk]:
    """A log of this node alone whose disk has these entries."""
    walk = Walk(1)
    batch = walk.store.batch()
    gid = batch.create_group(UID)
    batch.append(gid, [StoredEntry(index, 1, b"%d" % index) for index in indexes])
    if checkpoint:
        batch.snapshot(gid, checkpoint, 1, b"state")
    walk.store.submit(batch)
    walk.store.flush()
    logs = StoredLogs()
    logs.store = walk.store
    return logs, HostedLog(None, UID, gid), walk  # type: ignore[arg-type]


def test_a_gap_above_the_checkpoint_is_damage_and_is_not_replayed_over() -> None:
    logs, log, walk = stored(1, 2, 3, 5, 6)
    with pytest.raises(MissingEntryError, match="entry 4 of group 1 is missing"):
        list(logs.replay(log))
    assert "entry 4" in str(logs.damage_of(log))
    walk.store.flush()
    walk.store.close()
    walk.open()
    assert "entry 4" in str(walk.store.group(1).damaged)


def test_a_log_that_begins_too_late_has_a_gap() -> None:
    logs, log, _ = stored(3, 4)
    assert "entry 1" in str(logs.damage_of(log))
    logs, log, _ = stored(2, 7, 8, checkpoint=5)
    assert "entry 6" in str(logs.damage_of(log))


def test_holes_under_the_checkpoint_are_no_gap_unless_they_are_needed() -> None:
    logs, log, _ = stored(2, 4, 6, 7, checkpoint=5)
    assert logs.damage_of(log) is None
    assert [index for index, _ in logs.replay(log)] == [6, 7]
    assert logs.lacks(log, [2, 4, 6, 7]) is None
    assert "entry 3" in str(logs.lacks(log, [2, 3, 4]))
    assert "entry 3" in str(logs.damage_of(log))


def test_a_group_is_not_made_of_a_log_with_a_gap() -> None:
    async def make() -> None:
        logs, log, _ = stored(1, 3)
        assert log.gid is not None
        with pytest.raises(MissingEntryError):
            logs.lone_group(logs.store.group(log.gid), None)  # type: ignore[arg-type]

    trio.run(make)
