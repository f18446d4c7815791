"""Writes records to a stream, in whole chunks, a few of them under way at a time.

An idempotent producer (the default) has a number from the broker and counts its records in each
partition: after a lost connection it sends again whatever was not confirmed, in order, and the
broker drops what it has. Another producer of the same name fences it.
"""

from collections.abc import Mapping

from broker.protocol import stream_messages as wire
from clients.stream_batches import BATCH_BYTES
from clients.stream_connection import StreamConnection
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_outbox import IN_FLIGHT_MAX, Outbox, Sent


class Producer:
    """Of one stream, for one thread. What was sent is durable when `flush` has returned."""

    def __init__(
        self,
        connection: StreamConnection,
        stream: str,
        partitions: int,
        *,
        name: str = "",
        idempotent: bool = True,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.stream = stream
        self._connection = connection
        self._name = name
        self._outbox = Outbox(stream, partitions, idempotent=idempotent, batch_bytes=batch_bytes)
        self._under_way: dict[int, Sent] = {}  # by correlation
        if idempotent:
            connection.run(self._outbox.allocate(name))

    @property
    def confirmed(self) -> int:
        """How many records."""
        return self._outbox.confirmed

    @property
    def next_offsets(self) -> dict[int, int]:
        """Behind the last confirmed record, by partition."""
        return self._outbox.next_offsets

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, object] | None = None,
        partition: int | None = None,
    ) -> None:
        """Into a batch; a full one is sent at once. A value of None deletes its key."""
        outbox = self._outbox
        if outbox.failure is not None:
            raise outbox.failure
        full = outbox.add(value, key, headers, partition)
        if full is not None:
            self._close_batch(full)

    def flush(self) -> None:
        """Wait until everything is durable. What the broker refuses ends the producer."""
        outbox = self._outbox
        if outbox.failure is not None:
            raise outbox.failure
        for partition in outbox.open_partitions:
            self._close_batch(partition)
        while len(outbox):
            self._settle_one()

    def _close_batch(self, partition: int) -> None:
        outbox = self._outbox
        while len(outbox) >= IN_FLIGHT_MAX:
            self._settle_one()
        outbox.close_batch(partition)
        if outbox.trouble is None:
            self._send_due()

    def _send_due(self) -> None:
        outbox = self._outbox
        if outbox.needs_number:
            self._connection.run(outbox.allocate(self._name))
        for sent in outbox.due():
            try:
                self._under_way[self._connection.send(outbox.request(sent))] = sent
            except ConnectionLostError as error:
                outbox.fail(sent, error)
                self._lost(error)
                return

    def _settle_one(self) -> None:
        """One step towards an answer. What goes wrong is tried again for a while."""
        outbox = self._outbox
        if outbox.trouble is not None:
            self._connection.run(outbox.catch_breath())
        self._send_due()
        if not self._under_way:
            return
        try:
            answer = self._connection.receive_any(self._under_way)
        except (ConnectionLostError, RefusedError) as error:
            self._lost(error)
            return
        sent = self._under_way.pop(answer.correlation)
        try:
            outbox.confirm(sent, self._connection.decode(answer, wire.Appended))
        except RefusedError as error:
            outbox.fail(sent, error)
            self._must_be_sound()

    def _lost(self, error: ConnectionLostError | RefusedError) -> None:
        """The connection is: what was not confirmed must be sent again."""
        lost, self._under_way = self._under_way, {}
        for sent in lost.values():
            self._outbox.fail(sent, error)
        self._must_be_sound()

    def _must_be_sound(self) -> None:
        if self._outbox.failure is not None:
            raise self._outbox.failure
