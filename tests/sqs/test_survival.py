"""What is sent and said survives: kill -9 of a node alone, and of the leader in a cluster."""

import json
import threading

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.proxy import HOST
from tests.sqs.conftest import LONG_S, arn_of, connect
from tests.support.waiting import eventually

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(300)]


def test_queues_attributes_tags_and_messages_survive_a_kill(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    sqs = connect(broker)
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 7}
    attributes = {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "VisibilityTimeout": LONG_S,
        "ReceiveMessageWaitTimeSeconds": "3",
    }
    url = sqs.create_queue(QueueName="q.fifo", Attributes=attributes, tags={"a": "b"})["QueueUrl"]
    plain = sqs.create_queue(QueueName="plain", Attributes={"RedrivePolicy": json.dumps(policy)})[
        "QueueUrl"
    ]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "3600"})
    sqs.tag_queue(QueueUrl=url, Tags={"c": "d"})
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g")
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    wanted = ("FifoQueue", "ContentBasedDeduplication", "MessageRetentionPeriod", *attributes)

    def settings(client):
        return [
            client.get_queue_attributes(QueueUrl=url, AttributeNames=list(wanted))["Attributes"],
            client.list_queue_tags(QueueUrl=url)["Tags"],
            client.get_queue_attributes(QueueUrl=plain, AttributeNames=["RedrivePolicy"]),
        ]

    before = settings(sqs)
    broker.kill()
    sqs = connect(start_broker(*data))
    after = settings(sqs)
    assert [each.get("Attributes", each) for each in after] == [
        each.get("Attributes", each) for each in before
    ]
    assert after[0]["MessageRetentionPeriod"] == "3600"
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [each["Body"] for each in got] == ["1", "2", "3", "4"]
    sqs.send_message(QueueUrl=url, MessageBody="0", MessageGroupId="g")  # still a duplicate
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["ApproximateNumberOfMessages"] == "0"


def test_while_an_alarm_lasts_nothing_is_sent_and_all_else_goes_on(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    sqs = connect(broker)
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="before")
    broker.stop()
    sqs = connect(start_broker(*data, "--disk-free-bytes-min", str(2**50)))
    url = sqs.get_queue_url(QueueName="q")["QueueUrl"]
    eventually(lambda: _is_refused(sqs, url), "the alarm")
    assert _is_refused(sqs, url)
    (got,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert got["Body"] == "before"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])


def _is_refused(sqs, url):
    try:
        sqs.send_message(QueueUrl=url, MessageBody="not now")
    except sqs.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "ServiceUnavailable"  # noqa: PT017
        return True
    return False


class Door:
    """The HTTP port of a node, as `connect` wants it."""

    def __init__(self, node):
        self._port = node.ports["http"]

    def http_url(self, path):
        return f"http://{HOST}:{self._port}{path}"


def test_any_node_serves_a_queue_and_the_leader_may_die(tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        clients = {name: connect(Door(node)) for name, node in cluster.nodes.items()}
        made = clients["a"].create_queue(
            QueueName="q.fifo", Attributes={"FifoQueue": "true", "VisibilityTimeout": LONG_S}
        )["QueueUrl"]
        for number, client in enumerate(clients.values()):
            client.send_message(
                QueueUrl=made,
                MessageBody=str(number),
                MessageGroupId="g",
                MessageDeduplicationId=str(number),
            )
        (first, *_) = clients["b"].receive_message(QueueUrl=made)["Messages"]
        assert first["Body"] == "0"
        clients["c"].delete_message(QueueUrl=made, ReceiptHandle=first["ReceiptHandle"])
        (held,) = clients["c"].receive_message(QueueUrl=made)["Messages"]
        assert held["Body"] == "1"

        leader = cluster.leader_of("q.fifo")
        assert leader is not None
        others = [client for name, client in clients.items() if name != leader]
        cluster.nodes[leader].kill()
        _eventually_deleted(others[0], made, held["ReceiptHandle"])
        assert _received(others[1], made) == ["2"]
        assert not cluster.tracebacks()
    cluster.wipe()


def _eventually_deleted(client, url, handle):
    """Until there is another leader, clients are told to try again."""

    def deleted():
        try:
            client.delete_message(QueueUrl=url, ReceiptHandle=handle)
        except client.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "ServiceUnavailable"  # noqa: PT017
            return False
        return True

    eventually(deleted, "another leader", within_s=120)


def _received(client, url):
    bodies = []

    def received():
        try:
            answer = client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
        except client.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == "ServiceUnavailable"  # noqa: PT017
            return False
        bodies.extend(each["Body"] for each in answer.get("Messages", []))
        return bodies

    eventually(received, "a message", within_s=120)
    return bodies


def test_a_long_poll_on_another_node_is_woken(tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        clients = {name: connect(Door(node)) for name, node in cluster.nodes.items()}
        url = clients["a"].create_queue(QueueName="q")["QueueUrl"]
        got = {}

        def poll(name):
            got[name] = _received(clients[name], url)

        threads = [threading.Thread(target=poll, args=(name,)) for name in clients]
        for thread in threads:
            thread.start()
        for number in range(3):
            clients["b"].send_message(QueueUrl=url, MessageBody=str(number))
            eventually(lambda wanted=number: sum(map(len, got.values())) > wanted, "it is taken")
        for thread in threads:
            thread.join()
        assert sorted(body for bodies in got.values() for body in bodies) == ["0", "1", "2"]
    cluster.wipe()
