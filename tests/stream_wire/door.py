"""A node's AMQP port in a thread of its own, with streams in memory behind it."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from broker.config import Config
from broker.logs import ROOT
from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import (
    ANSWER_BYTES_MAX,
    PROTOCOL_HEADER,
    Answer,
    FrameBuffer,
    Operation,
    Status,
    encode_request,
    read_answer,
)
from broker.security.passwords import rabbitmq_hash
from broker.server import Server
from broker.strangers import Files
from broker.user_settings import PermissionConfig, UserConfig
from tests.stream_wire.fake_streams import FakeStreams

T = TypeVar("T")
DEADLINE_S = 30.0
READ_BYTES = 1 << 18

GUEST = UserConfig(
    name="guest",
    password_hash=rabbitmq_hash(b"guest", b"salt"),
    tags=(),
    permissions=(PermissionConfig(vhost="/", configure=".*", write=".*", read=".*"),),
)
READER = UserConfig(
    name="reader",
    password_hash=rabbitmq_hash(b"secret", b"salt"),
    tags=(),
    permissions=(PermissionConfig(vhost="/", configure="", write="", read="^(open|team)"),),
)
WRITER = UserConfig(
    name="writer",
    password="secret",
    password_hash=None,
    tags=(),
    permissions=(PermissionConfig(vhost="/", configure="", write="^open", read=""),),
)


class _Errors(logging.Handler):
    """The broker logs its own mistakes, and only those, as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()} {record.exc_info}")


class Door:
    """`call` runs a function in the node's thread: that is where the streams are touched."""

    def __init__(self, directory: Path | None = None, **settings: Any) -> None:
        settings.setdefault("auth_failure_delay_s", 0.0)
        settings.setdefault("users", (GUEST, READER, WRITER))
        self.streams = FakeStreams(directory)
        self.port = 0
        self._config = Config(**settings)
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="door")
        self._bugs = _Errors()

    def __enter__(self) -> Self:
        logging.getLogger(ROOT).addHandler(self._bugs)
        self._thread.start()
        assert self._started.wait(DEADLINE_S)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        logging.getLogger(ROOT).removeHandler(self._bugs)
        assert not self._bugs.seen, self._bugs.seen
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """As a node stops: clients are told, then it ends."""
        if self._thread.is_alive():
            with contextlib.suppress(trio.RunFinishedError):  # a test may have stopped it
                self.call(self._stop.set)
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return trio.from_thread.run_sync(function, *arguments, trio_token=self._token)

    def append(self, stream: str, chunk: bytes, partition: int = 0) -> int:
        return self.call(self.streams.streams[stream][partition].append, chunk)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def dial(self, header: bytes = PROTOCOL_HEADER) -> "RawClient":
        return RawClient(self.port, header)

    def logged_in(self, user: str = "guest", password: str = "guest") -> "RawClient":
        client = self.dial()
        answer = client.ask(1, authenticate(user, password))
        assert answer.status == Status.OK, bytes(answer.body)
        return client

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        self.node = Node(self._config)
        self.node.seed()
        self.server = Server(self.node, Files(0), self.streams)
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.node.timers.run, self.node.flush)
            nursery.start_soon(
                partial(
                    trio.serve_listeners, self.server.handle, listeners, handler_nursery=nursery
                )
            )
            self._started.set()
            await self._stop.wait()
            await self.server.shut_down()
            nursery.cancel_scope.cancel()


def authenticate(user: str = "guest", password: str = "guest", vhost: str = "/") -> Any:
    return wire.Authenticate("PLAIN", f"\0{user}\0{password}".encode(), vhost, "a test")


OPERATIONS = {
    kinds[0]: operation for operation, kinds in wire.MESSAGES.items() if kinds[0] is not wire.Empty
}


class RawClient:
    """One socket; requests and answers as they are on the wire."""

    def __init__(self, port: int, header: bytes) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(DEADLINE_S)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.sock.connect(("127.0.0.1", port))
        self.sock.sendall(header)
        self._buffer = FrameBuffer(ANSWER_BYTES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, correlation: int, message: Any, operation: Operation | None = None) -> None:
        operation = operation if operation is not None else OPERATIONS[type(message)]
        self.sock.sendall(encode_request(correlation, operation, wire.encode_body(message)))

    def receive(self) -> Answer:
        while (frame := self._buffer.take()) is None:
            data = self.sock.recv(READ_BYTES)
            assert data, "the server closed the connection"
            self._buffer.feed(data)
        return read_answer(frame)

    def ask(self, correlation: int, message: Any, operation: Operation | None = None) -> Answer:
        self.send(correlation, message, operation)
        answer = self.receive()
        assert answer.correlation == correlation
        return answer

    def ends(self) -> bool:
        """Whether the server closed, and said nothing more."""
        try:
            return not self.sock.recv(1)
        except ConnectionResetError:
            return True
