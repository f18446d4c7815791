"""Attributes of queues: what they set, as arguments of the queue, and how they are shown.

Those that mean something to AMQP clients too become arguments of the queue, altered live (see
`PolicyStore.alter`); the rest is in the table `x-sqs` beside them.

    DelaySeconds                x-message-delay
    MessageRetentionPeriod      x-message-ttl
    VisibilityTimeout           x-visibility-timeout
    RedrivePolicy               x-dead-letter-exchange "", x-dead-letter-routing-key,
                                x-delivery-limit
    FifoQueue                   x-message-groups
    ContentBasedDeduplication   x-dedup-content
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.sqs.errors import (
    BAD_ATTRIBUTE_NAME,
    BAD_ATTRIBUTE_VALUE,
    UNSUPPORTED,
    SqsError,
    bad_parameter,
)
from broker.sqs.names import arn_of, name_in_arn
from broker.sqs.parameters import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from queues.options import QueueOptions

SQS: Final = "x-sqs"
RETENTION_S: Final = 4 * 24 * 3600  # unless a client that makes a queue says otherwise
RETENTION_S_MAX: Final = 14 * 24 * 3600
VISIBILITY_S: Final = 30
VISIBILITY_S_MAX: Final = 12 * 3600
DELAY_S_MAX: Final = 900
WAIT_S_MAX: Final = 20
MESSAGE_BYTES_MIN: Final = 1024
MESSAGE_BYTES_MAX: Final = 256 * 1024
RECEIVES_MAX: Final = 1000
SOURCES_MAX: Final = 10  # queues that a RedriveAllowPolicy can name
TAGS_MAX: Final = 50
_LEAST_LEASE_MS: Final = 1  # stands for no time at all, which a lease cannot have

COUNTS: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_READ_ONLY: Final = (*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn")
_REDRIVE: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-delivery-limit")
_NO_ENCRYPTION: Final = "Messages are not encrypted at rest."
# Better to say so than to let somebody believe that they are in effect.
_NOT_HERE: Final = {
    "Policy": "Who may do what is decided by the permissions of users.",
    "KmsMasterKeyId": _NO_ENCRYPTION,
    "KmsDataKeyReusePeriodSeconds": _NO_ENCRYPTION,
    "SqsManagedSseEnabled": _NO_ENCRYPTION,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a queue's attributes say to whoever sends and receives."""

    visibility_ms: int
    wait_s: int
    message_bytes_max: int
    scope: str  # of deduplication: queue or messageGroup


def sqs_of(settings: Mapping[str, object]) -> Mapping[str, Any]:
    """What of a queue's settings is nobody else's."""
    found = settings.get(SQS)
    return found if isinstance(found, dict) else {}


def limits_of(options: QueueOptions, settings: Mapping[str, object]) -> Limits:
    sqs = sqs_of(settings)
    lease_ms = options.lease_ms
    return Limits(
        visibility_ms=VISIBILITY_S * 1000 if lease_ms is None else lease_ms,
        wait_s=sqs.get("wait_s", 0),
        message_bytes_max=sqs.get("message_bytes_max", MESSAGE_BYTES_MAX),
        scope=sqs.get("scope", "queue"),
    )


# Setting


class Draft:
    """Settings of a queue, about to be changed."""

    def __init__(self, settings: Mapping[str, object], *, fifo: bool) -> None:
        self.settings = dict(settings)
        self.sqs = dict(sqs_of(settings))
        self.fifo = fifo
        self.redrive: str | None = None  # the queue that dead letters are to go to

    def finished(self, now_ms: int) -> dict[str, object]:
        self.sqs.setdefault("created_ms", now_ms)
        self.sqs["modified_ms"] = now_ms
        return {**self.settings, SQS: self.sqs}

    def put(self, argument: str, value: object) -> None:
        """None takes it away."""
        self.settings.pop(argument, None)
        if value is not None:
            self.settings[argument] = value


def new_queue(attributes: Mapping[str, str]) -> Draft:
    """What a queue is to be that SQS makes: it keeps to SQS's defaults, and gives up no message."""
    fifo = attributes.get("FifoQueue", "")
    if fifo not in ("", "true"):
        raise _bad_value("FifoQueue", fifo)
    draft = Draft({}, fifo=bool(fifo))
    draft.put("x-message-ttl", RETENTION_S * 1000)
    draft.put("x-delivery-limit", -1)
    if fifo:
        draft.settings["x-message-groups"] = True
    set_attributes(draft, {n: value for n, value in attributes.items() if n != "FifoQueue"})
    return draft


