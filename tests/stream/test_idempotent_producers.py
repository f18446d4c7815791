"""A partition with the real producer table: what it remembers, and for how long."""

import pytest

from broker.protocol.chunk import Producer
from queues.stream import partition_producers
from queues.stream.partition_producers import CROWDED_IDLE_MS, IdempotentProducers
from queues.stream.producers import IDLE_MS
from queues.stream.verdict import Verdict
from tests.stream.world import World


@pytest.fixture
def world():
    return World(make_producers=IdempotentProducers)


def told(receipt):
    return receipt.verdict, receipt.first_offset


def test_a_duplicate_is_told_where_it_is_also_after_restarts(world):
    first = Producer(3, 1, 0)
    world.publish(b"before")
    world.send(b"a", b"b", producer=first)
    world.send(b"c", producer=first._replace(sequence=2))
    world.settle()
    for where in ("in memory", "replayed", "in a checkpoint"):
        again = world.send(b"a", b"b", producer=first)
        part = world.send(b"b", producer=first._replace(sequence=1))
        world.settle()
        assert told(again) == (Verdict.DUPLICATE, 1), where
        assert told(part) == (Verdict.DUPLICATE, 2), where
        if where == "replayed":
            world.move()
        world.open()
    assert world.values() == [b"before", b"a", b"b", b"c"]


def test_what_is_refused_leaves_no_trace(world):
    place = Producer(3, 1, 0)
    world.send(b"a", producer=place)
    world.settle()
    receipts = [
        world.send(b"x", producer=place._replace(epoch=0, sequence=1)),
        world.send(b"y", producer=place._replace(sequence=2)),
        world.send(b"z", b"z", producer=place),
        world.send(b"b", producer=place._replace(sequence=1)),
    ]
    world.settle()
    assert [told(each) for each in receipts] == [
        (Verdict.FENCED, None),
        (Verdict.OUT_OF_ORDER, None),
        (Verdict.OUT_OF_ORDER, None),
        (Verdict.NEW, 1),
    ]
    assert world.partition.expected_sequence(place) == 2
    assert world.partition.expected_sequence(place._replace(epoch=2)) == 0
    assert world.values() == [b"a", b"b"]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_idle_producer_is_forgotten_by_the_leaders_clock(world, restarted):
    place = Producer(3, 1, 0)
    world.send(b"a", producer=place)
    world.settle()
    world.now_ms += IDLE_MS
    world.publish(b"anything")
    world.settle()
    assert len(world.producers) == 1
    world.now_ms += 1
    world.publish(b"anything")
    world.settle()
    if restarted:
        world.open()
    assert len(world.producers) == 0
    receipt = world.send(b"b", producer=place._replace(sequence=1))
    world.settle()
    assert receipt.verdict is Verdict.OUT_OF_ORDER, "it notices that it is not known any more"


def test_the_times_of_records_forget_nobody(world):
    world.send(b"a", producer=Producer(3, 1, 0))
    world.send(b"old", producer=Producer(4, 1, 0), at_ms=0)
    world.now_ms += 1000
    world.send(b"new", producer=Producer(5, 1, 0), at_ms=world.now_ms + 1000)
    world.settle()
    assert len(world.producers) == 3


def test_a_full_table_lets_others_in_when_some_were_idle_for_long_enough(world, monkeypatch):
    monkeypatch.setattr(partition_producers, "PRODUCERS_MAX", 2)
    monkeypatch.setattr("queues.stream.producers.PRODUCERS_MAX", 2)
    for number in (1, 2):
        world.send(b"%d" % number, producer=Producer(number, 0, 0))
        world.settle()
        world.now_ms += 1000
    refused = world.send(b"3", producer=Producer(3, 0, 0))
    known = world.send(b"1", producer=Producer(1, 0, 1))
    world.settle()
    assert told(refused) == (Verdict.FULL, None)
    assert known.verdict is Verdict.NEW
    world.now_ms += CROWDED_IDLE_MS - 999
    late = world.send(b"3", producer=Producer(3, 0, 0))
    world.settle()
    assert late.verdict is Verdict.NEW, "the second was idle for long enough, the first was not"
    again = world.send(b"1", producer=Producer(1, 0, 1))
    world.settle()
    assert again.verdict is Verdict.DUPLICATE
