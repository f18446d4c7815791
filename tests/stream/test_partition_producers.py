"""Chunks that publishers made: checked, stored once, and hidden while undecided."""

import pytest

from broker.protocol.chunk import (
    ABORT_MARK,
    COMMIT_MARK,
    TRANSACTIONAL,
    Producer,
    encode_chunk,
    encode_empty,
)
from broker.protocol.stream_errors import CorruptChunkError
from queues.stream.made_chunks import AHEAD_MS_MAX
from queues.stream.verdict import Verdict
from tests.stream.fakes import Receipt
from tests.stream.world import World


@pytest.fixture
def world():
    return World()


def test_a_chunk_that_a_publisher_made_is_stored_as_it_is(world):
    world.publish(b"a")
    receipt = world.send(b"b", b"c", producer=Producer(3, 1, 0))
    world.publish(b"d")
    world.settle()
    assert receipt.first_offset == 1
    chunks = world.read(0).chunks
    assert [chunk.header.producer for chunk in chunks] == [None, Producer(3, 1, 0), None]
    assert world.values() == [b"a", b"b", b"c", b"d"]


def bad_chunks():
    good = encode_chunk([None], [b"v"], [b""], 5000)
    yield "cut short", good[:-1]
    yield "with more behind it", good + b"x"
    yield "flipped", good[:-9] + b"w" + good[-8:]
    yield "with gaps", encode_chunk([None], [b"v"], [b""], 5000, span=2, relative=[1])
    yield "from the future", encode_chunk([None], [b"v"], [b""], 5001 + AHEAD_MS_MAX)
    yield "too large", encode_chunk([None], [bytes(9_000_000)], [b""], 5000)


@pytest.mark.parametrize("chunk", [c for _, c in bad_chunks()], ids=[n for n, _ in bad_chunks()])
def test_a_badly_made_chunk_is_refused_before_it_gets_anywhere(world, chunk):
    with pytest.raises(CorruptChunkError):
        world.partition.append_chunk(chunk, None)
    assert not world.log.dirty


def test_a_chunk_sent_twice_is_stored_once_and_confirmed_twice_also_after_a_restart(world):
    first = world.send(b"a", b"b", producer=Producer(3, 1, 0))
    again = world.send(b"a", b"b", producer=Producer(3, 1, 0))
    world.settle()
    assert (first.verdict, again.verdict) == (Verdict.NEW, Verdict.DUPLICATE)
    world.open()
    replayed = world.send(b"a", b"b", producer=Producer(3, 1, 0))
    world.move()
    world.open()
    checkpointed = world.send(b"a", b"b", producer=Producer(3, 1, 0))
    world.settle()
    assert replayed.verdict is checkpointed.verdict is Verdict.DUPLICATE
    assert checkpointed.first_offset is None
    assert world.values() == [b"a", b"b"]


def test_a_chunk_that_is_fenced_or_out_of_order_is_not_stored(world):
    world.send(b"a", producer=Producer(3, 2, 0))
    old = world.send(b"x", producer=Producer(3, 1, 0))
    early = world.send(b"y", producer=Producer(3, 2, 5))
    world.settle()
    assert (old.verdict, early.verdict) == (Verdict.FENCED, Verdict.OUT_OF_ORDER)
    assert world.values() == [b"a"]


def test_readers_of_what_is_committed_stop_at_an_open_transaction_and_skip_an_aborted_one(world):
    one, two = Producer(3, 1, 0), Producer(4, 1, 0)
    world.publish(b"plain")
    world.send(b"t1", b"t2", producer=one, flags=TRANSACTIONAL)
    world.send(b"u1", producer=two, flags=TRANSACTIONAL)
    world.publish(b"later")
    for where in ("in memory", "in a segment"):
        world.settle()
        assert world.values() == [b"plain"], where
        assert world.values(committed=False) == [b"plain", b"t1", b"t2", b"u1", b"later"]
        assert world.partition.stable_end == 1
        world.move()
    world.mark(ABORT_MARK, one._replace(sequence=2))
    world.settle()
    assert world.values() == [b"plain"]
    world.mark(COMMIT_MARK, two._replace(sequence=1))
    for where in ("in memory", "in a segment", "after a restart"):
        world.settle()
        assert world.values() == [b"plain", b"u1", b"later"], where
        assert world.values(3) == [b"u1", b"later"]
        world.move()
        if where == "in a segment":
            world.open()


def test_an_empty_chunk_of_a_publisher_takes_its_offsets(world):
    receipt = Receipt()
    world.partition.append_chunk(encode_empty(1, world.now_ms), receipt)
    world.publish(b"a")
    world.settle()
    assert receipt.first_offset == 0
    assert world.read(0).chunks[-1].record(0).offset == 1
