"""Topics are made, shown and deleted; each is a stream queue like any other."""

import pika
import pytest

from clients.streams import connect
from tests.support.process import BrokerProcess
from tests.topics.conftest import MakeTopic, Web, fresh_name

pytestmark = pytest.mark.leveret_only


def test_a_topic_is_a_stream_queue_with_these_arguments(web: Web, api, make_topic: MakeTopic):
    name = make_topic(3, replicationFactor=1, retentionMs=3_600_500)
    arguments = api.call("GET", "queues", "/", name).json["arguments"]
    assert arguments == {
        "x-queue-type": "stream",
        "x-partitions": 3,
        "x-initial-cluster-size": 1,
        "x-max-age": "3601s",
    }
    shown = web.ask("GET", f"admin/topics/{name}")
    assert shown == {
        "name": name,
        "vhost": "/",
        "partitions": 3,
        "replicationFactor": 1,
        "retentionMs": 3_601_000,
        "offsets": [
            {"partition": n, "firstOffset": 0, "nextOffset": 0, "sizeBytes": 0} for n in range(3)
        ],
        "damaged": None,
    }


def test_making_it_again_changes_nothing_and_making_another_is_refused(web: Web, topic: str):
    again = web.call("POST", "admin/topics", {"name": topic, "partitions": 1})
    assert again.status == 200
    other = web.call("POST", "admin/topics", {"name": topic, "partitions": 2})
    assert (other.status, other.json["code"]) == (409, "conflict")
    assert web.ask("GET", f"admin/topics/{topic}")["partitions"] == 1


def test_retention_for_ever_is_no_retention(web: Web, make_topic: MakeTopic):
    assert web.ask("GET", f"admin/topics/{make_topic(retentionMs=-1)}")["retentionMs"] == -1


def test_the_list_has_topics_and_no_other_queues(
    broker: BrokerProcess, web: Web, make_topic: MakeTopic
):
    names = [make_topic(), make_topic(2)]
    plain = fresh_name()
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url())) as connection:
        connection.channel().queue_declare(plain, exclusive=True)
        found = {row["name"]: row["partitions"] for row in web.ask("GET", "admin/topics")}
        assert web.call("GET", f"admin/topics/{plain}").status == 404
        assert web.call("DELETE", f"admin/topics/{plain}").status == 404
    assert [found[name] for name in names] == [1, 2]
    assert plain not in found
    assert "__consumer_offsets" not in found


def test_what_amqp_declares_is_a_topic_and_deletes_are_seen_on_both_sides(
    broker: BrokerProcess, web: Web
):
    name = fresh_name()
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    assert web.ask("GET", f"admin/topics/{name}")["partitions"] == 1
    assert web.call("DELETE", f"admin/topics/{name}").status == 204
    assert web.call("GET", f"admin/topics/{name}").json["code"] == "stream_not_found"
    with connect(broker.amqp_url(), name="a test") as client:
        assert name not in client.streams()


def test_each_vhost_has_its_own_topics(web: Web, api):
    vhost, name = fresh_name(), fresh_name()
    assert api.call("PUT", "vhosts", vhost).status < 300
    permissions = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.call("PUT", "permissions", vhost, "guest", body=permissions).status < 300
    try:
        web.ask("POST", "admin/topics", {"name": name}, vhost=vhost)
        assert [row["name"] for row in web.ask("GET", "admin/topics", vhost=vhost)] == [name]
        assert web.call("GET", f"admin/topics/{name}").status == 404
        assert web.call("GET", f"admin/topics/{name}", vhost="nowhere").status == 404
    finally:
        api.call("DELETE", "vhosts", vhost)
