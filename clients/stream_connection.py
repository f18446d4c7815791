"""A socket to a broker that speaks the stream protocol: blocking, one thread at a time.

Requests may be sent ahead (`send`) and their answers taken in any order (`receive`). A connection
that was lost is dialled again by the next request, at another node if several are known; what was
in flight is not asked again by itself, but for `ask`, whose requests may be asked twice. That also
asks again, for a while, what nobody can answer now: another node is about to take over.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Collection
from typing import Any, Final, TypeVar

from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import LAST_WORD, Answer, Operation
from clients.stream_address import Address
from clients.stream_conversation import Conversation, Fetched, decode, last_word
from clients.stream_errors import (
    ConnectionLostError,
    LoginTimeoutError,
    NoBrokerError,
    RefusedError,
)
from clients.stream_plans import Again, Ask, Call, Plan, Step, asked, run

M = TypeVar("M")
T = TypeVar("T")

TIMEOUT_S: Final = 30.0  # for an answer, on top of the time that a fetch asks the server to wait
# One second, then longer: a node that restarts is back within this many attempts.
ATTEMPTS_MAX: Final = 8
PAUSE_S: Final = 0.05
_TIME: Final = struct.Struct("ll")  # struct timeval


class StreamConnection:
    def __init__(
        self,
        address: Address,
        *,
        name: str = "",
        timeout_s: float = TIMEOUT_S,
        login_timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.address = address
        self._name = name
        self._timeout_s = timeout_s
        self._login_timeout_s = min(login_timeout_s, timeout_s)
        self._logging_in = False
        self._socket: socket.socket | None = None
        self._conversation = Conversation()
        self._answers: dict[int, Answer] = {}
        self.limits: wire.Authenticated | None = None
        self.generation = 0  # counts the sockets: what was in flight on an older one is lost
        self._nodes = address.nodes  # the next to be dialled is the first
        # One call reads all of a large answer; under TLS there are no flags.
        self._flags = socket.MSG_WAITALL if address.tls is None else 0

    def open(self) -> None:
        """Dial and log in, if that is not done; the first node that answers will do."""
        for attempt in range(len(self._nodes)):
            if self._socket is not None:
                return
            try:
                self._open(self._nodes[0])
            except ConnectionLostError:
                if attempt + 1 == len(self._nodes):
                    raise

    def _open(self, node: tuple[str, int]) -> None:
        self._logging_in = True
        try:
            self._socket = self._dial(node)
            self.generation += 1
            correlation, data = self._conversation.login(self.address, self._name)
            self._socket.sendall(data)
            self.limits = self.receive(correlation, wire.Authenticated)
            self._limit(self._socket, self._timeout_s)
        except NoBrokerError as error:
            self._next_node()
            raise NoBrokerError(f"no broker at {node[0]}:{node[1]}: {error}") from error
        except OSError as error:
            self._next_node()
            raise ConnectionLostError(f"no connection to {node[0]}:{node[1]}: {error}") from error
        except RefusedError:
            self.close()
            raise
        finally:
            self._logging_in = False

    def _dial(self, node: tuple[str, int]) -> socket.socket:
        sock = socket.create_connection(node, self._login_timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.address.tls is None:
                self._limit(sock, self._login_timeout_s)
                return sock
            return self.address.tls.context().wrap_socket(sock, server_hostname=node[0])
        except BaseException:
            sock.close()
            raise

    def _next_node(self) -> None:
        """This one is of no use now: the next time another is dialled."""
        self.close()
        self._nodes = [*self._nodes[1:], self._nodes[0]]

    def _limit(self, sock: socket.socket, timeout_s: float) -> None:
        """Blocking, with the kernel's time-out, so that MSG_WAITALL waits for all; not with TLS."""
        if self.address.tls is not None:
            sock.settimeout(timeout_s)
            return
        sock.settimeout(None)
        seconds, rest = divmod(timeout_s, 1)
        limit = _TIME.pack(int(seconds), int(rest * 1_000_000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def close(self) -> None:
        """What is in flight is lost."""
        sock, self._socket = self._socket, None
        self._conversation.reset()
        self._answers.clear()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    # Requests

    def send(self, message: Any, operation: Operation | None = None) -> int:
        """The number to ask `receive` for. Raises ConnectionLostError."""
        self.open()
        assert self._socket is not None
        correlation, data = self._conversation.request(message, operation)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error
        return correlation

    def receive(self, correlation: int, kind: type[M]) -> M:
        """The answer to this request; of a fetch, Fetched. Raises RefusedError if it is an error,
        OffsetOutOfRangeError if that is the error."""
        return self.decode(self.receive_any((correlation,)), kind)

    def receive_any(self, correlations: Collection[int]) -> Answer:
        """The first answer to one of these, for `decode`."""
        for correlation in correlations:
            if correlation in self._answers:
                return self._answers.pop(correlation)
            if correlation not in self._conversation.in_flight:
                raise ConnectionLostError("the connection was lost, and the request with it")
        while True:
            answer = self._read()
            if answer.correlation == LAST_WORD:
                self.close()
                raise last_word(answer)
            if answer.correlation in correlations:
                return answer
            if answer.correlation in self._conversation.in_flight:
                self._answers[answer.correlation] = answer

    def decode(self, answer: Answer, kind: type[M]) -> M:
        return decode(answer, kind, self._conversation.settle(answer.correlation))

    def forget(self, correlation: int) -> None:
        """Nobody will receive this answer."""
        self._conversation.settle(correlation)
        self._answers.pop(correlation, None)

    def ask(self, message: Any, kind: type[M], operation: Operation | None = None) -> M:
        """Send and receive; again if the connection is lost meanwhile, or nobody can answer."""
        return self.run(asked(message, kind, operation))

    def fetch(self, request: wire.Fetch) -> Fetched:
        return self.ask(request, Fetched)

    # Plans

    def run(self, plan: Plan[T]) -> T:
        return run(plan, self.carry_out)

    def carry_out(self, step: Step) -> Any:
        match step:
            case Ask(message, kind, operation):
                return self.receive(self.send(message, operation), kind)
            case Again(attempt, error):
                if attempt + 1 >= ATTEMPTS_MAX:
                    raise error
                return time.sleep(PAUSE_S * 2**attempt)
            case Call(function, arguments):
                return function(*arguments)
            case _:
                raise AssertionError(step)

    # Within

    def _read(self) -> Answer:
        conversation = self._conversation
        try:
            while True:
                assert self._socket is not None
                # Somebody else may say less than a broker, and wait for more.
                flags = 0 if conversation.is_new else self._flags
                count = self._socket.recv_into(conversation.space(), 0, flags)
                if not count:
                    raise ConnectionResetError("the server closed the connection")
                answer = conversation.filled(count)
                if answer is not None:
                    return answer
        except (OSError, MalformedError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> ConnectionLostError:
        self._next_node()
        if isinstance(error, BlockingIOError | TimeoutError):
            if self._logging_in:
                seconds = f"{self._login_timeout_s:g} s"
                return LoginTimeoutError(
                    f"no answer to the login within {seconds}: is it AMQP's port?"
                )
            return ConnectionLostError(f"no answer within {self._timeout_s} s")
        return ConnectionLostError(str(error))
