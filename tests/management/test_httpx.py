"""A modern HTTP client against a live broker: pools, streams, tokens; and slow ones beside it."""

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.process import BrokerProcess

TIMEOUT_S = 60.0
SLOW = 60  # clients that never finish their requests


@pytest.fixture
def client(node: BrokerProcess):
    with httpx.Client(
        base_url=node.http_url(""), auth=("guest", "guest"), timeout=TIMEOUT_S, trust_env=False
    ) as client:
        yield client


def test_a_queue_through_its_life(client: httpx.Client) -> None:
    where = "/api/queues/%2F/by-httpx"
    assert client.put(where, json={"arguments": {"x-max-length": 5}}).status_code == 201
    publish = {
        "properties": {"headers": {"a": 1}},
        "routing_key": "by-httpx",
        "payload": "hellö",
        "payload_encoding": "string",
    }
    sent = client.post("/api/exchanges/%2F/amq.default/publish", json=publish)
    assert sent.json() == {"routed": True}
    wish = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (got,) = client.post(f"{where}/get", json=wish).json()
    assert (got["payload"], got["properties"]["headers"]) == ("hellö", {"a": 1})
    assert client.get(where).json()["messages"] == 0
    assert client.delete(where).status_code == 204
    assert client.get(where).json() == {"error": "Object Not Found", "reason": "Not Found"}


def test_a_token_logs_in(node: BrokerProcess, client: httpx.Client) -> None:
    login = {"username": "guest", "password": "guest"}
    token = client.post("/api/login", json=login).json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    who = httpx.get(node.http_url("/api/whoami"), headers=bearer, trust_env=False)
    assert who.json()["name"] == "guest"


def test_a_body_without_a_length_is_taken(client: httpx.Client) -> None:
    """httpx sends what it cannot measure in chunks."""
    pieces = [b'{"global_parameters": [{"name": "piecewise", ', b'"value": ', b"7}]}"]
    assert client.post("/api/definitions", content=iter(pieces)).status_code == 204
    assert client.get("/api/global-parameters/piecewise").json()["value"] == 7


def test_many_requests_share_few_connections(client: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.get("/api/whoami"), range(200)))
    assert {answer.status_code for answer in answers} == {200}
    ports = {
        answer.extensions["network_stream"].get_extra_info("client_addr") for answer in answers
    }
    assert len(ports) <= 8


@pytest.mark.parametrize(
    "begun",
    [b"GET /api/overview HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"POST / HTTP/1.1\r\nContent-Length: 9"],
)
def test_who_dribbles_keeps_nobody_else_waiting(
    node: BrokerProcess, client: httpx.Client, begun: bytes
) -> None:
    slow = [socket.create_connection((node.host, node.http_port)) for _ in range(SLOW)]
    try:
        for sock in slow:
            sock.sendall(begun)
        for drop in (b"a", b"b", b"c"):
            assert client.get("/api/overview").status_code == 200
            for sock in slow:
                sock.sendall(drop)
    finally:
        for sock in slow:
            sock.close()
    assert client.get("/api/overview").status_code == 200
