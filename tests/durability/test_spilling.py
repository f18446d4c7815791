"""Paging out on threads and files: a few at a time, and never at the price of a message."""

from functools import partial

import pytest
import trio
import trio.testing

from broker.internal_errors import InternalErrors
from broker.spilling import WRITES_MAX, Spilling
from queues.storage.spill_files import SpillFiles
from tests.channel.fakes import stored_message
from tests.queues.fakes import FakeContext, FakeSink, consume, new_queue
from tests.support.simdisk import SimDisk, input_output_error

SIZE = 20_000


class Place:
    """Files on a simulated disk. Work for a thread waits until `work` lets it be done."""

    def __init__(self, nursery):
        self.disk = SimDisk()
        self.failures = []
        self.waiting = []
        self.flushes = 0
        self.spilling = Spilling(
            SpillFiles(self.disk),
            self._off_loop,
            self._flush,
            self.failures.append,
            InternalErrors(),
        )
        self._nursery = nursery

    async def start(self):
        await self._nursery.start(self.spilling.run)
        return self

    def _flush(self):
        self.flushes += 1

    async def _off_loop(self, work):
        gate = trio.Event()
        self.waiting.append(gate)
        await gate.wait()
        return work()

    def look(self, *queues, short=True, disk_full=False):
        self.spilling.look(queues, short=short, disk_full=disk_full)

    async def work(self):
        """Let threads do all that there is to do."""
        await trio.testing.wait_all_tasks_blocked()
        while self.waiting:
            self.waiting.pop(0).set()
            await trio.testing.wait_all_tasks_blocked()


def numbered(number):
    """A large message, told from others by its address."""
    message = stored_message(bytes(SIZE))
    message.address = b"%d" % number
    return message


def fill(queue, first, count):
    queue.publish([numbered(first + n) for n in range(count)], None)


async def test_a_long_queue_waits_on_disk_and_is_delivered_in_order(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)
    place.look(queue)
    await place.work()
    assert place.spilling.live_bytes > 1_500_000
    fill(queue, 100, 50)
    await place.work()
    assert (queue.ready, queue.ready_bytes) == (150, 150 * SIZE)
    sink = FakeSink()
    consume(queue, sink, no_ack=True)
    assert queue.is_loading
    await place.work()
    assert sink.names == list(range(150))
    assert place.spilling.live_bytes == 0
    assert place.flushes > 0


async def test_a_get_waits_for_a_message_on_its_way_from_the_disk(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)
    place.look(queue)
    await place.work()
    taken = []

    def get():
        if queue.is_loading:
            queue.when_loaded(get)
        elif (message := queue.get(holder)) is not None:
            taken.append(int(message.address))
            get()

    holder = consume(new_queue(FakeContext()), FakeSink(), no_ack=True)
    get()
    assert len(taken) < 10
    await place.work()
    assert taken == list(range(100))


async def test_few_writes_are_under_way_at_once_however_many_queues_there_are(nursery):
    place = await Place(nursery).start()
    queues = [new_queue(FakeContext()) for _ in range(20)]
    for queue in queues:
        fill(queue, 0, 20)
    place.look(*queues)
    most = 0
    await trio.testing.wait_all_tasks_blocked()
    while place.waiting:
        most = max(most, len(place.waiting))
        place.waiting.pop(0).set()
        await trio.testing.wait_all_tasks_blocked()
    assert most == WRITES_MAX
    assert place.spilling.live_bytes > 20 * 100_000


async def test_queues_without_messages_to_spare_are_left_alone(nursery):
    place = await Place(nursery).start()
    short, by_priority = new_queue(FakeContext()), new_queue(FakeContext(), max_priority=3)
    fill(short, 0, 3)
    fill(by_priority, 0, 100)
    place.look(short, by_priority)
    await place.work()
    assert place.spilling.live_bytes == 0
    assert by_priority.ready == 100


async def test_nothing_is_written_while_the_disk_is_short_too(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)
    place.look(queue, disk_full=True)
    await place.work()
    assert place.spilling.live_bytes == 0
    place.look(queue)
    await place.work()
    assert place.spilling.live_bytes > 0


async def test_a_disk_without_room_costs_no_message_and_is_asked_again(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)
    place.disk.capacity_bytes = 0
    place.look(queue)
    await place.work()
    assert not place.spilling.wanted
    assert place.failures == []
    place.disk.capacity_bytes = 1 << 40
    place.look(queue)
    await place.work()
    assert place.spilling.live_bytes > 0
    sink = FakeSink()
    consume(queue, sink, no_ack=True)
    await place.work()
    assert sink.names == list(range(100))


@pytest.mark.parametrize("operation", ["write", "read"])
async def test_a_disk_that_fails_is_told(nursery, operation):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)

    def fault(what, name):
        if what == operation:
            input_output_error(what, name)

    place.disk.fault = fault
    place.look(queue)
    await place.work()
    consume(queue, FakeSink(), no_ack=True)
    await place.work()
    assert "failed" in str(place.failures[0])


@pytest.mark.parametrize("end", ["purge", "delete"])
async def test_a_queue_that_ends_leaves_nothing_on_disk(nursery, end):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    fill(queue, 0, 100)
    place.look(queue)
    await place.work()
    consume(queue, FakeSink(limit=20), prefetch=20)  # so that a read is under way
    ready = queue.ready
    assert getattr(queue, end)() == ready
    await place.work()
    assert place.spilling.live_bytes == 0
    assert queue.ready == 0


async def test_messages_that_expire_on_disk_expire_in_their_turn(nursery):
    place = await Place(nursery).start()
    context = FakeContext()
    queue = new_queue(context, message_ttl_ms=50)
    fill(queue, 0, 100)
    place.look(queue)
    await place.work()
    context.now += 40
    fill(queue, 100, 1)
    context.advance(20)
    await place.work()
    assert queue.ready == 1
    assert place.spilling.live_bytes == 0


async def test_a_length_limit_drops_the_oldest_as_they_come_back(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext(), max_length=100)
    fill(queue, 0, 100)
    place.look(queue)
    await place.work()
    for first in range(100, 200):
        fill(queue, first, 1)
        await place.work()
    assert queue.ready == 100
    sink = FakeSink()
    consume(queue, sink, no_ack=True)
    await place.work()
    assert sink.names == list(range(100, 200))


async def test_a_queue_that_gets_another_order_brings_everything_back_first(nursery):
    place = await Place(nursery).start()
    queue = new_queue(FakeContext())
    for number in range(100):
        message = numbered(number)
        message.priority = number % 2
        queue.publish([message], None)
    place.look(queue)
    await place.work()
    assert place.spilling.live_bytes > 0
    queue.configure(new_queue(FakeContext(), max_priority=1, priority_aging_ms=10**9).options)
    sink = FakeSink()
    consume(queue, sink, no_ack=True)
    await place.work()
    assert sink.names == [*range(1, 100, 2), *range(0, 100, 2)]


async def test_only_what_was_asked_for_is_told(nursery):
    place = await Place(nursery).start()
    told = []
    place.look()
    place.spilling.write(b"one", partial(told.append))
    place.spilling.write(b"two", partial(told.append))
    await place.work()
    read = []
    for at in told:
        place.spilling.read(at, 3, partial(lambda at, data: read.append((at, data)), at))
    await place.work()
    assert sorted(at for at, _ in read) == sorted(told)
    assert {data for _, data in read} == {b"one", b"two"}
