"""Policies: settings for every queue and exchange of a matching name, beside what was declared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from broker.security.patterns import Pattern, compile_pattern, stored_pattern
from queues.arguments import InvalidArgumentError
from queues.declared import Options, parse_arguments
from queues.options import POLICY_ARGUMENTS, QueueType
from queues.stream.arguments import POLICY_ARGUMENTS as STREAM_POLICY_ARGUMENTS
from queues.stream.arguments import age_ms

Kind: TypeAlias = Literal["policy", "operator-policy"]

NAME_BYTES_MAX: Final = 255  # as for queues and exchanges
# Names are short, so that a pattern of this length can say all there is to say about them.
PATTERN_CHARS_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 255  # names of exchanges and routing keys travel as short strings
NUMBER_MAX: Final = 2**63 - 1
PRIORITY_MAX: Final = 2**31 - 1

EXCHANGE: Final = "exchange"
# apply-to → what it fits: the types of queues, and exchanges.
APPLY_TO: Final[dict[str, frozenset[str]]] = {
    "queues": frozenset({"classic", "quorum", "stream"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
    "exchanges": frozenset({EXCHANGE}),
    "all": frozenset({"classic", "quorum", "stream", EXCHANGE}),
}

ALTERNATE: Final = "alternate-exchange"
_FIFO_KEYS: Final = frozenset(name.removeprefix("x-") for name in POLICY_ARGUMENTS)
_STREAM_KEYS: Final = frozenset(name.removeprefix("x-") for name in STREAM_POLICY_ARGUMENTS)
_KEYS: Final[dict[QueueType, frozenset[str]]] = {
    "classic": _FIFO_KEYS,
    "quorum": _FIFO_KEYS,
    "stream": _STREAM_KEYS,
}
# What RabbitMQ knows and what chooses nothing here: kept, so that its policies can be moved here.
_KEPT: Final[dict[str, type]] = {
    "dead-letter-strategy": str,
    "federation-upstream": str,
    "federation-upstream-pattern": str,
    "federation-upstream-set": str,
    "ha-mode": str,
    "ha-params": object,  # a number, or a list of nodes
    "ha-promote-on-failure": str,
    "ha-promote-on-shutdown": str,
    "ha-sync-batch-size": int,
    "ha-sync-mode": str,
    "initial-cluster-size": int,
    "max-in-memory-bytes": int,
    "max-in-memory-length": int,
    "queue-leader-locator": str,
    "queue-master-locator": str,
    "queue-mode": str,
    "queue-version": int,
    "target-group-size": int,
}
# Where a queue, its policy and the operator's all name a number, the smallest counts.
_CAPPED: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "max-age"}
)
_OPERATOR_KEYS: Final = (_CAPPED - {"max-age"}) | {"max-in-memory-bytes", "max-in-memory-length"}
# What an argument needs beside it. A policy may have one without the other, which a queue brings.
_COMPANY: Final[dict[str, dict[str, object]]] = {
    "dead-letter-routing-key": {"x-dead-letter-exchange": ""},
    "priority-aging-ms": {"x-max-priority": 1},
}


class InvalidPolicyError(ValueError):
    """A policy that cannot be meant, told in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, or an operator's. It is taken as it is; `parse_policy` checks it."""

    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Any]
    regex: Pattern = field(compare=False, repr=False)

    @classmethod
    def make(
        cls, name: str, pattern: str, apply_to: str, priority: int, definition: Mapping[str, Any]
    ) -> "Policy":
        """An empty pattern matches all names, and one that cannot be matched none of them."""
        return cls(
            name=name,
            pattern=pattern,
            apply_to=apply_to,
            priority=priority,
            definition=definition,
            regex=stored_pattern(pattern or "^"),
        )

    def fits(self, target: str, name: str) -> bool:
        """Whether it is for this type of queue, or for exchanges, and for this name."""
        return target in APPLY_TO[self.apply_to] and self.regex.found_in(name)


def parse_policy(name: str, body: Mapping[str, Any], *, kind: Kind) -> Policy:
    """A policy from its parts as RabbitMQ's API names them; raises InvalidPolicyError."""
    for key in ("pattern", "definition"):
        if key not in body:
            raise InvalidPolicyError(f"{key} is missing")
    if not name:
        raise InvalidPolicyError("a policy needs a name")
    pattern, apply_to = body["pattern"], body.get("apply-to", "all")
    priority, definition = body.get("priority", 0), body["definition"]
    _check_text("name", name, NAME_BYTES_MAX)
    if not isinstance(pattern, str) or len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidPolicyError(f"pattern must be a text of at most {PATTERN_CHARS_MAX} letters")
    _check_text("pattern", pattern, 4 * PATTERN_CHARS_MAX)
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        raise InvalidPolicyError(
            f"apply-to must be one of {', '.join(APPLY_TO)}, and not {apply_to!r}"
        )
    if not _is_whole(priority) or abs(priority) > PRIORITY_MAX:
        raise InvalidPolicyError(
            f"priority must be a whole number from {-PRIORITY_MAX} to {PRIORITY_MAX}, "
            f"and not {priority!r}"
        )
    _check_definition(definition, kind)
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise InvalidPolicyError(f"pattern is not a regular expression: {error}") from None
    return Policy.make(name, pattern, apply_to, priority, dict(definition))


