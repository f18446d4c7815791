"""Regular expressions of users, matched in time that grows with the text and nothing else.

RE2 never tries again: a pattern that it takes costs about 2 µs for a name and 0.1 ms for 64 KiB of
a body, whatever it says. What would need trying again (lookaheads, lookbehinds, backreferences,
possessive repeats) it does not take, nor repeats of more than 1,000. One lookahead is taken all the
same, since RabbitMQ's own documentation has it: `^(?!amq\\.).*` is two patterns, of which one must
not be found.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import re2

from broker import logs

# Of a compiled pattern and what it remembers while matching. A pattern has 1,024 characters at
# most, and beyond this RE2 matches without remembering, which is slower and as bounded.
PATTERN_BYTES_MAX: Final = 1024 * 1024

_EXCEPTION: Final = "^(?!"
_PIECE: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)  # a class is one piece

_log = logs.get("patterns")


class Pattern(Protocol):
    """Something to be searched for."""

    def found_in(self, text: str) -> bool: ...


class _Regular:
    """A regular expression. Names may hold bytes that are no UTF-8, and halves of characters."""

    __slots__ = ("_search",)

    def __init__(self, pattern: str, *, ignores_case: bool) -> None:
        options = re2.Options()
        options.log_errors = False
        options.max_mem = PATTERN_BYTES_MAX
        options.case_sensitive = not ignores_case
        try:
            self._search = re2.compile(pattern.encode(), options).search
        except re2.error as error:
            (reason,) = error.args or (b"",)
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise ValueError(text) from None

    def found_in(self, text: str) -> bool:
        return self._search(text.encode("utf-8", "surrogatepass")) is not None


class _But:
    """What has one thing in it and not another."""

    __slots__ = ("_but", "_wanted")

    def __init__(self, wanted: Pattern, but: Pattern) -> None:
        self._wanted = wanted
        self._but = but

    def found_in(self, text: str) -> bool:
        return self._wanted.found_in(text) and not self._but.found_in(text)


class _Nothing:
    def found_in(self, text: str) -> bool:  # noqa: ARG002
        return False


NOTHING: Final[Pattern] = _Nothing()


def compile_pattern(pattern: str, *, ignores_case: bool = False) -> Pattern:
    """A pattern that is searched for, not anchored; ValueError if it is none that RE2 takes."""
    parts = _split_exception(pattern)
    if parts is None:
        return _Regular(pattern, ignores_case=ignores_case)
    return _But(*(_Regular(part, ignores_case=ignores_case) for part in parts))


def _split_exception(pattern: str) -> tuple[str, str] | None:
    """`^(?!A)B` as what must be found and what must not; None for what is not of that form."""
    if not pattern.startswith(_EXCEPTION):
        return None
    end = _closing(pattern, len(_EXCEPTION))
    if end is None:
        return None
    but, rest = pattern[len(_EXCEPTION) : end], pattern[end + 1 :]
    if "(?!" in but or "|" in _outside_groups(rest):
        return None
    return f"^(?:{rest})", f"^(?:{but})"


def _closing(pattern: str, at: int) -> int | None:
    """Where the group ends that is open at this place."""
    depth = 1
    for piece in _PIECE.finditer(pattern, at):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            return piece.start()
    return None


def _outside_groups(pattern: str) -> list[str]:
    """The pieces of a pattern that are in no group."""
    depth, found = 0, []
    for piece in _PIECE.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            found.append(piece[0])
    return found


def stored_pattern(pattern: str) -> Pattern:
    """One that was taken once, perhaps by a version that knew more; if it is none, NOTHING.

    A definition must not stop a start. What it would grant is denied until it is set anew.
    """
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        _log.error("pattern_unusable", pattern=pattern, reason=str(error))
        return NOTHING


def escaped(text: str) -> str:
    """A pattern that finds just this text."""
    return str(re2.escape(text))
