"""A run of publishes makes the records that its messages would make one by one."""

from zlib import crc32

import pytest

from broker.protocol.runs import ContentRun
from queues.stream.publishing import divide, records_of, records_of_run
from tests.channel.fakes import batches
from tests.stream.scene import Scene, messages, publishes

BODIES = [b"%02d" % number for number in range(20)]
KINDS = {
    "no key": {},
    "a routing key": {"exchange": "x", "key": "k"},
    "an empty routing key": {"exchange": "x", "key": ""},
    "a partition key": {"headers": {"x-partition-key": "p", "n": 1}},
    "a partition key that is a number": {"headers": {"x-partition-key": 7}},
    "a tombstone": {"headers": {"x-partition-key": "p", "x-tombstone": True}},
    "other properties": {"delivery_mode": 2, "content_type": "text/plain", "app_id": "a"},
}


def run_of(**kind):
    (run,) = batches(*publishes(*BODIES, **kind))
    assert isinstance(run, ContentRun)
    return run


def address_of(run):
    return run.args[2:-1]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_run_makes_the_same_records_for_the_same_partitions(kind, partitions):
    run = run_of(**kind)
    records = records_of_run(run, address_of(run))
    assert records == records_of(messages(*BODIES, **kind))
    shares = dict(divide(records, partitions, 1))
    assert sum(len(share.keys) for share in shares.values()) == len(BODIES)
    for number, share in shares.items():
        assert {crc32(key) % partitions for key in share.keys if key is not None} <= {number}
    if records.keys[0] is None:
        assert [value for share in shares.values() for value in share.values] == [
            value for start in range(partitions) for value in BODIES[start::partitions]
        ]


class Refusals:
    def __init__(self):
        self.told = []

    def stored(self, refused):
        self.told.append([message.sequence for message in refused])


def test_a_run_is_read_as_it_was_published_and_its_publisher_told_once():
    scene = Scene(partitions=3)
    run, receipt = run_of(), Refusals()
    scene.stream.publish_run(run, address_of(run), 5, receipt)
    assert receipt.told == []
    scene.settle_down()
    assert receipt.told == [[]]
    reader = scene.consume(prefetch=100)
    scene.settle_down()
    assert sorted(body for _, _, body in reader.sink.got) == BODIES


def test_a_damaged_stream_refuses_the_whole_run():
    scene = Scene()
    scene.stream.damage("a test")
    run, receipt = run_of(), Refusals()
    scene.stream.publish_run(run, address_of(run), 5, receipt)
    assert receipt.told == [list(range(5, 5 + len(BODIES)))]


def test_a_run_that_was_on_its_way_when_the_partition_ceased_to_lead_is_refused():
    scene = Scene()
    run, receipt = run_of(), Refusals()
    scene.stream.publish_run(run, address_of(run), 5, receipt)
    scene.stream.partitions[0].follow()
    assert receipt.told == [list(range(5, 5 + len(BODIES)))]
