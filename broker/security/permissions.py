"""What a user may do in a vhost, as patterns on names, with RabbitMQ's meaning."""

import re
import warnings
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Action: TypeAlias = Literal["configure", "write", "read"]
TopicAction: TypeAlias = Literal["write", "read"]

# Names are short, so that a pattern of this length can say all there is to say about them.
PATTERN_CHARS_MAX: Final = 1024

_VARIABLE: Final = re.compile(r"\{username\}|\{vhost\}")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a permission pattern with RabbitMQ's meaning; ValueError if it is not a regex.

    Patterns are searched for, not anchored, except that the empty one grants nothing but the
    empty name. What Python would read differently from PCRE (such as `[[:alpha:]]`) only earns a
    warning from `re`; a permission must not be guessed at, so that is an error here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(pattern or "^$")
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise ValueError(str(error)) from error


def _check_length(pattern: str) -> None:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"it is longer than {PATTERN_CHARS_MAX} characters")


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in one vhost: names of queues and exchanges, by action.

    Raises ValueError for what is no pattern.
    """

    configure: str
    write: str
    read: str
    _patterns: dict[Action, re.Pattern[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        by_action: tuple[tuple[Action, str], ...]
        by_action = (("configure", self.configure), ("write", self.write), ("read", self.read))
        for action, pattern in by_action:
            _check_length(pattern)
            self._patterns[action] = compile_pattern(pattern)

    def texts(self) -> dict[str, str]:
        return {"configure": self.configure, "write": self.write, "read": self.read}

    def allows(self, action: Action, name: str) -> bool:
        return self._patterns[action].search(name) is not None


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which keys a user may publish with to a topic exchange, and bind with to one.

    `{username}` and `{vhost}` stand for those names, letter by letter: unlike in RabbitMQ a name
    cannot bring a pattern of its own in. Raises ValueError for what is no pattern.
    """

    write: str
    read: str

    def __post_init__(self) -> None:
        for pattern in (self.write, self.read):
            _check_length(pattern)
            _expand(pattern, user="user", vhost="vhost")

    def allows(self, action: TopicAction, key: str, *, user: str, vhost: str) -> bool:
        pattern = self.write if action == "write" else self.read
        return _expand(pattern, user=user, vhost=vhost).search(key) is not None


def _expand(pattern: str, *, user: str, vhost: str) -> re.Pattern[str]:
    names = {"{username}": user, "{vhost}": vhost}
    # In one go: a user may be called "{vhost}".
    return compile_pattern(_VARIABLE.sub(lambda found: re.escape(names[found[0]]), pattern))
