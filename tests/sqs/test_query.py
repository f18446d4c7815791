"""The older protocol in XML, the short form, and requests that make no sense."""

import json
import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from broker.http.messages import Request
from broker.sqs import json_protocol, query_protocol
from broker.sqs.errors import SqsError
from tests.sqs.conftest import arn_of, fresh_name, name_of

pytestmark = pytest.mark.leveret_only

FORM = "application/x-www-form-urlencoded"
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def plain(element):
    """XML as lists of (name, text or list)."""
    name = element.tag.removeprefix(NAMESPACE)
    return (name, [plain(child) for child in element] if len(element) else element.text or "")


class Query:
    """A client as they were before SQS spoke JSON."""

    def __init__(self, broker, raw):
        self._broker, self._raw = broker, raw
        self._signer = SigV4Auth(Credentials("guest", "guest"), "sqs", "eu-central-1")

    def __call__(self, path, action, **fields):
        body = urlencode({"Action": action, "Version": "2012-11-05", **fields}).encode()
        request = AWSRequest("POST", self._broker.http_url(path), data=body)
        request.headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
        self._signer.add_auth(request)
        headers = dict(request.headers)
        answer = self._raw("POST", path, body, auth=headers.pop("Authorization"), **headers)
        root = ET.fromstring(answer.body)
        if answer.status != 200:
            assert root.tag == f"{NAMESPACE}ErrorResponse"
            error = root.find(f"{NAMESPACE}Error")
            return answer.status, dict(map(plain, error))["Code"]
        assert root.tag == f"{NAMESPACE}{action}Response"
        assert root.find(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId").text
        result = root.find(f"{NAMESPACE}{action}Result")
        return [] if result is None else list(plain(result)[1])


@pytest.fixture
def query(broker, raw):
    return Query(broker, raw)


def path_of(url):
    return f"/000000000000/{name_of(url)}"


def first(rows, name):
    return next(value for key, value in rows if key == name)


def test_the_life_of_a_message_in_xml(query, url, broker):
    path = path_of(url)
    sent = query(
        path,
        "SendMessage",
        **{
            "MessageBody": "grüße <&> \r\n",
            "MessageAttribute.1.Name": "n",
            "MessageAttribute.1.Value.DataType": "Number",
            "MessageAttribute.1.Value.StringValue": "12",
            "MessageAttribute.2.Name": "b",
            "MessageAttribute.2.Value.DataType": "Binary",
            "MessageAttribute.2.Value.BinaryValue": "AP8=",
        },
    )
    wanted = {"AttributeName.1": "All", "MessageAttributeName.1": "All", "WaitTimeSeconds": 20}
    ((name, message),) = query(path, "ReceiveMessage", **wanted)
    assert name == "Message"
    assert first(message, "Body") == "grüße <&> \r\n"
    assert first(message, "MessageId") == first(sent, "MessageId")
    assert first(message, "MD5OfMessageAttributes") == first(sent, "MD5OfMessageAttributes")
    attributes = [value for key, value in message if key == "MessageAttribute"]
    assert [("Name", "n"), ("Value", [("StringValue", "12"), ("DataType", "Number")])] in attributes
    assert [("Name", "b"), ("Value", [("BinaryValue", "AP8="), ("DataType", "Binary")])] in (
        attributes
    )
    system = {value[0][1]: value[1][1] for key, value in message if key == "Attribute"}
    assert system["ApproximateReceiveCount"] == "1"
    handle = first(message, "ReceiptHandle")
    assert query(path, "ChangeMessageVisibility", ReceiptHandle=handle, VisibilityTimeout=60) == []
    assert query(path, "DeleteMessage", ReceiptHandle=handle) == []
    assert query(path, "ReceiveMessage") == []
    assert query("/", "DeleteQueue", QueueUrl=broker.http_url(path)) == []
    assert query(path, "ReceiveMessage") == (400, "AWS.SimpleQueueService.NonExistentQueue")


def test_queues_in_xml(query, broker):
    name = fresh_name()
    made = {"Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": "7"}
    made |= {"Tag.1.Key": "k", "Tag.1.Value": "v"}
    path = f"/000000000000/{name}"
    url = broker.http_url(path)
    assert query("/", "CreateQueue", QueueName=name, **made) == [("QueueUrl", url)]
    assert query("/", "GetQueueUrl", QueueName=name) == [("QueueUrl", url)]
    assert query("/", "ListQueues", QueueNamePrefix=name) == [("QueueUrl", url)]
    assert query(path, "ListQueueTags") == [("Tag", [("Key", "k"), ("Value", "v")])]
    assert query(path, "TagQueue", **{"Tag.1.Key": "l", "Tag.1.Value": "w"}) == []
    assert query(path, "UntagQueue", **{"TagKey.1": "k"}) == []
    assert query(path, "ListQueueTags") == [("Tag", [("Key", "l"), ("Value", "w")])]
    changed = {"Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": "0"}
    assert query(path, "SetQueueAttributes", **changed) == []
    shown = query(path, "GetQueueAttributes", **{"AttributeName.1": "DelaySeconds"})
    assert shown == [("Attribute", [("Name", "DelaySeconds"), ("Value", "0")])]
    assert query(path, "PurgeQueue") == []
    assert query(path, "ListDeadLetterSourceQueues") == []
    assert query(path, "DeleteQueue") == []


def test_batches_in_xml(query, url):
    path = path_of(url)
    entries = {}
    for number, body in enumerate(("a", "\x00", "c"), start=1):
        entry = f"SendMessageBatchRequestEntry.{number}"
        entries |= {f"{entry}.Id": f"e{number}", f"{entry}.MessageBody": body}
    entry = "SendMessageBatchRequestEntry.1.MessageAttribute.1"
    entries |= {f"{entry}.Name": "n", f"{entry}.Value.DataType": "String"}
    entries[f"{entry}.Value.StringValue"] = "x"
    answer = query(path, "SendMessageBatch", **entries)
    sent = [value for key, value in answer if key == "SendMessageBatchResultEntry"]
    assert [first(each, "Id") for each in sent] == ["e1", "e3"]
    assert first(sent[0], "MD5OfMessageAttributes")
    (failed,) = [value for key, value in answer if key == "BatchResultErrorEntry"]
    assert first(failed, "Id") == "e2"
    assert first(failed, "Code") == "InvalidMessageContents"
    assert first(failed, "SenderFault") == "true"
    got = query(path, "ReceiveMessage", MaxNumberOfMessages=10)
    handles = [first(message, "ReceiptHandle") for _, message in got]
    change, delete = {}, {}
    for number, handle in enumerate(handles, start=1):
        entry = f"ChangeMessageVisibilityBatchRequestEntry.{number}"
        change |= {f"{entry}.Id": f"e{number}", f"{entry}.ReceiptHandle": handle}
        change[f"{entry}.VisibilityTimeout"] = "600"
        entry = f"DeleteMessageBatchRequestEntry.{number}"
        delete |= {f"{entry}.Id": f"e{number}", f"{entry}.ReceiptHandle": handle}
    rows = query(path, "ChangeMessageVisibilityBatch", **change)
    assert [key for key, _ in rows] == ["ChangeMessageVisibilityBatchResultEntry"] * 2
    rows = query(path, "DeleteMessageBatch", **delete)
    assert [key for key, _ in rows] == ["DeleteMessageBatchResultEntry"] * 2


def test_move_tasks_in_xml(query, sqs, make_queue):
    dead = make_queue()
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    make_queue(RedrivePolicy=policy)
    ((name, handle),) = query("/", "StartMessageMoveTask", SourceArn=arn_of(dead))
    assert (name, bool(handle)) == ("TaskHandle", True)
    ((name, task),) = query("/", "ListMessageMoveTasks", SourceArn=arn_of(dead))
    assert name == "ListMessageMoveTasksResultEntry"
    assert first(task, "SourceArn") == arn_of(dead)


# The short form


def test_the_short_form_sends_receives_and_deletes(raw):
    name = fresh_name()
    path = f"/queue/{name}"
    made = raw("POST", f"{path}?Action=CreateQueue")
    assert json.loads(made.body)["QueueUrl"].endswith(f"/000000000000/{name}")
    sent = raw("POST", f"{path}?Action=SendMessage", "grüße".encode(), Content_Type="text/plain")
    assert sent.status == 200
    raw("POST", f"{path}?Action=SendMessage&MessageBody=in%20the%20URL")
    raw("POST", f"{path}?Action=SendMessage", b"MessageBody=in+a+form", Content_Type=FORM)
    body = json.dumps({"MessageBody": "in JSON", "DelaySeconds": 0}).encode()
    raw("POST", f"{path}?Action=SendMessage", body, Content_Type="application/json")
    answer = raw("POST", f"{path}?Action=ReceiveMessage&MaxNumberOfMessages=10")
    got = json.loads(answer.body)["Messages"]
    assert [each["Body"] for each in got] == ["grüße", "in the URL", "in a form", "in JSON"]
    for each in got:
        gone = raw("POST", f"{path}?Action=DeleteMessage&ReceiptHandle={each['ReceiptHandle']}")
        assert (gone.status, gone.body) == (200, "{}")
    xml = raw("POST", f"{path}?Action=GetQueueAttributes&AttributeName.1=All", Accept="text/xml")
    assert "<Name>ApproximateNumberOfMessages</Name><Value>0</Value>" in xml.body
    assert raw("POST", f"{path}?Action=DeleteQueue").status == 200
    missing = raw("POST", f"{path}?Action=ReceiveMessage")
    assert missing.status == 400
    assert json.loads(missing.body)["__type"].endswith("#QueueDoesNotExist")


def test_the_short_form_needs_a_user(raw):
    assert raw("POST", "/queue/q?Action=ReceiveMessage", auth=None).status == 403
    assert raw("GET", "/queues/q/config", auth=None).status == 401


def test_the_configuration_of_a_queue_and_its_bindings(raw, make_queue, amqp):
    url = make_queue(fifo=True, VisibilityTimeout="45")
    name = name_of(url)
    amqp.queue_bind(name, "amq.topic", "orders.#", {"x": 1})
    answer = raw("GET", f"/queues/{name}/config")
    config = json.loads(answer.body)
    assert {
        "name": name,
        "vhost": "/",
        "type": "quorum",
        "durable": True,
        "arguments": {},
        "is_fifo": True,
        "bindings": [
            {"source": "", "routing_key": name, "arguments": {}},
            {"source": "amq.topic", "routing_key": "orders.#", "arguments": {"x": 1}},
        ],
    }.items() <= config.items()
    assert config["settings"]["x-visibility-timeout"] == 45_000
    assert config["effective"]["message_groups"] is True
    assert raw("GET", "/queues/not-there/config").status == 404
    assert raw("GET", f"/queues/{name}/config?vhost=nowhere").status == 404


def test_the_configuration_shows_what_is_in_flight_and_for_how_long(raw, sqs):
    url = sqs.create_queue(QueueName=fresh_name())["QueueUrl"]
    path = f"/queues/{name_of(url)}/config"
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    assert sqs.receive_message(QueueUrl=url)["Messages"]
    config = json.loads(raw("GET", path).body)
    counts = [config[key] for key in ("messages", "messages_ready", "messages_unacknowledged")]
    assert counts == [3, 2, 1]
    assert config["effective"]["visibility_timeout_ms"] == 30_000
    sqs.delete_queue(QueueUrl=url)


# What makes no sense


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/", b"", {}, 400),
        ("/", b"not a form", {}, 400),
        ("/", b"%ff=\xff", {}, 400),
        ("/", b"Action=Dance", {}, 400),
        ("/", b"Action=ListQueues&MaxResults=many", {}, 400),
        ("/", b"Action=SetQueueAttributes&QueueUrl=x&Attribute.x.Name=y", {}, 400),
        ("/", b"Action=SetQueueAttributes&QueueUrl=x&Attribute.1.Value=y", {}, 400),
        ("/", b"{", {"X_Amz_Target": "AmazonSQS.ListQueues"}, 400),
        ("/", b"[]", {"X_Amz_Target": "AmazonSQS.ListQueues"}, 400),
        ("/", b"[" * 100_000, {"X_Amz_Target": "AmazonSQS.ListQueues"}, 400),
        ("/", b"{}", {"X_Amz_Target": "AmazonSQS.Dance"}, 400),
        ("/", b"{}", {"X_Amz_Target": "DynamoDB.ListTables"}, 400),
        ("/", b"{}", {"X_Amz_Target": "AmazonSQS.SendMessage"}, 400),
        ("/", b'{"QueueUrl": 5}', {"X_Amz_Target": "AmazonSQS.SendMessage"}, 400),
        ("/", b'{"QueueName": ["x"]}', {"X_Amz_Target": "AmazonSQS.CreateQueue"}, 400),
        ("/", b'{"QueueName": "\\ud800"}', {"X_Amz_Target": "AmazonSQS.CreateQueue"}, 400),
        ("/", b'{"QueueName": "\\ud800"}', {"X_Amz_Target": "AmazonSQS.GetQueueUrl"}, 400),
        (
            "/",
            b'{"QueueName": "x", "Attributes": {"DelaySeconds": 5}}',
            {"X_Amz_Target": "AmazonSQS.CreateQueue"},
            400,
        ),
        (
            "/",
            b'{"QueueName": "x", "Attributes": ["DelaySeconds"]}',
            {"X_Amz_Target": "AmazonSQS.CreateQueue"},
            400,
        ),
        ("/api/internal/sqs", b"{}", {}, 404),
        ("/111111111111/q", b"Action=ReceiveMessage", {}, 404),
    ],
    ids=lambda each: str(each)[:40],
)
def test_malformed_requests_are_the_senders_fault(raw, broker, path, body, headers, status):
    answer = raw("POST", path, body, **headers)
    assert answer.status == status, answer.body
    if status == 400:
        assert "Sender" in answer.headers.get("x-amzn-query-error", answer.body)
    broker.assert_sound()


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Id", "DataType", "StringValue", "x"]), inner)
    ),
    max_leaves=6,
)
MEMBERS = (
    *("QueueUrl", "QueueName", "Attributes", "AttributeNames", "Entries", "MessageBody", "tags"),
    *("MessageAttributes", "ReceiptHandle", "VisibilityTimeout", "MaxNumberOfMessages", "Tags"),
    *("MessageGroupId", "MessageDeduplicationId", "DelaySeconds", "TaskHandle", "SourceArn"),
)


