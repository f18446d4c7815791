"""What is told of connections, channels, consumers, queues and the node is what they do."""

from broker.durability import Durability
from queues.storage.options import StoreOptions
from tests.connection.fakes import Place
from tests.support.frames import Basic
from tests.support.simdisk import SimDisk


async def test_a_connection_and_its_channels_tell_what_they_hold(nursery):
    place = Place(nursery)
    client = await place.client(channels=2)
    fresh = client.connection.statistics()
    assert (fresh.state, fresh.channels, fresh.unacked, fresh.publishes) == ("running", 2, 0, False)
    assert (fresh.kept_back, fresh.kept_back_bytes, fresh.blocked) == (0, 0, None)
    assert (fresh.outbox_bytes, fresh.congested, fresh.reading) == (0, False, True)
    client.declare("q")
    client.publish("q", *[b"x"] * 10)
    client.send(Basic.Qos(prefetch_count=50, global_=True), 2)
    client.consume("q", "c", prefetch=3, channel=2)
    await client.rest()
    after = client.connection.statistics()
    assert (after.publishes, after.unacked) == (True, 3)
    first, second = client.connection.channel_statistics()
    assert (first.number, first.unacked, first.consumers) == (1, 0, ())
    assert (second.prefetch, second.prefetch_global, second.unacked) == (3, 50, 3)
    (consumer,) = second.consumers
    assert (consumer.tag, consumer.queue, consumer.no_ack) == ("c", "q", False)
    assert (consumer.prefetch, consumer.unacked, consumer.lag) == (3, 3, 7)


async def test_a_connection_tells_that_its_client_takes_nothing(nursery):
    place = Place(nursery)
    client, publisher = await place.client(), await place.client()
    client.declare("q")
    client.consume("q", no_ack=True)
    await client.rest()
    client.transport.deaf = True
    publisher.publish("q", *[bytes(50_000)] * 20)
    await publisher.rest()
    told = client.connection.statistics()
    assert told.congested
    assert told.outbox_bytes > 500_000


async def test_a_blocked_publisher_is_told_from_one_that_only_could_be(nursery):
    place = Place(nursery)
    publisher, consumer = await place.client(), await place.client()
    publisher.declare("q")
    await publisher.rest()
    place.node.raise_alarm("memory", "low on memory")
    place.node.raise_alarm("disk", "low on disk")
    publisher.publish("q", *[bytes(50_000)] * 600)
    await publisher.rest()
    blocked = publisher.connection.statistics()
    assert blocked.blocked == "low on disk"
    assert blocked.kept_back > 0
    assert blocked.kept_back_bytes > 10_000_000
    assert not blocked.reading
    idle = consumer.connection.statistics()
    assert (idle.blocked, idle.kept_back, idle.reading) == (None, 0, True)
    node = place.node.statistics()
    assert node.alarms == {"memory": "low on memory", "disk": "low on disk"}
    assert node.kept_back_bytes == blocked.kept_back_bytes < node.kept_back_bytes_max
    assert (node.connections, node.queues, node.storage) == (2, 1, None)
    assert node.memory_limit_bytes > 0
    place.node.clear_alarm("memory")
    place.node.clear_alarm("disk")
    await publisher.rest()
    assert place.node.statistics().alarms == {}
    assert publisher.connection.statistics().kept_back_bytes == 0


async def test_a_publisher_over_its_rate_is_told(nursery, autojump_clock):
    place = Place(nursery, publish_rate=5)
    client = await place.client()
    client.declare("q")
    client.publish("q", *[b"x"] * 8)
    await client.rest()
    told = client.connection.statistics()
    assert (told.publish_rate, told.over_rate, told.kept_back, told.blocked) == (5, True, 1, None)


async def test_a_queue_tells_where_its_messages_are(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    client.publish("q", b"12345", b"678", b"9")
    client.consume("q", prefetch=1)
    await client.rest()
    told = place.node.vhosts["/"].queues["q"].statistics()
    assert (told.ready, told.ready_bytes, told.unacked, told.consumers) == (2, 4, 1, 1)
    assert (told.in_memory, told.on_disk, told.pending) == (2, 0, 0)


async def test_a_durable_queue_tells_what_is_pending_and_what_is_only_on_disk(nursery):
    place = Place(nursery)
    options = StoreOptions(wal_file_bytes=64 * 1024, reserve_bytes=8 * 1024, free_bytes_min=1000)
    durability = Durability(place.node, disk=SimDisk(), threaded=False, options=options)
    durability.open()
    await nursery.start(durability.run)
    durability._budget.limit = 0
    client = await place.client()
    client.declare("q", durable=True)
    await client.rest()
    durability.host.store.flush()
    await client.rest()
    client.publish("q", *[bytes(100)] * 5000)
    await client.rest()
    queue = place.node.vhosts["/"].queues["q"]
    assert (queue.statistics().pending, queue.statistics().ready) == (5000, 0)
    storage = place.node.statistics().storage
    assert storage.pending_bytes > 500_000
    assert storage.pending_bytes < storage.pending_bytes_max
    assert storage.disk_free_bytes > 1 << 39
    assert (storage.disk_free_bytes_min, storage.spilled_bytes) == (1000, 0)
    for _ in range(20):
        durability.host.store.flush()
        await client.rest()
    told = queue.statistics()
    assert (told.pending, told.ready) == (0, 5000)
    assert told.in_memory + told.on_disk == 5000
    assert told.on_disk > 1000
    storage = place.node.statistics().storage
    assert storage.pending_bytes == 0
    assert storage.hot_bytes_max == 0


async def test_a_queue_that_memory_has_no_room_for_tells_that_it_is_on_disk(nursery):
    place = Place(nursery)
    durability = Durability(place.node, disk=SimDisk(), threaded=False)
    durability.open()
    await nursery.start(durability.run)
    client = await place.client()
    client.declare("q")
    client.publish("q", *[bytes(10_000)] * 100)
    await client.rest()
    normal = durability._budget.limit
    durability.page_out(True)
    await client.rest()
    told = place.node.vhosts["/"].queues["q"].statistics()
    assert told.ready == told.in_memory + told.on_disk == 100
    assert told.on_disk > 50
    storage = place.node.statistics().storage
    assert storage.spilled_bytes > 500_000
    assert storage.hot_bytes_max < normal
    durability.page_out(False)
    assert place.node.statistics().storage.hot_bytes_max == normal
    client.consume("q", no_ack=True)
    await client.rest()
    assert len(client.delivered()) == 100
    assert place.node.statistics().storage.spilled_bytes == 0
