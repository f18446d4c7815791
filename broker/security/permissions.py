"""What a user may do in a vhost, as patterns on names, with RabbitMQ's meaning."""

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from broker.security.patterns import Pattern, compile_pattern, escaped, stored_pattern

Action: TypeAlias = Literal["configure", "write", "read"]
TopicAction: TypeAlias = Literal["write", "read"]

# Names are short, so that a pattern of this length can say all there is to say about them.
PATTERN_CHARS_MAX: Final = 1024

_VARIABLE: Final = re.compile(r"\{username\}|\{vhost\}")
_EMPTY: Final = "^$"  # what the empty pattern stands for: it grants nothing


def check_patterns(*patterns: str) -> None:
    """Of a permission that somebody wants to give; ValueError if one of them is none.

    Patterns that were given once are not checked again: see `stored_pattern`.
    """
    for pattern in patterns:
        if len(pattern) > PATTERN_CHARS_MAX:
            raise ValueError(f"it is longer than {PATTERN_CHARS_MAX} characters")
        compile_pattern(_expanded(pattern, user="user", vhost="vhost"))


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in one vhost: names of queues and exchanges, by action."""

    configure: str
    write: str
    read: str
    _patterns: dict[Action, Pattern] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        by_action: tuple[tuple[Action, str], ...]
        by_action = (("configure", self.configure), ("write", self.write), ("read", self.read))
        for action, pattern in by_action:
            self._patterns[action] = stored_pattern(pattern or _EMPTY)

    def texts(self) -> dict[str, str]:
        return {"configure": self.configure, "write": self.write, "read": self.read}

    def allows(self, action: Action, name: str) -> bool:
        return self._patterns[action].found_in(name)


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which keys a user may publish with to a topic exchange, and bind with to one.

    `{username}` and `{vhost}` stand for those names, letter by letter: unlike in RabbitMQ a name
    cannot bring a pattern of its own in.
    """

    write: str
    read: str

    def allows(self, action: TopicAction, key: str, *, user: str, vhost: str) -> bool:
        pattern = self.write if action == "write" else self.read
        return stored_pattern(_expanded(pattern, user=user, vhost=vhost)).found_in(key)


def _expanded(pattern: str, *, user: str, vhost: str) -> str:
    names = {"{username}": user, "{vhost}": vhost}
    # In one go: a user may be called "{vhost}".
    return _VARIABLE.sub(lambda found: escaped(names[found[0]]), pattern) or _EMPTY
