"""boto3 and pika on the broker that all tests share (with LEVERET_TEST_CLUSTER, on a cluster)."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pika
import pytest
from botocore.config import Config

from tests.support.waiting import eventually

if TYPE_CHECKING:
    from tests.support.process import BrokerProcess

_serial = itertools.count(1)
LONG_S = "3600"  # no message comes back before a test that does not want it to is over

MakeQueue = Callable[..., str]


def connect(broker: BrokerProcess, *, user: str = "guest", secret: str = "guest", path: str = ""):
    """A boto3 client, unmodified; errors are shown and not tried again."""
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url(path),
        region_name="eu-central-1",
        aws_access_key_id=user,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=120, max_pool_connections=20),
    )


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:eu-central-1:000000000000:{name_of(url)}"


@pytest.fixture(scope="session")
def sqs(broker: BrokerProcess) -> Any:
    return connect(broker)


def fresh_name(suffix: str = "") -> str:
    return f"t{os.getpid()}-sqs{next(_serial)}{suffix}"


@pytest.fixture
def make_queue(sqs: Any) -> Iterator[MakeQueue]:
    """Make queues whose messages stay invisible for long, and delete them after the test."""
    made: list[str] = []

    def make(*, fifo: bool = False, **attributes: str) -> str:
        attributes.setdefault("VisibilityTimeout", LONG_S)
        if fifo:
            attributes["FifoQueue"] = "true"
        name = fresh_name(".fifo" if fifo else "")
        made.append(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
        return made[-1]

    yield make
    for url in made:
        with contextlib.suppress(sqs.exceptions.QueueDoesNotExist):
            sqs.delete_queue(QueueUrl=url)


@pytest.fixture
def url(make_queue: MakeQueue) -> str:
    """A standard queue."""
    return make_queue()


@pytest.fixture
def fifo(make_queue: MakeQueue) -> str:
    """A FIFO queue that knows duplicates by their content."""
    return make_queue(fifo=True, ContentBasedDeduplication="true")


@pytest.fixture
def amqp(broker: BrokerProcess) -> Iterator[Any]:
    """A pika channel that confirms what it publishes."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url()))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


class Receiver:
    """Receives until it has what a test waits for."""

    def __init__(self, sqs: Any) -> None:
        self._sqs = sqs

    def take(self, url: str, count: int = 1, **options: Any) -> list[dict[str, Any]]:
        """So many messages, however many calls that takes."""
        options = {"WaitTimeSeconds": 20, "AttributeNames": ["All"], **options}
        options.setdefault("MessageAttributeNames", ["All"])
        messages: list[dict[str, Any]] = []

        def enough() -> bool:
            most = min(10, count - len(messages))
            answer = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **options)
            messages.extend(answer.get("Messages", []))
            return len(messages) >= count

        eventually(enough, f"{count} messages of {url}", within_s=90)
        return messages

    def one(self, url: str, **options: Any) -> dict[str, Any]:
        return self.take(url, 1, **options)[0]

    def nothing(self, url: str) -> bool:
        """Nothing is there at the moment."""
        return "Messages" not in self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)

    def counts(self, url: str) -> tuple[int, int, int]:
        """Messages that are visible, in flight, and delayed."""
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        names = ("", "NotVisible", "Delayed")
        return tuple(int(answer[f"ApproximateNumberOfMessages{name}"]) for name in names)


@pytest.fixture
def receiver(sqs: Any) -> Receiver:
    return Receiver(sqs)


class RawAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class Raw:
    """HTTP by hand, with name and password."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.basic = "Basic " + base64.b64encode(b"guest:guest").decode()

    def __call__(
        self, method: str, path: str, body: bytes = b"", *, auth: str | None = "", **headers: str
    ) -> RawAnswer:
        """`auth` is the header Authorization: guest's if not given, none if None."""
        connection = http.client.HTTPConnection(
            self._broker.host, self._broker.http_port, timeout=90
        )
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if auth is not None:
            sent["Authorization"] = auth or self.basic
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        answer = RawAnswer(response.status, dict(response.getheaders()), response.read().decode())
        connection.close()
        return answer


@pytest.fixture
def raw(broker: BrokerProcess) -> Raw:
    return Raw(broker)
