"""A stream and its readers, as records come, are moved, are taken by retention and compacted."""

from dataclasses import replace
from zlib import crc32

import pytest

from queues.stream.options import StreamOptions
from tests.stream.scene import Scene, Walk, messages

STORAGE = {
    "plain": StreamOptions(segment_bytes=3000),
    "with retention": StreamOptions(segment_bytes=1500, max_bytes=4000),
    "with a short age": StreamOptions(segment_bytes=1500, max_age_ms=150),
    "compacted": StreamOptions(segment_bytes=1500, compact=True, tombstone_ms=10),
}


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("seed", range(12))
def test_every_reader_gets_every_partition_in_order_and_whole(storage: str, seed: int) -> None:
    walk = Walk(seed, STORAGE[storage], partitions=1 + seed % 3)
    for _ in range(500):
        walk.step()
    walk.finish()
    moved = [one for one in walk.scene.stream.partitions if one.segments()[0].end]
    assert moved, "nothing ever left the tail"


def numbers(consumer):
    return [int(body.split()[0]) for _, _, body in consumer.sink.got]


def records(count, size=50):
    return [b"%d " % number + bytes(size) for number in range(count)]


def test_a_reader_whose_place_retention_took_goes_on_with_the_oldest() -> None:
    scene = Scene(1, StreamOptions(segment_bytes=1000, max_bytes=2000))
    scene.publish(*records(20))
    reader = scene.consume(prefetch=5)
    scene.settle_down()
    assert numbers(reader) == [0, 1, 2, 3, 4]
    for _ in range(20):
        scene.publish(*records(20))
        scene.move_all()
    first = scene.stream.partitions[0].first_offset
    assert first > 100
    while reader.sink.unacked:
        scene.ack(reader)
        scene.settle_down()
    offsets = [offset for _, offset, _ in reader.sink.got]
    held = [offset for offset in offsets if offset < first]  # what it had read before
    assert held == list(range(len(held)))
    assert offsets[len(held) :] == list(range(first, 420))


def test_a_beginning_that_is_gone_means_the_oldest() -> None:
    scene = Scene(1, StreamOptions(segment_bytes=1000, max_bytes=2000))
    for _ in range(10):
        scene.publish(*records(20))
        scene.move_all()
    first = scene.stream.partitions[0].first_offset
    assert first > 3
    reader = scene.consume(prefetch=1, offset=3)
    scene.settle_down()
    assert [offset for _, offset, _ in reader.sink.got] == [first]


def test_compaction_leaves_the_last_of_each_key_to_a_reader_that_comes_later() -> None:
    scene = Scene(1, StreamOptions(segment_bytes=600, compact=True, tombstone_ms=10**9))
    early = scene.consume(prefetch=3)
    for number in range(40):
        key = f"k{number % 4}"
        scene.publish(b"%d" % number, headers={"x-partition-key": key})
        scene.move_all()
    for number in range(40, 60):
        scene.publish(b"%d " % number + bytes(60))
        scene.move_all()
    late = scene.consume(prefetch=1000)
    for _ in range(100):
        scene.ack(early)
        scene.tick()
        scene.settle_down()
    seen = [offset for _, offset, _ in late.sink.got]
    assert {36, 37, 38, 39} <= set(seen)
    assert len(seen) < 60, "nothing was compacted"
    assert [int(body.split()[0]) for _, _, body in late.sink.got] == seen
    assert [offset for _, offset, _ in early.sink.got] == sorted({o for _, o, _ in early.sink.got})


def test_a_tombstone_is_a_record_without_a_value() -> None:
    scene = Scene(1, StreamOptions(compact=True))
    scene.publish(b"ignored", headers={"x-partition-key": "k", "x-tombstone": True})
    scene.publish(b"kept", headers={"x-partition-key": "k", "x-tombstone": False})
    scene.publish(b"kept too", headers={"x-partition-key": "k", "a": "x-tombstone"})
    reader = scene.consume()
    scene.settle_down()
    assert [body for _, _, body in reader.sink.got] == [None, b"kept", b"kept too"]


KEYS = {
    crc32(key.encode()) % 3: key for key in "abcdefghijklmnop"
}  # one for each of three partitions


def test_partitions_give_in_turn_and_a_slice_each() -> None:
    scene = Scene(3)
    for key, count in ((KEYS[0], 60), (KEYS[1], 9), (KEYS[2], 9)):
        scene.publish(*records(count, 0), headers={"x-partition-key": key})
    for log in scene.logs:
        log.settle_down()
    assert [one.next_offset for one in scene.stream.partitions] == [60, 9, 9]
    reader = scene.consume(prefetch=1)
    while reader.sink.unacked:
        scene.ack(reader)
    turns = [partition for partition, _ in reader.sink.slices]
    assert turns == [0, 1, 2] * 9 + [0] * 51


def test_a_partition_that_has_to_be_read_from_disk_is_not_forgotten() -> None:
    scene = Scene(3)
    for key, count in ((KEYS[0], 1000), (KEYS[1], 20), (KEYS[2], 20)):
        scene.publish(*records(count, 30), headers={"x-partition-key": key})
    scene.move_all()
    reader = scene.consume(prefetch=3)
    while len(reader.sink.got) < 200:
        scene.settle_down()
        scene.ack(reader)
    got = [partition for partition, _, _ in reader.sink.got]
    assert (got.count(1), got.count(2)) == (20, 20)


