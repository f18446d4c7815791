"""What others ask RabbitMQ for, in their own words: KEDA, Flower, Terraform, exporters."""

import pytest

from tests.management.conftest import Stage
from tests.support.admin import Api
from tests.support.waiting import eventually


@pytest.mark.usefixtures("stage")
def test_keda_reads_lengths_and_rates(web: Api) -> None:
    one = web.call("GET", "queues", "/", "quorum").json
    assert isinstance(one["messages"], int)
    assert isinstance(one["message_stats"]["publish_details"]["rate"], float)
    query = "page=1&use_regex=true&pagination=false&name=^qu&page_size=100"
    found = web.call("GET", "queues", "/", query=query).json
    assert [row["name"] for row in found["items"]] == ["quorum"]
    assert found["filtered_count"] == 1


@pytest.mark.usefixtures("stage")
def test_flower_lists_the_queues_of_a_vhost(web: Api) -> None:
    rows = web.call("GET", "queues", "/").json
    wanted = {"name", "messages", "messages_unacknowledged", "messages_ready", "consumers", "idle"}
    assert all(wanted - {"idle"} <= row.keys() for row in rows)


def test_terraform_finds_what_it_has_made(web: Api) -> None:
    """It declares, reads back, compares, and deletes by what it read."""
    exchange = {"type": "fanout", "durable": False, "auto_delete": True, "arguments": {}}
    assert web.call("PUT", "exchanges", "/", "t-x", body=exchange).status == 201
    read = web.call("GET", "exchanges", "/", "t-x").json
    assert {key: read[key] for key in exchange} == exchange
    queue = {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
    assert web.call("PUT", "queues", "/", "t-q", body=queue).status == 201
    read = web.call("GET", "queues", "/", "t-q").json
    assert {key: read[key] for key in queue} == queue
    path = ("bindings", "/", "e", "t-x", "q", "t-q")
    body = {"routing_key": "a b/c#~", "arguments": {"deep": {"er": [1, None]}}}
    made = web.call("POST", *path, body=body)
    assert made.status == 201
    (row,) = web.call("GET", *path).json
    assert made.headers["Location"].endswith(row["properties_key"].replace("%", "%25"))
    assert web.call("GET", *path, row["properties_key"]).json == row
    assert web.call("DELETE", *path, row["properties_key"]).status == 204
    assert web.call("GET", *path).status == 404  # the exchange went with its last binding
    assert web.call("DELETE", "queues", "/", "t-q").status == 204


def test_rates_are_seen_while_something_happens(web: Api, stage: Stage) -> None:
    def rates() -> list[float]:
        for _ in range(10):
            stage.publisher.basic_publish("ex", "a.x", b"x")
        queue = web.call("GET", "queues", "/", "classic").json["message_stats"]
        exchange = web.call("GET", "exchanges", "/", "ex").json["message_stats"]
        channel = web.call("GET", "channels").json[0]["message_stats"]
        total = web.call("GET", "overview").json["message_stats"]
        octets = web.call("GET", "connections").json[0]["recv_oct_details"]["rate"]
        publishes = [part["publish_details"]["rate"] for part in (queue, channel, total)]
        return [*publishes, exchange["publish_in_details"]["rate"], octets]

    eventually(lambda: all(rate > 0 for rate in rates()), "all rates to be seen", within_s=60)
    query = "msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5"
    row = web.call("GET", "queues", "/", "classic", query=query).json
    assert len(row["message_stats"]["publish_details"]["samples"]) == 13
    assert len(row["messages_details"]["samples"]) == 13
