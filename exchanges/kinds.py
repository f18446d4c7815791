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

# Routes as the type in its argument does. Messages that ask for a delay get it in any queue, by
# whatever exchange they came; this type is what clients of RabbitMQ's plugin for it declare.
DELAYED: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"

_BINDING_RULES: Final[dict[str, Callable[[str, Arguments], None]]] = {
    "headers": headers.validate,
    "x-consistent-hash": consistent_hash.validate,
}


def is_known(kind: str) -> bool:
    return kind in KINDS or kind == DELAYED


def routing_kind(kind: str, exchange_arguments: Arguments) -> str:
    """The type by which an exchange routes; ValueError where a delayed one does not name it."""
    if kind != DELAYED:
        return kind
    routed = exchange_arguments.get(DELAYED_TYPE)
    if not isinstance(routed, str) or routed not in KINDS:
        raise ValueError(f"invalid argument '{DELAYED_TYPE}', '{routed}': not an exchange type")
    return routed


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
