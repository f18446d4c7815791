"""Words and numbers of options: Spark gives them as text, with names in any case."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from spark.errors import OptionError

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_SPAN: Final = re.compile(r"\s*(\d{1,15})\s*([A-Za-z]+)\s*")
COUNT_MAX: Final = 2**63 - 1


class Options:
    """The options of one read or write, by their names in lower case."""

    def __init__(self, given: Mapping[str, str], known: Collection[str], purpose: str) -> None:
        """Raises OptionError for names that are not known; `purpose` says what they are for."""
        self._given = {name.lower(): str(text) for name, text in given.items()}
        self._names = {name.lower(): name for name in known}
        for name in self._given:
            if name not in self._names:
                raise OptionError(f"{purpose} has no option {name!r}{self._hint(name)}")

    def _hint(self, name: str) -> str:
        close = get_close_matches(name, self._names, 1)
        return f"; is it {self._names[close[0]]}?" if close else ""

    def given(self, *names: str) -> list[str]:
        """Which of these there are."""
        return [name for name in names if name.lower() in self._given]

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def number(self, name: str, *, minimum: int = 0, maximum: int = COUNT_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\s*\d{1,19}\s*", text) or not minimum <= int(text) <= maximum:
            raise OptionError(f"{name}={text!r}: a whole number from {minimum} to {maximum}")
        return int(text)

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        if text is None:
            return None
        if text.strip().lower() not in ("true", "false"):
            raise OptionError(f"{name}={text!r}: true or false")
        return text.strip().lower() == "true"

    def span_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = read_span_ms(text)
        if found is None:
            raise OptionError(f"{name}={text!r}: a time such as '30s' or '10 minutes'")
        return found


def read_span_ms(text: str) -> int | None:
    """A time such as "30s", "15 m" or "2 hours"; None if it is none."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    scale = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    return None if scale is None else int(match[1]) * scale
