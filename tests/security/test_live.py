"""What changes for connections that are open: permissions, users, vhosts, limits."""

import pytest

from tests.security.conftest import PASSWORD
from tests.support.frames import Basic, Channel, Confirm, Connection, Exchange, Queue
from tests.support.waiting import eventually
from tests.support.wire import ConnectionClosedError, WireConnection

# RabbitMQ remembers what a channel was allowed for as long as that is open.
pytestmark = pytest.mark.leveret_only


@pytest.fixture
def user(house):
    name = house.add_user()
    house.permit(name, ".*", ".*", ".*")
    return name


def confirmed_publish(channel, exchange, key):
    channel.publish(exchange, key, b"m")
    channel.expect(Basic.Ack)


# Permissions


def test_a_permission_that_is_taken_away_counts_for_the_next_publish_on_an_open_channel(
    house, user
):
    channel = house.connect(user).open_channel()
    queue = house.fresh("q")
    channel.declare_queue(queue)
    channel.rpc(Confirm.Select())
    for _ in range(3):
        confirmed_publish(channel, "", queue)  # the route is remembered by now
    house.permit(user, ".*", "^nothing$", ".*")
    channel.publish("", queue, b"m")
    channel.expect_close(403, "write access to exchange 'amq.default'")


def test_a_permission_that_is_given_counts_at_once(house, user):
    house.permit(user, ".*", "^nothing$", ".*")
    connection = house.connect(user)
    refused = connection.open_channel()
    refused.publish("amq.fanout", "k", b"m")
    refused.expect_close(403)
    house.permit(user, ".*", "^amq\\.fanout$", ".*")
    channel = connection.open_channel()
    channel.rpc(Confirm.Select())
    confirmed_publish(channel, "amq.fanout", "k")


def test_a_topic_permission_counts_for_routes_that_are_remembered(house, user):
    channel = house.connect(user).open_channel()
    channel.rpc(Confirm.Select())
    confirmed_publish(channel, "amq.topic", "a.b")
    body = {"exchange": "amq.topic", "write": "^c", "read": ".*"}
    assert house.api.call("PUT", "topic-permissions", house.vhost, user, body=body).status == 201
    channel.publish("amq.topic", "a.b", b"m")
    channel.expect_close(403, "write access to topic 'a.b'")


def test_a_consumer_goes_on_when_the_permission_to_begin_is_taken_away(house, user):
    admin, channel = house.admin_channel(), house.connect(user).open_channel()
    queue = house.fresh("q")
    channel.declare_queue(queue)
    channel.consume(queue, no_ack=True)
    house.permit(user, "", "", "")
    admin.publish("", queue, b"still")
    assert channel.delivery().body == b"still"
    channel.send(Basic.Get(queue=queue))
    channel.expect_close(403)


def test_who_may_not_enter_any_more_is_refused_at_the_next_connection(house, user):
    house.connect(user)
    assert house.api.call("DELETE", "permissions", house.vhost, user).status == 204
    with pytest.raises(ConnectionClosedError) as refusal:
        house.connect(user)
    close = refusal.value.method
    assert close.reply_code == 530
    assert f"access to vhost '{house.vhost}' refused for user '{user}'" in close.reply_text


# Users


def test_a_user_who_is_deleted_is_told_and_may_not_come_back(house, user):
    connections = [house.connect(user) for _ in range(2)]
    other = house.admin_channel()
    assert house.api.call("DELETE", "users", user).status == 204
    for connection in connections:
        connection.expect_close(320, f"user '{user}' is deleted")
    with pytest.raises(ConnectionClosedError) as refusal:
        house.connect(user)
    assert refusal.value.method.reply_code == 403
    other.declare_queue(exclusive=True)  # others do not notice


def test_exclusive_queues_of_a_deleted_user_are_gone(house, user):
    admin, connection = house.connect("guest", "guest"), house.connect(user)
    queue = house.fresh("q")
    connection.open_channel().declare_queue(queue, exclusive=True)
    assert house.api.call("DELETE", "users", user).status == 204
    connection.expect_close(320)
    connection.abort()

    def is_gone():
        channel = admin.open_channel()
        channel.send(Queue.Declare(queue=queue, passive=True))
        close = channel.expect(Channel.Close)
        channel.send(Channel.CloseOk())
        return close.reply_code == 404

    eventually(is_gone, "the end of the queue")


