"""Messages sent and received: bodies, attributes, digests, delays, limits, long polls, batches."""

import hashlib
import threading

import pytest
from botocore.exceptions import ClientError

from tests.sqs.conftest import connect

pytestmark = pytest.mark.leveret_only

KIB = 1024
LARGEST = 256 * KIB


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


ATTRIBUTES = {
    "number": {"DataType": "Number", "StringValue": "12"},
    "long": {"DataType": "Number", "StringValue": "12345678901234567890.50"},
    "negative": {"DataType": "Number.int", "StringValue": "-7"},
    "text": {"DataType": "String", "StringValue": "größer"},
    "json": {"DataType": "String.json", "StringValue": '{"a": 1}'},
    "data": {"DataType": "Binary", "BinaryValue": b"\x00\xff\x80"},
    "png.x_y-z": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"},
}


def test_what_is_sent_is_received_and_digests_are_right(sqs, url, receiver):
    sent = sqs.send_message(
        QueueUrl=url, MessageBody="grüße\n\t\r<&>", MessageAttributes=ATTRIBUTES
    )
    assert sent["MD5OfMessageBody"] == md5("grüße\n\t\r<&>")
    got = receiver.one(url)
    assert got["Body"] == "grüße\n\t\r<&>"
    assert got["MessageId"] == sent["MessageId"]
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["MessageAttributes"] == ATTRIBUTES
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


def test_only_attributes_asked_for_are_shown_and_digested(sqs, url, receiver):
    names = ("a.one", "a.two", "b")
    attributes = {name: {"DataType": "Number", "StringValue": "1"} for name in names}
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    some = receiver.one(url, MessageAttributeNames=["a.*"])
    assert set(some["MessageAttributes"]) == {"a.one", "a.two"}
    one = receiver.one(url, MessageAttributeNames=["b", "c"])
    raw = b"\0\0\0\x01b\0\0\0\x06Number\x01\0\0\0\x011"
    assert one["MD5OfMessageAttributes"] == hashlib.md5(raw).hexdigest()
    none = sqs.receive_message(QueueUrl=url)["Messages"][0]
    assert not {"MessageAttributes", "MD5OfMessageAttributes", "Attributes"} & none.keys()


def test_system_attributes_tell_who_sent_it_when_and_how_often_it_was_received(sqs, url, receiver):
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3f"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageSystemAttributes=trace)
    assert sent["MD5OfMessageSystemAttributes"]
    first = receiver.one(url)
    about = first["Attributes"]
    assert about["SenderId"] == "guest"
    assert about["AWSTraceHeader"] == "Root=1-5759e988-bd862e3f"
    assert about["ApproximateReceiveCount"] == "1"
    assert int(about["SentTimestamp"]) <= int(about["ApproximateFirstReceiveTimestamp"])
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    again = receiver.one(url)["Attributes"]
    assert again["ApproximateReceiveCount"] == "2"
    same = ("SentTimestamp", "ApproximateFirstReceiveTimestamp")
    assert {name: again[name] for name in same} == {name: about[name] for name in same}
    with pytest.raises(ClientError) as failure:
        sqs.receive_message(QueueUrl=url, AttributeNames=["Weight"])
    assert code_of(failure) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("n", {"DataType": "Number", "StringValue": "one"}),
        ("n", {"DataType": "Date", "StringValue": "today"}),
        ("n", {"DataType": "String"}),
        ("n", {"DataType": "String", "StringValue": ""}),
        ("n", {"DataType": "String", "StringValue": "\x00"}),
        ("n", {"DataType": "Binary", "StringValue": "AA=="}),
        ("AWS.n", {"DataType": "String", "StringValue": "x"}),
        ("x-delay", {"DataType": "Number", "StringValue": "9"}),
        ("x-last-death-queue", {"DataType": "String", "StringValue": "x"}),
        ("has space", {"DataType": "String", "StringValue": "x"}),
        (".dot", {"DataType": "String", "StringValue": "x"}),
        ("n" * 256, {"DataType": "String", "StringValue": "x"}),
    ],
    ids=lambda each: str(each)[:40],
)
def test_attributes_that_cannot_be_are_refused(sqs, url, receiver, name, attribute):
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes={name: attribute})
    assert code_of(failure) == "InvalidParameterValue"
    assert receiver.counts(url) == (0, 0, 0)


def test_a_message_has_ten_attributes_at_most(sqs, url):
    one = {"DataType": "String", "StringValue": "x"}
    ten = {f"n{number}": one for number in range(10)}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ten)
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes={**ten, "n10": one})
    assert code_of(failure) == "InvalidParameterValue"


@pytest.mark.parametrize("body", ["\x00", "a\x0bb", "\ufffe", "x\x1f"])
def test_characters_that_xml_cannot_say_are_refused(sqs, url, body):
    with pytest.raises(sqs.exceptions.InvalidMessageContents):
        sqs.send_message(QueueUrl=url, MessageBody=body)


def test_a_message_needs_a_body(sqs, url):
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="")
    assert code_of(failure) == "MissingParameter"


# Limits


