"""Compacted streams as tables: the latest value of each key, in the memory of Spark's workers.

Every Python worker that looks something up has the whole table, read once and then kept up to date:
before each Arrow batch of rows it reads what was written since. So a row sees the table as it is
when it is processed, with everything that was committed before. Nothing is shuffled or broadcast,
and a table costs what changes in it, not what it holds.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import BinaryType

from clients.streams import StreamClient
from spark.addressing import Broker, broker_of
from spark.connections import ask
from spark.etl.arrow_values import scalar_udf
from spark.etl.errors import PipelineError
from spark.option_values import Options

TABLE_BYTES_MAX: Final = 1024 * 1024 * 1024  # keys and values, of each worker
_tables: dict[tuple[Broker, tuple[str, ...]], "Table"] = {}


class Table:
    """Of some streams: keys are bytes, values as they were written."""

    def __init__(self, broker: Broker, topics: tuple[str, ...]) -> None:
        self._broker = broker
        self._topics = topics
        self._values: dict[bytes, bytes] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes | None) -> bytes | None:
        return None if key is None else self._values.get(key)

    def refresh(self) -> None:
        """Up to all that is committed now. A broker that is away is waited for."""
        ask(self._broker, self._read_news)

    def _read_news(self, client: StreamClient) -> None:
        """May be asked again in the middle: it goes on where it was."""
        for topic, partitions in client.metadata(*self._topics).items():
            for told in partitions:
                place = (topic, told.number)
                offset = self._offsets.get(place, 0)
                if offset > told.next_offset and not told.address:  # the stream was made anew
                    self._forget()
                    return self._read_news(client)
                self._offsets[place] = max(offset, told.first_offset)
                if self._offsets[place] < told.stable_offset:
                    self._read(client, place, told.stable_offset)
        return None

    def _forget(self) -> None:
        self._values, self._offsets, self._size_bytes = {}, {}, 0

    def _read(self, client: StreamClient, place: tuple[str, int], end: int) -> None:
        reader = client.reader(*place, self._offsets[place], end=end)
        for record in reader:
            if record.key is not None:
                self._put(record.key, record.value)
            self._offsets[place] = record.offset + 1
        self._offsets[place] = max(self._offsets[place], end)
        if self._size_bytes > TABLE_BYTES_MAX:
            raise PipelineError(
                f"table of {', '.join(self._topics)}: it has more than {TABLE_BYTES_MAX} bytes, "
                "too much for the memory of each worker; use a join of streams"
            )

    def _put(self, key: bytes, value: bytes | None) -> None:
        old = self._values.pop(key, None)
        if old is not None:
            self._size_bytes -= len(key) + len(old)
        if value is not None:
            self._values[key] = value
            self._size_bytes += len(key) + len(value)


def table(broker: Broker, topics: tuple[str, ...]) -> Table:
    """This process's own."""
    place = (broker, topics)
    if place not in _tables:
        _tables[place] = Table(broker, topics)
    return _tables[place]


def lookup_udf(url: str, timeout: str, topics: tuple[str, ...]) -> Callable[[Column], Column]:
    """From keys to values, both binary."""
    options = {"url": url, "reconnectTimeout": timeout}
    broker = broker_of(Options(options, tuple(options), "a table"))

    def look(keys: pa.Array) -> pa.Array:
        found = table(broker, topics)
        found.refresh()
        values: list[Any] = [found.get(key) for key in keys.to_pylist()]
        return pa.array(values, pa.binary())

    return scalar_udf(look, BinaryType())
