"""Values of queue arguments (`x-message-ttl` …): how they are read, and what is wrong with them."""

from collections.abc import Callable
from typing import Final

from broker.protocol.tables import raw_text

SHORT_BYTES_MAX: Final = 255


class InvalidValueError(ValueError):
    """A value that an argument cannot have."""


class InvalidArgumentError(ValueError):
    """A known argument with a value that cannot be meant, or that another type of queue has."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


def whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValueError("expected a number")
    return value


def count(value: object) -> int:
    number = whole(value)
    if number < 0:
        raise InvalidValueError("expected a number that is not negative")
    return number


def bounded(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = whole(value)
        if not least <= number <= most:
            raise InvalidValueError(f"expected a number from {least} to {most}")
        return number

    return parse


def limit(value: object) -> int | None:
    """A count, or -1 for none."""
    return None if value == -1 and not isinstance(value, bool) else count(value)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError("expected a string")
    return value


def short_text(value: object) -> str:
    """The name of an exchange, or a routing key: on the wire they have a byte for their length."""
    found = text(value)
    if len(raw_text(found)) > SHORT_BYTES_MAX:
        raise InvalidValueError(f"expected at most {SHORT_BYTES_MAX} bytes")
    return found


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValueError("expected a boolean")
    return value


def one_of(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidValueError(f"expected one of {', '.join(allowed)}")
        return value

    return parse


def read(name: str, value: object, parse: Callable[[object], object]) -> object:
    """Parse a value; raises InvalidArgumentError."""
    try:
        return parse(value)
    except InvalidValueError as error:
        raise InvalidArgumentError(name, f"{error}, got {value!r}") from None
