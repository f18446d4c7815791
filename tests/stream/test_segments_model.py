"""Segments through anything in any order, with crashes, against the list of all records."""

import pytest

from queues.stream.options import StreamOptions
from tests.stream.walk import OPTIONS, PowerFailedError, Walk, fail_after, run

AGED = StreamOptions(segment_bytes=2500, max_age_ms=60)
SIZED = StreamOptions(segment_bytes=1500, max_bytes=6000)
BOTH = StreamOptions(segment_bytes=1500, max_age_ms=90, max_bytes=9000)
COMPACTED = StreamOptions(segment_bytes=2500, compact=True, tombstone_ms=50)
ALL = StreamOptions(
    segment_bytes=2500, max_age_ms=200, max_bytes=20000, compact=True, tombstone_ms=50
)


@pytest.mark.parametrize("options", [OPTIONS, AGED, SIZED, BOTH, COMPACTED, ALL])
def test_long_lives_with_crashes_keep_every_promise(options):
    for seed in range(25):
        run(seed, options)


def script(walk: Walk) -> None:
    """Everything once: appends over several segments, retention, compaction."""
    for _ in range(8):
        walk.append()
    walk.checkpoint()
    for _ in range(3):
        walk.append()
    walk.retain()
    while walk.compactor is not None or not walk.compacted:
        walk.compact()
    walk.append()
    walk.segments.roll()
    walk.checkpoint()
    walk.compacted = True
    walk.compact()
    walk.now_ms += 1000
    walk.retain()
    walk.append()


def test_power_may_fail_at_every_single_operation():
    options = StreamOptions(
        segment_bytes=1500, max_age_ms=500, max_bytes=9000, compact=True, tombstone_ms=2
    )
    whole = Walk(7, options)
    whole.disk.log.clear()
    script(whole)
    operations = len(whole.disk.log)
    whole.check_everything()
    assert operations > 100
    for count in range(operations):
        walk = Walk(7, options)
        fail_after(walk.disk, count)
        with pytest.raises(PowerFailedError):
            script(walk)
        walk.compacted = True
        walk.random.seed(count)
        walk.crash()
        walk.append()
        walk.check_everything()
        walk.kill()