def set_attributes(draft: Draft, attributes: Mapping[str, str]) -> None:
    """Raises SqsError. That a dead letter queue exists is for the caller to see to."""
    for name, value in attributes.items():
        setter = _SETTERS.get(name)
        if setter is not None:
            setter(draft, name, value)
        elif name in _NOT_HERE:
            if value not in ("", "false"):
                raise SqsError(UNSUPPORTED, f"{name} cannot be set here. {_NOT_HERE[name]}")
        else:
            raise _bad_name(name)


def _bad_name(name: str) -> SqsError:
    return SqsError(BAD_ATTRIBUTE_NAME, f"Unknown Attribute {name:.100}.")


def _bad_value(name: str, value: str) -> SqsError:
    return SqsError(BAD_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}: {value:.200}")


def _number(name: str, value: str, least: int, most: int) -> int:
    number = whole(value)
    if number is None or not least <= number <= most:
        raise _bad_value(name, value)
    return number


def _seconds(argument: str, least: int, most: int) -> Callable[[Draft, str, str], None]:
    def put(draft: Draft, name: str, value: str) -> None:
        draft.put(argument, 1000 * _number(name, value, least, most))

    return put


def _visibility(draft: Draft, name: str, value: str) -> None:
    seconds = _number(name, value, 0, VISIBILITY_S_MAX)
    draft.put("x-visibility-timeout", 1000 * seconds or _LEAST_LEASE_MS)


def _own_number(key: str, least: int, most: int) -> Callable[[Draft, str, str], None]:
    def put(draft: Draft, name: str, value: str) -> None:
        draft.sqs[key] = _number(name, value, least, most)

    return put


def _own_choice(key: str, *allowed: str) -> Callable[[Draft, str, str], None]:
    def put(draft: Draft, name: str, value: str) -> None:
        if not draft.fifo:
            raise _bad_name(name)
        if value not in allowed:
            raise _bad_value(name, value)
        draft.sqs[key] = value

    return put


def _content(draft: Draft, name: str, value: str) -> None:
    if not draft.fifo:
        raise _bad_name(name)
    if value not in ("true", "false"):
        raise _bad_value(name, value)
    draft.put("x-dedup-content", value == "true")


def _redrive(draft: Draft, name: str, value: str) -> None:
    """An empty value ends it. Messages are then never given up."""
    if not value:
        for argument in _REDRIVE:
            draft.put(argument, None)
        draft.put("x-delivery-limit", -1)
        return
    policy = _json(name, value)
    receives, arn = whole(policy.get("maxReceiveCount")), policy.get("deadLetterTargetArn")
    if policy.keys() != {"maxReceiveCount", "deadLetterTargetArn"} or not isinstance(arn, str):
        raise bad_parameter(name, value, "It must have deadLetterTargetArn and maxReceiveCount.")
    if receives is None or not 1 <= receives <= RECEIVES_MAX:
        raise bad_parameter(name, value, "Invalid value for maxReceiveCount: 1 to 1000.")
    draft.redrive = name_in_arn(arn, name)
    # The last of so many receives may fail; the queue counts failures that may be followed by more.
    for argument, setting in zip(_REDRIVE, ("", draft.redrive, receives - 1), strict=True):
        draft.put(argument, setting)


