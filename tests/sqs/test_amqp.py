"""One queue, two doors: what boto3 sends pika gets, and the other way round."""

import base64
import hashlib
import json
import threading
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pytest

from tests.sqs.conftest import connect, fresh_name, name_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def test_what_boto3_sends_pika_gets(sqs, url, amqp):
    amqp.queue_declare(name_of(url), durable=True)  # as if SQS had never been there
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody="grüße",
        MessageAttributes={
            "whole": {"DataType": "Number", "StringValue": "12"},
            "exact": {"DataType": "Number", "StringValue": "1.50"},
            "text": {"DataType": "String", "StringValue": "größer"},
            "data": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
    )
    method, properties, body = amqp.basic_get(name_of(url), auto_ack=True)
    assert (method.exchange, method.routing_key) == ("", name_of(url))
    assert body == "grüße".encode()
    assert properties.message_id == sent["MessageId"]
    assert (properties.user_id, properties.delivery_mode) == ("guest", 2)
    stamp = properties.headers.pop("timestamp_in_ms")
    assert properties.timestamp == stamp // 1000
    assert properties.headers == {
        "whole": 12,
        "exact": "1.50",
        "text": "größer",
        "data": b"\x00\xff",
        "x-sqs-types": {"exact": "Number"},
    }


def test_what_pika_sends_boto3_gets(url, amqp, receiver):
    headers = {
        "text": "größer",
        "whole": -(2**40),
        "yes": True,
        "exact": Decimal("1.5"),
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "nested": {"a": [1, "b"]},
        "bytes": b"\x00\xff",
        "nothing": None,
        "x-death": "of the broker's own",
    }
    properties = pika.BasicProperties(
        headers=headers, message_id="my own id", timestamp=1_700_000_000, delivery_mode=2
    )
    amqp.basic_publish("", name_of(url), "grüße".encode(), properties)
    got = receiver.one(url)
    assert (got["Body"], got["MessageId"]) == ("grüße", "my own id")
    assert got["MD5OfBody"] == hashlib.md5("grüße".encode()).hexdigest()
    assert got["Attributes"]["SentTimestamp"] == "1700000000000"
    shown = {
        name: (one["DataType"], one.get("StringValue", one.get("BinaryValue")))
        for name, one in got["MessageAttributes"].items()
    }
    assert json.loads(shown.pop("nested")[1]) == {"a": [1, "b"]}
    assert shown == {
        "text": ("String", "größer"),
        "whole": ("Number", str(-(2**40))),
        "yes": ("String", "true"),
        "exact": ("Number", "1.5"),
        "when": ("Number", str(int(datetime(2026, 1, 2, tzinfo=UTC).timestamp()))),
        "bytes": ("Binary", b"\x00\xff"),
    }


@pytest.mark.parametrize("body", [b"\xff\xfe", b"nul \x00 is no text", "\ufffe".encode(), b""])
def test_a_body_that_is_no_text_comes_as_base64_and_says_so(sqs, url, amqp, receiver, body):
    amqp.basic_publish("", name_of(url), body)
    got = receiver.one(url, MessageAttributeNames=["none of them"])
    if body:
        assert base64.b64decode(got["Body"]) == body
        encoding = {"DataType": "String", "StringValue": "base64"}
        assert got["MessageAttributes"] == {"x-body-encoding": encoding}
        raw = b"\0\0\0\x0fx-body-encoding\0\0\0\x06String\x01\0\0\0\x06base64"
        assert got["MD5OfMessageAttributes"] == hashlib.md5(raw).hexdigest()
    else:
        assert got["Body"] == ""
        assert "MessageAttributes" not in got
    assert got["MD5OfBody"] == hashlib.md5(got["Body"].encode()).hexdigest()


def test_a_message_without_an_id_has_always_the_same(sqs, url, amqp, receiver):
    for body in (b"a", b"b"):
        amqp.basic_publish("", name_of(url), body)
    first = receiver.take(url, 2)
    for each in first:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
        )
    again = receiver.take(url, 2)
    ids = {each["Body"]: each["MessageId"] for each in first}
    assert {each["Body"]: each["MessageId"] for each in again} == ids
    assert len(set(ids.values())) == 2


