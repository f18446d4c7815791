"""Rows about queues of all nodes: every node knows all names, what is in a queue its leader knows.

The names of a page are chosen here; then each leader is asked for the rows of its queues. A list in
the order of something that only leaders know asks all of them first what they would put on it.
"""

from __future__ import annotations

import heapq
import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from broker.cluster.front import QueueFront
from broker.http.messages import json_response
from broker.management.asking import ask
from broker.management.listing import (
    FEW,
    in_order,
    make_row,
    make_rows,
    sort_key,
    value_at,
    wanted,
)
from broker.management.queue_ranks import rank_of
from broker.management.queue_rows import Item, Source, columns_for, columns_of
from broker.management.rates import ages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.http.admin import Admin, Call, Elsewhere
    from broker.http.messages import Response
    from broker.management.listing import Row, Wanted
    from broker.management.sampler import Sampler
    from broker.management.whereabouts import Whereabouts
    from queues.raft.messages import NodeId
    from queues.seams import AnyQueue

Key: TypeAlias = tuple[str, str]  # vhost, name

ROWS: Final = "/api/internal/queues"
ORDER: Final = "/api/internal/queues/order"
SLICE: Final = 2500  # values looked at without giving others a turn
_KNOWN_HERE: Final = {(): None, ("vhost",): None, ("name",): lambda key: (key[1], key[0])}


class Gathering:
    """What one node asks the others, and answers them."""

    def __init__(self, where: Whereabouts, sampler: Sampler) -> None:
        self._where = where
        self._sampler = sampler

    def source(self, call: Call) -> Source:
        return Source(self._where, self._sampler, ages_of(call.request))

    def add(self, admin: Admin) -> None:
        admin.add_internal("POST", ROWS, self._rows_asked)
        admin.add_internal("POST", ORDER, self._order_asked)

    def _item(self, call: Call, key: Key, source: Source) -> Item | None:
        vhost = call.node.vhosts.get(key[0])
        queue = None if vhost is None else vhost.queues.get(key[1])
        return None if vhost is None or queue is None else Item(vhost, queue, source)

    # In which order

    async def ordered(self, call: Call, keys: list[Key], ask: Wanted) -> list[Key]:
        """As many of them as are needed, in order."""
        if ask.sort in _KNOWN_HERE:
            return in_order(keys, _KNOWN_HERE[ask.sort], ask)
        rank = rank_of(ask.sort, self._sampler, self._where)
        if rank is not None and call.elsewhere is None:
            return await self._ranked(call, keys, ask, rank)
        values = await self._values(call, keys, ask)
        if call.elsewhere is not None:
            await self._ask_order(call, call.elsewhere, values)
        return in_order(keys, lambda key: (values.get(key, (0, 0)), key), ask)

    async def _ranked(
        self, call: Call, keys: list[Key], ask: Wanted, rank: Callable[[AnyQueue], Any]
    ) -> list[Key]:
        """On a node alone: as many as are needed are kept while all are looked at."""
        best: list[tuple[Any, Key]] = []
        few = ask.end is not None and ask.end * FEW <= len(keys)
        for start in range(0, len(keys), SLICE):
            for name, group in groupby(keys[start : start + SLICE], itemgetter(0)):
                vhost = call.node.vhosts.get(name)
                queues = {} if vhost is None else vhost.queues
                best += [
                    (rank(queue), key) for key in group if (queue := queues.get(key[1])) is not None
                ]
            if few:
                best = sorted(best, reverse=ask.reverse)[: ask.end]
            await trio.lowlevel.checkpoint()
        return [key for _, key in (best if few else in_order(best, None, ask))]

    async def _values(self, call: Call, keys: Iterable[Key], ask: Wanted) -> dict[Key, Any]:
        """What queues are sorted by, as far as this node knows it."""
        values: dict[Key, Any] = {}
        source = self.source(call)
        rank = rank_of(ask.sort, self._sampler, self._where)
        for number, key in enumerate(keys, 1):
            vhost = call.node.vhosts.get(key[0])
            queue = None if vhost is None else vhost.queues.get(key[1])
            if vhost is None or queue is None:
                continue
            if rank is not None:
                values[key] = sort_key(rank(queue))
            else:
                item = Item(vhost, queue, source)
                values[key] = sort_key(value_at(item, columns_of(item), ask.sort))
            if not number % SLICE:
                await trio.lowlevel.checkpoint()
        return values

    async def _ask_order(self, call: Call, elsewhere: Elsewhere, values: dict[Key, Any]) -> None:
        """What leaders elsewhere know counts more than what is known here."""
        async with trio.open_nursery() as nursery:
            for node in elsewhere.others():
                nursery.start_soon(self._ask_node_for_order, call, elsewhere, node, values)

    async def _ask_node_for_order(
        self, call: Call, elsewhere: Elsewhere, node: NodeId, values: dict[Key, Any]
    ) -> None:
        for vhost, name, value in await ask(call, elsewhere, node, ORDER) or []:
            values[vhost, name] = tuple(value)

    async def _order_asked(self, call: Call) -> Response:
        """The first of the queues that are led here, as many as one page may need."""
        ask = wanted(call.request)
        keys = [
            (vhost.name, name)
            for vhost in call.vhosts()
            for name, queue in vhost.queues.items()
            if isinstance(queue, QueueFront) and queue.queue is not None
        ]
        if ask.name is not None:
            keys = [key for key in keys if ask.name.found_in(key[1])]
        values = await self._values(call, keys, ask)
        if ask.end is not None:
            pick = heapq.nlargest if ask.reverse else heapq.nsmallest
            keys = pick(ask.end, keys, key=lambda key: (values[key], key))
        return json_response([[*key, values[key]] for key in keys if key in values])

    # What is said of them

    async def rows(self, call: Call, keys: list[Key], ask: Wanted) -> list[Row]:
        """One for each queue that is still there."""
        source = self.source(call)
        here: dict[Key, Item] = {}
        away: dict[NodeId, list[Key]] = {}
        for key in keys:
            item = self._item(call, key, source)
            if item is None:
                continue
            here[key] = item
            queue = item.queue
            if isinstance(queue, QueueFront) and queue.queue is None and queue.leader is not None:
                away.setdefault(queue.leader, []).append(key)
        found: dict[Key, Row] = {}
        if away and call.elsewhere is not None and not call.passed_on:
            await self._ask_rows(call, call.elsewhere, away, found)

        def make(key: Key) -> Row:
            row = found.get(key)
            return make_row(here[key], columns_for(call, here[key]), ask) if row is None else row

        return await make_rows([key for key in keys if key in here], make)

    async def _ask_rows(
        self,
        call: Call,
        elsewhere: Elsewhere,
        away: dict[NodeId, list[Key]],
        found: dict[Key, Row],
    ) -> None:
        async def ask_for(node: NodeId, keys: list[Key]) -> None:
            rows = await ask(call, elsewhere, node, ROWS, keys) or []
            found.update({(vhost, name): row for vhost, name, row in rows})

        async with trio.open_nursery() as nursery:
            for node, keys in away.items():
                nursery.start_soon(ask_for, node, keys)

    async def _rows_asked(self, call: Call) -> Response:
        ask, source = wanted(call.request), self.source(call)
        items = [
            item
            for vhost, name in json.loads(call.request.body)
            if (item := self._item(call, (vhost, name), source)) is not None
            and (not isinstance(item.queue, QueueFront) or item.queue.queue is not None)
        ]

        def make(item: Item) -> Any:
            row = make_row(item, columns_for(call, item), ask)
            return [item.vhost.name, item.queue.name, row]

        return json_response(await make_rows(items, make))
