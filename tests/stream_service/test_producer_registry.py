"""Producer ids: given in the order of a log, never twice, whatever becomes of the node."""

import pytest

from broker.streams import producer_registry
from broker.streams.producer_registry import NAME_IDLE_MS, ProducerRegistry
from queues.stream.producers import ProducerId
from tests.durability.fake_log import FakeDisk, FakeLog


class World:
    def __init__(self):
        self.disk = FakeDisk()
        self.now_ms = 1000
        self.open()

    def open(self):
        self.log = FakeLog(self.disk)
        self.registry = self.log.machine = ProducerRegistry(self.log, lambda: self.now_ms)
        self.registry.recover(self.disk.checkpoint, self.disk.above_checkpoint())

    def ask(self, name=""):
        answers = []
        self.registry.allocate(name, answers.append)
        return answers

    def get(self, name=""):
        answers = self.ask(name)
        self.log.settle_down()
        assert len(answers) == 1
        return answers[0]


@pytest.fixture
def world():
    return World()


def test_nothing_is_given_before_it_is_durable(world):
    answers = world.ask()
    world.log.submit()
    assert answers == []
    world.log.commit()
    assert answers == [ProducerId(1, 0)]


@pytest.mark.parametrize("checkpoint_entries", [1, 2, 1000])
def test_no_id_is_given_twice_whatever_the_crashes(world, monkeypatch, checkpoint_entries):
    monkeypatch.setattr(producer_registry, "CHECKPOINT_ENTRIES", checkpoint_entries)
    given = []
    for life in range(6):
        given += [world.get(), world.get("worker")]
        lost = world.ask("worker")
        world.log.submit()
        world.log.crash(life % 2, list(world.disk.released) if life % 3 else [])
        assert lost == []
        world.open()
    assert len(set(given)) == 12
    named = given[1::2]
    assert {each.pid for each in named} == {named[0].pid}
    assert [each.epoch for each in named] == sorted(each.epoch for each in named)


def test_a_checkpoint_lets_the_entries_go(world, monkeypatch):
    monkeypatch.setattr(producer_registry, "CHECKPOINT_ENTRIES", 3)
    for _ in range(3):
        world.get("worker")
    assert world.disk.entries == {}
    world.open()
    assert world.get("worker") == ProducerId(1, 3)


def test_many_at_once_share_entries_and_are_answered_in_order(world, monkeypatch):
    monkeypatch.setattr(producer_registry, "ENTRY_NAMES_MAX", 2)
    asked = [world.ask() for _ in range(5)]
    world.log.settle_down()
    assert [answers[0].pid for answers in asked] == [1, 2, 3, 4, 5]
    assert len(world.disk.entries) == 3


def test_a_name_that_nobody_asked_for_in_long_gets_a_new_number(world):
    first = world.get("worker")
    world.now_ms += NAME_IDLE_MS
    assert world.get("worker") == first._replace(epoch=1)
    world.now_ms += NAME_IDLE_MS + 1
    assert world.get("worker") == ProducerId(2, 0)
    world.open()
    assert world.get("worker") == ProducerId(2, 1)


def test_too_many_names_are_told_so_and_the_nameless_go_on(world, monkeypatch):
    monkeypatch.setattr("queues.stream.producers.NAMES_MAX", 1)
    assert world.get("one") == ProducerId(1, 0)
    assert world.get("two") is None
    assert world.get("") == ProducerId(2, 0)
