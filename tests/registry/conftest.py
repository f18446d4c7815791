"""The registry of the shared broker, by plain HTTP and by Confluent's own client."""

from __future__ import annotations

import http.client
import itertools
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from clients.schemas import SchemaRegistry
from tests.support.admin import basic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.process import BrokerProcess

TIMEOUT_S = 60.0

_serial = itertools.count(1)


class Answer(NamedTuple):
    status: int
    json: Any
    headers: dict[str, str]

    @property
    def code(self) -> int:
        return int(self.json["error_code"])


class Web:
    """A client that knows nothing but HTTP."""

    def __init__(
        self, host: str, port: int, *, user: str = "guest", password: str = "guest"
    ) -> None:
        self.headers = {"Authorization": basic(user, password)}
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, *path: str, body: object = None, **query: object) -> Answer:
        target = "/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += f"?{urlencode(query)}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, target, data, self.headers)
        response = self._connection.getresponse()
        raw = response.read()
        return Answer(response.status, json.loads(raw), dict(response.getheaders()))

    def register(self, subject: str, schema: object, **more: object) -> Answer:
        body = {"schema": text_of(schema), **more}
        return self.call("POST", "subjects", subject, "versions", body=body)

    def registered(self, subject: str, schema: object, **more: object) -> int:
        answer = self.register(subject, schema, **more)
        assert answer.status == 200, answer
        return int(answer.json["id"])


def text_of(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: object = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def fresh(prefix: str = "s") -> str:
    return f"{prefix}{os.getpid()}-{next(_serial)}"


@pytest.fixture
def subject() -> str:
    return fresh()


@pytest.fixture
def unique() -> dict[str, Any]:
    """A schema that no other test has."""
    return record(field("a"), name="T" + fresh().replace("-", "_"))


@pytest.fixture
def web(broker: BrokerProcess) -> Iterator[Web]:
    web = Web(broker.host, broker.http_port)
    yield web
    web.close()


@pytest.fixture
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry(broker.http_url(""))
    yield registry
    registry.close()


@pytest.fixture
def confluent(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    conf = {"url": broker.http_url(""), "basic.auth.user.info": "guest:guest"}
    with SchemaRegistryClient(conf) as client:
        yield client
