"""The broker's own streams: no door lets a client make, fill, bind or delete one."""

import json
from urllib.parse import quote

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.support.admin import Api
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually

OWN = "__consumer_offsets"
PASSWORD = "x"
JSON_CALL = {"Content-Type": "application/x-amz-json-1.0"}


class Tenant:
    """A policymaker whose permissions allow everything."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.api = Api(broker.host, broker.http_port, user="tenant", password=PASSWORD)
        url = broker.amqp_url(user="tenant", password=PASSWORD)
        self.channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        self.channel.confirm_delivery()

    def sqs(self, action: str, **parameters: object):
        return self.api.post_to(
            "/", parameters, {**JSON_CALL, "X-Amz-Target": f"AmazonSQS.{action}"}
        )

    def make_own(self) -> None:
        """Commit an offset: from then on there is the broker's own stream."""
        assert self.api.call("POST", "admin", "topics", body={"name": "t"}).status == 201
        offsets = {"group": "g", "offsets": [{"partition": 0, "offset": 0}]}
        assert self.api.call("POST", "topics", "t", "commit", body=offsets).status in (200, 204)


@pytest.fixture
def lives(tmp_path):
    """Starts brokers on one directory, one after another."""
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        if started:
            assert started[-1].stop() == 0, started[-1].log_text()
        started.append(BrokerProcess(tmp_path / "broker", "--auth-failure-delay-s", "0"))
        return started[-1]

    yield start
    assert started[-1].stop() == 0, started[-1].log_text()


@pytest.fixture
def tenant(lives) -> Tenant:
    broker = lives()
    admin = Api(broker.host, broker.http_port)
    body = {"password": PASSWORD, "tags": "policymaker"}
    assert admin.call("PUT", "users", "tenant", body=body).status == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert admin.call("PUT", "permissions", "/", "tenant", body=everything).status == 201
    return Tenant(broker)


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


def groups_work_after_a_restart(lives) -> bool:
    broker = lives()
    offsets = {"group": "g", "offsets": [{"partition": 0, "offset": 0}]}
    api = Api(broker.host, broker.http_port, user="tenant", password=PASSWORD)
    return api.call("POST", "topics", "t", "commit", body=offsets).status in (200, 204)


def test_sqs_makes_no_queue_of_such_a_name(tenant: Tenant, lives) -> None:
    assert tenant.sqs("CreateQueue", QueueName=OWN).status == 403
    tenant.make_own()
    assert groups_work_after_a_restart(lives)


def test_a_forged_death_does_not_lead_there(tenant: Tenant, lives) -> None:
    tenant.make_own()
    tenant.channel.queue_declare("dead", durable=True)
    redrive = json.dumps({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 3})
    made = tenant.sqs("CreateQueue", QueueName="source", Attributes={"RedrivePolicy": redrive})
    assert made.status == 200
    death = {"queue": OWN, "reason": "rejected", "exchange": "", "routing-keys": ["x"], "count": 1}
    properties = pika.BasicProperties(headers={"x-death": [death]}, delivery_mode=2)
    tenant.channel.basic_publish("", "dead", b"garbage", properties)
    assert tenant.sqs("StartMessageMoveTask", SourceArn=arn("dead")).status == 200

    def is_over() -> bool:
        [task] = tenant.sqs("ListMessageMoveTasks", SourceArn=arn("dead")).json["Results"]
        assert task["ApproximateNumberOfMessagesMoved"] == 0
        return task["Status"] == "COMPLETED"

    eventually(is_over, "the task to end")
    assert tenant.api.call("POST", "dlq", "/", "dead", "replay", body={"all": True}).json == {
        "replayed": 0,
        "left": 1,
    }
    assert groups_work_after_a_restart(lives)


def test_no_message_is_moved_there(tenant: Tenant, lives) -> None:
    tenant.make_own()
    tenant.channel.queue_declare("mine", durable=True)
    tenant.channel.basic_publish("", "mine", b"garbage")
    path = ("queues", "/", "mine", "messages")
    [row] = tenant.api.call("GET", *path).json["messages"]
    moved = tenant.api.call("POST", *path, str(row["id"]), "move", body={"to": OWN})
    assert moved.status == 401
    assert len(tenant.api.call("GET", *path).json["messages"]) == 1
    assert groups_work_after_a_restart(lives)


def test_an_import_neither_makes_nor_binds_one(tenant: Tenant, lives) -> None:
    queue = {"queues": [{"name": OWN, "durable": True, "arguments": {}}]}
    assert tenant.api.call("POST", "definitions", "/", body=queue).status == 400
    tenant.make_own()
    binding = {"source": "amq.fanout", "destination_type": "queue", "destination": OWN}
    bindings = {"bindings": [{**binding, "routing_key": "", "arguments": {}}]}
    assert tenant.api.call("POST", "definitions", "/", body=bindings).status in (400, 401)
    path = ("bindings", "/", "e", "amq.fanout", "q", OWN)
    assert tenant.api.call("POST", *path, body={"routing_key": ""}).status == 401
    tenant.channel.basic_publish("amq.fanout", "", b"garbage")
    assert groups_work_after_a_restart(lives)


def test_nobody_deletes_it(tenant: Tenant, lives) -> None:
    tenant.make_own()
    assert tenant.api.call("DELETE", "queues", "/", OWN).status == 401
    assert tenant.sqs("DeleteQueue", QueueUrl=f"/000000000000/{quote(OWN)}").status == 400
    with pytest.raises(ChannelClosedByBroker) as refusal:
        tenant.channel.queue_delete(OWN)
    assert refusal.value.reply_code == 403
    assert groups_work_after_a_restart(lives)