def test_no_nonsense_is_answered_with_a_fault_of_ours(raw, broker, url):
    from broker.sqs.door import OPERATIONS

    @given(
        action=st.sampled_from(sorted(set(OPERATIONS) - {"DeleteQueue", "CreateQueue"})),
        values=st.dictionaries(st.sampled_from(MEMBERS), NONSENSE, max_size=4),
    )
    def send(action, values):
        body = json.dumps({"QueueUrl": url, **values}).encode()
        answer = raw("POST", "/", body, X_Amz_Target=f"AmazonSQS.{action}")
        assert answer.status < 500, (action, values, answer.body)

    send()
    broker.assert_sound()


FIELD = st.text(st.characters(codec="utf-8"), max_size=10)


@given(st.dictionaries(FIELD, FIELD))
def test_any_form_is_parsed_or_refused(fields):
    request = Request(method="POST", path="/", body=urlencode({**fields, "Action": "X"}).encode())
    try:
        action, _ = query_protocol.parse(request)
    except SqsError:
        return
    assert action == "X"


@given(st.text(max_size=50))
def test_any_text_is_well_formed_xml(text):
    response = query_protocol.result("X", {"Body": text, "Tags": {text: text}}, "id")
    root = ET.fromstring(response.body)
    assert root.tag == f"{NAMESPACE}XResponse"


def test_a_json_body_that_is_missing_is_an_empty_object():
    assert json_protocol.parse_object(b"") == {}
