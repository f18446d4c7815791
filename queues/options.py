"""Arguments of FIFO queues (`x-message-ttl` …) parsed once, at declare, into typed options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from queues.arguments import (
    InvalidArgumentError,
    InvalidValueError,
    boolean,
    bounded,
    count,
    limit,
    one_of,
    read,
    short_text,
    text,
)

Overflow: TypeAlias = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
QueueType: TypeAlias = Literal["classic", "quorum", "stream"]

PRIORITY_MAX: Final = 255
DELAY_MS_MAX: Final = 30 * 24 * 3600 * 1000  # thirty days
BACKOFF_MAX: Final = 1000  # times as long with each try; more is a slip of the keyboard
# What a mass disconnect gives back at once, and then every second: more than consumers take in.
REDELIVERY_RATE: Final = 10_000
REDELIVERY_RATE_MAX: Final = 1_000_000_000
DEDUP_WINDOW_MS: Final = 5 * 60 * 1000  # unless the queue says otherwise
EXPIRES_MS_MAX: Final = 315_360_000_000  # ten years: RabbitMQ's bound too
QUORUM_DELIVERY_LIMIT: Final = 20
NOTHING_ALTERED: Final[Mapping[str, object]] = MappingProxyType({})  # one for all queues


def altered(arguments: Mapping[str, object], settings: Mapping[str, object]) -> dict[str, object]:
    """What a queue goes by: settings count more than arguments, and None takes one away."""
    merged = {**arguments, **settings}
    return {name: value for name, value in merged.items() if value is not None}


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
    message_delay_ms: int = 0  # for messages that bring none of their own
    retry_delay_ms: int = 0  # before a failed message is tried again
    retry_backoff: float = 1.0  # by how much longer each time
    retry_max_delay_ms: int = DELAY_MS_MAX
    visibility_timeout_ms: int | None = None  # how long a message may stay unacked
    consumer_timeout_ms: int | None = None  # the same, under RabbitMQ's name
    priority_aging_ms: int | None = None  # waiting so long counts as one priority more
    message_groups: bool = False
    dedup_window_ms: int = DEDUP_WINDOW_MS  # 0: duplicates are welcome
    dedup_content: bool = False  # the same body is the same message, unless it has an id
    redelivery_rate: int = REDELIVERY_RATE  # messages of lost consumers a second; 0: all at once

    @property
    def lease_ms(self) -> int | None:
        """How long a consumer that does not say otherwise may hold a message."""
        return self.visibility_timeout_ms or self.consumer_timeout_ms


def _backoff(value: object) -> float:
    """By how much longer to wait with each try: a factor, or a word for one."""
    if value in ("constant", "exponential"):
        return 1.0 if value == "constant" else 2.0
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InvalidValueError("expected a number, 'constant' or 'exponential'")
    if not 1 <= value <= BACKOFF_MAX:
        raise InvalidValueError(f"expected a number from 1 to {BACKOFF_MAX}")
    return float(value)


# Argument → the option it sets, and how its value is read.
_PARSERS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "x-queue-type": ("type", one_of("classic", "quorum")),
    "x-message-ttl": ("message_ttl_ms", bounded(0, EXPIRES_MS_MAX)),
    "x-expires": ("expires_ms", bounded(1, EXPIRES_MS_MAX)),
    "x-max-length": ("max_length", count),
    "x-max-length-bytes": ("max_length_bytes", count),
    "x-overflow": ("overflow", one_of("drop-head", "reject-publish", "reject-publish-dlx")),
    "x-dead-letter-exchange": ("dead_letter_exchange", short_text),
    "x-dead-letter-routing-key": ("dead_letter_routing_key", short_text),
    "x-max-priority": ("max_priority", bounded(0, PRIORITY_MAX)),
    "x-single-active-consumer": ("single_active_consumer", boolean),
    "x-delivery-limit": ("delivery_limit", limit),
    "x-message-delay": ("message_delay_ms", bounded(0, DELAY_MS_MAX)),
    "x-retry-delay": ("retry_delay_ms", bounded(0, DELAY_MS_MAX)),
    "x-retry-backoff": ("retry_backoff", _backoff),
    "x-retry-max-delay": ("retry_max_delay_ms", bounded(1, DELAY_MS_MAX)),
    "x-visibility-timeout": ("visibility_timeout_ms", bounded(1, DELAY_MS_MAX)),
    "x-consumer-timeout": ("consumer_timeout_ms", bounded(1, DELAY_MS_MAX)),
    "x-priority-aging-ms": ("priority_aging_ms", bounded(1, EXPIRES_MS_MAX)),
    "x-message-groups": ("message_groups", boolean),
    "x-dedup-window": ("dedup_window_ms", bounded(0, DELAY_MS_MAX)),
    "x-dedup-content": ("dedup_content", boolean),
    "x-redelivery-rate": ("redelivery_rate", bounded(0, REDELIVERY_RATE_MAX)),
}
# Arguments that RabbitMQ's clients send and that choose nothing here, but must be well-formed.
_ACCEPTED: Final[dict[str, Callable[[object], object]]] = {
    "x-queue-mode": one_of("default", "lazy"),
    "x-queue-version": bounded(1, 2),
    "x-quorum-initial-group-size": bounded(1, 99),
    "x-queue-leader-locator": text,
    "x-queue-master-locator": text,
    "x-dead-letter-strategy": one_of("at-most-once", "at-least-once"),
}
_OF_STREAMS: Final = frozenset(
    {
        "x-acks",
        "x-compact",
        "x-initial-cluster-size",
        "x-max-age",
        "x-partitions",
        "x-stream-max-segment-size-bytes",
    }
)
_OTHER_TYPE: Final[dict[str, frozenset[str]]] = {
    "classic": _OF_STREAMS | {"x-quorum-initial-group-size"},
    "quorum": _OF_STREAMS | {"x-queue-mode", "x-queue-version"},
}

ARGUMENTS: Final = (*_PARSERS, *_ACCEPTED)
# What a policy may set too, under the same name without "x-".
POLICY_ARGUMENTS: Final = frozenset(_PARSERS.keys() - {"x-queue-type", "x-single-active-consumer"})


def default_type(arguments: Mapping[str, object], *, lasting: bool) -> QueueType:
    """The type of a queue declared without `x-queue-type`.

    Quorum if it is lasting: durable, named by a client, neither exclusive nor auto-delete. A queue
    with arguments that only classic ones have is meant to be classic.
    """
    only_classic = _OTHER_TYPE["quorum"] - _OF_STREAMS
    return "quorum" if lasting and not only_classic & arguments.keys() else "classic"


def parse_options(
    arguments: Mapping[str, object], *, default: QueueType = "classic"
) -> QueueOptions:
    """Typed options from a declare's arguments; raises InvalidArgumentError."""
    values: dict[str, object] = {"type": default}
    for name, value in arguments.items():
        option, parse = _PARSERS.get(name, (None, _ACCEPTED.get(name)))
        if parse is None:
            continue  # unknown to every type of queue: ignored, as AMQP clients expect
        parsed = read(name, value, parse)
        if option is not None:
            values[option] = parsed
    queue_type = str(values["type"])
    for name in arguments:
        if name in _OTHER_TYPE[queue_type]:
            raise InvalidArgumentError(name, f"not an argument of queue type {queue_type}")
    if queue_type == "quorum":
        values.setdefault("delivery_limit", QUORUM_DELIVERY_LIMIT)
    if "priority_aging_ms" in values and not values.get("max_priority"):
        raise InvalidArgumentError("x-priority-aging-ms", "no x-max-priority with it")
    if values.get("message_groups") and values.get("max_priority"):
        raise InvalidArgumentError("x-message-groups", "not together with x-max-priority")
    if "dead_letter_routing_key" in values and "dead_letter_exchange" not in values:
        raise InvalidArgumentError("x-dead-letter-routing-key", "no x-dead-letter-exchange with it")
    return QueueOptions(**values)  # type: ignore[arg-type]
