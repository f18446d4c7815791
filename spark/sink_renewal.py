"""Staged rows wait for the last task of their batch, however long that takes."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Self

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from clients.streams import StreamClient
from spark.addressing import Broker

RENEW_S: Final = 15.0  # a broker that is short of room drops what nobody renewed for a minute


class Renewal:
    """Keeps what is staged under a key from expiring while a task is at work for it."""

    def __init__(
        self,
        broker: Broker,
        key: wire.Key,
        writer: str,
        partitions: Callable[[], Iterable[wire.Partition]],
        every_s: float = RENEW_S,
    ) -> None:
        """`partitions`: where any task of the batch may have staged rows."""
        self._broker = broker
        self._request = wire.Stage(key, "", 0, writer, 0, b"")
        self._partitions = partitions
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)
        self.renewals = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            with suppress(StreamError), StreamClient(self._broker.address) as client:
                for stream, number in self._partitions():
                    request = self._request._replace(stream=stream, partition=number)
                    client.connection.ask(request, wire.Staged)
                self.renewals += 1