def test_the_largest_message_is_taken_and_one_byte_more_is_not(sqs, url, receiver):
    largest = "ü" * (LARGEST // 2)
    sqs.send_message(QueueUrl=url, MessageBody=largest)
    assert receiver.one(url)["Body"] == largest
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x" + largest)
    assert code_of(failure) == "InvalidParameterValue"
    attribute = {"n": {"DataType": "String", "StringValue": "x"}}
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x" * LARGEST, MessageAttributes=attribute)
    assert code_of(failure) == "InvalidParameterValue"


def test_a_queue_may_take_less(sqs, make_queue):
    url = make_queue(MaximumMessageSize="2048")
    sqs.send_message(QueueUrl=url, MessageBody="x" * 2048)
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x" * 2049)
    assert code_of(failure) == "InvalidParameterValue"


def test_a_batch_is_no_larger_than_the_largest_message(sqs, url, receiver):
    half = "x" * (LARGEST // 2)
    entries = [{"Id": "1", "MessageBody": half}, {"Id": "2", "MessageBody": half}]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 2
    with pytest.raises(sqs.exceptions.BatchRequestTooLong):
        sqs.send_message_batch(
            QueueUrl=url, Entries=[*entries, {"Id": "3", "MessageBody": "straw"}]
        )
    assert receiver.counts(url) == (2, 0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"WaitTimeSeconds": -1},
        {"VisibilityTimeout": 43_201},
    ],
    ids=str,
)
def test_receivers_cannot_ask_for_more_than_there_may_be(sqs, url, options):
    with pytest.raises(ClientError) as failure:
        sqs.receive_message(QueueUrl=url, **options)
    assert code_of(failure) == "InvalidParameterValue"


# Delays


def test_a_delayed_message_comes_when_it_is_due(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="never today", DelaySeconds=900)
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    assert receiver.counts(url)[2] >= 1
    assert receiver.one(url)["Body"] == "soon"
    assert receiver.counts(url) == (0, 1, 1)
    with pytest.raises(ClientError) as failure:
        sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)
    assert code_of(failure) == "InvalidParameterValue"


def test_the_delay_of_a_queue_is_for_messages_that_have_none(sqs, make_queue, receiver):
    url = make_queue(DelaySeconds="900")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert receiver.one(url)["Body"] == "now"
    assert receiver.counts(url) == (0, 1, 1)


# Batches


def test_entries_of_a_batch_fail_by_themselves(sqs, url, receiver):
    entries = [
        {"Id": "good", "MessageBody": "a", "MessageAttributes": {"k": ATTRIBUTES["data"]}},
        {"Id": "bad", "MessageBody": "\x00"},
        {"Id": "late", "MessageBody": "c", "DelaySeconds": 901},
        {"Id": "fine", "MessageBody": "d"},
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["good", "fine"]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
    ]
    assert answer["Successful"][0]["MD5OfMessageBody"] == md5("a")
    got = receiver.take(url, 2)
    assert sorted(each["Body"] for each in got) == ["a", "d"]
    done = sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "1", "ReceiptHandle": got[0]["ReceiptHandle"]},
            {"Id": "2", "ReceiptHandle": "nonsense"},
            {"Id": "3", "ReceiptHandle": got[1]["ReceiptHandle"]},
        ],
    )
    assert [each["Id"] for each in done["Successful"]] == ["1", "3"]
    assert [(each["Id"], each["Code"]) for each in done["Failed"]] == [
        ("2", "ReceiptHandleIsInvalid")
    ]
    assert receiver.counts(url) == (0, 0, 0)


def test_a_batch_that_cannot_be_meant_is_refused_as_a_whole(sqs, url, receiver):
    def send(*entries):
        sqs.send_message_batch(QueueUrl=url, Entries=list(entries))

    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        send()
    with pytest.raises(sqs.exceptions.TooManyEntriesInBatchRequest):
        send(*[{"Id": str(number), "MessageBody": "x"} for number in range(11)])
    with pytest.raises(sqs.exceptions.BatchEntryIdsNotDistinct):
        send({"Id": "1", "MessageBody": "x"}, {"Id": "1", "MessageBody": "y"})
    with pytest.raises(sqs.exceptions.InvalidBatchEntryId):
        send({"Id": "no spaces", "MessageBody": "x"})
    assert receiver.counts(url) == (0, 0, 0)


def test_a_batch_of_ten_is_received_in_one_call(sqs, url):
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)["Messages"]
    assert [each["Body"] for each in got] == [str(number) for number in range(10)]


# Long polls


class Poll:
    """A receive that waits in a thread of its own."""

    def __init__(self, broker, url, **options):
        self._options = {"WaitTimeSeconds": 20, **options}
        self._client, self._url = connect(broker), url
        self.messages = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        for _ in range(10):  # a stall may outlast a poll
            answer = self._client.receive_message(QueueUrl=self._url, **self._options)
            self.messages = answer.get("Messages", [])
            if self.messages:
                return

    def result(self):
        self._thread.join()
        return [each["Body"] for each in self.messages]


def test_a_long_poll_is_woken_by_a_message(sqs, broker, url):
    poll = Poll(broker, url)
    sqs.send_message(QueueUrl=url, MessageBody="wake up")
    assert poll.result() == ["wake up"]


def test_a_long_poll_of_a_queue_that_waits_by_itself(sqs, make_queue, broker):
    url = make_queue(ReceiveMessageWaitTimeSeconds="20")
    polls = [Poll(broker, url, WaitTimeSeconds=20) for _ in range(3)]
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    assert sorted(body for poll in polls for body in poll.result()) == ["a", "b", "c"]
    sqs.send_message(QueueUrl=url, MessageBody="d")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "d"


def test_a_long_poll_ends_when_its_queue_is_deleted(sqs, broker, url):
    failures = []

    def poll():
        client = connect(broker)
        try:
            while True:
                client.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        except client.exceptions.QueueDoesNotExist as failure:
            failures.append(failure)

    thread = threading.Thread(target=poll)
    thread.start()
    sqs.delete_queue(QueueUrl=url)
    thread.join()
    assert len(failures) == 1
