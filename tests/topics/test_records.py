"""What is produced here is consumed there and back: HTTP, AMQP and the stream protocol."""

import base64
import threading
import time

import pika
import pytest

from clients.streams import connect
from queues.stream.publishing import partition_of
from tests.support.process import BrokerProcess
from tests.topics.conftest import MakeTopic, Member, Web, encoded, record, values

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def amqp(broker: BrokerProcess):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=100)
    yield channel
    connection.close()


def test_a_produced_record_is_told_where_it_went(web: Web, topic: str):
    before = int(time.time() * 1000)
    first = web.produce(topic, b"one", "k")
    second = web.produce(topic, b"two", "k")
    assert {**first, "timestamp": 0} == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
    }
    assert second["offset"] == 1
    assert abs(first["timestamp"] - before) < 3_600_000


def test_amqp_delivers_what_http_produced(web: Web, topic: str, amqp):
    headers = {"text": "ä", "number": 7, "truth": True, "list": [1, "two"], "table": {"a": None}}
    web.produce(topic, b"\0\xff body", "customer-1", headers=headers)
    arguments = {"x-stream-offset": "first"}
    delivered = amqp.consume(topic, arguments=arguments, inactivity_timeout=60)
    method, properties, body = next(delivered)
    amqp.cancel()
    assert body == b"\0\xff body"
    assert method.routing_key == topic
    assert properties.headers == {
        **headers,
        "x-partition-key": "customer-1",
        "x-stream-offset": 0,
        "x-stream-partition": 0,
    }


def test_http_consumes_what_amqp_published(web: Web, make_topic: MakeTopic, amqp, group: str):
    topic = make_topic(3)
    headers = {"x-partition-key": "customer-1", "colour": "red"}
    amqp.basic_publish("", topic, b"\0\xff body", pika.BasicProperties(headers=headers))
    (found,) = Member(web, topic, group).take(1)
    assert found["timestamp"] > 0
    assert {**found, "timestamp": 0} == {
        "topic": topic,
        "partition": partition_of(b"customer-1", 3),
        "offset": 0,
        "timestamp": 0,
        "key": "customer-1",
        "value": encoded(b"\0\xff body"),
        "headers": {"colour": "red"},
    }


def test_the_stream_client_reads_what_http_produced_and_the_other_way_round(
    broker: BrokerProcess, web: Web, topic: str, group: str
):
    web.produce(topic, b"from http", "k", headers={"a": 1})
    web.ask(
        "POST",
        f"topics/{topic}/produce",
        {"key": encoded(b"\xff"), "keyEncoding": "base64", "value": None},
    )
    with connect(broker.amqp_url(), name="a test") as client:
        reader = iter(client.reader(topic, partition=0, offset=0))
        first, second = next(reader), next(reader)
        assert (first.key, first.value) == (b"k", b"from http")
        assert first.headers == {"a": 1, "x-partition-key": "k"}
        assert (second.key, second.value) == (b"\xff", None)
        with client.producer(topic) as producer:
            producer.send(b"from the client", key=b"\xfe", headers={"b": 2})
    got = Member(web, topic, group).take(3)
    assert [each["value"] for each in got] == [
        encoded(b"from http"),
        None,
        encoded(b"from the client"),
    ]
    assert [base64.b64decode(each["key"]) for each in got[1:]] == [b"\xff", b"\xfe"]
    assert [each.get("keyEncoding") for each in got] == [None, "base64", "base64"]
    assert got[2]["headers"] == {"b": 2}


def test_a_batch_is_answered_in_its_order_and_stored_in_its_order(
    web: Web, make_topic: MakeTopic, group: str
):
    topic = make_topic(4)
    sent = [record(b"%d" % n, f"key-{n % 7}") for n in range(200)]
    rows = web.produce_all(topic, *sent)
    assert [row["partition"] for row in rows] == [
        partition_of(each["key"].encode(), 4) for each in sent
    ]
    got = Member(web, topic, group, maxMessages=1000).take(200)
    places = {(each["partition"], each["offset"]): each["value"] for each in got}
    assert [places[row["partition"], row["offset"]] for row in rows] == [
        each["value"] for each in sent
    ]


def test_records_of_a_key_stay_in_order(web: Web, make_topic: MakeTopic, group: str):
    topic = make_topic(3)
    for n in range(60):
        web.produce(topic, b"%d" % n, f"key-{n % 4}")
    got = Member(web, topic, group).take(60)
    for key in range(4):
        of_key = [each for each in got if each["key"] == f"key-{key}"]
        assert values(of_key) == [b"%d" % n for n in range(key, 60, 4)]
        assert len({each["partition"] for each in of_key}) == 1


def test_records_without_a_key_take_turns_and_a_partition_can_be_chosen(
    web: Web, make_topic: MakeTopic
):
    topic = make_topic(3)
    rows = web.produce_all(topic, *(record(b"%d" % n) for n in range(9)))
    assert sorted(row["partition"] for row in rows) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    chosen = web.produce(topic, b"here", "any key", partition=2)
    assert (chosen["partition"], chosen["offset"]) == (2, 3)


@pytest.mark.parametrize(("acks", "is_known"), [("all", True), ("1", True), ("0", False)])
def test_acks_decide_what_is_answered_and_all_is_stored_alike(
    web: Web, topic: str, acks: str, is_known: bool, group: str
):
    row = web.produce(topic, b"value", acks=acks)
    assert row["offset"] == (0 if is_known else None)
    assert values(Member(web, topic, group).take(1)) == [b"value"]


def test_a_batch_larger_than_a_chunk_is_stored_whole(web: Web, topic: str, group: str):
    sent = [bytes([n]) * 3_000_000 for n in range(3)]
    rows = web.produce_all(topic, *map(record, sent))
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert values(Member(web, topic, group).take(3)) == sent


def test_a_long_poll_is_woken_by_a_record(web: Web, other_web: Web, topic: str, group: str):
    member = Member(web, topic, group)
    assert member.poll() == []
    got = []
    thread = threading.Thread(target=lambda: got.extend(member.take(1)))
    thread.start()
    other_web.produce(topic, b"news")
    thread.join(120)
    assert values(got) == [b"news"]


def test_a_key_that_is_no_text_reaches_amqp_consumers_as_bytes(web: Web, amqp, topic: str):
    body = {"key": encoded(b"\xff\x00"), "keyEncoding": "base64", "value": encoded(b"v")}
    web.ask("POST", f"topics/{topic}/produce", body)
    arguments = {"x-stream-offset": "first"}
    _, properties, _ = next(amqp.consume(topic, arguments=arguments, inactivity_timeout=30))
    assert bytes(properties.headers["x-partition-key"]) == b"\xff\x00"
    amqp.cancel()
