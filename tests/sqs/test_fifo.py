"""FIFO queues: groups in order whatever fails, duplicates known by their id or their content."""

import random

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.leveret_only


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


def bodies(messages):
    return [each["Body"] for each in messages]


def test_messages_of_a_group_come_together_and_in_order(sqs, fifo, receiver):
    for number in range(12):
        sqs.send_message(QueueUrl=fifo, MessageBody=str(number), MessageGroupId="g")
    got = sqs.receive_message(QueueUrl=fifo, MaxNumberOfMessages=10, AttributeNames=["All"])
    assert bodies(got["Messages"]) == [str(number) for number in range(10)]
    sequences = [each["Attributes"]["SequenceNumber"] for each in got["Messages"]]
    assert sequences == sorted(sequences)
    assert len(set(sequences)) == 10
    assert {each["Attributes"]["MessageGroupId"] for each in got["Messages"]} == {"g"}
    assert receiver.nothing(fifo)  # the group is out
    for each in got["Messages"]:
        sqs.delete_message(QueueUrl=fifo, ReceiptHandle=each["ReceiptHandle"])
    assert bodies(receiver.take(fifo, 2)) == ["10", "11"]


def test_a_group_waits_for_its_first_message_and_others_do_not(sqs, fifo, receiver):
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        sqs.send_message(QueueUrl=fifo, MessageBody=body, MessageGroupId=group)
    first = receiver.one(fifo)
    assert first["Body"] == "a1"
    other = receiver.one(fifo)
    assert other["Body"] == "b1"
    assert receiver.nothing(fifo)
    sqs.change_message_visibility(
        QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    assert bodies(receiver.take(fifo, 1)) == ["a1"]  # and not a2
    assert receiver.nothing(fifo)


def test_a_group_is_blocked_while_any_of_a_batch_is_out(sqs, fifo, receiver):
    for number in range(4):
        sqs.send_message(QueueUrl=fifo, MessageBody=str(number), MessageGroupId="g")
    held = sqs.receive_message(QueueUrl=fifo, MaxNumberOfMessages=3)["Messages"]
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=held[0]["ReceiptHandle"])
    assert receiver.nothing(fifo)
    sqs.change_message_visibility(
        QueueUrl=fifo, ReceiptHandle=held[1]["ReceiptHandle"], VisibilityTimeout=0
    )
    assert receiver.nothing(fifo)  # 2 is still out
    sqs.change_message_visibility(
        QueueUrl=fifo, ReceiptHandle=held[2]["ReceiptHandle"], VisibilityTimeout=0
    )
    assert bodies(receiver.take(fifo, 3)) == ["1", "2", "3"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_holds_though_receivers_fail_as_they_like(sqs, fifo, receiver, seed):
    chance = random.Random(seed)
    groups = {group: [f"{group}{number}" for number in range(8)] for group in "abc"}
    left = {group: list(messages) for group, messages in groups.items()}
    while any(left.values()):
        group = chance.choice([group for group, messages in left.items() if messages])
        sqs.send_message(QueueUrl=fifo, MessageBody=left[group].pop(0), MessageGroupId=group)
    done = {group: [] for group in groups}
    while sum(map(len, done.values())) < 24:
        got = receiver.take(fifo, 1, WaitTimeSeconds=1)
        got += sqs.receive_message(
            QueueUrl=fifo, MaxNumberOfMessages=chance.randint(1, 10), WaitTimeSeconds=0
        ).get("Messages", [])
        failed = set()
        for each in got:
            body, handle = each["Body"], each["ReceiptHandle"]
            if body[0] not in failed and chance.random() < 0.6:
                sqs.delete_message(QueueUrl=fifo, ReceiptHandle=handle)
                done[body[0]].append(body)
            else:  # and with it all that comes behind it
                failed.add(body[0])
                sqs.change_message_visibility(
                    QueueUrl=fifo, ReceiptHandle=handle, VisibilityTimeout=0
                )
    assert done == groups


# Duplicates


def test_an_id_that_came_lately_is_a_duplicate_and_answered_like_the_first(
    sqs, make_queue, receiver
):
    url = make_queue(fifo=True)
    message = {"MessageGroupId": "g", "MessageDeduplicationId": "id-1"}
    first = sqs.send_message(QueueUrl=url, MessageBody="one", **message)
    again = sqs.send_message(QueueUrl=url, MessageBody="another body", **message)
    assert (again["MessageId"], again["SequenceNumber"]) == (
        first["MessageId"],
        first["SequenceNumber"],
    )
    got = receiver.one(url)
    assert (got["Body"], got["MessageId"]) == ("one", first["MessageId"])
    assert got["Attributes"]["MessageDeduplicationId"] == "id-1"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    sqs.send_message(QueueUrl=url, MessageBody="one", **message)
    assert receiver.counts(url) == (0, 0, 0)  # deleted or not


def test_the_same_content_is_a_duplicate_if_the_queue_says_so(sqs, fifo, receiver):
    first = sqs.send_message(QueueUrl=fifo, MessageBody="same", MessageGroupId="a")
    again = sqs.send_message(QueueUrl=fifo, MessageBody="same", MessageGroupId="b")
    assert again["MessageId"] == first["MessageId"]
    explicit = {"MessageGroupId": "a", "MessageDeduplicationId": "mine"}
    sqs.send_message(QueueUrl=fifo, MessageBody="same", **explicit)
    got = receiver.take(fifo, 2)
    ids = [each["Attributes"]["MessageDeduplicationId"] for each in got]
    sha256_of_same = "0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5"
    assert ids == [sha256_of_same, "mine"]


def test_duplicates_within_a_batch(sqs, fifo, receiver):
    entries = [
        {"Id": "1", "MessageBody": "x", "MessageGroupId": "g"},
        {"Id": "2", "MessageBody": "x", "MessageGroupId": "g"},
        {"Id": "3", "MessageBody": "y", "MessageGroupId": "g"},
    ]
    answer = sqs.send_message_batch(QueueUrl=fifo, Entries=entries)["Successful"]
    assert answer[0]["MessageId"] == answer[1]["MessageId"] != answer[2]["MessageId"]
    assert bodies(receiver.take(fifo, 2)) == ["x", "y"]


def test_groups_may_have_ids_of_their_own(sqs, make_queue, receiver):
    url = make_queue(
        fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    for group in ("a", "b", "a"):
        sqs.send_message(
            QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId="1"
        )
    assert sorted(bodies(receiver.take(url, 2))) == ["a", "b"]
    assert receiver.counts(url) == (0, 2, 0)


# What cannot be


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({}, "MissingParameter"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "ü"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g" * 129, "MessageDeduplicationId": "1"}, "InvalidParameterValue"),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "1", "DelaySeconds": 1},
            "InvalidParameterValue",
        ),
    ],
    ids=str,
)
def test_what_a_fifo_queue_does_not_take(sqs, make_queue, message, code):
    url = make_queue(fifo=True)
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x", **message)
    assert code_of(failure) == code


def test_a_standard_queue_takes_groups_and_no_ids(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="tenant")
    assert receiver.one(url)["Attributes"]["MessageGroupId"] == "tenant"
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageDeduplicationId="1")
    assert code_of(failure) == "InvalidParameterValue"


def test_attributes_of_fifo_queues(sqs, fifo):
    shown = sqs.get_queue_attributes(QueueUrl=fifo, AttributeNames=["All"])["Attributes"]
    assert {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }.items() <= shown.items()
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"ContentBasedDeduplication": "false"})
    with pytest.raises(ClientError):
        sqs.send_message(QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
