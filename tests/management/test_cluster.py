"""In a cluster every node answers for all of them."""

from collections.abc import Iterator

import pika
import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.proxy import HOST
from tests.support.admin import Api
from tests.support.waiting import eventually

QUEUES = [f"spread-{number}" for number in range(9)]
PUBLISH = {"properties": {}, "payload": "x", "payload_encoding": "string"}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("managed")) as cluster:
        cluster.start()
        yield cluster
    cluster.wipe()


@pytest.fixture(scope="module")
def apis(cluster: Cluster) -> Iterator[list[Api]]:
    """Of each node."""
    found = [Api(HOST, node.ports["http"]) for node in cluster.nodes.values()]
    yield found
    for api in found:
        api.close()


@pytest.fixture(scope="module")
def spread(apis: list[Api]) -> list[str]:
    """Queues with leaders on all nodes; the n-th has n messages."""
    queues = [{"name": name, "vhost": "/", "arguments": {}} for name in QUEUES]
    assert apis[0].call("POST", "definitions", body={"queues": queues}).status == 204
    for number, name in enumerate(QUEUES):
        for _ in range(number):
            body = {**PUBLISH, "routing_key": name}
            answer = apis[1].call("POST", "exchanges", "/", "amq.default", "publish", body=body)
            assert answer.json == {"routed": True}

    def leaders() -> set[str]:
        return {row["leader"] for row in apis[0].call("GET", "queues").json}

    eventually(lambda: len(leaders()) == 3, "leaders on all nodes")
    return QUEUES


def columns(api: Api, query: str):
    rows = api.call("GET", "queues", query=query).json
    return [(row["name"], row["messages"]) for row in rows["items"]]


def depth(api: Api, name: str) -> int:
    return api.call("GET", "queues", "/", name).json["messages"]


def test_lists_are_the_same_on_every_node(apis: list[Api], spread: list[str]) -> None:
    wanted = [(name, number) for number, name in enumerate(spread)]
    for api in apis:
        for query, rows in (
            ("page=1", wanted),
            ("page=1&sort=messages&sort_reverse=true&page_size=3", wanted[:-4:-1]),
            ("page=2&sort=messages&page_size=4", wanted[4:8]),
        ):
            # A leader that is just being replaced may be missed once.
            eventually(lambda a=api, q=query, r=rows: columns(a, q) == r, query)


def test_one_queue_is_known_everywhere(apis: list[Api], spread: list[str]) -> None:
    for api in apis:
        for number, name in enumerate(spread):
            eventually(lambda a=api, n=name, m=number: depth(a, n) == m, f"{name} to be counted")
            row = api.call("GET", "queues", "/", name).json
            assert row["leader"] in row["members"]
            assert len(row["members"]) == 3


def test_messages_are_got_and_browsed_through_any_node(apis: list[Api], spread: list[str]) -> None:
    for api in apis:

        def gets(api: Api = api) -> bool:
            rows = api.call("POST", "queues", "/", "spread-5", "get", body=GET).json
            return [row["payload"] for row in rows] == ["x"]

        def sees(api: Api = api) -> bool:
            found = api.call("GET", "queues", "/", "spread-6", "messages").json
            return len(found["messages"]) == 6

        eventually(gets, "a message")
        eventually(sees, "all messages to be seen")


def test_a_message_is_moved_through_any_node(apis: list[Api], spread: list[str]) -> None:
    assert apis[0].call("PUT", "queues", "/", "moved", body={}).status == 201
    for api in apis:

        def moves(api: Api = api) -> bool:
            found = api.call("GET", "queues", "/", "spread-7", "messages").json["messages"]
            path = ("queues", "/", "spread-7", "messages", str(found[0]["id"]), "move")
            return api.call("POST", *path, body={"to": "moved"}).status == 204

        eventually(moves, "a message to be moved")
    for api in apis:
        eventually(lambda a=api: depth(a, "moved") >= 3, "three messages that were moved")
        eventually(lambda a=api: depth(a, "spread-7") == 4, "four that were not")
    assert apis[0].call("DELETE", "queues", "/", "moved").status == 204


