"""Receipt handles: worth something for one delivery, and nothing after the next."""

import socket

import pytest
from botocore.exceptions import ClientError

from tests.sqs.conftest import LONG_S, connect, name_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


@pytest.fixture
def handles(sqs, receiver):
    """Receive the same message twice: the handle of an earlier delivery, and the present one."""

    def receive_twice(url, **message):
        sqs.send_message(QueueUrl=url, MessageBody="x", **message)
        first = receiver.one(url)["ReceiptHandle"]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first, VisibilityTimeout=0)
        return first, receiver.one(url)["ReceiptHandle"]

    return receive_twice


def test_the_handle_of_an_earlier_delivery_is_refused(sqs, url, receiver, handles):
    old, new = handles(url)
    with pytest.raises(ClientError) as failure:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=old)
    assert code_of(failure) == "InvalidParameterValue"
    assert "expired" in str(failure.value)
    with pytest.raises(ClientError) as failure:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=old, VisibilityTimeout=9)
    assert code_of(failure) == "InvalidParameterValue"
    assert receiver.counts(url) == (0, 1, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=new)
    assert receiver.counts(url) == (0, 0, 0)


def test_a_fifo_queue_refuses_it_too(sqs, fifo, receiver, handles):
    old, new = handles(fifo, MessageGroupId="g")
    with pytest.raises(ClientError) as failure:
        sqs.delete_message(QueueUrl=fifo, ReceiptHandle=old)
    assert code_of(failure) == "InvalidParameterValue"
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=new)


def test_deleting_twice_is_fine(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(url)["ReceiptHandle"]
    for _ in range(2):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert receiver.counts(url) == (0, 0, 0)


def test_a_message_whose_time_was_over_may_still_be_deleted_if_nobody_got_it(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(url, VisibilityTimeout=1)["ReceiptHandle"]
    eventually(lambda: receiver.counts(url) == (1, 0, 0), "its time to be over")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert receiver.counts(url) == (0, 0, 0)


def test_in_a_fifo_queue_that_is_too_late(sqs, fifo, receiver):
    sqs.send_message(QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
    handle = receiver.one(fifo, VisibilityTimeout=1)["ReceiptHandle"]
    eventually(lambda: receiver.counts(fifo) == (1, 0, 0), "its time to be over")
    with pytest.raises(ClientError) as failure:
        sqs.delete_message(QueueUrl=fifo, ReceiptHandle=handle)
    assert code_of(failure) == "InvalidParameterValue"
    assert receiver.counts(fifo) == (1, 0, 0)


def test_a_handle_is_worth_nothing_where_an_amqp_client_has_the_message(sqs, url, receiver, amqp):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(url)["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    method, _, _ = amqp.basic_get(name_of(url))
    with pytest.raises(ClientError) as failure:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert code_of(failure) == "InvalidParameterValue"
    amqp.basic_nack(method.delivery_tag)
    eventually(lambda: receiver.counts(url) == (1, 0, 0), "the message to be back")
    with pytest.raises(ClientError):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert receiver.counts(url) == (1, 0, 0)


@pytest.mark.parametrize("handle", ["nonsense", "AAAA", "ü", "A" * 44, "=" * 44])
def test_what_never_was_a_handle_is_refused(sqs, url, handle):
    for operation, more in (
        ("delete_message", {}),
        ("change_message_visibility", {"VisibilityTimeout": 1}),
    ):
        with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
            getattr(sqs, operation)(QueueUrl=url, ReceiptHandle=handle, **more)


def test_a_handle_of_another_queue_is_refused(sqs, make_queue, receiver):
    one, other = make_queue(), make_queue()
    for url in (one, other):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(one)["ReceiptHandle"]
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=other, ReceiptHandle=handle)
    assert receiver.counts(other) == (1, 0, 0)


# Visibility


def test_a_message_that_is_not_deleted_in_time_comes_back(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    receiver.one(url, VisibilityTimeout=1)
    again = receiver.one(url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_receiver_that_needs_more_time_can_have_it(sqs, url, receiver):
    for body in ("longer", "not longer"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    held = {each["Body"]: each["ReceiptHandle"] for each in receiver.take(url, 2)}
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=held["not longer"], VisibilityTimeout=1
    )
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held["longer"], VisibilityTimeout=600)
    assert receiver.one(url)["Body"] == "not longer"
    assert receiver.counts(url) == (0, 2, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held["longer"])
    assert receiver.counts(url) == (0, 1, 0)


def test_no_message_is_invisible_for_more_than_twelve_hours(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(url)["ReceiptHandle"]
    with pytest.raises(ClientError) as failure:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43_201)
    assert code_of(failure) == "InvalidParameterValue"


def test_visibility_is_changed_in_batches_of_which_some_may_fail(sqs, url, receiver):
    for body in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    first, second = (each["ReceiptHandle"] for each in receiver.take(url, 2))
    answer = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "now", "ReceiptHandle": first, "VisibilityTimeout": 0},
            {"Id": "no", "ReceiptHandle": "nonsense", "VisibilityTimeout": 0},
            {"Id": "kept", "ReceiptHandle": second, "VisibilityTimeout": int(LONG_S)},
            {"Id": "long", "ReceiptHandle": second, "VisibilityTimeout": 43_201},
        ],
    )
    assert [each["Id"] for each in answer["Successful"]] == ["now", "kept"]
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [
        ("no", "ReceiptHandleIsInvalid"),
        ("long", "InvalidParameterValue"),
    ]
    assert receiver.counts(url) == (1, 1, 0)


def test_a_message_that_is_not_in_flight_has_no_visibility_to_change(sqs, url, receiver):
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receiver.one(url)["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    with pytest.raises(sqs.exceptions.MessageNotInflight):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=9)


def test_a_client_that_went_away_takes_nothing_with_it(sqs, url, receiver, broker, raw):
    poll = socket.create_connection((broker.host, broker.http_port))
    poll.sendall(
        f"POST /queue/{name_of(url)}?Action=ReceiveMessage&WaitTimeSeconds=20 HTTP/1.1\r\n"
        f"Host: localhost\r\nAuthorization: {raw.basic}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    config = f"/queues/{name_of(url)}/config"
    eventually(lambda: '"consumers": 1' in raw("GET", config).body, "the poll to wait")
    poll.close()
    eventually(lambda: '"consumers": 0' in raw("GET", config).body, "the poll to be over")
    sqs.send_message(QueueUrl=url, MessageBody="still there")
    assert receiver.one(url)["Attributes"]["ApproximateReceiveCount"] == "1"


def test_handles_survive_a_restart_as_long_as_nobody_got_the_message_since(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    sqs = connect(broker)
    url = sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": LONG_S})["QueueUrl"]
    for body in ("deleted", "received again"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    held = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    handles = {each["Body"]: each["ReceiptHandle"] for each in held}
    broker.kill()
    sqs = connect(start_broker(*data))
    url = sqs.get_queue_url(QueueName="q")["QueueUrl"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handles["deleted"])
    (again,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert again["Body"] == "received again"
    with pytest.raises(ClientError) as failure:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handles["received again"])
    assert code_of(failure) == "InvalidParameterValue"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
