"""Lists that the console shows by pages and RabbitMQ gives whole: whole still, unless asked."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin import Api
from tests.support.process import BrokerProcess

VHOST = "pages"
NAMES = [f"name-{number:02}" for number in range(12)]


@pytest.fixture(scope="module")
def filled(node: BrokerProcess) -> Iterator[BlockingChannel]:
    """Twelve of everything."""
    api = Api(node.host, node.http_port)
    assert api.call("PUT", "vhosts", VHOST, body={}).status == 201
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url(VHOST)))
    channel = connection.channel()
    channel.confirm_delivery()
    later = pika.BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
    for place, name in enumerate(NAMES):
        stream = {"x-queue-type": "stream", "x-partitions": place + 1}
        channel.queue_declare(f"{name}-stream", durable=True, arguments=stream)
        channel.queue_declare(f"{name}-dead", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
        channel.queue_declare(name, durable=True, arguments=dead)
        channel.queue_bind(name, "amq.direct", f"key-{place:02}")
        channel.queue_bind(NAMES[0], "amq.topic", f"key-{place:02}")
        channel.basic_consume(name, lambda *_: None, consumer_tag=f"tag-{name}")
        for _ in range(place + 1):
            channel.basic_publish("", name, b"later", later)
    yield channel
    connection.close()
    assert api.call("DELETE", "vhosts", VHOST).status == 204
    api.close()


LISTS = {
    "streams": (("streams", VHOST), lambda row: row["name"].removesuffix("-stream")),
    "consumers": (("consumers", VHOST), lambda row: row["queue"]["name"]),
    "dead letters": (("dlq", VHOST), lambda row: row["name"].removesuffix("-dead")),
    "scheduled": (("scheduled", VHOST), lambda row: row["name"]),
    "bindings from": (
        ("exchanges", VHOST, "amq.direct", "bindings", "source"),
        lambda row: row["destination"],
    ),
}


@pytest.mark.parametrize("kind", list(LISTS))
def test_a_page_is_a_part_of_the_whole_in_its_order(filled: BlockingChannel, api: Api, kind: str):
    path, name_of = LISTS[kind]
    whole = api.call("GET", *path).json
    assert [name_of(row) for row in whole] == NAMES
    pages = [api.call("GET", *path, query=f"page={n}&page_size=5").json for n in (1, 2, 3)]
    assert [row for page in pages for row in page["items"]] == whole
    assert [page["item_count"] for page in pages] == [5, 5, 2]
    assert {page["page_count"] for page in pages} == {3}
    assert {page["total_count"] for page in pages} == {12}
    assert api.call("GET", *path, query="page=9&page_size=5").status == 400


@pytest.mark.parametrize("kind", list(LISTS))
def test_a_page_can_be_searched(filled: BlockingChannel, api: Api, kind: str):
    path, name_of = LISTS[kind]
    found = api.call("GET", *path, query="page=1&name=NAME-1").json
    assert [name_of(row) for row in found["items"]] == ["name-10", "name-11"]
    assert (found["filtered_count"], found["total_count"]) == (2, 12)
    found = api.call("GET", *path, query="page=1&use_regex=true&name=^name-0[37]").json
    assert [name_of(row) for row in found["items"]] == ["name-03", "name-07"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("streams", VHOST), "partitions"),
        (("scheduled", VHOST), "messages_delayed"),
    ],
)
def test_a_page_is_sorted_by_any_field(
    filled: BlockingChannel, api: Api, path: tuple[str, ...], field: str
):
    query = f"page=1&page_size=3&sort={field}&sort_reverse=true"
    found = api.call("GET", *path, query=query).json["items"]
    assert [row[field] for row in found] == [12, 11, 10]


def test_bindings_to_a_queue_are_found_by_their_keys(filled: BlockingChannel, api: Api):
    path = ("queues", VHOST, NAMES[0], "bindings")
    whole = api.call("GET", *path).json
    assert len(whole) == 14, "by its name, and once from one exchange and twelve times from another"
    found = api.call("GET", *path, query="page=1&name=key-07").json["items"]
    assert [(row["source"], row["routing_key"]) for row in found] == [("amq.topic", "key-07")]
    found = api.call("GET", *path, query="page=1&name=direct").json["items"]
    assert [row["routing_key"] for row in found] == ["key-00"]
    assert found[0] in whole
