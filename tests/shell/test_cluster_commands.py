"""`leveret cluster …` through a node's HTTP door, with a made-up cluster behind it."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from broker.cli import run
from broker.cluster_settings import Address
from broker.config import Config
from broker.http.admin import WAIT_S, Admin
from broker.http.cluster import ClusterOperationError, add_cluster
from broker.http.messages import HttpError, Request
from broker.http.router import Router
from broker.node import Node
from broker.security.passwords import rabbitmq_hash
from broker.user_settings import UserConfig
from tests.support.admin import basic
from tests.support.http_door import make_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

STATUS = {
    "cluster": "00ff",
    "node": "a",
    "leader": "b",
    "nodes": [
        {
            "name": name,
            "number": number,
            "address": f"127.0.0.1:{number}",
            "amqp": "127.0.0.1:5672" if name == "a" else None,
            "state": "up" if name == "a" else "down",
            "draining": name == "b",
            "leaders": 7,
            "replicas": 8,
            "behind_entries": 9,
        }
        for number, name in enumerate("abc", start=1)
    ],
    "queues": 12,
    "queues_without_leader": 1,
}
QUEUES = [
    {
        "vhost": "/",
        "name": "[red]orders",
        "type": "quorum",
        "leader": None,
        "members": ["a", "b", "c"],
        "up": ["a"],
    }
]


class FakeCluster:
    """Notes what it is asked to do, and refuses whatever concerns node z."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def status(self) -> dict[str, Any]:
        return STATUS

    def queues(self) -> list[dict[str, Any]]:
        return QUEUES

    async def _do(self, *what: Any) -> None:
        await trio.lowlevel.checkpoint()
        if "z" in what:
            raise ClusterOperationError("there is no node 'z'", status=404)
        self.asked.append(what)
        if "slow" in what:
            await trio.sleep_forever()

    async def add(self, name: str, address: Address) -> None:
        await self._do("add", name, address)

    async def remove(self, name: str) -> None:
        await self._do("remove", name)

    async def transfer(self, vhost: str, queue: str, node: str) -> None:
        await self._do("transfer", vhost, queue, node)

    async def rebalance(self) -> int:
        await self._do("rebalance")
        return 3

    async def drain(self, name: str) -> int:
        await self._do("drain", name)
        return 2

    async def undrain(self, name: str) -> None:
        await self._do("undrain", name)


def make_router(operations: FakeCluster | None) -> Router:
    users = [
        UserConfig(name=name, password_hash=rabbitmq_hash(b"pw", b"salt"), tags=(tag,))
        for name, tag in (("admin", "administrator"), ("watcher", "monitoring"))
    ]
    router = Router()
    node = Node(Config(users=tuple(users)))
    node.seed()
    add_cluster(Admin(node, router), operations)
    return router


async def ask(router: Router, method: str, path: str, body: Any = None, user: str = "admin") -> int:
    request = Request(
        method=method,
        path=f"/api/cluster{path}",
        headers={"authorization": basic(user, "pw")},
        body=b"" if body is None else json.dumps(body).encode(),
        peer="127.0.0.1",
    )
    try:
        return (await router.dispatch(request)).status
    except HttpError as error:
        return error.status


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/nodes/d", None),
        ("PUT", "/nodes/d", {"address": 5}),
        ("PUT", "/nodes/d", {"address": "h:0"}),
        ("PUT", "/nodes/a%20b", {"address": "h:1"}),
        ("POST", "/transfer", {"vhost": "/", "queue": "q"}),
        ("POST", "/transfer", {"vhost": "/", "queue": "q", "node": 1}),
    ],
)
async def test_a_malformed_request_reaches_no_operation(method: str, path: str, body: Any) -> None:
    operations = FakeCluster()
    assert await ask(make_router(operations), method, path, body) == 400
    assert operations.asked == []


async def test_who_may_only_look_changes_nothing() -> None:
    operations = FakeCluster()
    router = make_router(operations)
    assert await ask(router, "GET", "", user="watcher") == 200
    assert await ask(router, "GET", "/queues", user="watcher") == 200
    assert await ask(router, "DELETE", "/nodes/a", user="watcher") == 401
    assert await ask(router, "POST", "/rebalance", user="watcher") == 401
    assert operations.asked == []


async def test_a_node_without_a_cluster_says_so() -> None:
    router = make_router(None)
    assert await ask(router, "GET", "") == 404
    assert await ask(router, "POST", "/rebalance", {}) == 404


async def test_what_takes_too_long_is_answered_before_the_client_gives_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()
    assert await ask(make_router(FakeCluster()), "PUT", "/nodes/slow/drain") == 503
    assert trio.current_time() - began == pytest.approx(WAIT_S)


@pytest.fixture
async def operations() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def cluster(
    operations: FakeCluster, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Callable[..., Awaitable[SimpleNamespace]]]:
    """Runs the command against a door that is served meanwhile."""
    serve = partial(trio.serve_tcp, make_door(make_router(operations)).handle, 0, host="127.0.0.1")
    (listener,) = await nursery.start(serve)
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    login = ("--url", url, "--user", "admin", "--password", "pw")

    async def command(*arguments: str) -> SimpleNamespace:
        code = await trio.to_thread.run_sync(run, ["cluster", *arguments, *login])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    yield command
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("arguments", "asked", "said"),
    [
        (("add", "d=h:1"), ("add", "d", Address("h", 1)), "node 'd' at h:1 is a member\n"),
        (("remove", "c"), ("remove", "c"), "node 'c' is no member any more\n"),
        (
            ("transfer", "q/1", "b"),
            ("transfer", "/", "q/1", "b"),
            "queue 'q/1' in vhost '/' is led by 'b'\n",
        ),
        (("rebalance",), ("rebalance",), "3 leader(s) moved\n"),
        (("drain", "b"), ("drain", "b"), "node 'b' is drained: 2 leader(s) moved\n"),
        (("undrain", "b"), ("undrain", "b"), "node 'b' may lead again\n"),
    ],
)
async def test_a_command_does_what_it_says(
    cluster: Any, operations: FakeCluster, arguments: tuple[str, ...], asked: Any, said: str
) -> None:
    result = await cluster(*arguments)
    assert (result.code, result.out, result.err) == (0, said, "")
    assert operations.asked == [asked]


async def test_what_the_cluster_refuses_is_one_line_with_its_reason(cluster: Any) -> None:
    result = await cluster("remove", "z")
    assert (result.code, result.out) == (1, "")
    assert result.err == "leveret: there is no node 'z'\n"


async def test_a_node_that_is_none_is_a_mistake_of_the_command_line(
    cluster: Any, operations: FakeCluster
) -> None:
    result = await cluster("add", "d")
    assert result.code == 2
    assert "'d' is not a node; it must be name=host:port" in result.err
    assert operations.asked == []


async def test_the_status_is_a_table_of_nodes_or_of_queues(cluster: Any) -> None:
    table = (await cluster("status")).out
    assert "down, draining" in table
    assert "definitions: led by b\nqueues: 12, 1 without a leader\n" in table
    queues = (await cluster("status", "--queues")).out
    assert "[red]orders" in queues
    assert "none" in queues
    assert json.loads((await cluster("status", "--json")).out) == STATUS
    assert json.loads((await cluster("status", "--queues", "--json")).out) == QUEUES
