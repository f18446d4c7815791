"""One socket of the blocking client: bytes are carried by whoever waits."""

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import Any, Final

from broker.protocol.constants import HEARTBEAT_FRAME
from clients.amqp_core import ConnectionCore
from clients.amqp_errors import ConnectionLostError
from clients.amqp_promise import Promise
from clients.amqp_url import Endpoint, Target

READ_BYTES: Final = 256 * 1024
CONNECT_S: Final = 10.0  # for one address, up to the end of the handshake


def _waiting() -> None:
    """Somebody waits for a promise, and looks at it by itself."""


def open_link(target: Target, name: str, context: ssl.SSLContext | None) -> "BlockingLink":
    """To the first address that answers. Raises ConnectionLostError, AuthenticationError."""
    failures: list[str] = []
    for endpoint in target.endpoints:
        try:
            return BlockingLink(_dial(endpoint, target, context), target, name)
        except (OSError, ConnectionLostError) as error:
            failures.append(f"{endpoint}: {error}")
    raise ConnectionLostError(f"no connection to {'; '.join(failures)}")


def _dial(endpoint: Endpoint, target: Target, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((endpoint.host, endpoint.port), CONNECT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if target.tls is not None:
        try:
            context = context if context is not None else target.tls.context()
            sock = context.wrap_socket(sock, server_hostname=endpoint.host)
        except OSError:
            sock.close()
            raise
    sock.settimeout(0)  # non-blocking
    return sock


class BlockingLink:
    """Used by one thread at a time; a thread of its own sends heartbeats while that is busy."""

    def __init__(self, sock: socket.socket, target: Target, name: str) -> None:
        self.core = ConnectionCore(target, name=name)
        self._socket = sock
        self._lock = threading.Lock()  # of the socket: TLS wants one call at a time
        self._sent_at = self._received_at = time.monotonic()
        self._poll_in = select.poll()
        self._poll_in.register(sock, select.POLLIN)
        self._poll_both = select.poll()
        self._poll_both.register(sock, select.POLLIN | select.POLLOUT)
        self._stop = threading.Event()
        self._writing = False  # in the middle of frames, where no heartbeat may come between
        self._rest = b""  # of a heartbeat
        try:
            if not self.wait_until(lambda: self.core.opened.done, CONNECT_S):
                raise ConnectionLostError(f"no answer within {CONNECT_S} s")
            self.core.opened.result()
        except BaseException:
            self.abort()
            raise
        if self.core.heartbeat_s:
            threading.Thread(target=self._beat, name="amqp-heartbeat", daemon=True).start()

    def wait(self, promise: Promise) -> Any:
        """What it comes to, or why it does not: whoever asked is told."""
        promise.wake = _waiting
        self.wait_until(lambda: promise.done)
        return promise.result()

    def wait_until(self, condition: Any, timeout_s: float | None = None) -> bool:
        """Carry bytes until it is true (True), the connection is over or time is (False)."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        core = self.core
        while not condition():
            self.flush()
            if condition():
                break
            if core.error is not None:
                return False
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self._receive(left_s)
        return True

    def flush(self) -> None:
        """Write what there is. Meanwhile what comes is read, so that neither side waits in vain."""
        out = self.core.data_to_send()
        if not out:
            return
        with self._lock:
            self._writing = True
            data = memoryview(self._rest + out)
            self._rest = b""
        while data:
            sent = self._try(self._socket.send, data)
            if sent is not None:
                data = data[sent:]
                self._sent_at = time.monotonic()
                continue
            if self.core.error is None:
                self._poll_both.poll(1000 * self._silence_s())
                self._receive(0)
            if self.core.error is not None:
                return
        self._writing = False

    def pump(self) -> None:
        """Write what there is and take what has come, without waiting.

        What a consumer without prefetch has not read stays in the socket when it is too much.
        """
        self.flush()
        for channel in self.core.channels.values():
            for inbox in channel.consumers.values():
                if inbox.full:
                    return
        self._receive(0)

    def abort(self) -> None:
        self._stop.set()
        self.core.lost(ConnectionLostError("the connection was given up"))
        with self._lock, contextlib.suppress(OSError):
            self._socket.close()

    # The socket

    def _receive(self, timeout_s: float | None) -> None:
        """What has come within this time, if anything."""
        if self.core.error is not None:
            return
        data = self._try(self._socket.recv, READ_BYTES)
        if data is None and timeout_s != 0:
            limit_s = self._silence_s()
            wait_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
            self._poll_in.poll(1000 * wait_s)
            data = self._try(self._socket.recv, READ_BYTES)
        if data:
            self._received_at = time.monotonic()
            self.core.feed(data)
        elif data is not None:
            self.core.lost(ConnectionLostError("the connection is lost: the broker ended it"))
        elif timeout_s != 0 and self._silence_s() == 0:
            silent_s = 2 * self.core.heartbeat_s
            self.core.lost(ConnectionLostError(f"nothing came for {silent_s} s"))

    def _silence_s(self) -> float:
        """How much longer it may be silent; counted from when we began to listen."""
        if not self.core.heartbeat_s:
            return CONNECT_S if not self.core.opened.done else 3600.0
        return max(0.0, self._received_at + 2 * self.core.heartbeat_s - time.monotonic())

    def _try(self, call: Any, argument: Any) -> Any:
        """What the call returns, None if it would have to wait. A dead socket ends the core."""
        try:
            with self._lock:
                return call(argument)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            self.core.lost(ConnectionLostError(f"the connection is lost: {error}"))
            return None

    def _beat(self) -> None:
        interval_s = self.core.heartbeat_s / 2
        while not self._stop.wait(interval_s):
            with self._lock, contextlib.suppress(OSError):
                if not self._writing and not self._rest:
                    self._rest = HEARTBEAT_FRAME[self._socket.send(HEARTBEAT_FRAME) :]
