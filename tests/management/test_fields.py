"""The fields of every answer are those that RabbitMQ 3.10.8 was recorded with."""

import json
from pathlib import Path

import pytest

from tests.management.conftest import Stage
from tests.support.admin import Api

RECORDED = json.loads((Path(__file__).parent / "rabbitmq_3_10.json").read_text())["fields"]
# There once something has been idle for a while.
SOMETIMES = {"idle_since"}
AGES = "lengths_age=30&lengths_incr=5&msg_rates_age=30&msg_rates_incr=5"


def one(web: Api, *path: str, query: str = ""):
    answer = web.call("GET", *path, query=query)
    assert answer.status == 200, answer
    return answer.json


def channel_row(web: Api):
    return next(row for row in one(web, "channels") if row["number"] == 1)


def policy(web: Api):
    web.put_policy("p1", "^none$", {"max-length": 5})
    return one(web, "policies", "/", "p1")


def message(web: Api):
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    return web.call("POST", "queues", "/", "classic", "get", body=body).json[0]


CASES = {
    "overview": lambda web: one(web, "overview"),
    "overview message_stats": lambda web: one(web, "overview")["message_stats"],
    "overview churn_rates": lambda web: one(web, "overview")["churn_rates"],
    "overview queue_totals": lambda web: one(web, "overview")["queue_totals"],
    "overview object_totals": lambda web: one(web, "overview")["object_totals"],
    "node": lambda web: one(web, "nodes")[0],
    "connection": lambda web: one(web, "connections")[0],
    "channel": channel_row,
    "one channel": lambda web: one(web, "channels", channel_row(web)["name"]),
    "channel message_stats": lambda web: channel_row(web)["message_stats"],
    "consumer": lambda web: one(web, "consumers")[0],
    "consumer channel_details": lambda web: one(web, "consumers")[0]["channel_details"],
    "exchange": lambda web: one(web, "exchanges")[0],
    "one exchange": lambda web: one(web, "exchanges", "/", "ex"),
    "exchange message_stats": lambda web: one(web, "exchanges", "/", "ex")["message_stats"],
    "classic queue": lambda web: one(web, "queues", "/", "classic"),
    "quorum queue": lambda web: one(web, "queues", "/", "quorum"),
    "stream queue": lambda web: one(web, "queues", "/", "stream"),
    "queue message_stats": lambda web: one(web, "queues", "/", "quorum")["message_stats"],
    "queue samples": lambda web: one(web, "queues", "/", "quorum", query=AGES)["messages_details"],
    "queue without statistics": lambda web: one(web, "queues", query="disable_stats=true")[0],
    "queue totals": lambda web: one(
        web, "queues", query="disable_stats=true&enable_queue_totals=true"
    )[0],
    "binding": lambda web: one(web, "bindings")[0],
    "page": lambda web: one(web, "queues", query="page=1&page_size=2"),
    "definitions": lambda web: one(web, "definitions"),
    "definitions of a vhost": lambda web: one(web, "definitions", "/"),
    "policy": policy,
    "message": message,
}


def test_every_recorded_answer_is_looked_at() -> None:
    assert CASES.keys() == RECORDED.keys()


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("case", CASES)
def test_fields_are_those_of_rabbitmq(web: Api, case: str) -> None:
    shown = set(CASES[case](web))
    assert shown - SOMETIMES == set(RECORDED[case]) - SOMETIMES


def test_numbers_are_what_happened(web: Api, stage: Stage) -> None:
    queue = one(web, "queues", "/", "quorum")
    counts = {name: queue[f"messages{name}"] for name in ("", "_ready", "_unacknowledged")}
    assert counts == {"": 19, "_ready": 14, "_unacknowledged": 5}
    stats = queue["message_stats"]
    assert (stats["publish"], stats["deliver"], stats["ack"]) == (20, 6, 1)
    assert queue["consumer_details"][0]["consumer_tag"] == "ct1"
    consumed = next(row for row in one(web, "channels") if row["number"] == 2)
    assert consumed["messages_unacknowledged"] == 5
    assert consumed["prefetch_count"] == 5
    published = channel_row(web)["message_stats"]
    assert (published["publish"], published["confirm"]) == (40, 40)
    source = one(web, "exchanges", "/", "ex")["message_stats"]
    assert (source["publish_in"], source["publish_out"]) == (20, 20)
    overview = one(web, "overview")
    assert overview["object_totals"]["connections"] == 1
    assert overview["message_stats"]["publish"] == 40


LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
OF_VHOSTS = {
    *("cluster_state", "default_queue_type", "description", "message_stats", "metadata"),
    *("name", "tags", "tracing"),
    *(name + end for name in (*LENGTHS, "recv_oct", "send_oct") for end in ("", "_details")),
}


@pytest.mark.usefixtures("stage")
def test_a_vhost_has_the_figures_of_what_is_in_it_and_of_no_other(web: Api) -> None:
    assert web.call("PUT", "vhosts", "another", body={}).status == 201
    row = one(web, "vhosts", "/")
    assert row.keys() == OF_VHOSTS
    overview = one(web, "overview")
    assert {name: row[name] for name in LENGTHS} == {
        name: overview["queue_totals"][name] for name in LENGTHS
    }
    counts = {name for name in RECORDED["overview message_stats"] if not name.startswith("disk_")}
    assert row["message_stats"].keys() == counts
    names = ("publish", "confirm", "deliver", "ack", "get_no_ack", "deliver_get")
    stats = {name: row["message_stats"][name] for name in names}
    assert stats == {name: overview["message_stats"][name] for name in names}
    assert row["recv_oct"] > 0
    assert row["send_oct"] > 0
    listed = {each["name"]: each for each in one(web, "vhosts")}
    assert listed["another"].keys() == OF_VHOSTS
    assert (listed["another"]["messages"], listed["another"]["message_stats"]["publish"]) == (0, 0)
    sampled = one(web, "vhosts", "/", query=AGES)["messages_details"]
    assert len(sampled["samples"]) == 7


def test_what_was_counted_in_a_vhost_stays_when_a_channel_closes(web: Api, stage: Stage) -> None:
    def published() -> int:
        return one(web, "vhosts", "/")["message_stats"]["publish"]

    before = published()
    channel = stage.connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "classic", b"counted")
    assert published() == before + 1
    channel.close()
    assert published() == before + 1
