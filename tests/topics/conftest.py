"""Topics of the shared broker, over plain HTTP (with LEVERET_TEST_CLUSTER, on a cluster)."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import pytest

from tests.support.admin import basic
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from tests.support.process import BrokerProcess

TIMEOUT_S = 90.0
PROBLEM = "application/problem+json"
LONG_MS = 600_000  # no session ends before a test that does not want it to is over

_serial = itertools.count(1)

MakeTopic = Callable[..., str]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    json: Any


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def fresh_name() -> str:
    return f"t{os.getpid()}-topic{next(_serial)}"


class Web:
    """A client that knows nothing but HTTP."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        again: frozenset[int] = frozenset({503}),
    ) -> None:
        """`again`: what is answered where it may be otherwise a moment later."""
        self._again = again
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        self._auth = basic(user, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: object = None, **query: object) -> Answer:
        """A body that is bytes is sent as it is."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        target = f"/api/{path}" + (f"?{urlencode(query)}" if query else "")
        self._connection.request(method, target, data, {"Authorization": self._auth})
        response = self._connection.getresponse()
        raw = response.read()
        return Answer(
            response.status, dict(response.getheaders()), json.loads(raw) if raw else None
        )

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """What is answered where nothing is wrong."""
        return self._sound(self.call(method, path, body, **query))

    def insist(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The same of what can be asked for any number of times."""
        answers: list[Answer] = []

        def answered() -> bool:
            answers.append(self.call(method, path, body, **query))
            return answers[-1].status not in self._again

        eventually(answered, f"an answer to {method} {path}", within_s=120)
        return self._sound(answers[-1])

    @staticmethod
    def _sound(answer: Answer) -> Any:
        assert answer.status < 300, answer
        return answer.json

    # Topics

    def produce(self, topic: str, value: bytes, key: str | None = None, **parts: Any) -> Any:
        query = {"acks": parts.pop("acks")} if "acks" in parts else {}
        body = {"key": key, "value": encoded(value), **parts}
        return self.ask("POST", f"topics/{quote(topic, safe='')}/produce", body, **query)

    def produce_all(self, topic: str, *records: dict[str, Any], **query: Any) -> list[Any]:
        path = f"topics/{topic}/produce"
        return self.ask("POST", path, {"records": list(records)}, **query)["records"]

    def consume(self, topic: str, group: str, **query: Any) -> Any:
        query.setdefault("sessionTimeoutMs", LONG_MS)
        return self.insist("GET", f"topics/{topic}/consume", group=group, **query)

    def commit(self, topic: str, group: str, **body: Any) -> Any:
        return self.insist("POST", f"topics/{topic}/commit", {"group": group, **body})

    def lag(self, topic: str, group: str) -> Any:
        return self.insist("GET", f"topics/{topic}/lag", group=group)

    def leave(self, topic: str, group: str, session: str) -> None:
        self.ask("DELETE", f"topics/{topic}/consume", group=group, session=session)


class Member:
    """A consumer that sends its session back."""

    def __init__(self, web: Web, topic: str, group: str, **query: Any) -> None:
        self._web = web
        self._place = (topic, group)
        self._query = query
        self.session = ""
        self.next: list[dict[str, int]] = []

    def poll(self, **query: Any) -> list[dict[str, Any]]:
        if self.session:
            query["session"] = self.session
        answer = self._web.consume(*self._place, **{**self._query, **query})
        assert not self.session or answer["session"] == self.session
        self.session, self.next = answer["session"], answer["next"]
        return answer["records"]

    def take(self, count: int) -> list[dict[str, Any]]:
        """So many records, however many requests that takes."""
        records: list[dict[str, Any]] = []

        def enough() -> bool:
            records.extend(self.poll(timeoutMs=5000, maxMessages=count - len(records)))
            return len(records) >= count

        eventually(enough, f"{count} records", within_s=90)
        return records

    @property
    def partitions(self) -> list[int]:
        return [each["partition"] for each in self.next]

    def commit(self, **body: Any) -> Any:
        return self._web.commit(*self._place, session=self.session, **body)

    def leave(self) -> None:
        self._web.leave(*self._place, self.session)


def values(records: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(each["value"]) for each in records]


def record(value: bytes, key: str | None = None, **parts: Any) -> dict[str, Any]:
    return {"key": key, "value": encoded(value), **parts}


@pytest.fixture
def web(broker: BrokerProcess) -> Iterator[Web]:
    with Web(broker.host, broker.http_port) as web:
        yield web


@pytest.fixture
def other_web(broker: BrokerProcess) -> Iterator[Web]:
    with Web(broker.host, broker.http_port) as web:
        yield web


@pytest.fixture
def make_topic(web: Web) -> Iterator[MakeTopic]:
    """Make topics, and delete them after the test."""
    made: list[str] = []

    def make(partitions: int = 1, **parts: Any) -> str:
        name = fresh_name()
        web.ask("POST", "admin/topics", {"name": name, "partitions": partitions, **parts})
        made.append(name)
        return name

    yield make
    for name in made:
        web.call("DELETE", f"admin/topics/{name}")


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def group() -> str:
    """Groups are the vhost's, whatever their topics are."""
    return f"group {fresh_name()}"
