"""Copies dead letters from their streams to the ETL store, each once."""

import threading
from collections.abc import Iterable

from spark.etl.store import Store


class DeadLetterFollower:
    """Of the `.dlq` streams of these topics; one that is not there yet is looked for again."""

    def __init__(self, url: str, store: Store, topics: Iterable[str]) -> None:
        raise NotImplementedError

    def run_once(self) -> int:
        """Copy what there is now; how many were new. Raises StreamError, StoreError."""
        raise NotImplementedError

    def run(self, stop: threading.Event, every_s: float = 1.0) -> None:
        """For a thread: until told to stop. A broker or a store that is away is waited for."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
