"""Seeded lives of a whole node keep every promise; one seed is one run."""

import pytest

from tests.simulation.run import run

SEEDS = range(1, 201)
CHUNK = 20


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_a_node_keeps_its_promises_through_crashes(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"python -m tests.simulation --seed {seed}")
            raise


def test_one_seed_is_one_run() -> None:
    for seed in (3, 17):
        first: list[str] = []
        second: list[str] = []
        run(seed, first.append)
        run(seed, second.append)
        assert first == second
        assert len(first) > 10
