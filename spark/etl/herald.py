"""Tells a broker how a job does, in a thread: a broker that is away holds up nobody.

    PUT /api/etl/jobs/{name}

at news, and every few seconds without any, for the broker forgets jobs that it hears nothing of.
"""

import base64
import http.client
import json
import logging
import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

_LOG: Final = logging.getLogger("leveret.etl")
EVERY_S: Final = 10.0
TIMEOUT_S: Final = 5.0
PAUSE_S: Final = 0.5  # between news
JOIN_S: Final = 10.0


class Herald:
    def __init__(
        self,
        url: str,
        credentials: tuple[str, str],
        job: str,
        renewed: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`url`: of the broker's HTTP port. `renewed` says what has changed when there was no news
        for a while. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https address")
        self._parts = parts
        self._path = f"{parts.path.rstrip('/')}/api/etl/jobs/{quote(job, safe='')}"
        login = base64.b64encode(":".join(credentials).encode()).decode()
        self._headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        self._renewed = renewed
        self._news: dict[str, Any] | None = None
        self._lock = threading.Lock()  # what is renewed must not undo what was told meanwhile
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=f"etl news {job}", daemon=True)
        self._thread.start()

    def tell(self, news: dict[str, Any]) -> None:
        """Only the latest counts."""
        with self._lock:
            self._news = news
            self._changed.set()

    def close(self) -> None:
        """The latest is told, if the broker is there."""
        self._stop.set()
        self._changed.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            is_news = self._changed.wait(EVERY_S)
            self._changed.clear()
            self._put({} if is_news else self._renewed())
            self._stop.wait(PAUSE_S)
        if self._changed.is_set():
            self._put({})

    def _put(self, changes: dict[str, Any]) -> None:
        with self._lock:
            if self._news is None:
                return
            if changes and not self._changed.is_set():
                self._news = self._news | changes
            news = self._news
        try:
            problem = self._ask(json.dumps(news).encode())
        except (OSError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__
        if problem and problem != self._problem:
            _LOG.warning("the broker is not told how jobs do: %s", problem)
        self._problem = problem

    def _ask(self, body: bytes) -> str:
        """What is wrong, if anything."""
        host, port = self._parts.hostname or "", self._parts.port
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("PUT", self._path, body, self._headers)
            answer = connection.getresponse()
            answer.read()
            return "" if answer.status < 300 else f"{answer.status} {answer.reason}"
        finally:
            connection.close()
