"""A policy takes effect on queues and exchanges in use, and is gone when it is deleted."""

import pytest

from tests.durability.life import ConfirmingChannel
from tests.support.frames import Basic
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError

pytestmark = pytest.mark.leveret_only

TYPES = {
    "transient": {},
    "classic": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
}


@pytest.fixture(params=TYPES)
def options(request):
    """What to declare a queue with, for each type of queue."""
    return TYPES[request.param]


@pytest.fixture
def confirming(scene):
    return ConfirmingChannel(scene.channel())


def only(name):
    return f"^{name}$"


def holds(channel, queue, count):
    eventually(lambda: channel.count(queue) == count, f"{count} messages in {queue}")


def is_there(scene, queue):
    try:
        scene.channel().declare_queue(queue, passive=True)
    except ChannelClosedError as error:
        return error.method.reply_code != 404
    return True


def is_routed(channel, exchange, key):
    """Whether a message goes anywhere; asking is no use of a queue."""
    channel.publish(exchange, key, mandatory=True)
    channel.rpc(Basic.Qos())
    returned = [item for item in channel.pending() if isinstance(item.method, Basic.Return)]
    channel.conn._inbox[channel.number].clear()
    return not returned


def refuse(channel, queue, *, requeue):
    channel.reject(channel.get(queue).delivery_tag, requeue=requeue)


# What policies can do


def test_a_length_limit(scene, channel, confirming, policies, options):
    queue = scene.queue(channel, **options)
    confirming.publish_all(queue, [b"1", b"2", b"3", b"4"])
    name = policies.put(only(queue), {"max-length": 2})
    holds(channel, queue, 2)
    confirming.publish_all(queue, [b"5"])
    holds(channel, queue, 2)
    policies.delete(name)
    confirming.publish_all(queue, [b"6", b"7"])
    assert channel.get_all(queue) == [b"4", b"5", b"6", b"7"]


def test_a_length_limit_that_refuses(scene, channel, policies, options):
    queue = scene.queue(channel, **options)
    name = policies.put(only(queue), {"max-length": 1, "overflow": "reject-publish"})
    publisher = ConfirmingChannel(scene.channel())
    publisher.publish_all(queue, [b"1"])
    publisher.channel.publish("", queue, b"2")
    publisher.channel.expect(Basic.Nack)
    policies.delete(name)
    other = ConfirmingChannel(scene.channel())
    other.publish_all(queue, [b"3"])
    assert channel.get_all(queue) == [b"1", b"3"]


def test_a_time_to_live(scene, channel, confirming, policies, options):
    queue = scene.queue(channel, **options)
    timed = scene.queue(channel, arguments={"x-message-ttl": 1})
    confirming.publish_all(queue, [b"before"])
    name = policies.put(only(queue), {"message-ttl": 1})
    assert channel.get_all(queue) == [b"before"]
    confirming.publish_all(queue, [b"during"])
    holds(channel, queue, 0)
    policies.delete(name)
    confirming.publish_all(queue, [b"after"])
    confirming.publish_all(timed, [b"to see that time has passed"])
    holds(channel, timed, 0)
    assert channel.get_all(queue) == [b"after"]


def test_an_end_when_unused(scene, channel, policies, options):
    queue = scene.queue(channel, **options)
    policies.put(only(queue), {"expires": 1})
    eventually(lambda: not is_routed(channel, "", queue), f"{queue} to be gone")
    assert not is_there(scene, queue)


def test_no_end_without_the_policy(scene, channel, policies, options):
    queue = scene.queue(channel, **options)
    tag = channel.consume(queue)
    name = policies.put(only(queue), {"expires": 1})
    policies.delete(name)
    channel.cancel(tag)
    other = scene.queue(channel, arguments={"x-expires": 1})
    eventually(lambda: not is_routed(channel, "", other), f"{other} to be gone")
    assert is_there(scene, queue)


def test_a_place_for_dead_letters(scene, channel, confirming, policies, options):
    queue, letters = scene.queue(channel, **options), scene.queue(channel, durable=True)
    confirming.publish_all(queue, [b"1", b"2", b"3"])
    refuse(channel, queue, requeue=False)
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": letters}
    name = policies.put(only(queue), definition)
    refuse(channel, queue, requeue=False)
    holds(channel, letters, 1)
    policies.delete(name)
    refuse(channel, queue, requeue=False)
    confirming.publish_all(letters, [b"end"])
    letter = channel.get(letters)
    assert letter.body == b"2"
    assert letter.headers["x-death"][0]["queue"] == queue
    assert channel.get_all(letters) == [b"end"]


