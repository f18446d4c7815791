"""Every planted bug is caught within a fixed set of seeds."""

import pytest

from tests.cluster_host.mutants import MUTANTS, Mutant
from tests.cluster_host.storm import storm
from tests.cluster_host.world import World

SEEDS = range(1, 151)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    with mutant():
        for seed in SEEDS:
            try:
                World(seed).run(storm)
            except BaseException:
                return
    pytest.fail(f"{mutant.__name__} was not noticed in {len(SEEDS)} runs")
