"""Seeded storms keep every promise; one seed is one run."""

import pytest

from tests.cluster_host.storm import left_behind, storm
from tests.cluster_host.world import World

SEEDS = range(1, 81)
CHUNK = 10


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_replicated_logs_keep_their_promises_through_storms(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            World(seed).run(left_behind if seed % 8 == 0 else storm)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
