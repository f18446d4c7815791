"""Queue arguments (`x-message-ttl` …) parsed once, at declare, into typed options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Overflow: TypeAlias = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
QueueType: TypeAlias = Literal["classic", "quorum"]

PRIORITY_MAX: Final = 255
EXPIRES_MS_MAX: Final = 315_360_000_000  # ten years: RabbitMQ's bound too
QUORUM_DELIVERY_LIMIT: Final = 20


class InvalidValueError(ValueError):
    """A value that an argument cannot have."""


class InvalidArgumentError(ValueError):
    """A known argument with a value that cannot be meant, or that another type of queue has."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """What a queue was declared to do."""

    type: QueueType = "classic"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValueError("expected a number")
    return value


def _count(value: object) -> int:
    number = _whole(value)
    if number < 0:
        raise InvalidValueError("expected a number that is not negative")
    return number


def _bounded(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = _whole(value)
        if not least <= number <= most:
            raise InvalidValueError(f"expected a number from {least} to {most}")
        return number

    return parse


def _limit(value: object) -> int | None:
    """A count, or -1 for none."""
    return None if value == -1 and not isinstance(value, bool) else _count(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError("expected a string")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValueError("expected a boolean")
    return value


def _one_of(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidValueError(f"expected one of {', '.join(allowed)}")
        return value

    return parse


# Argument → the option it sets, and how its value is read.
_PARSERS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "x-queue-type": ("type", _one_of("classic", "quorum")),
    "x-message-ttl": ("message_ttl_ms", _bounded(0, EXPIRES_MS_MAX)),
    "x-expires": ("expires_ms", _bounded(1, EXPIRES_MS_MAX)),
    "x-max-length": ("max_length", _count),
    "x-max-length-bytes": ("max_length_bytes", _count),
    "x-overflow": ("overflow", _one_of("drop-head", "reject-publish", "reject-publish-dlx")),
    "x-dead-letter-exchange": ("dead_letter_exchange", _text),
    "x-dead-letter-routing-key": ("dead_letter_routing_key", _text),
    "x-max-priority": ("max_priority", _bounded(0, PRIORITY_MAX)),
    "x-single-active-consumer": ("single_active_consumer", _boolean),
    "x-delivery-limit": ("delivery_limit", _limit),
}
# Arguments that RabbitMQ's clients send and that choose nothing here, but must be well-formed.
_ACCEPTED: Final[dict[str, Callable[[object], object]]] = {
    "x-queue-mode": _one_of("default", "lazy"),
    "x-queue-version": _bounded(1, 2),
    "x-quorum-initial-group-size": _bounded(1, 99),
    "x-queue-leader-locator": _text,
    "x-queue-master-locator": _text,
    "x-dead-letter-strategy": _one_of("at-most-once", "at-least-once"),
}
_OTHER_TYPE: Final[dict[str, frozenset[str]]] = {
    "classic": frozenset(
        {"x-quorum-initial-group-size", "x-max-age", "x-stream-max-segment-size-bytes"}
    ),
    "quorum": frozenset(
        {"x-queue-mode", "x-queue-version", "x-max-age", "x-stream-max-segment-size-bytes"}
    ),
}

EQUIVALENCE_ARGUMENTS: Final = (*_PARSERS, *_ACCEPTED)


def default_type(arguments: Mapping[str, object], *, lasting: bool) -> QueueType:
    """The type of a queue declared without `x-queue-type`.

    Quorum if it is lasting: durable, named by a client, neither exclusive nor auto-delete. A queue
    with arguments that only classic ones have is meant to be classic.
    """
    return "quorum" if lasting and not _OTHER_TYPE["quorum"] & arguments.keys() else "classic"


def parse_options(
    arguments: Mapping[str, object], *, default: QueueType = "classic"
) -> QueueOptions:
    """Typed options from a declare's arguments; raises InvalidArgumentError."""
    values: dict[str, object] = {"type": default}
    for name, value in arguments.items():
        option, parse = _PARSERS.get(name, (None, _ACCEPTED.get(name)))
        if parse is None:
            continue  # unknown to every type of queue: ignored, as AMQP clients expect
        try:
            parsed = parse(value)
        except InvalidValueError as error:
            raise InvalidArgumentError(name, f"{error}, got {value!r}") from None
        if option is not None:
            values[option] = parsed
    queue_type = str(values["type"])
    for name in arguments:
        if name in _OTHER_TYPE[queue_type]:
            raise InvalidArgumentError(name, f"not an argument of queue type {queue_type}")
    if queue_type == "quorum":
        values.setdefault("delivery_limit", QUORUM_DELIVERY_LIMIT)
    if "dead_letter_routing_key" in values and "dead_letter_exchange" not in values:
        raise InvalidArgumentError("x-dead-letter-routing-key", "no x-dead-letter-exchange with it")
    return QueueOptions(**values)  # type: ignore[arg-type]
