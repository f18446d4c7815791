"""Whole groups under faults: fixed seeds of the simulation and of the walks."""

import pytest

from tests.raft.sim import Simulation
from tests.raft.walk import Walk


@pytest.mark.parametrize("first", range(1, 101, 25))
def test_groups_keep_every_promise_under_faults_and_agree_once_healed(first):
    for seed in range(first, first + 25):
        Simulation(seed).run()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_groups_keep_every_promise_in_any_order_of_events(first):
    for seed in range(first, first + 100):
        Walk(seed).run()


def test_a_seed_replays_the_same_run():
    def trace(seed):
        lines = []
        Simulation(seed, trace=lines.append).run()
        return lines

    first = trace(7)
    assert len(first) > 100
    assert trace(7) == first


def test_the_simulation_meets_what_it_is_for():
    """Faults that never happen prove nothing: terms change, members fall behind and catch up."""
    runs = [Simulation(seed).run() for seed in range(200, 215)]
    assert sum(len(run.ledger.confirmed) for run in runs) > 1000
    assert sum(len(run.ledger.leaders) for run in runs) > 25
    assert sum(member.boots for run in runs for member in run.members.values()) > 80
    assert sum(len(run.ledger.configs) for run in runs) > 40
    assert sum(len(run.operator.lost) for run in runs) > 0
    assert {run.links is None for run in runs} == {True, False}
    assert sum(run.operator.leaders_removed for run in runs) > 0
    assert any(
        member.disk.durable.snapshot.config.learners
        for run in runs
        for member in run.members.values()
    )
    assert any(
        member.disk.durable.snapshot.index for run in runs for member in run.members.values()
    )
