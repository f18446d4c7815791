"""Dead letter queues: messages received too often, where they go, and their way back."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.sqs.conftest import arn_of, name_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


def policy(dead, receives):
    return json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": receives})


@pytest.fixture
def pair(make_queue):
    """A dead letter queue, and one whose messages may be received twice."""
    dead = make_queue()
    return dead, make_queue(RedrivePolicy=policy(dead, 2))


@pytest.fixture
def fail(sqs, receiver):
    """Receive a message and give it back."""

    def receive_in_vain(url):
        got = receiver.one(url)
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0
        )
        return got

    return receive_in_vain


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(sqs, pair, receiver, fail):
    dead, url = pair
    attributes = {"k": {"DataType": "String.x", "StringValue": "v"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=attributes)
    assert fail(url)["Attributes"]["ApproximateReceiveCount"] == "1"
    assert fail(url)["Attributes"]["ApproximateReceiveCount"] == "2"
    got = receiver.one(dead)
    assert receiver.counts(url) == (0, 0, 0)
    assert (got["Body"], got["MessageId"]) == ("poison", sent["MessageId"])
    assert got["MessageAttributes"] == attributes
    assert got["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(url)
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"


def test_after_one_receive_if_it_says_so_and_when_its_time_is_over(sqs, make_queue, receiver):
    dead = make_queue()
    url = make_queue(RedrivePolicy=policy(dead, 1))
    sqs.send_message(QueueUrl=url, MessageBody="x")
    receiver.one(url, VisibilityTimeout=1)
    assert receiver.one(dead)["Body"] == "x"


def test_without_a_policy_no_message_is_given_up(sqs, url, fail):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    counts = [fail(url)["Attributes"]["ApproximateReceiveCount"] for _ in range(25)]
    assert counts == [str(number) for number in range(1, 26)]


def test_the_policy_is_shown_changed_and_ended(sqs, pair, receiver, fail):
    dead, url = pair
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(shown["RedrivePolicy"]) == json.loads(policy(dead, 2))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy(dead, 1)})
    sqs.send_message(QueueUrl=url, MessageBody="x")
    fail(url)
    assert receiver.one(dead)["Body"] == "x"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert "RedrivePolicy" not in shown
    sqs.send_message(QueueUrl=url, MessageBody="y")
    for _ in range(3):
        fail(url)
    assert receiver.one(url)["Body"] == "y"


def test_sources_of_a_dead_letter_queue_are_listed_in_pages(sqs, make_queue):
    dead = make_queue()
    urls = sorted(make_queue(RedrivePolicy=policy(dead, 5)) for _ in range(3))
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == urls
    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 2}
    )
    assert [page["queueUrls"] for page in pages] == [urls[:2], urls[2:]]
    assert sqs.list_dead_letter_source_queues(QueueUrl=urls[0])["queueUrls"] == []


def test_policies_that_cannot_be_are_refused(sqs, make_queue):
    dead, fifo = make_queue(), make_queue(fifo=True)
    url = make_queue()
    for wrong in (
        policy("http://x/000000000000/not-there", 1),
        policy(dead, 0),
        policy(dead, 1001),
        policy(fifo, 1),
        json.dumps({"deadLetterTargetArn": "x", "maxReceiveCount": 1}),
    ):
        with pytest.raises(ClientError) as failure:
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": wrong})
        assert code_of(failure) == "InvalidParameterValue"


def test_a_dead_letter_queue_may_say_who_uses_it(sqs, make_queue):
    friend, stranger = make_queue(), make_queue()
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(friend)]}
    dead = make_queue(RedriveAllowPolicy=json.dumps(allow))
    shown = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["All"])["Attributes"]
    assert json.loads(shown["RedriveAllowPolicy"]) == allow
    sqs.set_queue_attributes(QueueUrl=friend, Attributes={"RedrivePolicy": policy(dead, 1)})
    with pytest.raises(ClientError) as failure:
        sqs.set_queue_attributes(QueueUrl=stranger, Attributes={"RedrivePolicy": policy(dead, 1)})
    assert code_of(failure) == "InvalidParameterValue"


def test_dead_letters_of_fifo_queues_keep_their_order(sqs, make_queue, receiver):
    dead = make_queue(fifo=True)
    url = make_queue(fifo=True, RedrivePolicy=policy(dead, 1), ContentBasedDeduplication="true")
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g")
    held = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
    entries = [
        {"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 0}
        for each in held["Messages"]
    ]
    sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [each["Body"] for each in receiver.take(dead, 5)] == list("01234")


# Move tasks


def bury(sqs, dead, url, bodies, receiver, fail):
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    for _ in range(2 * len(bodies)):
        fail(url)
    eventually(lambda: receiver.counts(dead) == (len(bodies), 0, 0), "the dead letters")


def task_of(sqs, dead):
    return sqs.list_message_move_tasks(SourceArn=arn_of(dead))["Results"][0]


def test_a_move_task_sends_dead_letters_back(sqs, pair, receiver, fail):
    dead, url = pair
    bury(sqs, dead, url, "abc", receiver, fail)
    handle = sqs.start_message_move_task(SourceArn=arn_of(dead))["TaskHandle"]
    assert handle
    got = receiver.take(url, 3)
    assert [each["Body"] for each in got] == ["a", "b", "c"]
    assert got[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in got[0]["Attributes"]
    eventually(lambda: task_of(sqs, dead)["Status"] == "COMPLETED", "the end of the task")
    task = task_of(sqs, dead)
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["SourceArn"] == arn_of(dead)
    assert "TaskHandle" not in task
    assert receiver.counts(dead) == (0, 0, 0)


def test_a_move_task_sends_dead_letters_elsewhere(sqs, pair, make_queue, receiver, fail):
    dead, url = pair
    elsewhere = make_queue()
    bury(sqs, dead, url, "ab", receiver, fail)
    sqs.start_message_move_task(SourceArn=arn_of(dead), DestinationArn=arn_of(elsewhere))
    assert [each["Body"] for each in receiver.take(elsewhere, 2)] == ["a", "b"]
    eventually(lambda: task_of(sqs, dead)["Status"] == "COMPLETED", "the end of the task")
    assert task_of(sqs, dead)["DestinationArn"] == arn_of(elsewhere)


def test_a_slow_move_task_can_be_cancelled_and_there_is_one_at_a_time(sqs, pair, receiver, fail):
    dead, url = pair
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
    for _ in range(10):  # at one a second: nobody waits for the end of that
        sqs.send_message_batch(QueueUrl=dead, Entries=entries)
    start = {"SourceArn": arn_of(dead), "DestinationArn": arn_of(url)}
    handle = sqs.start_message_move_task(MaxNumberOfMessagesPerSecond=1, **start)["TaskHandle"]
    receiver.one(url)
    with pytest.raises(sqs.exceptions.UnsupportedOperation):
        sqs.start_message_move_task(**start)
    eventually(lambda: task_of(sqs, dead)["ApproximateNumberOfMessagesMoved"], "the first one")
    running = task_of(sqs, dead)
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    assert running["MaxNumberOfMessagesPerSecond"] == 1
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert 1 <= moved < 100
    eventually(lambda: task_of(sqs, dead)["Status"] == "CANCELLED", "the end of the task")
    left, taken = receiver.counts(dead)[0], sum(receiver.counts(url))
    assert left + taken == 100
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.cancel_message_move_task(TaskHandle=handle)


def test_move_tasks_that_cannot_be_are_refused(sqs, pair, url):
    dead, _ = pair
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.start_message_move_task(SourceArn="arn:aws:sqs:eu-central-1:000000000000:not-there")
    with pytest.raises(ClientError) as failure:
        sqs.start_message_move_task(SourceArn=arn_of(url))  # nobody's dead letter queue
    assert code_of(failure) == "InvalidParameterValue"
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.start_message_move_task(
            SourceArn=arn_of(dead),
            DestinationArn="arn:aws:sqs:eu-central-1:000000000000:not-there",
        )
    for wrong in ("arn:aws:s3:::x", "x"):
        with pytest.raises(ClientError) as failure:
            sqs.start_message_move_task(SourceArn=wrong)
        assert code_of(failure) == "InvalidParameterValue"
    for wrong in ("x", "e30="):
        with pytest.raises(ClientError) as failure:
            sqs.cancel_message_move_task(TaskHandle=wrong)
        assert code_of(failure) == "InvalidParameterValue"
    assert "Results" in sqs.list_message_move_tasks(SourceArn=arn_of(dead))


def test_what_an_amqp_consumer_rejects_goes_there_too(sqs, pair, receiver, amqp):
    dead, url = pair
    sqs.send_message(QueueUrl=url, MessageBody="rejected")
    method, _, _ = amqp.basic_get(name_of(url))
    amqp.basic_reject(method.delivery_tag, requeue=False)
    assert receiver.one(dead)["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(url)