def test_connections_of_all_nodes_are_shown_and_closed(
    apis: list[Api], cluster: Cluster, spread: list[str]
) -> None:
    connections = [
        pika.BlockingConnection(pika.URLParameters(node.url)) for node in cluster.nodes.values()
    ]
    for connection in connections:
        connection.channel().basic_consume(spread[0], lambda *_: None)

    def counts(api: Api) -> list[int]:
        totals = api.call("GET", "overview").json["object_totals"]
        details = api.call("GET", "queues", "/", spread[0]).json["consumer_details"]
        lists = [api.call("GET", what).json for what in ("channels", "consumers")]
        return [*map(len, lists), len(details), totals["connections"], totals["consumers"]]

    for api in apis:
        eventually(lambda a=api: counts(a) == [3] * 5, "all to be counted")
        rows = api.call("GET", "connections").json
        assert {row["node"] for row in rows} == set(cluster.nodes)
        assert api.call("GET", "connections", rows[0]["name"]).json["name"] == rows[0]["name"]
    names = [row["name"] for row in apis[0].call("GET", "connections").json]
    for name in names:
        assert apis[0].call("DELETE", "connections", name).status == 204
    eventually(lambda: not apis[1].call("GET", "connections").json, "no connections")
    for connection in connections:
        with pytest.raises(pika.exceptions.AMQPError):
            connection.channel()


def test_sums_are_over_all_nodes(apis: list[Api], spread: list[str]) -> None:
    def fits(api: Api) -> bool:
        overview = api.call("GET", "overview").json
        rows = api.call("GET", "queues").json
        assert overview["object_totals"]["queues"] == len(rows) == len(spread)
        messages = sum(row["messages"] for row in rows)
        return messages > 0 and overview["queue_totals"]["messages"] == messages

    for api in apis:
        eventually(lambda a=api: fits(a), "the sum of all queues")
        eventually(
            lambda a=api: [row["running"] for row in a.call("GET", "nodes").json] == [True] * 3,
            "all nodes to be seen",
        )
        assert len({row["os_pid"] for row in api.call("GET", "nodes").json}) == 3


def test_changes_are_made_on_all_nodes(apis: list[Api], spread: list[str]) -> None:
    first, second, third = apis
    body = {"arguments": {"x-max-length": 2}}
    assert first.call("PATCH", "queues", "/", spread[8], body=body).status == 200
    assert first.call("PUT", "cluster-name", body={"name": "three"}).status == 204
    for api in apis:
        assert api.call("GET", "queues", "/", spread[8]).json["arguments"] == {"x-max-length": 2}
        assert api.call("GET", "cluster-name").json == {"name": "three"}
        eventually(lambda a=api: depth(a, spread[8]) == 2, "the queue to be cut")
    assert second.call("PUT", "exchanges", "/", "x", body={"type": "topic"}).status == 201
    path = ("bindings", "/", "e", "x", "q", spread[0])
    assert third.call("POST", *path, body={"routing_key": "k"}).status == 201
    assert first.call("GET", *path, "k").status == 200
    assert first.call("DELETE", *path, "k").status == 204
    assert second.call("GET", *path, "k").status == 404
    assert third.call("DELETE", "queues", "/", spread[0]).status == 204
    assert second.call("GET", "queues", "/", spread[0]).status == 404
    assert third.call("DELETE", "queues", "/", spread[1], query="if-empty=true").status == 400
    assert third.call("DELETE", "queues", "/", spread[1], "contents").status == 204
    assert second.call("DELETE", "queues", "/", spread[1], query="if-empty=true").status == 204


def test_a_node_that_is_down_is_shown_so(apis: list[Api], cluster: Cluster) -> None:
    name, node = list(cluster.nodes.items())[2]
    node.kill()

    def is_down() -> bool:
        rows = apis[0].call("GET", "nodes").json
        return [row["name"] for row in rows if not row["running"]] == [name]

    eventually(is_down, "the node to be seen as down")
    assert apis[0].call("GET", "queues", query="page=1").status == 200
    check = apis[0].call("GET", "health", "checks", "node-is-quorum-critical")
    assert (check.status, check.json["status"]) == (503, "failed")
