"""Transactions under crashes, lost and repeated messages; one seed is one run."""

import pytest

from tests.stream_groups.mutants import COORDINATORS, HOSTS, STAGINGS
from tests.stream_groups.world import World
from tests.support.promises import breaks_a_promise

STEPS = 4000
SEEDS_MAX = 40
MUTANTS = [
    *({"coordinator": each} for each in COORDINATORS),
    *({"staging": each} for each in STAGINGS),
    *({name: each} for name, each in HOSTS.items()),
]


@pytest.mark.parametrize("seed", range(12))
def test_transactions_are_seen_wholly_once_or_never(seed):
    world = World(seed)
    world.run(STEPS)
    world.settle_down()
    assert len(world.ledger.committed) >= 3


def test_the_same_seed_is_the_same_run():
    def run():
        world = World(5)
        world.run(800)
        return world.coordinator.log, [host.rows for host in world.partitions.values()]

    assert run() == run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: next(iter(each.values())).__name__)
def test_a_planted_bug_is_caught(mutant):
    assert any(_breaks(seed, mutant) for seed in range(SEEDS_MAX))


def _breaks(seed, mutant):
    world = World(seed, **mutant)
    try:
        world.run(STEPS)
        world.settle_down()
    except Exception as error:
        return breaks_a_promise(error)
    return False
