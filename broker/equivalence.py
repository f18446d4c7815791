"""Whether a declare matches what exists, and RabbitMQ's wording where it does not."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from broker.protocol.errors import ChannelError, precondition_failed


def _type_name(value: object) -> str:
    """The name RabbitMQ has for a field's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -0x80000000 <= value <= 0x7FFFFFFF else "long"
    for kind, name in (
        (float, "double"),
        (str, "longstr"),
        (bytes, "longstr"),
        (datetime, "timestamp"),
        (Decimal, "decimal"),
        (dict, "table"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "void" if value is None else "binary"


def _family(value: object) -> type:
    """Numbers of any width are alike; a bool is not a number."""
    return type(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def inequivalent(name: str, thing: str, received: object, current: object) -> ChannelError:
    """`thing` is e.g. `queue 'q' in vhost '/'`; None stands for an argument that is not there."""
    if received is None or current is None:
        texts = [
            "none"
            if value is None
            else f"the value '{_shown(value)}' of type '{_type_name(value)}'"
            for value in (received, current)
        ]
    else:
        texts = [f"'{_shown(received)}'", f"'{_shown(current)}'"]
    return precondition_failed(
        f"inequivalent arg '{name}' for {thing}: received {texts[0]} but current is {texts[1]}"
    )


def check_property(name: str, thing: str, *, received: object, current: object) -> None:
    if received != current:
        raise inequivalent(name, thing, received, current)


def check_arguments(
    names: Iterable[str],
    thing: str,
    *,
    received: Mapping[str, object],
    current: Mapping[str, object],
) -> None:
    """Compare the arguments that matter; others may differ freely."""
    for name in names:
        new, old = received.get(name), current.get(name)
        if new != old or _family(new) is not _family(old):
            raise inequivalent(name, thing, new, old)