def _check_definition(definition: object, kind: Kind) -> None:
    if not isinstance(definition, dict) or not definition:
        raise InvalidPolicyError("definition must be an object with at least one setting")
    known = (
        _OPERATOR_KEYS
        if kind == "operator-policy"
        else {*_FIFO_KEYS, *_STREAM_KEYS, *_KEPT, ALTERNATE}
    )
    unknown = [key for key in definition if key not in known]
    if unknown:
        what = "settings of an operator policy" if kind == "operator-policy" else "policy settings"
        raise InvalidPolicyError(f"{', '.join(unknown)}: not recognised as {what}")
    for key, value in definition.items():
        _check_value(key, value)


def _check_value(key: str, value: object) -> None:
    if isinstance(value, str):
        _check_text(key, value, TEXT_BYTES_MAX)
    elif isinstance(value, int) and abs(value) > NUMBER_MAX:
        raise InvalidPolicyError(f"{key}: at most {NUMBER_MAX}")
    if key in _FIFO_KEYS or key in _STREAM_KEYS:
        queue_type: QueueType = "classic" if key in _FIFO_KEYS else "stream"
        try:
            parse_arguments({f"x-{key}": value, **_COMPANY.get(key, {})}, default=queue_type)
        except InvalidArgumentError as error:
            raise InvalidPolicyError(f"{key}: {error.reason}") from None
    elif key == ALTERNATE or _KEPT[key] is str:
        if not isinstance(value, str):
            raise InvalidPolicyError(f"{key}: expected a string, got {value!r}")
    elif _KEPT[key] is int:
        if not _is_whole(value) or value < 0:  # type: ignore[operator]
            raise InvalidPolicyError(f"{key}: expected a number that is not negative")
    else:
        _check_nodes(key, value)


def _check_nodes(key: str, value: object) -> None:
    if _is_whole(value):
        return
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidPolicyError(f"{key}: expected a number or a list of strings")
    for item in value:
        _check_text(key, item, TEXT_BYTES_MAX)


def _check_text(what: str, text: str, bytes_max: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        raise InvalidPolicyError(f"{what} is not a valid text") from None
    if size > bytes_max:
        raise InvalidPolicyError(f"{what}: at most {bytes_max} bytes")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class PolicySet:
    """The policies of a vhost that compete: for each queue or exchange one of them counts."""

    __slots__ = ("_by_name", "_ranked")

    def __init__(self) -> None:
        self._by_name: dict[str, Policy] = {}
        self._ranked: list[Policy] = []

    def __iter__(self) -> Iterator[Policy]:
        """In the order of their names."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Policy | None:
        return self._by_name.get(name)

    def put(self, policy: Policy) -> None:
        self._by_name[policy.name] = policy
        self._rank()

    def remove(self, name: str) -> None:
        self._by_name.pop(name, None)
        self._rank()

    def _rank(self) -> None:
        self._ranked = sorted(self._by_name.values(), key=lambda one: (-one.priority, one.name))

    def match(self, target: str, name: str) -> Policy | None:
        """The one of highest priority that fits; of several, the first by name."""
        for policy in self._ranked:
            if policy.fits(target, name):
                return policy
        return None


def effective_arguments(
    arguments: Mapping[str, object],
    policy: Policy | None,
    operator: Policy | None,
    *,
    queue_type: QueueType = "classic",
) -> dict[str, object]:
    """What a queue is to do: its own arguments win, but for numbers, of which the smallest counts.

    An operator's policy has only such numbers.
    """
    effective = dict(arguments)
    for source in (policy, operator):
        if source is None:
            continue
        for key, value in source.definition.items():
            if key not in _KEYS[queue_type]:
                continue
            name = f"x-{key}"
            if name not in effective:
                effective[name] = value
            elif key in _CAPPED:
                effective[name] = min(effective[name], value, key=_size)
    return effective


def _size(value: Any) -> float:
    if isinstance(value, str):
        return age_ms(value)
    return float("inf") if value == -1 else value  # -1: no limit


def effective_options(
    arguments: Mapping[str, object],
    policy: Policy | None,
    operator: Policy | None,
    *,
    queue_type: QueueType,
) -> tuple[Options, list[str]]:
    """The same as options, and which arguments of the policies do not go with the queue's own."""
    effective = effective_arguments(arguments, policy, operator, queue_type=queue_type)
    left_out: list[str] = []
    while True:
        try:
            return parse_arguments(effective, default=queue_type), left_out
        except InvalidArgumentError as error:
            name = _misfit(error.name, effective, arguments, queue_type)
            del effective[name]
            left_out.append(name)


def _misfit(
    named: str,
    effective: Mapping[str, object],
    arguments: Mapping[str, object],
    queue_type: QueueType,
) -> str:
    """The argument to leave out: never one that the queue was declared with."""
    brought = [name for name in effective if name not in arguments]
    if named in brought:
        return named
    for name in brought:
        rest = {other: value for other, value in effective.items() if other != name}
        try:
            parse_arguments(rest, default=queue_type)
        except InvalidArgumentError:
            continue
        return name
    return brought[0]  # there is more than one; without any of them the queue was declared
