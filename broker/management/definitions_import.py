"""`POST /api/definitions`: what a file defines is made, as far as it is not there yet.

The file is checked first, as a whole. What is there already stays as it is, as in RabbitMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import trio

from broker.cluster.placement import Load
from broker.http import json_body
from broker.http.admin import Admin, Call, bad_request
from broker.http.auth import ADMINISTRATORS, POLICYMAKERS
from broker.http.messages import Response
from broker.management import parameters
from broker.management.definitions_file import DefinitionsFile
from broker.management.definitions_rights import check_rights
from broker.policy_store import change_of
from broker.protocol.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.management.definitions_file import (
        BindingItem,
        ExchangeItem,
        PolicyItem,
        QueueItem,
    )
    from broker.vhost import VHost
    from exchanges.exchange import Exchange
    from queues.seams import AnyQueue

AT_ONCE: Final = 64  # changes asked of the cluster at a time
SLICE: Final = 500  # changes made without giving others a turn
VALUES_MAX: Final = 2_000_000  # in a file: 100,000 queues, and what goes with them


def add_import(admin: Admin) -> None:
    for method in ("POST", "PUT"):
        admin.add(method, "/api/definitions", _import_all, tags=ADMINISTRATORS)
        admin.add(method, "/api/definitions/{vhost}", _import_vhost, tags=POLICYMAKERS)


async def _import_all(call: Call) -> Response:
    await _carry_out(call, DefinitionsFile(_body(call), call.node))
    return Response(status=204)


async def _import_vhost(call: Call) -> Response:
    await _carry_out(call, DefinitionsFile(_body(call), call.node, call.vhost().name))
    return Response(status=204)


def _body(call: Call) -> dict[str, Any]:
    try:
        body = json_body.parse(call.request.body, VALUES_MAX)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise bad_request("failed_to_parse_json")
    return body


async def _carry_out(call: Call, file: DefinitionsFile) -> None:
    made = {change[1] for change in file.new_vhosts}
    for name in sorted(file.vhosts() - made):
        if name not in call.node.vhosts:
            raise bad_request(f"there is no vhost {name!r}")
    check_rights(call, file)
    for vhost in call.node.vhosts.values():
        vhost.admit_definition()
    for change in (*file.new_vhosts, *file.accounts):
        await call.define(change)
    for name, value in file.global_parameters:
        await parameters.change(call, "global-parameter", name, value)
    maker = _Maker(call)
    await maker.make(file.policies, maker.policy)
    await maker.make(file.exchanges, maker.exchange)
    await maker.make(file.queues, maker.queue)
    await maker.make(file.bindings, maker.binding)
    for vhost in call.node.vhosts.values():
        await call.happens(vhost.when_durable)
        await call.happens(vhost.policies.when_applied)


class _Maker:
    """Makes one item after the other; through the catalog, some at a time."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._planned = Load()  # queues that are asked for
        self._limit = trio.CapacityLimiter(AT_ONCE)
        self._refusals: list[ChannelError] = []  # after the first, nothing more is begun

    async def make(
        self, items: Sequence[Any], make: Callable[[VHost, Any], list[object] | None]
    ) -> None:
        """`make` makes an item, or gives the change to ask the cluster for."""
        vhosts = self._call.node.vhosts
        async with trio.open_nursery() as nursery:
            for place, item in enumerate(items, 1):
                vhost = vhosts[item.vhost]
                try:
                    change = make(vhost, item)
                except ChannelError as error:
                    self._refusals.append(error)
                    change = None
                if self._refusals:
                    break
                if change is not None:
                    await self._limit.acquire_on_behalf_of(id(change))
                    nursery.start_soon(self._ask, vhost, change)
                elif not place % SLICE:
                    self._call.node.flush()
                    await trio.lowlevel.checkpoint()
        if self._refusals:
            raise bad_request(self._refusals[0].text)

    async def _ask(self, vhost: VHost, change: list[object]) -> None:
        assert vhost.catalog is not None
        try:
            await self._call.changes(vhost.catalog, change)
        except ChannelError as error:
            self._refusals.append(error)
        finally:
            self._limit.release_on_behalf_of(id(change))

    def policy(self, vhost: VHost, item: PolicyItem) -> list[object] | None:
        if vhost.catalog is not None:
            return [item.kind, vhost.name, *change_of(item.policy)]
        vhost.policies.put(item.kind, item.policy)
        return None

    def exchange(self, vhost: VHost, item: ExchangeItem) -> list[object] | None:
        if item.name in vhost.exchanges:
            return None
        if vhost.catalog is not None:
            details = (item.name, item.type, item.auto_delete, item.internal, item.arguments)
            return ["exchange", vhost.name, *details, item.durable]
        vhost.declare_exchange(
            item.name,
            item.type,
            durable=item.durable,
            auto_delete=item.auto_delete,
            internal=item.internal,
            arguments=item.arguments,
        )
        return None

    def queue(self, vhost: VHost, item: QueueItem) -> list[object] | None:
        if item.name in vhost.queues:
            return None
        if vhost.catalog is None:
            vhost.declare_queue(
                item.name,
                durable=item.durable,
                auto_delete=item.auto_delete,
                owner=None,
                arguments=item.arguments,
                user_of=self._call,
            )
            return None
        options = vhost.options_for_new(
            item.name,
            item.arguments,
            durable=item.durable,
            auto_delete=item.auto_delete,
            exclusive=False,
        )
        placement = vhost.catalog.place(
            options, item.arguments, lasting=item.durable, planned=self._planned
        )
        for members in placement.groups:
            self._planned.replicas.update(members)
            self._planned.leaders[members[0]] += 1
        return [
            *("queue", vhost.name, item.name, uuid4().bytes, item.auto_delete, options.type),
            *(item.arguments, item.durable, None, placement.encode()),
        ]

    def binding(self, vhost: VHost, item: BindingItem) -> list[object] | None:
        """One whose ends are not there is left out, as in RabbitMQ."""
        source, destination = vhost.exchanges.get(item.source), self._end(vhost, item)
        if source is None or destination is None:
            return None
        if source.has_binding(destination, item.key, item.arguments):
            return None
        if vhost.catalog is not None:
            end = (item.destination_type, item.destination)
            return ["binding", vhost.name, item.source, *end, item.key, item.arguments, None]
        vhost.bind(item.source, destination, item.key, item.arguments)
        return None

    def _end(self, vhost: VHost, item: BindingItem) -> AnyQueue | Exchange | None:
        if item.destination_type == "exchange":
            return vhost.exchanges.get(item.destination)
        if item.destination not in vhost.queues:
            return None
        return vhost.queue_of(item.destination, user_of=self._call)
