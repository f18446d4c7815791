"""What the routes of the management API share: who calls, JSON in, errors out, waiting for disk.

A route is a function of a `Call`, added with `Admin.add`:

    async def purge(call: Call) -> Response:
        vhost = call.vhost()                      # of the path; 404, or 401 if it is not theirs
        …                                         # decide and act, without awaiting
        await call.happens(vhost.when_stored)     # the answer waits for what it promises
        return Response(status=204)

    admin.add("DELETE", "/api/queues/{vhost}/{name}/contents", purge)

In a cluster a route may need the node that leads a queue: it raises `LedElsewhereError`, and that
node runs the same route for the same user. Routes that list ask all nodes (`Call.everywhere`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from broker import logs
from broker.http import json_body
from broker.http.auth import (
    MANAGERS,
    log_in,
    may_see,
    not_authorised,
    require_tag,
    require_vhost,
)
from broker.http.messages import HttpError, Request, Response
from broker.protocol.errors import AMQPError, ChannelError

if TYPE_CHECKING:
    from broker.cluster.seams import Change, Definitions, Then
    from broker.http.router import Router
    from broker.node import Node
    from broker.security.user import User
    from broker.vhost import VHost
    from queues.raft.messages import NodeId

_log = logs.get("http")

HTTP_OK = 200
AMQP_ACCESS_REFUSED = 403
AMQP_NOT_FOUND = 404
AMQP_RESOURCE_ERROR = 506
INTERNAL = "/api/internal/"  # what nodes ask each other
WAIT_S = 50.0  # for the disk; what is asked of a queue that goes away meanwhile never happens
REASON_CHARS_MAX = 1000  # a reason quotes what was sent, which may be long


class Elsewhere(Protocol):
    """The other nodes of a cluster, as routes need them (broker.cluster.errands.Errands)."""

    def others(self) -> list[NodeId]:
        """Those that can be asked."""

    async def carry(self, node: NodeId, request: Request, user: User) -> Response:
        """Have that node answer. Raises HttpError: 503 if it does not."""


class LedElsewhereError(Exception):
    """Raised by a route before it has done anything: only the node that leads `what` can."""

    def __init__(self, what: str, node: NodeId | None) -> None:
        super().__init__(what)
        self.what = what
        self.node = node  # None: no node leads it now


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request by a user who has logged in and has a tag that the route asks for."""

    node: Node
    user: User
    request: Request
    elsewhere: Elsewhere | None = None  # in a cluster

    def parameter(self, name: str) -> str:
        """What the route's pattern calls `name` in the path."""
        return self.request.parameters[name]

    def vhost(self) -> VHost:
        """The vhost that the path names."""
        vhost = self.node.vhosts.get(self.parameter("vhost"))
        if vhost is None:
            raise not_found(f"there is no vhost {self.parameter('vhost')!r}")
        require_vhost(self.user, vhost.name, self.request.method)
        return vhost

    def vhosts(self) -> list[VHost]:
        """All that the user may see, by name."""
        vhosts = sorted(self.node.vhosts.items())
        return [vhost for name, vhost in vhosts if may_see(self.user, name)]

    def json(self) -> dict[str, Any]:
        """The body, which must be a JSON object; none at all is an empty one."""
        try:
            value = json_body.parse(self.request.body or b"{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise bad_request("the body is not a JSON object")
        return value

    async def happens(self, when: Callable[[Callable[[], None]], None]) -> None:
        """Wait until `when`, such as `vhost.when_durable`, calls back."""
        done = trio.Event()
        when(done.set)
        self.node.flush()  # this is the end of a turn: nobody else will
        with trio.move_on_after(WAIT_S):
            await done.wait()
            return
        raise HttpError(503, "the node did not get round to it in time")

    async def succeeds(self, ask: Callable[[Then], None]) -> None:
        """The same for what may fail: raises the ChannelError that `ask` is answered with."""
        answers: list[ChannelError | None] = []

        def when(done: Callable[[], None]) -> None:
            def answered(error: ChannelError | None) -> None:
                answers.append(error)
                done()

            ask(answered)

        await self.happens(when)
        (error,) = answers
        if error is not None:
            raise ChannelError(error.code, error.text)

    @property
    def passed_on(self) -> bool:
        """Whether another node asks for its client."""
        return self.request.caller is not None

    async def everywhere(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows about queues, and those of all other nodes that answer the same request.

        Each has a vhost and a name; what another node says of a queue counts more.
        """
        if self.elsewhere is None or self.passed_on:
            return rows
        answers: list[list[dict[str, Any]]] = []

        async def ask(elsewhere: Elsewhere, node: NodeId) -> None:
            with suppress(HttpError):  # it went: others lead what it led, or will soon
                response = await elsewhere.carry(node, self.request, self.user)
                if response.status == HTTP_OK:
                    answers.append(json.loads(response.body))

        async with trio.open_nursery() as nursery:
            for node in self.elsewhere.others():
                nursery.start_soon(ask, self.elsewhere, node)
        every = [*rows, *(row for answer in answers for row in answer)]
        by_queue = {(row["vhost"], row["name"]): row for row in every}
        return [row for _, row in sorted(by_queue.items(), key=lambda item: item[0])]

    async def changes(self, catalog: Definitions, change: Change) -> None:
        """Have all nodes of the cluster make a change."""
        await self.succeeds(partial(catalog.request, change))

    async def up_to_date(self) -> None:
        """What another node of a cluster has answered is known here."""
        if self.node.catalog is not None:
            await self.succeeds(self.node.catalog.read)

    async def define(self, change: Change) -> None:
        """Make a change to users, vhosts, permissions or limits (broker.security.registry)."""
        node = self.node
        if node.catalog is not None:
            await self.changes(node.catalog, change)
        else:
            node.registry.apply(change)
            if node.journal is not None:
                await self.happens(node.journal.when_durable)
        # What follows the name may be a secret.
        _log.info("defined", kind=change[0], name=change[1], by=self.user.name)


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteInfo:
    """What is said of a route in the API's description."""

    method: str
    pattern: str
    summary: str
    tags: frozenset[str]
    lists: bool  # it can be paged, sorted and so on (see broker.management.listing)
    query: tuple[str, ...]  # what else it looks for in the query


class Admin:
    """Where routes of the management API are added."""

    def __init__(self, node: Node, router: Router, elsewhere: Elsewhere | None = None) -> None:
        self._node = node
        self._router = router
        self._elsewhere = elsewhere
        self.routes: list[RouteInfo] = []

    def add(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        *,
        tags: frozenset[str] = MANAGERS,
        lists: bool = False,
        query: tuple[str, ...] = (),
    ) -> None:
        """Add a route for users who have one of the tags (see broker.http.auth)."""
        summary = (handler.__doc__ or "").partition("\n")[0]
        self.routes.append(
            RouteInfo(
                method=method,
                pattern=pattern,
                summary=summary,
                tags=tags,
                lists=lists,
                query=query,
            )
        )
        self._route(method, pattern, handler, tags)

    def _route(self, method: str, pattern: str, handler: Handler, tags: frozenset[str]) -> None:
        node = self._node

        async def answer(request: Request) -> Response:
            if node.stopping:
                raise HttpError(503, "the node is stopping")
            user = request.caller
            if user is None:
                user = await log_in(request, node)
            require_tag(user, tags)
            call = Call(node=node, user=user, request=request, elsewhere=self._elsewhere)
            try:
                return await handler(call)
            except LedElsewhereError as error:
                return await _pass_on(call, error)
            except AMQPError as error:
                if error.code == AMQP_NOT_FOUND:
                    raise HttpError(404, error.text, error="not_found") from None
                if error.code == AMQP_ACCESS_REFUSED:
                    raise not_authorised(error.text) from None
                if error.code == AMQP_RESOURCE_ERROR:
                    raise HttpError(503, error.text) from None
                raise bad_request(error.text) from None

        self._router.add(method, pattern, answer)

    def described(self) -> list[RouteInfo]:
        """All routes but those for other nodes; of those that need no login, only the path."""
        own = {(route.method, route.pattern) for route in self.routes}
        others = [
            RouteInfo(
                method=method,
                pattern=pattern,
                summary="",
                tags=frozenset(),
                lists=False,
                query=(),
            )
            for method, pattern in self._router.listed()
            if (method, pattern) not in own and not pattern.startswith(INTERNAL)
        ]
        return [*self.routes, *others]

    def add_internal(self, method: str, pattern: str, handler: Handler) -> None:
        """Add a route for other nodes only."""
        assert pattern.startswith(INTERNAL), pattern

        async def answer(call: Call) -> Response:
            if not call.passed_on:
                raise HttpError(404, "there is nothing at this path")
            return await handler(call)

        self._route(method, pattern, answer, MANAGERS)


async def _pass_on(call: Call, error: LedElsewhereError) -> Response:
    """To the node that can, if this request was not passed on before."""
    if error.node is None or call.elsewhere is None:
        raise HttpError(503, f"no node leads {error.what} now") from None
    if call.passed_on:
        raise HttpError(503, f"another node leads {error.what} since a moment ago") from None
    return await call.elsewhere.carry(error.node, call.request, call.user)


def bad_request(reason: str) -> HttpError:
    return HttpError(400, reason[:REASON_CHARS_MAX], error="bad_request")


def not_found(reason: str) -> HttpError:
    return HttpError(404, reason, error="Object Not Found")
