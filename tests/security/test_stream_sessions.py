"""Users, vhosts and limits for clients of the stream protocol."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import LAST_WORD, Operation, Status
from tests.stream_wire.door import Door, authenticate
from tests.support.waiting import eventually


@pytest.fixture
def door():
    with Door() as door:
        yield door


def change(door, *details):
    door.call(door.node.registry.apply, list(details))


@pytest.mark.parametrize(
    ("details", "reason"),
    [(("-user", "reader"), "user 'reader' is deleted"), (("-vhost", "/"), "vhost '/' is deleted")],
    ids=["user", "vhost"],
)
def test_who_is_deleted_hears_so_and_is_dropped(door, details, reason):
    client = door.logged_in("reader", "secret")
    change(door, *details)
    last = client.receive()
    assert (last.correlation, last.operation) == (LAST_WORD, Operation.CLOSING)
    assert last.status == Status.ACCESS_REFUSED
    assert reason.encode() in bytes(last.body)
    assert client.ends()


def test_a_permission_that_is_taken_away_counts_for_the_next_request(door):
    client = door.logged_in("reader", "secret")
    fetch = wire.DescribeGroup("team")
    assert client.ask(2, fetch).status != Status.ACCESS_REFUSED
    change(door, "permission", "/", "reader", "", "", "^nothing$")
    assert client.ask(3, fetch).status == Status.ACCESS_REFUSED


def test_sessions_count_as_connections(door):
    change(door, "user-limit", "reader", "max-connections", 1)
    first = door.logged_in("reader", "secret")
    refused = door.dial()
    answer = refused.ask(1, authenticate("reader", "secret"))
    assert answer.status == Status.TOO_MANY_CONNECTIONS
    assert b"user connection limit (1) is reached" in bytes(answer.body)
    first.sock.close()
    eventually(
        lambda: door.call(lambda: door.node.registry.users["reader"].connections) == 0, "its end"
    )
    door.logged_in("reader", "secret")
    change(door, "vhost-limit", "/", "max-connections", 0)
    assert door.dial().ask(1, authenticate()).status == Status.TOO_MANY_CONNECTIONS


def test_a_vhost_that_was_made_since_is_open(door):
    assert door.dial().ask(1, authenticate(vhost="new")).status == Status.VHOST_REFUSED
    change(door, "vhost", "new", b"u" * 16, [], {})
    assert door.dial().ask(1, authenticate(vhost="new")).status == Status.VHOST_REFUSED
    change(door, "permission", "new", "guest", "", "", "")
    assert door.dial().ask(1, authenticate(vhost="new")).status == Status.OK


def test_external_is_for_those_who_show_a_certificate(door):
    message = wire.Authenticate("EXTERNAL", b"", "/", "a test")
    assert door.dial().ask(1, message).status == Status.MALFORMED
