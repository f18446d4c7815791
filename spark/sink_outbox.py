"""Chunks on their way to the broker: several at a time, in order, sent again if need be."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import ConnectionLostError, RefusedError
from spark.addressing import Broker
from spark.connections import Patience, client
from spark.errors import WriteError

# So much is on its way before the oldest chunk must be answered: the broker's disk is kept busy.
IN_FLIGHT_BYTES_MAX: Final = 8 * 1024 * 1024

# The request that carries a chunk: to this partition, as this writer's chunk with this number.
Request = Callable[[wire.Partition, int, bytes], Any]


@dataclass(slots=True)
class _Sent:
    request: Any
    size_bytes: int
    correlation: int | None = None  # None: to be sent (again)


class Outbox:
    """Of one writer, on this thread's connection."""

    def __init__(self, broker: Broker, request: Request, answer: type[Any]) -> None:
        """Every request must be one that may be asked twice."""
        self._broker = broker
        self._connection = client(broker).connection
        self._request = request
        self._answer = answer
        self._sent: deque[_Sent] = deque()
        self._size_bytes = 0
        self._numbers: dict[wire.Partition, int] = {}
        self.rows: dict[wire.Partition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Nobody waits for what is in flight when something fails."""
        if kind is not None:
            self._close()

    def put(self, partition: wire.Partition, chunk: bytes, rows: int) -> None:
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        self.rows[partition] = self.rows.get(partition, 0) + rows
        self._sent.append(_Sent(self._request(partition, number, chunk), len(chunk)))
        self._size_bytes += len(chunk)
        try:
            self._send()
        except ConnectionLostError:
            self._close()
        while self._size_bytes > IN_FLIGHT_BYTES_MAX:
            self._settle_oldest()

    def flush(self) -> None:
        """Until all of it is durable."""
        while self._sent:
            self._settle_oldest()

    def _close(self) -> None:
        """All that is not answered is to be sent again, if at all."""
        self._connection.close()
        for sent in self._sent:
            sent.correlation = None

    def _send(self) -> None:
        for sent in self._sent:
            if sent.correlation is None:
                sent.correlation = self._connection.send(sent.request)

    def _settle_oldest(self) -> None:
        patience = Patience(self._broker)
        while True:
            try:
                self._send()
                oldest = self._sent[0]
                assert oldest.correlation is not None
                self._connection.receive(oldest.correlation, self._answer)
            except (ConnectionLostError, RefusedError) as error:
                self._close()
                try:
                    patience.wait_after(error)
                except RefusedError as refused:
                    raise explained(refused) from refused
            else:
                self._size_bytes -= self._sent.popleft().size_bytes
                return


_EXPLANATIONS: Final = {
    Status.STREAM_NOT_FOUND: "a write creates no stream: declare it first",
    Status.PARTITION_NOT_FOUND: "the stream was declared anew while it was written to",
    Status.STAGING_FULL: (
        "rows of a killed write make room after a minute, or by `leveret stream staged drop`. "
        "A planned micro-batch stays as large: let it run once with "
        "deliveryGuarantee=at_least_once (guarantee in a pipeline), and have smaller ones from "
        "then on (maxOffsetsPerTrigger, max_offsets_per_trigger)"
    ),
    Status.TRANSACTION_ABORTED: "nothing was written; the same rows may be written again",
    Status.TRANSACTION_PASSED: (
        "a later batch of this query was committed before: its checkpoint is an old one"
    ),
}


def explained(error: RefusedError) -> Exception:
    """What a broker refuses, and what to do about it."""
    if error.status in _EXPLANATIONS:
        return WriteError(f"{error}; {_EXPLANATIONS[Status(error.status)]}")
    return error
