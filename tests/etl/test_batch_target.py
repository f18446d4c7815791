"""Intake that follows how long batches take: less while work is slow, more again behind it."""

from pathlib import Path

import pytest

from spark.etl.events import Event
from spark.options import ADAPTIVE_ROWS_MIN
from tests.etl.scene import PipelineScene, running

TARGET_MS = 8000  # many times what a batch takes that is not slow, wherever that is
ROW_MS = 5
TOGETHER = 100  # rows that sleep at once: a busy machine wakes nobody on time
MOST = 4000
SMALL = 2400  # while work is slow; for the target it is 1600 at most
SLOW_BATCHES = 3
SOME = 10_000  # records that are written at once
RULES = """
import time
from pathlib import Path

SLOW = Path({slow!r})


def work(row):
    if row["id"] % {together} == 0 and SLOW.exists():
        time.sleep({seconds!r})
    return row
"""


@pytest.mark.timeout(900)
def test_batches_become_small_while_work_is_slow_and_grow_again(etl: PipelineScene) -> None:
    """One partition, one task: a batch takes at least as long as its rows together."""
    source, target = etl.declare(partitions=1), etl.target()
    slow = etl.directory / "slow"
    slow.touch()
    sizes: list[int] = []
    written = 0

    def listen(event: Event) -> None:
        if event.batch is not None and event.batch.records:
            sizes.append(event.batch.records)
            if len(sizes) == SLOW_BATCHES:
                slow.unlink()

    def write() -> None:
        nonlocal written
        etl.fill(source, ({"id": number} for number in range(written, written + SOME)))
        written += SOME

    def has_grown() -> bool:
        """For batches to grow there must be enough to read."""
        if written - sum(sizes) < 2 * MOST:
            write()
        return max(sizes[SLOW_BATCHES:], default=0) > SMALL

    pipeline = etl.pipeline(
        {"orders": {"topic": source, "schema": "id bigint"}},
        [{"kind": "stream", "name": "out", "input": "worked", "topic": target}],
        [
            {
                "name": "worked",
                "kind": "python",
                "input": "orders",
                "function": f"{slow_rules(etl.directory, slow)}:work",
                "schema": "id bigint",
            }
        ],
        trigger="100ms",
        limits={"batch_target": f"{TARGET_MS}ms", "max_offsets_per_trigger": MOST},
    )
    write()
    write()
    with running(etl, pipeline, listen) as wait:
        wait(has_grown, "a large batch")
        wait(lambda: sum(sizes) == written, "the last batch")
    first, *small = sizes[: SLOW_BATCHES + 1]  # of the last it was decided after a slow one
    assert first == MOST
    assert all(ADAPTIVE_ROWS_MIN <= size <= SMALL for size in small), sizes
    assert SMALL < max(sizes[SLOW_BATCHES:]) <= MOST, sizes
    assert sorted(row["id"] for row in etl.rows(target)) == list(range(written))
    assert etl.letters(source) == []


def slow_rules(directory: Path, slow: Path) -> str:
    """A module beside the pipeline, with a name of its own: others are imported already."""
    name = f"slow_{directory.name}"
    seconds = TOGETHER * ROW_MS / 1000
    code = RULES.format(slow=str(slow), together=TOGETHER, seconds=seconds)
    (directory / f"{name}.py").write_text(code)
    return name
