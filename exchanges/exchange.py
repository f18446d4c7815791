"""An exchange: its properties, and the register of its bindings beside the table that matches."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple, TypeAlias

from exchanges.kinds import make_table, routing_kind
from exchanges.table import Arguments, Destination
from exchanges.values import canonical_table

_BindingId: TypeAlias = tuple[str, Hashable]


class Binding(NamedTuple):
    destination: Destination
    key: str
    arguments: Arguments


class Exchange:
    """ValueError from the constructor says what is wrong with the type or the arguments."""

    __slots__ = (
        "_register",
        "alternate",
        "arguments",
        "auto_delete",
        "downstream",
        "durable",
        "internal",
        "name",
        "policy",
        "published_in",
        "published_out",
        "routing_type",
        "table",
        "type",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        self.name = name
        self.type = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments or {})
        self.policy: str | None = None  # the name of the one that it has
        self.published_in = 0  # messages, since the node started
        self.published_out = 0  # the same for each queue that one went to
        self.alternate = _alternate(self.arguments)
        self.routing_type = routing_kind(kind, self.arguments)
        self.table = make_table(self.routing_type, self.arguments)
        # The exchanges among the destinations: a set, ordered.
        self.downstream: dict[Exchange, None] = {}
        # By destination first, because a queue that is deleted takes all its bindings with it.
        self._register: dict[Destination, dict[_BindingId, Binding]] = {}

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.type}>"

    def use_policy(self, name: str | None, *, alternate: str | None) -> bool:
        """Have a policy, or none; an argument of its own wins. Whether routes change by that."""
        before = self.alternate
        declared = _alternate(self.arguments)
        self.policy = name
        self.alternate = alternate if declared is None else declared
        return self.alternate != before

    @property
    def has_bindings(self) -> bool:
        return bool(self._register)

    def bindings(self) -> Iterator[Binding]:
        for bound in self._register.values():
            yield from bound.values()

    def bindings_to(self, destination: Destination) -> Iterator[Binding]:
        return iter(list(self._register.get(destination, {}).values()))

    def has_binding(self, destination: Destination, key: str, arguments: Arguments) -> bool:
        return (key, canonical_table(arguments)) in self._register.get(destination, {})

    def bind(self, destination: Destination, key: str, arguments: Arguments) -> bool:
        """False if the very same binding is there already."""
        binding_id = (key, canonical_table(arguments))
        bound = self._register.get(destination, {})
        if binding_id in bound:
            return False
        self.table.bind(destination, key, arguments)
        bound[binding_id] = Binding(destination, key, arguments)
        self._register[destination] = bound
        if isinstance(destination, Exchange):
            self.downstream[destination] = None
        return True

    def unbind(self, destination: Destination, key: str, arguments: Arguments) -> bool:
        """False if there is no such binding."""
        bound = self._register.get(destination)
        if bound is None:
            return False
        binding = bound.pop((key, canonical_table(arguments)), None)
        if binding is None:
            return False
        self.table.unbind(*binding)
        if not bound:
            self._forget(destination)
        return True

    def unbind_all(self, destination: Destination) -> int:
        """Remove every binding to this destination; how many there were."""
        bound = self._register.get(destination)
        if bound is None:
            return 0
        for binding in bound.values():
            self.table.unbind(*binding)
        self._forget(destination)
        return len(bound)

    def _forget(self, destination: Destination) -> None:
        del self._register[destination]
        if isinstance(destination, Exchange):
            del self.downstream[destination]


def _alternate(arguments: Arguments) -> str | None:
    if "alternate-exchange" not in arguments:
        return None
    name = arguments["alternate-exchange"]
    if not isinstance(name, str):
        raise ValueError(f"invalid type for arg 'alternate-exchange': {name!r}")
    return name
