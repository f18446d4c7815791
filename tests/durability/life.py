"""A broker through several lives on one data directory, and clients for each of them."""

from pathlib import Path
from typing import Any

from tests.support.frames import Basic, Confirm
from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.wire import WireChannel, WireConnection


class Life:
    """Started by the constructor; `kill` or `stop` ends a life, `start` begins the next."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self._arguments = arguments
        self._connections: list[WireConnection] = []
        self.start()

    def start(self) -> None:
        self.process = BrokerProcess(self.directory, *self._arguments)

    def kill(self) -> None:
        """End it as a power cut would, but that what the kernel has is kept."""
        self.process.kill()
        self._forget_connections()

    def stop(self) -> None:
        """End it in good order. Its clients go when they hear of it."""
        self.process.terminate()
        self._forget_connections()
        code = self.process.stop()
        assert code == 0, self.process.log_text()

    def restart(self, *endings: str) -> None:
        """End it in each of these ways, and start it again after each."""
        for ending in endings:
            getattr(self, ending)()
            self.start()

    def end(self) -> None:
        """After a test: it must have been sound throughout."""
        self._forget_connections()
        if self.process.alive:
            assert self.process.stop() == 0, self.process.log_text()
        assert TRACEBACK not in self.process.log_text(), self.process.log_text()

    def connect(self, **options: Any) -> WireConnection:
        connection = WireConnection.connect(self.process.amqp_url(), **options)
        self._connections.append(connection)
        return connection

    def channel(self, **options: Any) -> WireChannel:
        """A channel on a connection of its own."""
        return self.connect(**options).open_channel()

    def confirming(self) -> "ConfirmingChannel":
        return ConfirmingChannel(self.channel())

    def _forget_connections(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()


class ConfirmingChannel:
    """Publishes, and returns when the broker has confirmed."""

    def __init__(self, channel: WireChannel) -> None:
        self.channel = channel
        self._sent = self._confirmed = 0
        channel.rpc(Confirm.Select())

    def send(self, exchange: str, key: str, body: bytes = b"", **properties: Any) -> None:
        properties.setdefault("delivery_mode", 2)
        self.channel.publish(exchange, key, body, **properties)
        self._sent += 1

    def wait(self) -> None:
        """All that was sent is confirmed, and nothing was refused."""
        while self._confirmed < self._sent:
            ack = self.channel.expect(Basic.Ack)
            self._confirmed = ack.delivery_tag if ack.multiple else self._confirmed + 1

    def publish(self, exchange: str, key: str, body: bytes = b"", **properties: Any) -> None:
        self.send(exchange, key, body, **properties)
        self.wait()

    def publish_all(self, queue: str, bodies: list[bytes]) -> None:
        for body in bodies:
            self.send("", queue, body)
        self.wait()

    def barrier(self) -> None:
        """Whatever was done to any queue before, on any connection, is durable after this.

        What is settled is written with the next publish at the latest, so that a confirm of one
        that was sent after it covers it.
        """
        self.channel.declare_queue("barrier", durable=True, arguments={"x-max-length": 1})
        self.publish("", "barrier")


def drain(channel: WireChannel, queue: str) -> list[bytes]:
    """Everything ready, acknowledged in one go."""
    bodies = []
    while (content := channel.get(queue)) is not None:
        bodies.append(content.body)
        tag = content.delivery_tag
    if bodies:
        channel.ack(tag, multiple=True)
    return bodies
