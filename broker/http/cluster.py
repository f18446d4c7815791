"""`/api/cluster`: what its nodes do, and what an operator can have done with them.

GET    /api/cluster                      the nodes, as the one that answers sees them
GET    /api/cluster/queues               leader and members of every replicated queue
PUT    /api/cluster/nodes/{name}         {"address": "host:port"}: let a node join
DELETE /api/cluster/nodes/{name}         take a node out, for good
PUT    /api/cluster/nodes/{name}/drain   move what it leads elsewhere, and give it nothing new
DELETE /api/cluster/nodes/{name}/drain   let it lead again
POST   /api/cluster/transfer             {"vhost", "queue", "node"}: have that node lead
POST   /api/cluster/rebalance            spread leaders evenly
POST   /api/rebalance/queues             the same, as RabbitMQ's clients ask for it
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from broker.cluster_settings import NODE_NAME, parse_address
from broker.http.admin import WAIT_S, Admin, Call, bad_request
from broker.http.auth import ADMINISTRATORS, MONITORS
from broker.http.messages import HttpError, Response, json_response
from broker.settings import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.cluster_settings import Address

NO_CLUSTER: Final = "this node is in no cluster: it was started without the setting cluster"


class ClusterOperationError(Exception):
    """What was asked for cannot be done; an operator reads why.

    `status` is the HTTP status: 400 for a mistake, 404 for a node or queue that is not there,
    409 where something else has to come first, 503 without a quorum.
    """

    def __init__(self, reason: str, *, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class ClusterOperations(Protocol):
    """What a node can do for an operator. Each raises ClusterOperationError if it cannot.

    Nodes go by their names. The asynchronous ones return when it is done, everywhere it matters;
    if the caller gives up, what has begun goes on.
    """

    def status(self) -> dict[str, Any]:
        """The cluster as this node sees it.

        {"cluster": "<id in hex>", "node": "<this one's name>", "leader": "<of the definitions>",
         "nodes": [{"name", "number", "address": "host:port", "amqp": "host:port" or null,
                    "state": "up" | "down" | "joining", "draining": bool,
                    "leaders": int, "replicas": int,
                    "behind_entries": int  (of logs that this node leads, not yet at that node)}],
         "queues": int, "queues_without_leader": int,
         "incomplete_groups": int  (logs that this node leads, with members that do not vote yet),
         "damaged_groups": int  (replicas on this node that are being made anew)}
        """

    def queues(self) -> list[dict[str, Any]]:
        """[{"vhost", "name", "type", "leader": name or null, "members": [name], "up": [name]}]."""

    async def add(self, name: str, address: Address) -> None:
        """Let a fresh node that waits at `address` join."""

    async def remove(self, name: str) -> None:
        """Take a node out of every group that it is a member of, then out of the cluster."""

    async def transfer(self, vhost: str, queue: str, node: str) -> None:
        """Have a member lead the queue."""

    async def rebalance(self) -> int:
        """Spread leaders over the nodes; how many have moved."""

    async def drain(self, name: str) -> int:
        """Move away what a node leads and place nothing new on it; how many leaders have moved."""

    async def undrain(self, name: str) -> None:
        """End a drain."""


def add_cluster(admin: Admin, operations: ClusterOperations | None) -> None:
    """Add the routes; None for a node that is in no cluster."""
    routes = _Routes(operations)
    node = "/api/cluster/nodes/{name}"
    admin.add("GET", "/api/cluster", routes.status, tags=MONITORS)
    admin.add("GET", "/api/cluster/queues", routes.queues, tags=MONITORS)
    for method, path, handler in (
        ("PUT", node, routes.add),
        ("DELETE", node, routes.remove),
        ("PUT", f"{node}/drain", routes.drain),
        ("DELETE", f"{node}/drain", routes.undrain),
        ("POST", "/api/cluster/transfer", routes.transfer),
        ("POST", "/api/cluster/rebalance", routes.rebalance),
        ("POST", "/api/rebalance/queues", routes.rebalance_quietly),
    ):
        admin.add(method, path, _in_time(handler), tags=ADMINISTRATORS)


class _Routes:
    def __init__(self, operations: ClusterOperations | None) -> None:
        self._given = operations

    def _operations(self) -> ClusterOperations:
        if self._given is None:
            raise HttpError(404, NO_CLUSTER, error="not_found")
        return self._given

    async def status(self, _call: Call) -> Response:
        return json_response(self._operations().status())

    async def queues(self, _call: Call) -> Response:
        return json_response(self._operations().queues())

    async def add(self, call: Call) -> Response:
        operations, name = self._operations(), call.parameter("name")
        if not re.fullmatch(NODE_NAME, name):
            raise bad_request(f"{name!r} is not the name of a node")
        try:
            address = parse_address(_text(call, "address"))
        except WrongValueError as error:
            raise bad_request(str(error)) from None
        await operations.add(name, address)
        return Response(status=201)

    async def remove(self, call: Call) -> Response:
        await self._operations().remove(call.parameter("name"))
        return Response(status=204)

    async def drain(self, call: Call) -> Response:
        moved = await self._operations().drain(call.parameter("name"))
        return json_response({"moved": moved})

    async def undrain(self, call: Call) -> Response:
        await self._operations().undrain(call.parameter("name"))
        return Response(status=204)

    async def transfer(self, call: Call) -> Response:
        texts = [_text(call, key) for key in ("vhost", "queue", "node")]
        await self._operations().transfer(*texts)
        return json_response({})

    async def rebalance(self, _call: Call) -> Response:
        return json_response({"moved": await self._operations().rebalance()})

    async def rebalance_quietly(self, _call: Call) -> Response:
        if self._given is not None:
            await self._given.rebalance()
        return Response(status=204)


def _text(call: Call, key: str) -> str:
    value = call.json().get(key)
    if not isinstance(value, str):
        raise bad_request(f"{key}: it must be a text")
    return value


def _in_time(
    handler: Callable[[Call], Awaitable[Response]],
) -> Callable[[Call], Awaitable[Response]]:
    async def answer(call: Call) -> Response:
        try:
            with trio.fail_after(WAIT_S):
                return await handler(call)
        except ClusterOperationError as error:
            raise HttpError(error.status, str(error)) from None
        except trio.TooSlowError:
            raise HttpError(
                503, "it is not done yet and goes on; leveret cluster status tells"
            ) from None

    return answer
