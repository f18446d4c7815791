"""Leases that end on a channel: whom they make room for."""

from broker.channel.deliveries import Deliveries
from broker.vhost import VHost
from queues.consumers import Consumer
from tests.channel.fakes import FakeLink, declare, stored_message
from tests.queues.fakes import FakeContext


def test_a_lease_that_ends_makes_room_for_other_consumers_of_the_channel():
    clock = FakeContext()
    link = FakeLink(vhost=VHost("/", clock))
    deliveries = Deliveries(1, link, lambda consumer: None)
    deliveries.credit.limit = 1
    leased = declare(link, "leased", x_visibility_timeout=10, x_retry_delay=1000)
    other = declare(link, "other")
    for queue in (leased, other):
        consumer = deliveries.consumers[queue.name] = Consumer(queue.name, queue, deliveries)
        queue.add_consumer(consumer)
        queue.publish([stored_message()], None)
    assert [consumer.tag for consumer, _ in deliveries.unacked.values()] == ["leased"]
    clock.advance(10)
    assert [consumer.tag for consumer, _ in deliveries.unacked.values()] == ["other"]
    assert (leased.unacked, other.unacked) == (0, 1)


class Counted:
    """A queue that counts how often leases are extended."""

    name = "counted"

    def __init__(self):
        self.asked = []

    def extend_lease(self, message, lease_ms):
        self.asked.append((message, lease_ms))
        return True


def test_leases_are_walked_once_a_turn_and_the_last_word_counts():
    clock = FakeContext()
    deliveries = Deliveries(1, FakeLink(vhost=VHost("/", clock)), lambda consumer: None)
    queue = Counted()
    consumer = Consumer("c", queue, deliveries)
    deliveries.unacked = {tag: (consumer, f"m{tag}") for tag in (1, 2, 3)}
    everything = ["m1", "m2", "m3"]
    assert all(deliveries.extend_lease(0, lease_ms) for lease_ms in [50] * 100 + [7, 9])
    assert queue.asked == [(message, 50) for message in everything]
    clock.advance(1)
    assert queue.asked[3:] == [(message, 9) for message in everything]
    clock.advance(1)
    assert len(queue.asked) == 6
    assert deliveries.extend_lease(0, 5)
    assert queue.asked[6:] == [(message, 5) for message in everything]


def test_a_turn_without_leases_says_so_each_time():
    deliveries = Deliveries(1, FakeLink(vhost=VHost("/", FakeContext())), lambda consumer: None)
    assert [deliveries.extend_lease(0, None) for _ in range(3)] == [False, False, False]
