"""Permissions at the wire: what a user may configure, write to and read from, by name."""

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, UnroutableError

CONFIG = """
[[users]]
name = "admin"
password = "secret"
[[users.permissions]]
vhost = "/"
configure = ".*"
write = ".*"
read = ".*"

[[users]]
name = "worker"
password = "secret"
[[users.permissions]]
vhost = "/"
configure = "^own-"
write = "^(own-|amq\\\\.default$)"
read = "^(own-|shared$)"
"""

pytestmark = pytest.mark.leveret_only

REFUSED = {
    "declare a queue": lambda ch: ch.queue_declare("shared2"),
    "delete a queue": lambda ch: ch.queue_delete("shared"),
    "declare an exchange": lambda ch: ch.exchange_declare("x", "direct"),
    "publish to an exchange": lambda ch: publish(ch, "amq.direct"),
    "consume from a queue": lambda ch: ch.basic_consume("secrets", print),
    "get from a queue": lambda ch: ch.basic_get("secrets"),
    "purge a queue": lambda ch: ch.queue_purge("secrets"),
    "bind a queue that it may not write to": lambda ch: ch.queue_bind("shared", "own-x", "k"),
    "bind to an exchange that it may not read": lambda ch: ch.queue_bind("own-q", "amq.topic", "k"),
    "send dead letters where it may not write": lambda ch: ch.queue_declare(
        "own-dead", arguments={"x-dead-letter-exchange": "amq.fanout"}
    ),
}


def publish(channel, exchange):
    channel.confirm_delivery()
    channel.basic_publish(exchange, "k", b"m")


def channel_of(broker, user):
    url = broker.amqp_url(user=user, password="secret")
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


@pytest.fixture
def worker(start_broker):
    """A channel of a user who may only touch names that begin with own-, and read `shared`."""
    broker = start_broker(config=CONFIG)
    admin = channel_of(broker, "admin")
    for name in ("shared", "secrets"):
        admin.queue_declare(name)
        admin.basic_publish("", name, b"m")
    channel = channel_of(broker, "worker")
    channel.queue_declare("own-q")
    channel.exchange_declare("own-x", "direct")
    yield channel
    for connection in (channel.connection, admin.connection):
        connection.close()


def test_a_user_may_do_what_its_permissions_say(worker):
    worker.queue_bind("own-q", "own-x", "k")
    publish(worker, "own-x")
    worker.basic_publish("", "own-q", b"by name")
    assert worker.basic_get("own-q", auto_ack=True)[2] == b"m"
    assert worker.basic_get("own-q", auto_ack=True)[2] == b"by name"
    assert worker.basic_get("shared", auto_ack=True)[2] == b"m"


def test_a_user_may_do_nothing_else(worker):
    connection = worker.connection
    for what, attempt in REFUSED.items():
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as refusal:
            attempt(channel)
        assert refusal.value.reply_code == 403, what
        assert "ACCESS_REFUSED" in refusal.value.reply_text, what
    assert worker.is_open, "the user's other channels go on"


def test_extending_a_lease_needs_no_permission_but_to_have_the_message(worker):
    worker.queue_declare("own-leased", arguments={"x-visibility-timeout": 3_600_000})
    worker.basic_publish("", "own-leased", b"m")
    tag = worker.basic_get("own-leased")[0].delivery_tag
    worker.confirm_delivery()
    worker.basic_publish("amq.leveret.lease", str(tag), b"", mandatory=True)
    with pytest.raises(UnroutableError):
        worker.basic_publish("amq.leveret.lease", str(tag + 1), b"", mandatory=True)


def test_a_route_that_another_user_found_is_no_way_around_the_check(start_broker):
    broker = start_broker(config=CONFIG)
    admin, other = channel_of(broker, "admin"), channel_of(broker, "worker")
    publish(admin, "amq.direct")  # remembered, for this user
    with pytest.raises(ChannelClosedByBroker, match="403"):
        publish(other, "amq.direct")
    admin.connection.close()
    other.connection.close()
