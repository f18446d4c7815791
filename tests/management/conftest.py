"""A broker for the tests of the management API, and something to look at in it."""

from collections.abc import Iterator
from contextlib import suppress

import pika
import pytest

from tests.support.admin import Api
from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of the module's own: names are free, and nothing else happens in it."""
    process = BrokerProcess(tmp_path_factory.mktemp("node"), "--auth-failure-delay-s", "0")
    yield process
    try:
        process.assert_sound()
    finally:
        assert process.stop() == 0, process.log_text()
    assert TRACEBACK not in process.log_text(), process.log_text()


@pytest.fixture
def web(node: BrokerProcess) -> Iterator[Api]:
    """Its management API."""
    api = Api(node.host, node.http_port)
    yield api
    api.close()


class Stage:
    """Queues of all types, an exchange, a publisher and a consumer, as RabbitMQ was recorded."""

    def __init__(self, node: BrokerProcess) -> None:
        parameters = pika.URLParameters(node.amqp_url())
        parameters.client_properties = {"connection_name": "recorder"}
        self.connection = pika.BlockingConnection(parameters)
        self.publisher = self.connection.channel()
        self.publisher.confirm_delivery()
        self._declare()
        for _ in range(20):
            self.publisher.basic_publish("ex", "a.b", b"to the classic one")
            self.publisher.basic_publish("", "quorum", b"to the quorum one")
        self.consumer = self.connection.channel()
        self.consumer.basic_qos(prefetch_count=5)
        self.tags: list[int] = []
        self.consumer.basic_consume(
            "quorum", lambda *args: self.tags.append(args[1].delivery_tag), consumer_tag="ct1"
        )
        self.publisher.basic_get("classic", auto_ack=True)

        def five_came() -> bool:
            self.connection.process_data_events(0.05)
            return len(self.tags) == 5

        eventually(five_came, "five deliveries")
        self.consumer.basic_ack(self.tags[0])

    def _declare(self) -> None:
        channel = self.publisher
        for name in ("classic", "quorum", "stream"):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": name})
        channel.exchange_declare("ex", "topic", durable=True)
        channel.exchange_declare("ex2", "fanout", durable=True)
        channel.queue_bind("classic", "ex", "a.#")
        channel.queue_bind("classic", "ex", "b", arguments={"x": 1})
        channel.exchange_bind("ex2", "ex", "k")


@pytest.fixture(scope="module")
def stage(node: BrokerProcess) -> Iterator[Stage]:
    stage = Stage(node)
    yield stage
    with suppress(pika.exceptions.AMQPError):  # a test may have had it closed
        stage.connection.close()
