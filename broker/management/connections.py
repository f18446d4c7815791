"""`/api/connections`, `/api/channels` and `/api/consumers`: of all nodes, and one's end.

Each node knows its own; a list asks all of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio

from broker.http.admin import HTTP_OK, Admin, Call, not_found
from broker.http.auth import MONITORS
from broker.http.messages import HttpError, Response, json_response
from broker.management.connection_rows import (
    Watch,
    channel_name,
    channel_row,
    connection_name,
    connection_row,
    consumer_row,
    session_row,
)
from broker.management.listing import Row, answer_rows
from broker.management.rates import ages_of
from broker.management.totals import connections_of, sessions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.connection.connection import Connection
    from broker.http.admin import Elsewhere
    from broker.management.sampler import Sampler
    from broker.streams.login import Login
    from broker.streams.session import StreamSession
    from queues.raft.messages import NodeId

CLOSED_BY_HAND = "Closed via management plugin"  # RabbitMQ's words


def add_connections(admin: Admin, sampler: Sampler) -> None:
    routes = _Routes(sampler)
    listed = (routes.connections, routes.connections_in, routes.channels, routes.channels_in)
    for path, handler in (
        ("/api/connections", routes.connections),
        ("/api/connections/{name}", routes.connection),
        ("/api/connections/{name}/channels", routes.channels_of),
        ("/api/connections/username/{user}", routes.connections_by),
        ("/api/vhosts/{vhost}/connections", routes.connections_in),
        ("/api/channels", routes.channels),
        ("/api/channels/{name}", routes.channel),
        ("/api/vhosts/{vhost}/channels", routes.channels_in),
        ("/api/consumers", routes.consumers),
        ("/api/consumers/{vhost}", routes.consumers_in),
    ):
        admin.add("GET", path, handler, lists=handler in listed)
    admin.add("DELETE", "/api/connections/{name}", routes.close)
    admin.add("DELETE", "/api/connections/username/{user}", routes.close_all_of)


class _Routes:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def _watch(self, call: Call) -> Watch:
        return Watch(call.node.config.node_name, self._sampler, ages_of(call.request))

    # Connections

    async def connections(self, call: Call) -> Response:
        return await self._answer(call, self._connection_rows(call), "name")

    async def connections_in(self, call: Call) -> Response:
        vhost = call.vhost().name
        rows = [row for row in self._connection_rows(call) if row["vhost"] == vhost]
        return await self._answer(call, rows, "name")

    async def connections_by(self, call: Call) -> Response:
        user = call.parameter("user")
        names = ("name", "vhost", "user", "node")
        rows = [row for row in self._connection_rows(call) if row["user"] == user]
        picked = [{name: row[name] for name in names} for row in rows]
        return await self._answer(call, picked, "name")

    def _connection_rows(self, call: Call) -> list[Row]:
        watch = self._watch(call)
        rows = [connection_row(connection, watch) for connection in visible(call)]
        return rows + [session_row(*session, watch) for session in visible_sessions(call)]

    async def connection(self, call: Call) -> Response:
        return await _one(call, "name", self._connection_rows)

    async def channels_of(self, call: Call) -> Response:
        name = call.parameter("name")
        rows = [
            row for row in self._channel_rows(call) if row["connection_details"]["name"] == name
        ]
        return await self._answer(call, rows, "number")

    async def close(self, call: Call) -> Response:
        name = call.parameter("name")
        for connection, _ in closable(call):
            if connection_name(connection) == name:
                connection.close(call.request.headers.get("x-reason", CLOSED_BY_HAND))
                return Response(status=204)
        return await _first_elsewhere(call)

    async def close_all_of(self, call: Call) -> Response:
        user = call.parameter("user")
        for connection, name in closable(call):
            if name == user:
                connection.close(call.request.headers.get("x-reason", CLOSED_BY_HAND))
        await gather(call, [])
        return Response(status=204)

    # Channels

    async def channels(self, call: Call) -> Response:
        return await self._answer(call, self._channel_rows(call), "name")

    async def channels_in(self, call: Call) -> Response:
        vhost = call.vhost().name
        rows = [row for row in self._channel_rows(call) if row["vhost"] == vhost]
        return await self._answer(call, rows, "name")

    def _channel_rows(self, call: Call) -> list[Row]:
        watch = self._watch(call)
        return [
            channel_row(connection, channel, watch)
            for connection in visible(call)
            for channel in connection.channels
        ]

    async def channel(self, call: Call) -> Response:
        return await _one(call, "name", self._detailed_channels)

    def _detailed_channels(self, call: Call) -> Iterator[Row]:
        name, watch = call.parameter("name"), self._watch(call)
        for connection in visible(call):
            for channel in connection.channels:
                if channel_name(connection, channel) == name:
                    consumers = channel.deliveries.consumers.values()
                    yield channel_row(connection, channel, watch) | {
                        "consumer_details": [
                            consumer_row(connection, channel, consumer, watch)
                            for consumer in consumers
                        ],
                        "deliveries": [],
                        "publishes": [],
                    }

    # Consumers

    async def consumers(self, call: Call) -> Response:
        return await self._answer_consumers(call, self.consumer_rows(call))

    async def consumers_in(self, call: Call) -> Response:
        vhost = call.vhost().name
        rows = [row for row in self.consumer_rows(call) if row["queue"]["vhost"] == vhost]
        return await self._answer_consumers(call, rows)

    async def _answer_consumers(self, call: Call, rows: list[Row]) -> Response:
        if call.passed_on:
            return json_response(rows)
        every = await gather(call, rows)
        return await answer_rows(call.request, every, _consumer_place, named=_queue_name)

    def consumer_rows(self, call: Call) -> list[Row]:
        watch = self._watch(call)
        return [
            consumer_row(connection, channel, consumer, watch)
            for connection in visible(call)
            for channel in connection.channels
            for consumer in channel.deliveries.consumers.values()
        ]

    async def _answer(self, call: Call, rows: list[Row], place: str) -> Response:
        if call.passed_on:
            return json_response(rows)
        return await answer_rows(call.request, await gather(call, rows), lambda row: row[place])


def _queue_name(row: Row) -> str:
    return str(row["queue"]["name"])


def _consumer_place(row: Row) -> list[str]:
    queue = row["queue"]
    return [queue["vhost"], queue["name"], row["channel_details"]["name"], row["consumer_tag"]]


def consumers_of(call: Call, sampler: Sampler, vhost: str, queue: str) -> list[Row]:
    """Those of a queue whose channels are on this node."""
    watch = Watch(call.node.config.node_name, sampler, ages_of(call.request))
    return [
        consumer_row(connection, channel, consumer, watch)
        for connection in connections_of(call.node)
        if connection.vhost.name == vhost
        for channel in connection.channels
        for consumer in channel.deliveries.consumers.values()
        if consumer.queue.name == queue
    ]


def visible(call: Call) -> list[Connection]:
    """Of this node: all for those who watch over it, others see their own."""
    every = connections_of(call.node)
    if call.user.tags & MONITORS:
        return every
    return [connection for connection in every if connection.user.name == call.user.name]


def visible_sessions(call: Call) -> list[tuple[StreamSession, Login]]:
    """The same of clients of the stream protocol."""
    every = sessions_of(call.node)
    if call.user.tags & MONITORS:
        return every
    return [(one, login) for one, login in every if login.user.name == call.user.name]


def closable(call: Call) -> list[tuple[Connection | StreamSession, str]]:
    """Connections of all kinds that the caller sees, and the names of their users."""
    sessions = [(one, login.user.name) for one, login in visible_sessions(call)]
    return [*((one, one.user.name) for one in visible(call)), *sessions]


async def gather(call: Call, rows: list[Row]) -> list[Row]:
    """Rows of this node, and of all others that answer the same request."""
    if call.elsewhere is None or call.passed_on:
        return rows
    found = list(rows)

    async def ask(elsewhere: Elsewhere, node: NodeId) -> None:
        try:
            response = await elsewhere.carry(node, call.request, call.user)
        except HttpError:  # it went, and its clients with it
            return
        if response.status == HTTP_OK:
            found.extend(json.loads(response.body))

    async with trio.open_nursery() as nursery:
        for node in call.elsewhere.others():
            nursery.start_soon(ask, call.elsewhere, node)
    return found


async def _one(call: Call, key: str, rows: Callable[[Call], Iterable[Row]]) -> Response:
    wanted = call.parameter("name")
    for row in rows(call):
        if row[key] == wanted:
            return json_response(row)
    return await _first_elsewhere(call)


async def _first_elsewhere(call: Call) -> Response:
    """The answer of the node that has it."""
    if call.elsewhere is not None and not call.passed_on:
        for node in call.elsewhere.others():
            try:
                response = await call.elsewhere.carry(node, call.request, call.user)
            except HttpError:
                continue
            if response.status < 400:
                return response
    raise not_found("Not Found")
