"""Queues of SQS: made, found, listed, changed, tagged, emptied, deleted."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.sqs.conftest import LONG_S, arn_of, connect, fresh_name, name_of

pytestmark = pytest.mark.leveret_only


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


def attributes_of(sqs, url):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]


def test_a_queue_is_found_by_its_name(sqs, broker, url):
    assert sqs.get_queue_url(QueueName=name_of(url))["QueueUrl"] == url
    assert url == broker.http_url(f"/000000000000/{name_of(url)}")


def test_making_a_queue_again_is_fine_and_making_it_otherwise_is_not(sqs, make_queue):
    url = make_queue(DelaySeconds="5", VisibilityTimeout="44")
    name = name_of(url)
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    same = {"DelaySeconds": "5", "VisibilityTimeout": "44"}
    assert sqs.create_queue(QueueName=name, Attributes=same)["QueueUrl"] == url
    with pytest.raises(sqs.exceptions.QueueNameExists) as failure:
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "6"})
    assert code_of(failure) == "QueueAlreadyExists"
    assert "DelaySeconds" in str(failure.value)


@pytest.mark.parametrize("name", ["", "a" * 81, "dots.are.not", "no/slash", "ü", "x.fifo"])
def test_names_that_aws_would_not_take_are_refused(sqs, name):
    with pytest.raises(ClientError) as failure:
        sqs.create_queue(QueueName=name)
    assert code_of(failure) == "InvalidParameterValue"


def test_defaults_are_those_of_aws(sqs):
    url = sqs.create_queue(QueueName=fresh_name())["QueueUrl"]
    shown = attributes_of(sqs, url)
    assert {
        "QueueArn": arn_of(url),
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "262144",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
    }.items() <= shown.items()
    assert int(shown["CreatedTimestamp"]) == int(shown["LastModifiedTimestamp"]) > 1_600_000_000
    assert "RedrivePolicy" not in shown
    assert "FifoQueue" not in shown
    sqs.delete_queue(QueueUrl=url)


SETTABLE = {
    "DelaySeconds": "900",
    "MaximumMessageSize": "1024",
    "MessageRetentionPeriod": "60",
    "ReceiveMessageWaitTimeSeconds": "20",
    "VisibilityTimeout": "43200",
}


def test_attributes_are_set_and_only_those_asked_for_are_shown(sqs, url):
    sqs.set_queue_attributes(QueueUrl=url, Attributes=SETTABLE)
    names = [*SETTABLE, "QueueArn"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert shown == {**SETTABLE, "QueueArn": arn_of(url)}
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "0"
    assert attributes_of(sqs, url)["DelaySeconds"] == "900"


@pytest.mark.parametrize(
    ("attribute", "value", "code"),
    [
        ("DelaySeconds", "901", "InvalidAttributeValue"),
        ("DelaySeconds", "soon", "InvalidAttributeValue"),
        ("DelaySeconds", "-1", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue"),
        ("MaximumMessageSize", "262145", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue"),
        ("ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"),
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("FifoQueue", "true", "InvalidAttributeName"),
        ("QueueArn", "x", "InvalidAttributeName"),
        ("Colour", "blue", "InvalidAttributeName"),
        ("RedrivePolicy", "not json", "InvalidParameterValue"),
        ("RedrivePolicy", "[]", "InvalidParameterValue"),
        ("RedrivePolicy", '{"maxReceiveCount": 1}', "InvalidParameterValue"),
        ("RedriveAllowPolicy", '{"redrivePermission": "maybe"}', "InvalidParameterValue"),
        ("Policy", "{}", "AWS.SimpleQueueService.UnsupportedOperation"),
        ("KmsMasterKeyId", "k", "AWS.SimpleQueueService.UnsupportedOperation"),
        ("SqsManagedSseEnabled", "true", "AWS.SimpleQueueService.UnsupportedOperation"),
    ],
)
def test_attributes_that_cannot_be_are_refused_and_change_nothing(sqs, url, attribute, value, code):
    before = attributes_of(sqs, url)
    with pytest.raises(ClientError) as failure:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={attribute: value})
    assert code_of(failure) == code
    assert attributes_of(sqs, url) == before


def test_an_unknown_attribute_cannot_be_asked_for(sqs, url):
    with pytest.raises(sqs.exceptions.InvalidAttributeName):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Colour"])


def test_queues_are_listed_by_prefix_and_in_pages(sqs, make_queue):
    prefix = fresh_name()
    urls = sorted(
        sqs.create_queue(QueueName=f"{prefix}-{letter}")["QueueUrl"] for letter in "cabde"
    )
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    first = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
    )
    assert [url for page in pages for url in page["QueueUrls"]] == urls
    last = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=5)
    assert "NextToken" not in last
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{prefix}-z")
    with pytest.raises(ClientError) as failure:
        sqs.list_queues(NextToken="***")
    assert code_of(failure) == "InvalidParameterValue"
    for url in urls:
        sqs.delete_queue(QueueUrl=url)


def test_tags_are_put_shown_and_taken_away(sqs):
    name = fresh_name()
    url = sqs.create_queue(QueueName=name, tags={"team": "blue"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"cost": "low", "team": "red"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "red", "cost": "low"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "unknown"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"cost": "low"}
    with pytest.raises(ClientError) as failure:
        sqs.tag_queue(QueueUrl=url, Tags={f"k{number}": "v" for number in range(50)})
    assert code_of(failure) == "InvalidParameterValue"
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"cost": "low"}
    sqs.delete_queue(QueueUrl=url)


def test_exported_definitions_have_attributes_as_arguments(raw, url):
    exported = json.loads(raw("GET", "/api/definitions").body)["queues"]
    (found,) = [queue for queue in exported if queue["name"] == name_of(url)]
    assert found["arguments"]["x-visibility-timeout"] == 1000 * int(LONG_S)
    assert found["arguments"]["x-delivery-limit"] == -1


def test_what_sqs_keeps_for_itself_is_no_argument_of_the_queue(raw, url):
    path = f"/api/queues/%2F/{name_of(url)}"
    shown = json.loads(raw("GET", path).body)["arguments"]
    assert shown["x-visibility-timeout"] == 1000 * int(LONG_S)
    assert "x-sqs" not in shown
    refused = raw("PATCH", path, json.dumps({"arguments": {"x-sqs": {"wait_s": "x"}}}).encode())
    assert refused.status == 400
    altered = raw("PATCH", path, json.dumps({"arguments": {"x-max-length": 9}}).encode())
    assert altered.status == 200
    assert json.loads(altered.body)["arguments"] == {**shown, "x-max-length": 9}


def test_a_purged_queue_is_empty_in_flight_messages_included(sqs, url, receiver):
    for body in ("held", "waits"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    receiver.one(url)
    assert receiver.counts(url) == (1, 1, 1)
    sqs.purge_queue(QueueUrl=url)
    assert receiver.counts(url) == (0, 0, 0)


def test_a_deleted_queue_is_gone_and_can_be_made_anew(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="goes with it")
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as failure:
        sqs.get_queue_url(QueueName=name_of(url))
    assert code_of(failure) == "AWS.SimpleQueueService.NonExistentQueue"
    assert sqs.create_queue(QueueName=name_of(url))["QueueUrl"] == url
    assert receiver.nothing(url)


NOT_THERE = "http://127.0.0.1/000000000000/never-made"
ON_A_QUEUE = [
    ("change_message_visibility", {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
    (
        "change_message_visibility_batch",
        {"Entries": [{"Id": "1", "ReceiptHandle": "x", "VisibilityTimeout": 1}]},
    ),
    ("delete_message", {"ReceiptHandle": "x"}),
    ("delete_message_batch", {"Entries": [{"Id": "1", "ReceiptHandle": "x"}]}),
    ("delete_queue", {}),
    ("get_queue_attributes", {"AttributeNames": ["All"]}),
    ("list_dead_letter_source_queues", {}),
    ("list_queue_tags", {}),
    ("purge_queue", {}),
    ("receive_message", {}),
    ("receive_message", {"WaitTimeSeconds": 1}),
    ("send_message", {"MessageBody": "x"}),
    ("send_message_batch", {"Entries": [{"Id": "1", "MessageBody": "x"}]}),
    ("set_queue_attributes", {"Attributes": {"DelaySeconds": "1"}}),
    ("tag_queue", {"Tags": {"a": "b"}}),
    ("untag_queue", {"TagKeys": ["a"]}),
]


@pytest.mark.parametrize(("operation", "parameters"), ON_A_QUEUE, ids=lambda each: str(each)[:20])
def test_every_operation_on_a_queue_that_is_not_there_says_so(sqs, operation, parameters):
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        getattr(sqs, operation)(QueueUrl=NOT_THERE, **parameters)


@pytest.mark.parametrize("operation", ["add_permission", "remove_permission"])
def test_permissions_are_those_of_users(sqs, url, operation):
    parameters = {"Label": "x"}
    if operation == "add_permission":
        parameters |= {"AWSAccountIds": ["1"], "Actions": ["*"]}
    with pytest.raises(sqs.exceptions.UnsupportedOperation):
        getattr(sqs, operation)(QueueUrl=url, **parameters)


def test_an_address_that_is_none_is_refused(sqs):
    with pytest.raises(sqs.exceptions.InvalidAddress):
        sqs.receive_message(QueueUrl="http://elsewhere/what/is/this/for")


def test_another_vhost_is_a_path_of_the_endpoint(start_broker):
    broker = start_broker(config='vhosts = ["/", "other"]\n')
    here, there = connect(broker), connect(broker, path="/sqs/other")
    url = there.create_queue(QueueName="q")["QueueUrl"]
    assert url == broker.http_url("/sqs/other/000000000000/q")
    assert "QueueUrls" not in here.list_queues()
    assert there.list_queues()["QueueUrls"] == [url]
    here.send_message(QueueUrl=url, MessageBody="the address of a queue says where it is")
    assert there.receive_message(QueueUrl=url)["Messages"][0]["Body"].startswith("the address")
    with pytest.raises(ClientError) as failure:
        connect(broker, path="/sqs/nowhere").list_queues()
    assert failure.value.response["Error"]["Code"] == "AccessDenied"
