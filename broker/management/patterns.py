"""Patterns that a caller searches names with: without those that could take for ever."""

from __future__ import annotations

import re
import warnings
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

PATTERN_CHARS_MAX: Final = 1000
# A repeat of a repeat, or of alternatives, may try every way to divide a text: 2^n of them.
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
REPEATS_MAX: Final = 3  # one behind the other each look at the rest of the text again


def search_pattern(text: str) -> re.Pattern[str]:
    """Compile it, not minding the case; ValueError if it is no pattern or may be costly."""
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError("too long")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            if _cost(_parser.parse(text)) > REPEATS_MAX:
                raise ValueError("may take too long")
            return re.compile(text, re.IGNORECASE)
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise ValueError(str(error)) from error


def _cost(tokens: Any) -> int:
    """How many unbounded repeats there are; a repeat within another counts as too many."""
    cost = 0
    for kind, value in tokens:
        if kind in _REPEATS:
            low, high, body = value
            if high - low <= 1:
                cost += _cost(body)
            else:
                inner = _cost(body) or _branches(body)
                cost += 1 + (REPEATS_MAX if inner else 0)
        elif kind == _constants.SUBPATTERN:
            cost += _cost(value[-1])
        elif kind == _constants.BRANCH:
            cost += max(_cost(body) for body in value[1])
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            cost += _cost(value[1])
        elif kind in (_constants.GROUPREF, _constants.GROUPREF_EXISTS):
            cost += REPEATS_MAX + 1
    return cost


def _branches(tokens: Any) -> bool:
    return any(
        kind == _constants.BRANCH or (kind == _constants.SUBPATTERN and _branches(value[-1]))
        for kind, value in tokens
    )
