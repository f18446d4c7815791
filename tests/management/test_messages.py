"""Beyond RabbitMQ: looking at messages, moving and dropping them; and arguments altered live."""

import json
import struct
from functools import partial
from http.client import HTTPConnection
from xml.etree import ElementTree as ET

import pika
import pytest

from tests.conftest import StartBroker
from tests.support.admin import Api, basic
from tests.support.frames import Basic, Queue, raw_frame
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import WireConnection

TYPES = pytest.mark.parametrize("kind", ["classic", "quorum"])


@pytest.fixture
def channel(node: BrokerProcess):
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def queue(channel, kind: str):
    name = f"looked-at-{kind}"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    for number in range(10):
        headers = {"n": number, "colour": "red" if number % 2 else "blue"}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2, type="test")
        channel.basic_publish("", name, f"text {number}".encode(), properties)
    yield name
    channel.queue_delete(name)


def browse(web: Api, queue: str, query: str = ""):
    answer = web.call("GET", "queues", "/", queue, "messages", query=query)
    assert answer.status == 200, answer
    return answer.json


def bodies(web: Api, queue: str, query: str = "") -> list[str]:
    return [row["payload"].removeprefix("text ") for row in browse(web, queue, query)["messages"]]


@TYPES
def test_browsing_consumes_nothing(web: Api, queue: str, channel) -> None:
    assert bodies(web, queue) == list("0123456789")
    assert bodies(web, queue) == list("0123456789")
    method, _, body = channel.basic_get(queue)
    assert (method.redelivered, body) == (False, b"text 0")


@TYPES
def test_browsing_goes_on_behind_the_last(web: Api, queue: str) -> None:
    first = browse(web, queue, "count=4")
    assert [row["payload"] for row in first["messages"]] == [f"text {n}" for n in range(4)]
    assert first["more"]
    rest = browse(web, queue, f"count=1000&after={first['after']}")
    assert len(rest["messages"]) == 6
    assert not browse(web, queue, f"after={rest['after']}")["messages"]


@TYPES
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("header=n:7", "7"),
        ("header=colour:red", "13579"),
        ("header=nothing", ""),
        ("text=text%204", "4"),
        ("text=[23]$&regex=true", "23"),
        ("routing_key=looked-at", "0123456789"),
        ("routing_key=other", ""),
        ("header=colour:blue&text=2", "2"),
        ("header=colour:red&count=2", "13"),
    ],
)
def test_messages_are_found_by_what_is_in_them(
    web: Api, queue: str, query: str, wanted: str
) -> None:
    assert bodies(web, queue, query) == list(wanted)


@TYPES
def test_one_message_is_dropped(web: Api, queue: str) -> None:
    rows = browse(web, queue)["messages"]
    path = ("queues", "/", queue, "messages", str(rows[3]["id"]))
    assert web.call("GET", *path).json["payload"] == "text 3"
    assert web.call("DELETE", *path).status == 204
    assert web.call("DELETE", *path).status == 404
    assert web.call("GET", *path).status == 404
    assert bodies(web, queue) == list("012456789")


@TYPES
def test_one_message_is_moved_with_all_that_it_has(web: Api, queue: str, channel) -> None:
    channel.queue_declare("target", durable=True)
    row = browse(web, queue)["messages"][5]
    path = ("queues", "/", queue, "messages", str(row["id"]), "move")
    assert web.call("POST", *path, body={"to": "nothing"}).status == 404
    assert web.call("POST", *path, body={"to": queue}).status == 400
    assert web.call("POST", *path, body={"to": "target"}).status == 204
    assert web.call("POST", *path, body={"to": "target"}).status == 404
    assert bodies(web, queue) == list("012346789")
    method, properties, body = channel.basic_get("target", auto_ack=True)
    assert body == b"text 5"
    assert method.routing_key == queue
    assert properties.headers == {"n": 5, "colour": "red"}
    assert properties.type == "test"
    channel.queue_delete("target")


@TYPES
def test_a_queue_that_refuses_leaves_the_message_where_it_was(
    web: Api, queue: str, channel
) -> None:
    full = {"x-max-length": 0, "x-overflow": "reject-publish", "x-queue-type": "classic"}
    channel.queue_declare("full", durable=True, arguments=full)
    row = browse(web, queue)["messages"][0]
    path = ("queues", "/", queue, "messages", str(row["id"]), "move")
    assert web.call("POST", *path, body={"to": "full"}).status == 409
    assert bodies(web, queue) == list("0123456789")
    channel.queue_delete("full")