def test_a_client_that_does_not_answer_is_dropped(house, user):
    """It would hold its connection for as long as it likes."""
    connection = house.connect(user)
    assert house.api.call("DELETE", "users", user).status == 204
    close = connection.expect(Connection.Close)
    assert close.reply_code == 320
    connection.expect_eof(timeout=60.0)


def test_another_password_counts_for_the_next_login(house, user):
    connection = house.connect(user)
    body = {"password": "another", "tags": ""}
    assert house.api.call("PUT", "users", user, body=body).status == 204
    with pytest.raises(ConnectionClosedError):
        house.connect(user, PASSWORD)
    house.connect(user, "another")
    connection.open_channel()  # who is in stays in


# Virtual hosts


def test_a_vhost_is_made_used_deleted_and_made_again_empty(house, user):
    name = house.fresh("v")
    url = house.url("guest", "guest").rpartition("/")[0] + f"/{name}"
    assert house.api.call("PUT", "vhosts", name, body={}).status == 201
    with WireConnection.connect(url) as connection:
        channel = connection.open_channel()
        channel.declare_queue("q", durable=True)
        channel.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.declare_exchange("x", durable=True)
        channel.bind("q", "x", "k")
        channel.rpc(Confirm.Select())
        for where in (("x", "k"), ("", "s")):
            confirmed_publish(channel, *where)
        assert house.api.call("DELETE", "vhosts", name).status == 204
        connection.expect_close(320, f"vhost '{name}' is deleted")
    with pytest.raises(ConnectionClosedError, match=r"530.*not found"):
        WireConnection.connect(url)
    assert house.api.call("PUT", "vhosts", name, body={}).status == 201
    with WireConnection.connect(url) as connection:
        channel = connection.open_channel()
        assert channel.declare_queue("q", durable=True).message_count == 0
        channel.send(passive_exchange("x"))
        channel.expect_close(404)
    assert house.api.call("DELETE", "vhosts", name).status == 204


def passive_exchange(name):

    return Exchange.Declare(exchange=name, passive=True)


# Limits


@pytest.fixture
def limit(house):
    """Sets a limit of a user or vhost; those of vhosts are gone after the test."""
    kinds = []

    def put(kind, name, limit, value):
        kinds.append((kind, name, limit))
        answer = house.api.call("PUT", f"{kind}-limits", name, limit, body={"value": value})
        assert answer.status == 204, answer

    yield put
    for kind, name, limit in kinds:
        house.api.call("DELETE", f"{kind}-limits", name, limit)


def test_a_user_has_no_more_connections_than_allowed(house, user, limit):
    limit("user", user, "max-connections", 2)
    first = house.connect(user)
    house.connect(user)
    with pytest.raises(ConnectionClosedError) as refusal:
        house.connect(user)
    text = f"NOT_ALLOWED - Connection refused for user '{user}': user connection limit (2) is"
    assert refusal.value.method.reply_text.startswith(text)
    first.close()
    house.connect(user)
    limit("user", user, "max-connections", 0)
    with pytest.raises(ConnectionClosedError, match="530"):
        house.connect(user)
    limit("user", user, "max-connections", -1)
    for _ in range(3):
        house.connect(user)


def test_a_user_has_no_more_channels_than_allowed(house, user, limit):
    limit("user", user, "max-channels", 3)
    one, other = house.connect(user), house.connect(user)
    one.open_channel()
    one.open_channel()
    other.open_channel().close()
    other.open_channel()
    other.send(Channel.Open(), 9)
    other.expect_close(530, f"number of channels opened for user '{user}' has reached the maximum")
    one.open_channel()  # the one that was refused left two behind
    one.send(Channel.Open(), 9)
    one.expect_close(530)


def test_a_vhost_has_no_more_connections_than_allowed(house, user, limit):
    before = house.connect(user)
    limit("vhost", house.vhost, "max-connections", 0)
    with pytest.raises(ConnectionClosedError) as refusal:
        house.connect(user)
    text = f"access to vhost '{house.vhost}' refused for user '{user}': connection limit (0) is"
    assert text in refusal.value.method.reply_text
    before.open_channel()


def test_a_vhost_has_no_more_queues_than_allowed(house, user, limit):
    channel = house.connect(user).open_channel()
    queue = house.fresh("q")
    channel.declare_queue(queue)
    limit("vhost", house.vhost, "max-queues", 0)
    channel.declare_queue(queue)  # what is there may be declared again
    with pytest.raises(AssertionError, match=r"406.*queue limit in vhost '.*' \(0\) is reached"):
        channel.declare_queue(house.fresh("q"))
