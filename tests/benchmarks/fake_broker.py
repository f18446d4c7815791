"""A broker of a few lines, in threads: default exchange, confirms, no acks, no flow control."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from contextlib import suppress

from pamqp import body, commands, frame, header

REPLIES = {
    "Connection.StartOk": commands.Connection.Tune(2047, 131072, 60),
    "Connection.Open": commands.Connection.OpenOk(),
    "Channel.Open": commands.Channel.OpenOk(),
    "Confirm.Select": commands.Confirm.SelectOk(),
    "Basic.Qos": commands.Basic.QosOk(),
    "Exchange.Delete": commands.Exchange.DeleteOk(),
}


class FakeBroker:
    """Delivers a message at once to the consumer of the queue that its routing key names."""

    def __init__(self, *, publishes_before_close: int | None = None) -> None:
        self.queues: set[str] = set()
        self.delivered: dict[str, int] = defaultdict(int)
        self.acked: list[tuple[int, bool]] = []
        self._publishes_before_close = publishes_before_close
        self._consumers: dict[str, tuple[_Session, str]] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sessions: list[_Session] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._listener.getsockname()[1]}/"

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for session in self._sessions:
            session.end()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sessions.append(_Session(self, sock))

    def handle(self, session: _Session, method: object) -> None:
        with self._lock:
            if isinstance(method, commands.Queue.Declare):
                self.queues.add(method.queue)
                session.send(commands.Queue.DeclareOk(method.queue, 0, 0))
            elif isinstance(method, commands.Queue.Delete):
                self.queues.discard(method.queue)
                session.send(commands.Queue.DeleteOk(0))
            elif isinstance(method, commands.Basic.Consume):
                self._consumers[method.queue] = session, method.consumer_tag
                session.send(commands.Basic.ConsumeOk(method.consumer_tag))
            elif isinstance(method, commands.Basic.Ack):
                self.acked.append((method.delivery_tag, method.multiple))
            elif (name := getattr(method, "name", "")) in REPLIES:
                session.send(REPLIES[name])

    def publish(self, session: _Session, routing_key: str, content: list[object]) -> None:
        with self._lock:
            session.published += 1
            if session.published == self._publishes_before_close:
                session.send(commands.Channel.Close(406, "enough", 0, 0))
                return
            consumer, tag = self._consumers[routing_key]
            consumer.delivered += 1
            self.delivered[routing_key] += 1
            deliver = commands.Basic.Deliver(tag, consumer.delivered, False, "", routing_key)
            consumer.send(deliver, *content)
            session.send(commands.Basic.Ack(session.published))


class _Session:
    """One connection, served by a thread of its own."""

    def __init__(self, broker: FakeBroker, sock: socket.socket) -> None:
        self.published = 0
        self.delivered = 0
        self._broker = broker
        self._sock = sock
        self._routing_key = ""
        self._content: list[object] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def send(self, *frames: object) -> None:
        data = b"".join(
            frame.marshal(one, getattr(one, "name", "")[:4] != "Conn") for one in frames
        )
        try:
            self._sock.sendall(data)
        except OSError:
            return  # the client has gone; its reading thread ends by itself

    def end(self) -> None:
        with suppress(OSError):  # the client may have closed it
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()

    def _serve(self) -> None:
        unread = b""
        protocol_header = self._sock.recv(8, socket.MSG_WAITALL)
        assert protocol_header.startswith(b"AMQP")
        self.send(commands.Connection.Start(server_properties={}))
        while data := self._receive():
            unread += data
            while _whole(unread):
                used, _, value = frame.unmarshal(unread)
                unread = unread[used:]
                self._take(value)

    def _take(self, value: object) -> None:
        if isinstance(value, commands.Basic.Publish):
            self._routing_key, self._content = value.routing_key, []
        elif isinstance(value, header.ContentHeader | body.ContentBody):
            self._content.append(value)
            if isinstance(value, body.ContentBody):
                self._broker.publish(self, self._routing_key, self._content)
        else:
            self._broker.handle(self, value)

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(1 << 16)
        except OSError:
            return b""


def _whole(data: bytes) -> bool:
    return len(data) >= 8 + int.from_bytes(data[3:7], "big")
