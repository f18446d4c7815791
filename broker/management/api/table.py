"""The whole table: every path and method that the description names."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from broker.management.api import accounts, beyond, etl, objects

if TYPE_CHECKING:
    from broker.management.api.words import Doc


_PARTS: Final = (
    objects.QUEUES,
    objects.EXCHANGES,
    objects.BINDINGS,
    objects.CONNECTIONS,
    objects.NODES,
    objects.SETTINGS,
    accounts.ACCOUNTS,
    beyond.MESSAGES,
    beyond.STREAMS,
    beyond.CLUSTER,
    beyond.TOPICS,
    etl.JOBS,
)
TABLE: Final[dict[tuple[str, str], Doc]] = {
    (method, path): doc
    for path, methods in chain.from_iterable(part.items() for part in _PARTS)
    for method, doc in methods.items()
}