def alter(web: Api, name: str, **arguments: object):
    return web.call("PATCH", "queues", "/", name, body={"arguments": arguments})


@TYPES
def test_arguments_are_altered_while_the_queue_is_used(web: Api, queue: str, channel) -> None:
    assert alter(web, queue, **{"x-max-length": 4}).status == 200
    assert bodies(web, queue) == list("6789")
    arguments = web.call("GET", "queues", "/", queue).json["arguments"]
    assert arguments["x-max-length"] == 4
    channel.queue_declare(queue, durable=True, arguments=arguments)  # it is that queue now
    assert alter(web, queue, **{"x-max-length": None}).status == 200
    channel.basic_publish("", queue, b"text x")
    assert bodies(web, queue) == list("6789x")


@TYPES
@pytest.mark.parametrize(
    "arguments",
    [{"x-queue-type": "stream"}, {"x-max-length": "x"}, {"x-single-active-consumer": True}],
)
def test_what_cannot_be_altered_stays(web: Api, queue: str, arguments: dict) -> None:
    before = web.call("GET", "queues", "/", queue).json["arguments"]
    answer = alter(web, queue, **arguments)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert web.call("GET", "queues", "/", queue).json["arguments"] == before


def test_arguments_and_parameters_survive_a_restart(start_broker: StartBroker, tmp_path) -> None:
    data = ("--data-dir", str(tmp_path / "kept"))
    node = start_broker(*data)
    api = Api(node.host, node.http_port)
    api.call("PUT", "queues", "/", "q", body={"arguments": {"x-max-length": 9}})
    assert alter(api, "q", **{"x-max-length": 2, "x-message-ttl": 60000}).status == 200
    api.call("PUT", "global-parameters", "mine", body={"value": [1, {"a": None}]})
    api.call("PUT", "cluster-name", body={"name": "kept"})
    api.close()
    node.kill()
    again = start_broker(*data)
    api = Api(again.host, again.http_port)
    row = api.call("GET", "queues", "/", "q").json
    assert row["arguments"] == {"x-max-length": 2, "x-message-ttl": 60000}
    assert api.call("GET", "global-parameters", "mine").json["value"] == [1, {"a": None}]
    assert api.call("GET", "overview").json["cluster_name"] == "kept"
    for _ in range(3):
        body = {"properties": {}, "routing_key": "q", "payload": "", "payload_encoding": "string"}
        api.call("POST", "exchanges", "/", "amq.default", "publish", body=body)
    assert len(browse(api, "q")["messages"]) == 2
    api.close()


def test_a_published_message_has_the_properties_it_was_given(web: Api, channel) -> None:
    channel.queue_declare("given", durable=True)
    properties = {
        "headers": {"a": 1, "b": [1, "x"], "c": {"d": None, "e": True}},
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1700000000,
        "type": "t",
        "app_id": "a",
    }
    body = {
        "properties": properties,
        "routing_key": "given",
        "payload": "/wA=",
        "payload_encoding": "base64",
    }
    answer = web.call("POST", "exchanges", "/", "amq.default", "publish", body=body)
    assert answer.json == {"routed": True}
    got = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    (row,) = web.call("POST", "queues", "/", "given", "get", body=got).json
    assert row["properties"] == properties
    assert (row["payload"], row["payload_encoding"]) == ("/wA=", "base64")
    _, received, body = channel.basic_get("given", auto_ack=True)
    assert body == b"\xff\x00"
    assert received.headers == properties["headers"]
    assert (received.priority, received.type) == (3, "t")
    channel.queue_delete("given")


