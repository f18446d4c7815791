"""AMQP field values in a form that can be hashed and compared.

Python holds True, 1 and 1.0 for equal, and tables and arrays arrive as dicts and lists.
"""

import calendar
from collections.abc import Hashable, Mapping
from datetime import datetime
from decimal import Decimal
from operator import itemgetter


def canonical(value: object) -> Hashable:
    """Equal for equal values of the same type; its `repr` is the same in every process."""
    match value:
        case str() | None:
            return value
        case bool():
            return ("bool", value)
        case int():
            return value
        case float():
            return ("float", value.hex())
        case bytes() | bytearray():
            return ("bytes", bytes(value))
        case Decimal():
            return ("decimal", *value.as_tuple())
        case datetime():
            return ("timestamp", _seconds(value))
        case list() | tuple():
            return ("array", *map(canonical, value))
        case Mapping():
            return canonical_table(value)
    raise TypeError(f"not an AMQP field value: {value!r}")


def canonical_table(table: Mapping[str, object]) -> Hashable:
    if not table:
        return ()
    return tuple(sorted(((k, canonical(v)) for k, v in table.items()), key=itemgetter(0)))


def comparable(value: object) -> Hashable:
    """Equal for what RabbitMQ's headers exchange holds for equal.

    It compares what the type tags wrap: 1, 1.0 and the timestamp 1 are equal, and so are a string
    and a byte array of the same bytes, but a boolean is not a number. Inside arrays and tables
    the types count.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, datetime):
        return _seconds(value)
    return canonical(value)


def _seconds(moment: datetime) -> int:
    return calendar.timegm(moment.utctimetuple())
