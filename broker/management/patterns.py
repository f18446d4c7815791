"""Patterns that a caller searches names and messages with."""

from __future__ import annotations

from typing import Final

from broker.security.patterns import Pattern, compile_pattern

PATTERN_CHARS_MAX: Final = 1000


def search_pattern(text: str) -> Pattern:
    """Compile it, not minding the case; ValueError if it is no pattern."""
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError("too long")
    return compile_pattern(text, ignores_case=True)


class PlainText:
    """Just this text, not minding the case."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()

    def found_in(self, text: str) -> bool:
        return self._text in text.lower()