def test_a_delivery_limit(scene, channel, confirming, policies, options):
    queue = scene.queue(channel, **options)
    confirming.publish_all(queue, [b"1"])
    refuse(channel, queue, requeue=True)
    name = policies.put(only(queue), {"delivery-limit": 2})
    refuse(channel, queue, requeue=True)
    refuse(channel, queue, requeue=True)
    holds(channel, queue, 0)
    confirming.publish_all(queue, [b"2"])
    policies.delete(name)
    for _ in range(5):
        refuse(channel, queue, requeue=True)
    assert channel.get_all(queue) == [b"2"]


def test_an_alternate_exchange(scene, channel, policies):
    exchange, alternate = scene.exchange(channel), scene.exchange(channel, "fanout")
    queue = scene.bound_queue(channel, alternate)
    assert not is_routed(channel, exchange, "k")
    name = policies.put(only(exchange), {"alternate-exchange": alternate}, **{"apply-to": "all"})
    assert is_routed(channel, exchange, "k")
    policies.delete(name)
    assert not is_routed(channel, exchange, "k")
    assert len(channel.get_all(queue)) == 1


# Which policy, and what of it


def test_a_queue_that_comes_later_has_the_policy_too(scene, channel, confirming, policies, options):
    queue = scene.queue_name()
    policies.put(only(queue), {"max-length": 2})
    channel.declare_queue(queue, **options)
    confirming.publish_all(queue, [b"1", b"2", b"3"])
    holds(channel, queue, 2)
    channel.declare_queue(queue, **options)


def test_a_policy_that_is_changed(scene, channel, confirming, policies, options):
    queue = scene.queue(channel, **options)
    name = policies.put(only(queue), {"max-length": 3})
    policies.put(only(queue), {"max-length": 2}, name=name)
    confirming.publish_all(queue, [b"1", b"2", b"3", b"4"])
    holds(channel, queue, 2)
    policies.put("^no such queue$", {"max-length": 2}, name=name)
    confirming.publish_all(queue, [b"5"])
    holds(channel, queue, 3)


def test_the_highest_priority_counts(scene, channel, confirming, policies):
    queue = scene.queue(channel)
    policies.put(only(queue), {"max-length": 1}, priority=-1)
    high = policies.put(only(queue), {"max-length": 3}, priority=1)
    confirming.publish_all(queue, [b"1", b"2", b"3", b"4"])
    holds(channel, queue, 3)
    policies.delete(high)
    holds(channel, queue, 1)


def test_the_smallest_of_argument_policy_and_operator_policy_counts(
    scene, channel, confirming, policies
):
    queue = scene.queue(channel, arguments={"x-max-length": 4})
    policies.put(only(queue), {"max-length": 3})
    operator = policies.put(only(queue), {"max-length": 2}, kind="operator-policies")
    confirming.publish_all(queue, [b"1", b"2", b"3", b"4", b"5"])
    holds(channel, queue, 2)
    policies.delete(operator, "operator-policies")
    confirming.publish_all(queue, [b"6", b"7"])
    holds(channel, queue, 3)


def test_an_operator_policy_needs_no_policy_beside_it(scene, channel, confirming, policies):
    queue = scene.queue(channel)
    policies.put(only(queue), {"max-length": 2}, kind="operator-policies")
    confirming.publish_all(queue, [b"1", b"2", b"3"])
    holds(channel, queue, 2)


def test_an_exclusive_queue_with_a_name_of_the_brokers(scene, channel, confirming, policies):
    queue = channel.declare_queue("", exclusive=True).queue
    policies.put("^" + queue.replace(".", r"\."), {"max-length": 2})
    confirming.publish_all(queue, [b"1", b"2", b"3"])
    holds(channel, queue, 2)


def test_what_does_not_go_with_a_queue_leaves_it_working(scene, channel, confirming, policies):
    queue = scene.queue(channel, arguments={"x-message-groups": True})
    policies.put(only(queue), {"max-priority": 5, "max-length": 2})
    confirming.publish_all(queue, [b"1", b"2", b"3"])
    holds(channel, queue, 2)


def test_declaring_compares_arguments_and_not_policies(scene, channel, policies):
    queue = scene.queue(channel)
    policies.put(only(queue), {"max-length": 2})
    channel.declare_queue(queue)
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'x-max-length'"):
        channel.declare_queue(queue, arguments={"x-max-length": 2})
