"""From a message's keys and headers to its queues, through exchanges bound to exchanges."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from exchanges.exchange import Exchange
from exchanges.table import Arguments, Destination, Found

FindExchange: TypeAlias = Callable[[str], Exchange | None]


def route(
    exchange: Exchange, keys: Sequence[str], headers: Arguments, find_exchange: FindExchange
) -> list[Any]:
    """The queues for a message, each once, always in the same order.

    `keys` are the routing key, then those of CC and BCC. An exchange in which no key matched
    anything hands the message to its alternate exchange, also when it was reached through another
    exchange. A match counts even if it leads nowhere in the end. Every exchange is visited once.
    """
    found = _match(exchange, keys, headers)
    if found:
        if not exchange.downstream:
            return list(found)
    elif exchange.alternate is None:
        return []
    queues: dict[Destination, None] = {}
    seen = {exchange}
    waiting: deque[Exchange] = deque()
    while True:
        for destination in found or _alternates(exchange, find_exchange):
            if not isinstance(destination, Exchange):
                queues[destination] = None
            elif destination not in seen:
                seen.add(destination)
                waiting.append(destination)
        if not waiting:
            return list(queues)
        exchange = waiting.popleft()
        found = _match(exchange, keys, headers)


def needs_headers(exchange: Exchange, find_exchange: FindExchange) -> bool:
    """Whether a message's headers may change where this exchange sends it.

    If not, its route may be remembered by exchange and keys until some binding changes.
    """
    reachable = {exchange: None}
    waiting = [exchange]
    for current in waiting:
        if current.table.reads_headers:
            return True
        for following in (*current.downstream, *_alternates(current, find_exchange)):
            if following not in reachable:
                reachable[following] = None
                waiting.append(following)
    return False


def _match(exchange: Exchange, keys: Sequence[str], headers: Arguments) -> Found:
    found: Found = {}
    table = exchange.table
    if len(keys) == 1 or not table.reads_every_key:
        table.match(keys[0], headers, found)
    else:
        for key in keys:
            table.match(key, headers, found)
    return found


def _alternates(exchange: Exchange, find_exchange: FindExchange) -> tuple[Exchange, ...]:
    """The alternate exchange, if one is named and exists."""
    if exchange.alternate is None:
        return ()
    alternate = find_exchange(exchange.alternate)
    return () if alternate is None else (alternate,)