def _allow(draft: Draft, name: str, value: str) -> None:
    if not value:
        draft.sqs.pop("allow", None)
        return
    policy = _json(name, value)
    permission, arns = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
    listed = permission == "byQueue"
    if permission not in ("allowAll", "denyAll", "byQueue") or not isinstance(arns, list):
        raise bad_parameter(name, value, "redrivePermission: allowAll, denyAll or byQueue.")
    if bool(arns) != listed or len(arns) > SOURCES_MAX or not all(map(_is_text, arns)):
        raise bad_parameter(name, value, f"sourceQueueArns: up to {SOURCES_MAX} with byQueue.")
    names = [name_in_arn(arn, name) for arn in arns]
    draft.sqs["allow"] = {"permission": permission, "sources": names}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _json(name: str, value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise bad_parameter(name, value, "It is not a JSON object.")
    return parsed


_SETTERS: Final[dict[str, Callable[[Draft, str, str], None]]] = {
    "DelaySeconds": _seconds("x-message-delay", 0, DELAY_S_MAX),
    "MessageRetentionPeriod": _seconds("x-message-ttl", 60, RETENTION_S_MAX),
    "VisibilityTimeout": _visibility,
    "MaximumMessageSize": _own_number("message_bytes_max", MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX),
    "ReceiveMessageWaitTimeSeconds": _own_number("wait_s", 0, WAIT_S_MAX),
    "RedrivePolicy": _redrive,
    "RedriveAllowPolicy": _allow,
    "ContentBasedDeduplication": _content,
    "DeduplicationScope": _own_choice("scope", "queue", "messageGroup"),
    "FifoThroughputLimit": _own_choice("throughput", "perQueue", "perMessageGroupId"),
}
NAMES: Final = (*_READ_ONLY, *_SETTERS, *_NOT_HERE, "FifoQueue")


def may_send_dead_letters(target: Mapping[str, object], source: str) -> bool:
    """Whether the settings of a dead letter queue let that queue use it."""
    allow = sqs_of(target).get("allow")
    if not isinstance(allow, dict) or allow["permission"] == "allowAll":
        return True
    return source in allow["sources"]


# Showing


def wanted_names(names: list[str]) -> frozenset[str] | None:
    """Which attributes are asked for; None for all. Raises SqsError."""
    for name in names:
        if name != "All" and name not in NAMES:
            raise _bad_name(name)
    return None if "All" in names else frozenset(names)


def shown(
    name: str, options: QueueOptions, settings: Mapping[str, object], region: str
) -> dict[str, str]:
    """All that is set, without what is in the queue."""
    sqs, limits = sqs_of(settings), limits_of(options, settings)
    ttl_ms = options.message_ttl_ms
    found = {
        "QueueArn": arn_of(name, region),
        "CreatedTimestamp": str(sqs.get("created_ms", 0) // 1000),
        "LastModifiedTimestamp": str(sqs.get("modified_ms", 0) // 1000),
        "VisibilityTimeout": str(limits.visibility_ms // 1000),
        "MaximumMessageSize": str(limits.message_bytes_max),
        "MessageRetentionPeriod": str(RETENTION_S_MAX if ttl_ms is None else ttl_ms // 1000),
        "DelaySeconds": str(options.message_delay_ms // 1000),
        "ReceiveMessageWaitTimeSeconds": str(limits.wait_s),
        "SqsManagedSseEnabled": "false",
    }
    redrive = redrive_of(options)
    if redrive is not None:
        arn, receives = arn_of(redrive[0], region), redrive[1]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": receives}
        found["RedrivePolicy"] = json.dumps(policy, separators=(",", ":"))
    allow = sqs.get("allow")
    if allow is not None:
        found["RedriveAllowPolicy"] = _allow_text(allow, region)
    if options.message_groups:
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = "true" if options.dedup_content else "false"
        found["DeduplicationScope"] = limits.scope
        found["FifoThroughputLimit"] = sqs.get("throughput", "perQueue")
    return found


def redrive_of(options: QueueOptions) -> tuple[str, int] | None:
    """The queue that dead letters go to, and after how many receives; None where SQS has no word.

    That is so where they go elsewhere than straight to a queue, or never for being received.
    """
    target, limit = options.dead_letter_routing_key, options.delivery_limit
    if options.dead_letter_exchange != "" or target is None or limit is None:
        return None
    return target, limit + 1


def _allow_text(allow: Mapping[str, Any], region: str) -> str:
    policy = {"redrivePermission": allow["permission"]}
    if allow["sources"]:
        policy["sourceQueueArns"] = [arn_of(name, region) for name in allow["sources"]]
    return json.dumps(policy, separators=(",", ":"))


def differing(attributes: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """The first attribute that a queue does not have as a client who makes it anew wants it."""
    for name, value in attributes.items():
        current = there.get(name, "")
        if name in ("RedrivePolicy", "RedriveAllowPolicy") and value and current:
            wanted, has = _json(name, value), _json(name, current)
            if {k: str(v) for k, v in wanted.items()} != {k: str(v) for k, v in has.items()}:
                return name
        elif value != current and not (name in _NOT_HERE and value in ("", "false")):
            return name
    return None
