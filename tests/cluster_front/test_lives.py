"""Whatever happens to nodes and links: nothing confirmed is lost, nothing is held for ever."""

import pytest

from tests.cluster_front.lives import QUIET, ROUGH, Life


@pytest.mark.parametrize("seed", range(12))
def test_with_one_leader(seed):
    life = Life(seed, QUIET)
    life.run(1500)
    life.finish()
    life.check()


@pytest.mark.parametrize("seed", range(40))
def test_with_leaders_links_and_nodes_that_come_and_go(seed):
    life = Life(seed, ROUGH)
    life.run(1500)
    life.finish()
    life.check()


@pytest.mark.parametrize("seed", range(10))
def test_where_not_every_node_is_a_member(seed):
    life = Life(seed, ROUGH, members=(1, 2))
    life.run(1500)
    life.finish()
    life.check()
