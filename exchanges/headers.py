"""The headers exchange: the binding's arguments name headers that the message must have.

Each binding is filed under a condition, that is a (header, value) pair, so that a message is only
compared with the bindings that ask for something it has. A binding that asks for *all* is
filed under one of its conditions with the others beside it; one that is content with *any* is
filed under each of them, with nothing beside it.
"""

from collections.abc import Hashable, Iterable
from typing import Final, TypeAlias

from exchanges import tally
from exchanges.table import Arguments, Destination, Found
from exchanges.values import comparable

MATCH: Final = "x-match"
MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class _Present:
    """What a void value in a binding asks for: the header, whatever its value."""

    __slots__ = ()


_PRESENT: Final = _Present()

Condition: TypeAlias = tuple[str, Hashable]
_Filed: TypeAlias = tuple[Destination, frozenset[Condition]]


class HeadersTable:
    __slots__ = ("_by_condition", "_unconditional")

    reads_headers = True
    reads_every_key = False

    def __init__(self, _exchange_arguments: Arguments) -> None:
        self._unconditional: dict[Destination, int] = {}
        self._by_condition: dict[Condition, dict[_Filed, int]] = {}

    def bind(self, destination: Destination, _key: str, arguments: Arguments) -> None:
        if _asks_nothing(arguments):
            tally.add(self._unconditional, destination)
        for condition, others in _places(arguments):
            tally.add(self._by_condition.setdefault(condition, {}), (destination, others))

    def unbind(self, destination: Destination, _key: str, arguments: Arguments) -> None:
        if _asks_nothing(arguments):
            tally.remove(self._unconditional, destination)
        for condition, others in _places(arguments):
            filed = self._by_condition[condition]
            tally.remove(filed, (destination, others))
            if not filed:
                del self._by_condition[condition]

    def match(self, _key: str, headers: Arguments, found: Found) -> None:
        found.update(self._unconditional)
        if not headers or not self._by_condition:
            return
        # A dict, because the order of a set differs from process to process.
        met: dict[Condition, None] = {}
        for name, value in headers.items():
            met[name, comparable(value)] = None
            met[name, _PRESENT] = None
        for condition in met:
            for destination, others in self._by_condition.get(condition, ()):
                if others <= met.keys():
                    found[destination] = None


def validate(_key: str, arguments: Arguments) -> None:
    mode = arguments.get(MATCH, "all")
    if not isinstance(mode, str):
        raise ValueError(f"Invalid x-match field type (value {mode!r}); expected longstr")
    if mode not in MODES:
        raise ValueError(
            f"Invalid x-match field value {mode!r}; expected all, any, all-with-x, or any-with-x"
        )


def _conditions(arguments: Arguments) -> list[Condition]:
    with_x = str(arguments.get(MATCH, "all")).endswith("-with-x")
    return [
        (name, _PRESENT if value is None else comparable(value))
        for name, value in arguments.items()
        if name != MATCH and (with_x or not name.startswith("x-"))
    ]


def _wants_any(arguments: Arguments) -> bool:
    return str(arguments.get(MATCH, "all")).startswith("any")


def _asks_nothing(arguments: Arguments) -> bool:
    return not _wants_any(arguments) and not _conditions(arguments)


def _places(arguments: Arguments) -> Iterable[tuple[Condition, frozenset[Condition]]]:
    """Where a binding is filed: the condition, and what else must be met."""
    conditions = _conditions(arguments)
    if _wants_any(arguments):
        return [(condition, frozenset()) for condition in conditions]
    # A value picks fewer messages than mere presence, and the name only makes the choice definite.
    conditions.sort(key=lambda condition: (condition[1] is _PRESENT, condition[0]))
    return [(conditions[0], frozenset(conditions[1:]))] if conditions else []
