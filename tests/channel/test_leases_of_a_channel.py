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
