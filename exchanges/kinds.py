"""The exchange types by name, and what each asks of its arguments and bindings."""

from collections.abc import Callable
from typing import Final

from exchanges import consistent_hash, headers
from exchanges.consistent_hash import ConsistentHashTable
from exchanges.direct import DirectTable
from exchanges.fanout import FanoutTable
from exchanges.headers import HeadersTable
from exchanges.table import Arguments, BindingTable
from exchanges.topic import TopicTable

KINDS: Final[dict[str, type[BindingTable]]] = {
    "direct": DirectTable,
    "fanout": FanoutTable,
    "topic": TopicTable,
    "headers": HeadersTable,
    "x-consistent-hash": ConsistentHashTable,
}

_BINDING_RULES: Final[dict[str, Callable[[str, Arguments], None]]] = {
    "headers": headers.validate,
    "x-consistent-hash": consistent_hash.validate,
}


def make_table(kind: str, exchange_arguments: Arguments) -> BindingTable:
    """An empty table; ValueError for an unknown type or arguments that the type refuses."""
    table = KINDS.get(kind)
    if table is None:
        raise ValueError(f"unknown exchange type '{kind}'")
    return table(exchange_arguments)


def validate_binding(kind: str, key: str, arguments: Arguments) -> None:
    """ValueError if an exchange of this type cannot have this binding."""
    rule = _BINDING_RULES.get(kind)
    if rule is not None:
        rule(key, arguments)
