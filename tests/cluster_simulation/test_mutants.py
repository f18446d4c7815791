"""Every planted bug is caught within a few seeds."""

import pytest

from tests.cluster_simulation.mutants import FOCUS, MUTANTS, Mutant
from tests.cluster_simulation.world import run

# Most are noticed in the first few. Which seed notices a bug may change with the code.
SEEDS = range(1, 61)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    with mutant():
        for seed in SEEDS:
            try:
                run(seed, **FOCUS.get(mutant, {}))
            except Exception:
                return
    pytest.fail(f"{mutant.__name__} was not noticed in {len(SEEDS)} runs")
