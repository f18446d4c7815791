"""How far behind a job is: the age of the oldest record that it has not read, 0 if there is none.

One chunk of each partition that has unread records is fetched, and of that one record's time.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from broker.protocol.stream_errors import StreamError
from broker.protocol.stream_messages import Partition
from broker.protocol.stream_wire import END
from clients.stream_address import Address
from clients.stream_reader import slices
from clients.streams import StreamClient
from spark.places import decode

_LOG: Final = logging.getLogger("leveret.etl")
PARTITIONS_MAX: Final = 32  # that are asked for, those with most to read first
TIMEOUT_S: Final = 5.0
PAUSE_S: Final = 10.0  # after the broker did not answer


def read(progress: Mapping[str, Any]) -> int:
    """How many records a micro-batch had."""
    return sum(map(_read, _sources(progress)))


def _read(source: Mapping[str, Any]) -> int:
    """By its offsets, for Spark counts a record that a plan reads twice as two. The first batch
    says not where it began."""
    start = _offsets(source.get("startOffset"))
    if not start:
        return int(source.get("numInputRows") or 0)
    ends = _offsets(source.get("endOffset"))
    return sum(max(0, end - start.get(partition, 0)) for partition, end in ends.items())


def unread(progress: Mapping[str, Any]) -> dict[Partition, tuple[int, int]]:
    """Where to read on, and how many records are there, of partitions that have any."""
    found: dict[Partition, tuple[int, int]] = {}
    for source in _sources(progress):
        end = _offsets(source.get("endOffset"))
        for partition, latest in _offsets(source.get("latestOffset")).items():
            start = end.get(partition, 0)
            if latest > start:
                found[partition] = (start, latest - start)
    return found


def _sources(progress: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in progress.get("sources") or () if isinstance(each, Mapping)]


def _offsets(said: object) -> dict[Partition, int]:
    """Of another kind of source there is nothing to know."""
    try:
        return decode(said) if isinstance(said, Mapping) else {}
    except (AttributeError, ValueError, TypeError):
        return {}


def reached(progress: Mapping[str, Any]) -> dict[Partition, int]:
    """Where a micro-batch ended."""
    found: dict[Partition, int] = {}
    for source in _sources(progress):
        found |= _offsets(source.get("endOffset"))
    return found


class Lag:
    """Any thread may ask."""

    def __init__(self, url: str | None, now_s: Callable[[], float] = time.time) -> None:
        self._client: StreamClient | None = None
        if url is not None:
            self._client = StreamClient(Address.of_url(url), name="etl lag", timeout_s=TIMEOUT_S)
        self._now_s = now_s
        self._pause_until = 0.0
        self._reached: dict[Partition, int] = {}
        self._lock = threading.Lock()

    def seconds(self, progress: Mapping[str, Any]) -> float:
        """When a micro-batch is done. Never raises: what cannot be known is 0."""
        waiting = unread(progress)
        self._reached = reached(progress)
        largest = sorted(waiting, key=lambda each: -waiting[each][1])[:PARTITIONS_MAX]
        return self._age_s({each: waiting[each][0] for each in largest})

    def seconds_now(self) -> float:
        """While the next one is under way: what is in it is not read before it is done."""
        return self._age_s(dict(islice(self._reached.items(), PARTITIONS_MAX)))

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()

    def _age_s(self, places: Mapping[Partition, int]) -> float:
        """Of the oldest record at these offsets or behind."""
        with self._lock:
            if not places or self._client is None or time.monotonic() < self._pause_until:
                return 0.0
            try:
                times = [self._time_ms(self._client, *each) for each in places.items()]
            except StreamError as error:
                _LOG.info("how far behind the job is cannot be known now: %s", error)
                self._pause_until = time.monotonic() + PAUSE_S
                return 0.0
        known = [each for each in times if each is not None]
        return max(0.0, self._now_s() - min(known) / 1000) if known else 0.0

    def _time_ms(self, client: StreamClient, partition: Partition, offset: int) -> int | None:
        fetched = client.fetch(*partition, offset, max_bytes=1)
        for piece in slices(fetched, offset, END):
            return piece.chunk.records(piece.start, piece.start + 1)[0].timestamp_ms
        return None
