"""A vhost and a user of one test on the broker that all tests share."""

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.conftest import OTHER_BROKER
from tests.support.admin import Api
from tests.support.wire import WireChannel, WireConnection

# The HTTP address of the broker that LEVERET_TEST_URL names, to check these tests against it.
OTHER_API = "LEVERET_TEST_API"
PASSWORD = "correct horse"

_serial = itertools.count(1)


class House:
    """A vhost of its own, and users who are let in there; `clean_up` ends all of it."""

    def __init__(self, api: Api, host: str, port: int, admin: tuple[str, str]) -> None:
        self.api = api
        self.vhost = self.fresh("v")
        self._address = f"{host}:{port}"
        self._admin = admin
        self._users: list[str] = []
        self._connections: list[WireConnection] = []
        assert api.call("PUT", "vhosts", self.vhost, body={}).status == 201
        self.permit(admin[0], ".*", ".*", ".*")

    @staticmethod
    def fresh(prefix: str) -> str:
        return f"{prefix}{os.getpid()}-{next(_serial)}"

    def url(self, user: str, password: str = PASSWORD) -> str:
        return f"amqp://{quote(user)}:{quote(password)}@{self._address}/{quote(self.vhost)}"

    def add_user(self, *tags: str) -> str:
        """Who may not even enter yet."""
        name = self.fresh("u")
        body = {"password": PASSWORD, "tags": list(tags)}
        assert self.api.call("PUT", "users", name, body=body).status == 201
        self._users.append(name)
        return name

    def permit(self, user: str, configure: str, write: str, read: str) -> None:
        body = {"configure": configure, "write": write, "read": read}
        answer = self.api.call("PUT", "permissions", self.vhost, user, body=body)
        assert answer.status in (201, 204), answer

    def connect(self, user: str, password: str = PASSWORD, **options: Any) -> WireConnection:
        connection = WireConnection.connect(self.url(user, password), **options)
        self._connections.append(connection)
        return connection

    def admin_channel(self) -> WireChannel:
        return self.connect(*self._admin).open_channel()

    def clean_up(self) -> None:
        for connection in self._connections:
            with suppress(AssertionError, OSError):
                connection.close()
        for user in self._users:
            self.api.call("DELETE", "users", user)
        self.api.call("DELETE", "vhosts", self.vhost)


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """For a module: its tests use names and users of their own."""
    if OTHER_BROKER in os.environ:
        if OTHER_API not in os.environ:
            pytest.skip(f"{OTHER_API} does not say where its HTTP port is")
        amqp, http = urlsplit(os.environ[OTHER_BROKER]), urlsplit(os.environ[OTHER_API])
        admin = (amqp.username or "guest", amqp.password or "guest")
        api = Api(http.hostname, http.port, user=admin[0], password=admin[1])
        house = House(api, amqp.hostname, amqp.port, admin)
    else:
        broker = request.getfixturevalue("broker")
        api = Api(broker.host, broker.http_port)
        house = House(api, broker.host, broker.amqp_port, ("guest", "guest"))
    yield house
    house.clean_up()
    api.close()
