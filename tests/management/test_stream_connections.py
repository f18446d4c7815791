"""Clients of the stream protocol among the connections: shown, counted, closed."""

import urllib.request
from collections.abc import Iterator

import pytest

from broker.protocol.stream_wire import LAST_WORD, PROTOCOL_HEADER, Operation, Status
from tests.management.conftest import Stage
from tests.management.test_fields import RECORDED
from tests.management.test_permissions import HASHED
from tests.stream_wire.door import RawClient, authenticate
from tests.support.admin import Api
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually


@pytest.fixture
def client(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.amqp_port, PROTOCOL_HEADER) as client:
        assert client.ask(1, authenticate()).status == Status.OK
        yield client


def rows(web: Api) -> list[dict]:
    return [row for row in web.call("GET", "connections").json if row["protocol"] == "stream"]


def name_of(client: RawClient) -> str:
    (host, port), (to, at) = client.sock.getsockname(), client.sock.getpeername()
    return f"{host}:{port} -> {to}:{at}"


def test_a_session_has_the_fields_of_a_connection(web: Api, client: RawClient) -> None:
    (row,) = rows(web)
    assert row.keys() == set(RECORDED["connection"])
    assert (row["name"], row["user"], row["vhost"]) == (name_of(client), "guest", "/")
    assert (row["user_provided_name"], row["state"], row["channels"]) == ("a test", "running", 0)
    assert row["recv_oct"] > 0
    assert row["send_oct"] > 0
    assert web.call("GET", "connections", row["name"]).json["protocol"] == "stream"
    assert [one["name"] for one in web.call("GET", "vhosts", "/", "connections").json] == [
        row["name"]
    ]


@pytest.mark.usefixtures("client")
def test_it_counts(node: BrokerProcess, web: Api, stage: Stage) -> None:
    assert web.call("GET", "overview").json["object_totals"]["connections"] == 2
    with urllib.request.urlopen(node.http_url("/metrics"), timeout=60) as answer:
        assert "\nrabbitmq_connections 2.0\n" in answer.read().decode()


@pytest.mark.parametrize("path", ["name", "username"])
def test_it_can_be_closed(web: Api, client: RawClient, path: str) -> None:
    where = [name_of(client)] if path == "name" else ["username", "guest"]
    web.headers["X-Reason"] = "enough of this"
    assert web.call("DELETE", "connections", *where).status == 204
    last = client.receive()
    assert (last.correlation, last.operation) == (LAST_WORD, Operation.CLOSING)
    assert b"enough of this" in bytes(last.body)
    client.sock.close()
    eventually(lambda: not rows(web), "it is gone")


@pytest.mark.usefixtures("client")
def test_it_is_nobody_elses(node: BrokerProcess, web: Api, client: RawClient) -> None:
    assert web.call("PUT", "users", "other", body={**HASHED, "tags": "management"}).status < 300
    other = Api(node.host, node.http_port, user="other", password="guest")
    assert rows(other) == []
    assert other.call("DELETE", "connections", name_of(client)).status == 404
    assert len(rows(web)) == 1
    other.close()
