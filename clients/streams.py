"""Streams for blocking programs: `connect(url)`, then read, write and ask. No event loop, no AMQP.

    with connect("amqp://guest:guest@localhost:5672/%2F") as client:
        with client.producer("orders") as producer:
            producer.send(b"value", key=b"key")
        for record in client.reader("orders", partition=0, offset=0):
            print(record.offset, record.key, record.value, record.headers)

A client and what it makes share one connection and belong to one thread at a time; a group consumer
has connections of its own. Another thread connects for itself.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from broker.protocol.stream_wire import END
from clients import stream_questions
from clients.stream_address import Address
from clients.stream_batches import BATCH_BYTES
from clients.stream_connection import TIMEOUT_S, StreamConnection
from clients.stream_conversation import Fetched
from clients.stream_group import GroupConsumer
from clients.stream_group_core import Polled
from clients.stream_processing import Processing, name_of_transactions
from clients.stream_producer import Producer
from clients.stream_reader import FETCH_BYTES, Reader
from clients.stream_transactions import Output, StagedWriter, TransactionalProducer


def connect(url: str, *, name: str = "", timeout_s: float = TIMEOUT_S) -> "StreamClient":
    """Dial and log in. `name` is for the broker's log. Raises ConnectionLostError, RefusedError.

    With several nodes in the URL (amqp://a,b,c) any will do, and another when that one is lost.
    """
    client = StreamClient(Address.of_url(url), name=name, timeout_s=timeout_s)
    client.connection.open()
    return client


class StreamClient:
    def __init__(
        self,
        address: Address,
        *,
        name: str = "",
        timeout_s: float = TIMEOUT_S,
        login_timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.address = address
        self.connection = StreamConnection(
            address, name=name, timeout_s=timeout_s, login_timeout_s=login_timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    # Streams

    def streams(self) -> dict[str, int]:
        """How many partitions each stream has that this user may read."""
        return self.connection.run(stream_questions.streams())

    def metadata(self, *streams: str) -> dict[str, tuple[wire.PartitionMetadata, ...]]:
        """All partitions of these, in one request. Raises RefusedError if one is not there."""
        return self.connection.run(stream_questions.metadata(streams))

    def offsets(
        self, stream: str, place: str | int, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """At "first", "last", "next", or at a time in ms; of all partitions or of these."""
        return self.connection.run(stream_questions.offsets(stream, place, partitions))

    # Records

    def fetch(
        self,
        stream: str,
        partition: int,
        start: int,
        end: int = END,
        *,
        max_bytes: int = FETCH_BYTES,
        min_bytes: int = 0,
        wait_ms: int = 0,
    ) -> Fetched:
        """Whole chunks as they are, unchecked; broker.protocol.chunk reads them."""
        return self.connection.fetch(
            wire.Fetch(stream, partition, start, end, max_bytes, min_bytes, wait_ms)
        )

    def reader(self, stream: str, partition: int, offset: int, **options: Any) -> Reader:
        """See Reader for the options."""
        return Reader(self.connection, stream, partition, offset, **options)

    @contextmanager
    def producer(
        self,
        stream: str,
        *,
        name: str = "",
        idempotent: bool = True,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[Producer]:
        """What was sent is durable when the block ends without an error."""
        producer = Producer(
            self.connection,
            stream,
            len(self.metadata(stream)[stream]),
            name=name,
            idempotent=idempotent,
            batch_bytes=batch_bytes,
        )
        yield producer
        producer.flush()

    def transactions(self, name: str) -> TransactionalProducer:
        return TransactionalProducer(self.connection, name)

    def staged_writer(self, key: wire.Key, *streams: str) -> StagedWriter:
        """For rows of a transaction that another process has opened and will commit."""
        counts = {name: len(each) for name, each in self.metadata(*streams).items()}
        return StagedWriter(self.connection, key, counts)

    # Groups

    def group(self, name: str, streams: Iterable[str], **options: Any) -> GroupConsumer:
        """Join it. See GroupConsumer for the options."""
        return GroupConsumer(self.address, name, streams, **options)

    def process(
        self,
        group: str,
        sources: Iterable[str],
        targets: Iterable[str],
        handler: Callable[[Polled, Output], None],
        *,
        name: str = "",
        instance: str = "",
        stop: threading.Event | None = None,
        **options: Any,
    ) -> None:
        """Read `sources` for a group, and write what `handler` makes of it to `targets`, exactly
        once: `handler(batch, output)`, for one batch after another, until `stop` is set.

        What it sends and the offset behind the batch are one transaction; a batch whose transaction
        fails comes again. If the handler raises, nothing of its batch is visible. `name` is of the
        transactions: one for each member; a stable one, as an `instance` gives it, lets a new
        process end what its former self left. The other options are those of `group`.
        """
        end = stop if stop is not None else threading.Event()
        consumer = self.group(group, sources, instance=instance, **options)

        def poll() -> Polled | None:
            polled = None
            while polled is None and not end.is_set():
                polled = consumer.poll()
            return polled

        processing = Processing(
            consumer.core,
            name or name_of_transactions(group, instance),
            targets,
            poll=poll,
            handle=lambda batch, staging: handler(batch, Output(staging, consumer.run)),
        )
        try:
            consumer.run(processing.run())
        except BaseException:
            with suppress(StreamError):
                consumer.run(processing.abandon())
            raise
        finally:
            consumer.close()

    def groups(self) -> tuple[wire.GroupListed, ...]:
        return self.connection.run(stream_questions.groups())

    def describe_group(self, name: str) -> wire.GroupDescription:
        return self.connection.run(stream_questions.described_group(name))

    def committed(
        self, group: str, partitions: Iterable[wire.Partition] = ()
    ) -> dict[wire.Partition, wire.CommittedOffset]:
        """Of these partitions, or of all, as far as anything was committed."""
        return self.connection.run(stream_questions.committed(group, partitions))

    def reset_offsets(self, group: str, offsets: Mapping[wire.Partition, int]) -> None:
        """Of a group without members; also how a reader that is in no group keeps its own."""
        self.connection.run(stream_questions.offsets_reset(group, offsets))