def test_a_reader_that_acks_nothing_costs_no_reads() -> None:
    scene = Scene(1, StreamOptions(segment_bytes=1000))
    for _ in range(30):
        scene.publish(*records(20))
        scene.move_all()
    reader = scene.consume(prefetch=3)
    scene.settle_down()
    assert len(reader.sink.got) == 3
    disk = scene.disks[0]
    disk.log.clear()
    scene.publish(*records(3))
    scene.settle_down()
    assert not [operation for operation, _ in disk.log if operation == "read"]


def test_deleting_a_stream_answers_publishers_and_takes_the_files_once_that_is_durable() -> None:
    scene = Scene(2)
    scene.publish(*records(50))
    scene.move_all()
    reader = scene.consume()
    receipt = scene.publish(b"on its way")
    assert any(disk.list() for disk in scene.disks)
    partitions = list(scene.stream.partitions)
    scene.stream.delete()
    assert (receipt.told, reader.sink.cancelled) == (1, ["c"])
    assert scene.forgotten == partitions
    scene.off_loop.run()
    assert any(disk.list() for disk in scene.disks), "not before the definitions say so"
    for action in scene.context.waiting:
        action()
    scene.off_loop.run()
    assert not any(disk.list() for disk in scene.disks)
    assert scene.publish(b"nobody is there").told == 1


def test_a_stream_that_never_had_a_record_has_no_file() -> None:
    scene = Scene(3)
    scene.consume()
    scene.tick()
    scene.settle_down()
    assert not any(disk.log for disk in scene.disks)


def test_publishers_are_held_back_when_a_partition_cannot_put_away_what_it_has() -> None:
    scene = Scene(1)
    while not scene.crowds:
        scene.publish(*records(20))
        for log in scene.logs:
            log.settle_down()
    assert scene.crowds[0].congested
    scene.settle_down()
    assert not scene.crowds[0].congested


def test_statistics_tell_where_everybody_stands() -> None:
    scene = Scene(2)
    scene.publish(*records(11))
    scene.settle_down()
    reader = scene.consume(prefetch=4, partitions=[1])
    told = scene.stream.statistics()
    assert [(p.first_offset, p.next_offset) for p in told.partitions] == [(0, 6), (0, 5)]
    assert told.messages == scene.stream.ready == 11
    assert told.size_bytes > 11 * 50
    assert [(one.tag, one.positions, one.unacked) for one in told.readers] == [("c", {1: 4}, 4)]
    assert reader.credit.used == scene.stream.unacked == 4
    assert reader.statistics().lag == 1


def test_a_batch_is_one_append_for_each_partition() -> None:
    scene = Scene(3)
    entries = []
    for log in scene.logs:
        log.on_submit = entries.append
    scene.publish(*records(30))
    scene.settle_down()
    assert len(entries) == 3


def test_messages_are_kept_with_address_and_properties() -> None:
    scene = Scene(1)
    (message,) = messages(b"body", exchange="amq.topic", key="a.b")
    scene.stream.publish([message], None)
    scene.settle_down()
    found = []
    scene.stream.partitions[0].reader.read(0, 1000, found.append)
    (record,) = list(found[0].chunks[0])
    assert (record.key, record.value) == (b"a.b", b"body")
    assert record.properties.startswith(b"\x09amq.topic\x03a.b")


def test_retention_follows_a_change_of_options_at_the_next_tick() -> None:
    scene = Scene(1)
    for _ in range(10):
        scene.publish(*[bytes(300)] * 10)
        scene.move_all()
    (partition,) = scene.stream.partitions
    assert partition.first_offset == 0
    narrow = replace(scene.options.storage, max_bytes=1)
    scene.stream.configure(replace(scene.options, storage=narrow))
    scene.move_all()
    assert partition.first_offset > 0
    assert scene.touches[-1] is partition


def test_a_partition_at_rest_holds_no_file_open_and_goes_on_when_it_is_used() -> None:
    scene = Scene(1, StreamOptions(segment_bytes=1000))
    for _ in range(5):
        scene.publish(*records(20))
        scene.move_all()
    reader = scene.consume(prefetch=1000)
    scene.settle_down()
    scene.tick()
    scene.settle_down()
    (partition,) = scene.stream.partitions
    assert not [segment for segment in partition._segments._segments if segment.file is not None]
    scene.publish(*records(20))
    scene.move_all()
    assert [offset for _, offset, _ in reader.sink.got] == list(range(120))
    again = scene.consume(prefetch=1000)
    scene.settle_down()
    assert again.sink.got == reader.sink.got


def test_a_filter_that_lets_little_through_leaves_time_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queues.stream.subscription.LOOKED_AT_MAX", 15)
    scene = Scene(1)
    for number in range(10):
        scene.publish(*records(9, 0))
        scene.publish(b"%d" % number, headers={"wanted": True})
        for log in scene.logs:
            log.settle_down()
    reader = scene.consume(prefetch=100, filter={"wanted": True})
    assert len(reader.sink.got) < 10, "all in one go"
    scene.context.advance(20)
    assert numbers(reader) == list(range(10))
    assert [offset for _, offset, _ in reader.sink.got] == list(range(9, 100, 10))


def test_a_damaged_stream_takes_and_gives_nothing_and_tells_its_readers() -> None:
    scene = Scene(2)
    scene.publish(*records(10))
    scene.settle_down()
    reader = scene.consume(prefetch=3)
    scene.stream.damage("a bad sector")
    assert reader.sink.cancelled == ["c"]
    refused = []
    scene.stream.publish(messages(b"x"), type("Refusing", (), {"stored": refused.extend})())
    assert len(refused) == 1
    assert (scene.stream.ready, scene.stream.statistics().partitions) == (0, ())
    scene.ack(reader)
    assert len(reader.sink.got) == 3
