"""Definitions: what is exported makes the same again; RabbitMQ's own files are taken."""

import json
from pathlib import Path

from tests.conftest import StartBroker
from tests.support.admin import Api

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