def test_messages_that_are_looked_at_do_not_die_of_it(web: Api, channel) -> None:
    """A quorum queue gives up a message after twenty failed deliveries: this is none."""
    channel.queue_declare("patient", durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_publish("", "patient", b"still here")
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for _ in range(30):
        (row,) = web.call("POST", "queues", "/", "patient", "get", body=body).json
        assert row["payload"] == "still here"
    channel.queue_delete("patient")


def test_rejected_messages_are_dead_lettered(web: Api, channel) -> None:
    channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("dying", durable=True, arguments=arguments)
    channel.basic_publish("", "dying", b"poor thing")
    body = {"count": 5, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert len(web.call("POST", "queues", "/", "dying", "get", body=body).json) == 1
    eventually(lambda: browse(web, "dead")["messages"], "the dead letter")
    (row,) = browse(web, "dead")["messages"]
    assert row["payload"] == "poor thing"
    assert row["properties"]["headers"]["x-first-death-reason"] == "rejected"


def nested(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        inner = b"\x01a" + value
        value = b"F" + struct.pack(">I", len(inner)) + inner
    return b"\x01a" + value


# Header tables that a publisher may send, as they stand on the wire.
HOSTILE = {
    "a time beyond all years": b"\x01tT" + struct.pack(">Q", 2**63),
    "no number": b"\x01nd" + struct.pack(">d", float("nan")),
    "infinity": b"\x01nd" + struct.pack(">d", float("inf")),
    "a name that is not UTF-8": b"\x02\xff\xfeS" + struct.pack(">I", 1) + b"v",
    "a surrogate": b"\x03\xed\xb3\xbfS" + struct.pack(">I", 3) + b"\xed\xb3\xbf",
    "the largest number": b"\x01uL" + struct.pack(">Q", 2**64 - 1),
    "a tiny decimal": b"\x01dD" + struct.pack(">BI", 255, 1),
    "bytes": b"\x01bx" + struct.pack(">I", 2) + b"\xff\x00",
    "deep": nested(62),
}


def no_constant(name: str):
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("table", HOSTILE.values(), ids=HOSTILE)
def test_a_message_with_any_headers_hides_no_other(node: BrokerProcess, web: Api, table) -> None:
    """Browsed, fetched, and received by SQS in both of its protocols, among good ones."""
    name = "hostile"
    with WireConnection.connect(node.amqp_url()) as connection:
        channel = connection.open_channel()
        channel.declare_queue(name)
        channel.publish("", name, b"before")
        publish = Basic.Publish(exchange="", routing_key=name)
        connection.send(publish, channel.number)
        header = struct.pack(">HHQHI", 60, 0, 3, 0x2000, len(table)) + table
        connection.send_raw(
            raw_frame(2, channel.number, header) + raw_frame(3, channel.number, b"bad")
        )
        channel.publish("", name, b"behind")
        assert channel.count(name) == 3
        wanted = ["before", "bad", "behind"]
        call = partial(ask, node, name)
        browsed = json.loads(call("GET", "/messages"), parse_constant=no_constant)
        assert [row["payload"] for row in browsed["messages"]] == wanted
        body = {"ackmode": "ack_requeue_true", "encoding": "auto", "count": 5}
        fetched = json.loads(call("POST", "/get", json.dumps(body)), parse_constant=no_constant)
        assert [row["payload"] for row in fetched] == wanted
        query = "MaxNumberOfMessages=10&MessageAttributeName.1=All&AttributeName.1=All"
        receive = f"/queue/{name}?Action=ReceiveMessage&VisibilityTimeout=0&{query}"
        found = ET.fromstring(http_ask(node, "POST", receive, {"Accept": "text/xml"}))
        assert [each.text for each in found.iter() if each.tag.endswith("}Body")] == wanted
        target = {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
        wish = {
            "QueueUrl": node.http_url(f"/000000000000/{name}"),
            "MaxNumberOfMessages": 10,
            "MessageAttributeNames": ["All"],
        }
        eventually(lambda: channel.count(name) == 3, "the leases are over")
        shown = json.loads(http_ask(node, "POST", "/", target, json.dumps(wish)))
        assert [row["Body"] for row in shown["Messages"]] == wanted
        channel.rpc(Queue.Delete(queue=name))


def ask(node: BrokerProcess, queue: str, method: str, path: str, body: str | None = None) -> bytes:
    return http_ask(node, method, f"/api/queues/%2F/{queue}{path}", {}, body)


def http_ask(node, method: str, target: str, headers: dict[str, str], body=None) -> bytes:
    connection = HTTPConnection(node.host, node.http_port, timeout=60)
    connection.request(method, target, body, {"Authorization": basic("guest", "guest"), **headers})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == 200, data
    return data
