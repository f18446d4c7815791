"""Seeded runs of a whole cluster keep every promise; one seed is one run."""

import pytest

from tests.cluster_simulation.world import run

# About 1.6 s of CPU time each, two minutes in all.
SEEDS = range(1, 73)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    try:
        run(seed)
    except BaseException as error:
        error.add_note(f"python -m tests.cluster_simulation --seed {seed}")
        raise


def test_one_seed_is_one_run() -> None:
    first: list[str] = []
    second: list[str] = []
    run(4, first.append)
    run(4, second.append)
    assert first == second
    assert len(first) > 10
