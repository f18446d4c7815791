"""Every planted bug is caught within a fixed set of seeds."""

import pytest

from tests.simulation.mutants import FOCUS, MUTANTS, Mutant
from tests.simulation.run import run

SEEDS = range(1, 201)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    with mutant():
        for seed in SEEDS:
            try:
                run(seed, kinds=FOCUS.get(mutant))
            except Exception:
                return
    pytest.fail(f"{mutant.__name__} was not noticed in {len(SEEDS)} runs")
