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