def test_an_amqp_publish_wakes_a_long_poll(broker, url, amqp, raw):
    got = []

    def poll():
        client = connect(broker)
        while not got:  # a stall may outlast one
            got.extend(client.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages", []))

    thread = threading.Thread(target=poll)
    thread.start()
    config = f"/queues/{name_of(url)}/config"
    eventually(lambda: '"consumers": 1' in raw("GET", config).body, "the poll to wait")
    amqp.basic_publish("", name_of(url), b"through the other door")
    thread.join()
    assert [each["Body"] for each in got] == ["through the other door"]


def test_a_send_wakes_an_amqp_consumer(sqs, url, amqp):
    sqs.send_message(QueueUrl=url, MessageBody="pushed")
    for method, _, body in amqp.consume(name_of(url), inactivity_timeout=60):
        assert body == b"pushed"
        amqp.basic_ack(method.delivery_tag)
        break
    amqp.cancel()


def test_a_queue_that_amqp_declared_is_a_queue_of_sqs(sqs, amqp, receiver):
    name = fresh_name()
    amqp.queue_declare(name, durable=True, arguments={"x-message-ttl": 120_000})
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    assert url in sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert receiver.one(url, VisibilityTimeout=600)["Body"] == "x"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "77"})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (shown["MessageRetentionPeriod"], shown["VisibilityTimeout"]) == ("120", "77")
    amqp.queue_declare(name, durable=True, arguments={"x-message-ttl": 120_000})
    sqs.delete_queue(QueueUrl=url)


def test_groups_and_ids_are_the_same_at_both_doors(sqs, make_queue, amqp, receiver):
    url = make_queue(fifo=True, ContentBasedDeduplication="true")
    headers = {"x-group-id": "g"}
    amqp.basic_publish("", name_of(url), b"1", pika.BasicProperties(headers=headers))
    sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g")  # the same content
    sqs.send_message(QueueUrl=url, MessageBody="2", MessageGroupId="g", MessageDeduplicationId="i")
    headers["x-dedup-id"] = "i"
    amqp.basic_publish("", name_of(url), b"3", pika.BasicProperties(headers=headers))
    got = receiver.take(url, 2)
    assert [each["Body"] for each in got] == ["1", "2"]
    assert receiver.counts(url) == (0, 2, 0)


def test_an_explicit_visibility_timeout_is_for_amqp_consumers_too(sqs, make_queue, amqp, receiver):
    url = make_queue(VisibilityTimeout="1")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert amqp.basic_get(name_of(url))[2] == b"x"
    assert receiver.one(url, VisibilityTimeout=600)["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_stream_and_a_queue_of_somebody_else_cannot_be_used(sqs, amqp, broker):
    name = fresh_name()
    amqp.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(sqs.exceptions.UnsupportedOperation):
        sqs.send_message(QueueUrl=broker.http_url(f"/000000000000/{name}"), MessageBody="x")
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=name)
    amqp.queue_delete(name)
    mine = amqp.queue_declare("", exclusive=True).method.queue
    with pytest.raises(sqs.exceptions.ClientError) as failure:
        sqs.receive_message(QueueUrl=broker.http_url(f"/000000000000/{mine}"))
    assert failure.value.response["Error"]["Code"] == "AccessDenied"


def test_an_exclusive_consumer_shares_with_nobody(sqs, url, amqp):
    amqp.basic_consume(name_of(url), lambda *_: None, exclusive=True)
    with pytest.raises(sqs.exceptions.ClientError) as failure:
        sqs.receive_message(QueueUrl=url)
    assert failure.value.response["Error"]["Code"] == "AccessDenied"


def test_receiving_does_not_end_an_auto_delete_queue(sqs, amqp, receiver):
    name = fresh_name()
    amqp.queue_declare(name, auto_delete=True)
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    for _ in range(2):
        amqp.basic_publish("", name, b"x")
        assert receiver.one(url, WaitTimeSeconds=1)["Body"] == "x"
    amqp.queue_delete(name)


def test_a_full_queue_says_so(sqs, amqp):
    name = fresh_name()
    amqp.queue_declare(
        name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="fits")
    with pytest.raises(sqs.exceptions.OverLimit):
        sqs.send_message(QueueUrl=url, MessageBody="does not")
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "nor this"}])
    assert [each["Code"] for each in answer["Failed"]] == ["OverLimit"]
    amqp.queue_delete(name)
