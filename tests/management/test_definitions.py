"""Definitions: what is exported makes the same again; RabbitMQ's own files are taken."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartBroker
from tests.support.admin import Api
from tests.support.process import BrokerProcess

RECORDED = json.loads((Path(__file__).parent / "rabbitmq_3_10.json").read_text())["definitions"]
SECTIONS = ("queues", "exchanges", "bindings", "policies", "parameters", "permissions")
OURS = {
    "vhosts": [{"name": "/"}, {"name": "two", "description": "the second"}],
    "users": [
        {
            "name": "worker",
            "password_hash": "t1lBMO+ggdqscnAVJfXyR8y1u9fDcyutQlCaWaWxbOoAGMmC",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "management,monitoring",
        }
    ],
    "permissions": [
        {"user": "worker", "vhost": "two", "configure": "", "write": ".*", "read": "^q"}
    ],
    "topic_permissions": [
        {"user": "worker", "vhost": "two", "exchange": "x", "write": "^a", "read": ""}
    ],
    "parameters": [
        {
            "vhost": "two",
            "component": "operator_policy",
            "name": "most",
            "value": {"pattern": "", "definition": {"max-length": 9}, "apply-to": "queues"},
        },
        {"vhost": "two", "component": "vhost-limits", "name": "l", "value": {"max-queues": 70}},
    ],
    "global_parameters": [{"name": "g", "value": {"a": [1, 2]}}],
    "policies": [
        {
            "vhost": "/",
            "name": "ha",
            "pattern": "^ha\\.",
            "apply-to": "all",
            "definition": {"ha-mode": "all", "message-ttl": 1000},
            "priority": 2,
        }
    ],
    "queues": [
        {"name": "q", "vhost": "two", "durable": True, "auto_delete": False, "arguments": {}},
        {"name": "typed", "vhost": "/", "durable": True, "type": "stream", "arguments": {}},
        {"name": "amq.gen-x", "vhost": "/", "durable": False, "arguments": []},
    ],
    "exchanges": [
        {
            "name": "x",
            "vhost": "two",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": True,
            "arguments": {"alternate-exchange": "amq.fanout"},
        },
        {"name": "amq.topic", "vhost": "/", "type": "topic", "durable": True, "arguments": {}},
    ],
    "bindings": [
        {
            "source": "x",
            "vhost": "two",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {"n": 1},
        },
        {
            "source": "x",
            "vhost": "two",
            "destination": "nobody",
            "destination_type": "queue",
            "routing_key": "",
            "arguments": {},
        },
    ],
}


def load(api: Api, definitions: object, *vhost: str) -> None:
    answer = api.call("POST", "definitions", *vhost, body=definitions)
    assert answer.status == 204, answer


def test_what_is_exported_makes_the_same_again(start_broker: StartBroker) -> None:
    first, second = start_broker(), start_broker()
    one = Api(first.host, first.http_port)
    load(one, OURS)
    exported = one.call("GET", "definitions").json
    assert [row["name"] for row in exported["queues"]] == ["amq.gen-x", "typed", "q"]
    assert exported["queues"][1]["arguments"] == {"x-queue-type": "stream"}
    assert exported["bindings"] == OURS["bindings"][:1]
    assert exported["topic_permissions"] == OURS["topic_permissions"]
    users = {row["name"]: row for row in exported["users"]}
    assert users["worker"]["tags"] == ["management", "monitoring"]
    assert users["worker"]["password_hash"] == OURS["users"][0]["password_hash"]
    other = Api(second.host, second.http_port)
    load(other, exported)
    again = other.call("GET", "definitions").json
    for section in ("users", "vhosts", "permissions", "topic_permissions", "global_parameters"):
        assert again[section] == exported[section]
    for section in SECTIONS:
        assert again[section] == exported[section]
    load(other, exported)  # once more changes nothing
    assert other.call("GET", "definitions").json == again
    one.close()
    other.close()


def test_a_file_of_rabbitmq_is_taken(web: Api) -> None:
    load(web, RECORDED)
    taken = web.call("GET", "definitions").json
    for section in ("queues", "exchanges", "bindings"):
        wanted = [row for row in RECORDED[section] if row["name" if "name" in row else "source"]]
        for row in wanted:
            assert row in taken[section], row


def test_definitions_of_one_vhost_name_none(web: Api) -> None:
    load(web, {"queues": [{"name": "here", "durable": True, "arguments": {}}]}, "/")
    exported = web.call("GET", "definitions", "/").json
    row = next(row for row in exported["queues"] if row["name"] == "here")
    assert "vhost" not in row
    assert web.call("GET", "queues", "/", "here").status == 200


def test_a_file_with_a_mistake_changes_nothing(web: Api) -> None:
    mistaken = {
        "queues": [{"name": "never", "vhost": "/", "arguments": {}}],
        "bindings": [{"source": "x", "vhost": "/", "destination": "q", "destination_type": "?"}],
    }
    answer = web.call("POST", "definitions", body=mistaken)
    assert answer.status == 400
    assert "destination_type" in answer.json["reason"]
    assert web.call("GET", "queues", "/", "never").status == 404


def test_what_is_there_stays_as_it_is(web: Api) -> None:
    web.call("PUT", "queues", "/", "stays", body={"arguments": {"x-max-length": 5}})
    load(web, {"queues": [{"name": "stays", "vhost": "/", "arguments": {"x-max-length": 6}}]})
    row = web.call("GET", "queues", "/", "stays").json
    assert row["arguments"] == {"x-max-length": 5}


def test_a_download_has_a_file_name(web: Api) -> None:
    answer = web.call("GET", "definitions", query="download=my%22%0d%0afile.json")
    assert answer.headers["Content-Disposition"] == "attachment; filename=myfile.json"


QUEUE = {"name": "spy", "durable": True, "arguments": {}}
BINDING = {
    "source": "orders",
    "destination_type": "queue",
    "destination": "spy",
    "routing_key": "#",
    "arguments": {},
}
EXCHANGE = {"name": "mine", "type": "fanout", "durable": True, "arguments": {}}
OPERATORS = {"pattern": ".*", "definition": {"max-length": 1}, "apply-to": "queues"}


@pytest.fixture(scope="module")
def policymaker(node: BrokerProcess) -> Iterator[Api]:
    """May enter the vhost `shop`, and nothing else there until a test permits it."""
    admin = Api(node.host, node.http_port)
    assert admin.call("PUT", "vhosts", "shop", body={}).status == 201
    assert admin.call("PUT", "exchanges", "shop", "orders", body={"type": "topic"}).status == 201
    user = {**OURS["users"][0], "tags": "policymaker"}
    assert admin.call("PUT", "users", "pm", body=user).status == 201
    limit = {"value": 7}
    assert admin.call("PUT", "vhost-limits", "shop", "max-queues", body=limit).status == 204
    admin.close()
    api = Api(node.host, node.http_port, user="pm", password="guest")
    yield api
    api.close()


def permit(web: Api, configure: str, write: str, read: str) -> None:
    rights = {"configure": configure, "write": write, "read": read}
    assert web.call("PUT", "permissions", "shop", "pm", body=rights).status in (201, 204)


# A file, and the permissions (configure, write, read) that its items ask for; None: a tag.
NEEDS = [
    ({"queues": [QUEUE]}, ("^spy$", "", "")),
    ({"exchanges": [EXCHANGE]}, ("^mine$", "", "")),
    (
        {"exchanges": [{**EXCHANGE, "arguments": {"alternate-exchange": "orders"}}]},
        ("^mine$", "^orders$", "^mine$"),
    ),
    ({"bindings": [BINDING]}, ("", "^spy$", "^orders$")),
    ({"parameters": [{"component": "operator_policy", "name": "o", "value": OPERATORS}]}, None),
    ({"parameters": [{"component": "vhost-limits", "value": {"max-connections": 0}}]}, None),
    ({"parameters": [{"component": "vhost-limits", "value": {"max-queues": 8}}]}, None),
    ({"global_parameters": [{"name": "cluster_name", "value": "theirs"}]}, None),
]


@pytest.mark.parametrize(("file", "needed"), NEEDS)
def test_an_item_of_a_file_asks_for_what_its_own_route_asks_for(
    web: Api, policymaker: Api, file: dict[str, Any], needed: tuple[str, str, str] | None
) -> None:
    policies = [{"name": "p", "pattern": "", "definition": {"max-length": 9}}]
    before = web.call("GET", "definitions").json
    everything = (".*", ".*", ".*")
    for missing in range(3):
        rights = [one if n != missing else "^$" for n, one in enumerate(needed or everything)]
        if needed is not None and not needed[missing]:
            continue
        permit(web, *rights)
        answer = policymaker.call("POST", "definitions", "shop", body=file | {"policies": policies})
        assert (answer.status, answer.json["error"]) == (401, "not_authorised"), rights
        now = web.call("GET", "definitions").json
        for section in (*SECTIONS[:-1], "global_parameters"):
            assert now[section] == before[section]
    if needed is not None:
        permit(web, *needed)
        load(policymaker, file, "shop")
        for section, item in (("queues", "spy"), ("exchanges", "mine")):
            web.call("DELETE", section, "shop", item)


def test_whoever_exports_a_vhost_may_import_it_again(web: Api, policymaker: Api) -> None:
    permit(web, "", "", "")
    load(policymaker, policymaker.call("GET", "definitions", "shop").json, "shop")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "file",
    [
        {"global_parameters": [{"name": "x", "value": deep(225)}]},
        {"vhosts": [{"name": "deep", "metadata": {"m": deep(225)}}]},
        {"queues": [{"name": "deep", "vhost": "/", "arguments": {"m": deep(100)}}]},
        {"exchanges": [{"name": "deep", "vhost": "/", "type": "fanout", "arguments": deep(100)}]},
    ],
)
def test_what_could_not_be_read_back_is_refused(start_broker: StartBroker, file: Any) -> None:
    """A deeper value than a start can read; the node goes on, and starts again."""
    broker = start_broker()
    api = Api(broker.host, broker.http_port)
    answer = api.call("POST", "definitions", body=file)
    assert answer.status == 400
    assert "deep" in answer.json["reason"]
    assert api.call("GET", "exchanges", "/", "deep").status == 404
    load(api, {"queues": [{"name": "kept", "vhost": "/", "arguments": {"m": deep(50)}}]})
    api.close()
    assert broker.stop() == 0
    again = BrokerProcess(broker.data_dir.parent)
    try:
        api = Api(again.host, again.http_port)
        assert [row["name"] for row in api.call("GET", "queues").json] == ["kept"]
    finally:
        assert again.stop() == 0, again.log_text()
