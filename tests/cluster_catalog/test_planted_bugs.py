"""Walks through the life of a cluster: sound, and with mistakes that are easily made."""

import pytest

from broker.channel import shared_topology
from broker.cluster import catalog, checkpoint
from broker.cluster.catalog import Catalog
from broker.cluster.requests import Requests
from broker.cluster.state import Asked, State
from tests.cluster_catalog.walk import walk
from tests.support.promises import breaks_a_promise

SEEDS = 140


def requests_are_made_as_often_as_they_come(monkeypatch):
    original = State.apply_asked

    def apply_asked(self, node, boot, number, low, change):
        asked = self.asked.get(node)
        if asked is not None:
            self.asked[node] = Asked(asked.boot, 0, asked.results)
        return original(self, node, boot, number, low, change)

    monkeypatch.setattr(State, "apply_asked", apply_asked)


def reads_do_not_ask_the_leader(monkeypatch):
    monkeypatch.setattr(Requests, "read", lambda self, then: then(None))


def what_is_not_found_here_is_not_asked_for(monkeypatch):
    def unasked(channel, method, then):
        then()

    monkeypatch.setattr(shared_topology, "_read", unasked)


def a_deposed_leader_keeps_what_it_was_asked(monkeypatch):
    def follow(self):
        self._leads = False

    monkeypatch.setattr(Catalog, "follow", follow)


def an_installed_state_answers_nobody(monkeypatch):
    monkeypatch.setattr(Requests, "made_unseen", lambda *_: None)


def bindings_are_not_in_checkpoints(monkeypatch):
    monkeypatch.setattr(checkpoint, "_bindings", lambda _: iter(()))


def checkpoints_forget_what_was_asked(monkeypatch):
    def without(state):
        return (change for change in checkpoint.changes_of(state) if change[0] != "asked")

    monkeypatch.setattr(catalog, "changes_of", without)


PLANTED = [
    requests_are_made_as_often_as_they_come,
    reads_do_not_ask_the_leader,
    what_is_not_found_here_is_not_asked_for,
    a_deposed_leader_keeps_what_it_was_asked,
    an_installed_state_answers_nobody,
    bindings_are_not_in_checkpoints,
    checkpoints_forget_what_was_asked,
]


@pytest.mark.parametrize("seed", range(0, SEEDS, 20))
def test_without_them_all_promises_are_kept(seed):
    for one in range(seed, seed + 20):
        print("seed", one)
        walk(one)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_it_is_found(plant, monkeypatch):
    plant(monkeypatch)
    assert any(_breaks(seed) for seed in range(SEEDS))


def _breaks(seed):
    try:
        walk(seed)
    except Exception as error:
        return breaks_a_promise(error)
    return False
