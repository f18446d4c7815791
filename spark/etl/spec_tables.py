"""Reads one table of a pipeline file: typed values, and errors that name file, table and key."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TypeVar

from spark.etl.errors import SpecError
from spark.option_values import read_span_ms

T = TypeVar("T")

TEXT_CHARS_MAX: Final = 100_000  # of an expression or a schema; far more than anybody reads


class SpecTable:
    """What the keys of a table say. Whoever reads it calls `done`, which refuses all others."""

    def __init__(self, file: str, name: str, values: object) -> None:
        self.file = file
        self.name = name
        if not isinstance(values, Mapping):
            raise SpecError(f"{file}: {name} must be a table")
        self._values: dict[str, Any] = dict(values)
        self._asked: set[str] = set()

    def fail(self, key: str, reason: str) -> NoReturn:
        where = f"{self.name} {key}" if key else self.name
        raise SpecError(f"{self.file}: {where}: {reason}")

    def has(self, key: str) -> bool:
        return key in self._values

    def peek(self, key: str) -> object:
        """As it is in the file."""
        return self._values.get(key)

    def done(self) -> None:
        for key in self._values:
            if key not in self._asked:
                close = get_close_matches(key, self._asked, 1)
                hint = f"; is it {close[0]}?" if close else ""
                self.fail(key, f"there is no such key here{hint}")

    def asked(self, *keys: str) -> None:
        """Somebody else reads these."""
        self._asked.update(keys)

    # Tables in it

    def needed_table(self, key: str) -> object:
        self._asked.add(key)
        if key not in self._values:
            self.fail("", f"there is no [{key}]")
        return self._values[key]

    def named_tables(self, key: str) -> dict[str, Any]:
        found = self._values.get(key, {})
        if not isinstance(found, Mapping) or not found:
            self.fail("", f"there are no [{key}.NAME]")
        return dict(found)

    def listed_tables(self, key: str) -> list[Any]:
        found = self._values.get(key, [])
        if not isinstance(found, list):
            self.fail("", f"{key} must be a list of tables, [[{key}]]")
        return found

    # Values

    def text(self, key: str, default: str | None = None) -> str | None:
        found = self._get(key, str, "a text")
        if found is None:
            return default
        if not found.strip() or len(found) > TEXT_CHARS_MAX:
            self.fail(key, f"a text of 1 to {TEXT_CHARS_MAX} characters")
        return found

    def needed(self, key: str) -> str:
        found = self.text(key)
        return self.fail(key, "it is missing") if found is None else found

    def choice(self, key: str, among: Collection[str], default: str | None = None) -> str:
        found = self.text(key, default)
        if found is None or found not in among:
            said = "it is missing" if found is None else f"{found!r} is none"
            self.fail(key, f"one of {', '.join(among)}; {said}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or one by itself."""
        self._asked.add(key)
        found = self._values.get(key, [])
        some = [found] if isinstance(found, str) else found
        if not isinstance(some, list) or not all(isinstance(each, str) and each for each in some):
            self.fail(key, "a list of texts")
        if len(set(some)) != len(some):
            self.fail(key, "something is there twice")
        return tuple(some)

    def number(
        self, key: str, default: int | None = None, *, minimum: int = 1, maximum: int = 2**63 - 1
    ) -> int | None:
        found = self._get(key, int, "a whole number")
        if found is None:
            return default
        if isinstance(found, bool) or not minimum <= found <= maximum:
            self.fail(key, f"a whole number from {minimum} to {maximum}")
        return found

    def flag(self, key: str, *, default: bool) -> bool:
        found = self._get(key, bool, "true or false")
        return default if found is None else found

    def share(self, key: str) -> float | None:
        """More than nothing and less than all."""
        self._asked.add(key)
        found = self._values.get(key)
        if found is None:
            return None
        if not isinstance(found, float) or not 0 < found < 1:
            self.fail(key, "a share between 0 and 1, such as 0.05")
        return found

    def span(self, key: str, default: str | None = None) -> str | None:
        """A time such as "10 minutes", as Spark reads it too."""
        found = self.text(key, default)
        if found is None:
            return None
        span_ms = read_span_ms(found)
        if span_ms is None:
            self.fail(key, f"a time such as '30s' or '10 minutes', not {found!r}")
        return spark_span(span_ms)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """A table of texts, such as names of columns and their expressions."""
        found = self._get(key, dict, "a table of texts") or {}
        for name, text in found.items():
            if not isinstance(text, str) or not text.strip():
                self.fail(key, f"{name} must be a text")
        return found

    def settings(self) -> dict[str, str]:
        """All of it: names and values as Spark's configuration has them."""
        found = {}
        for name, value in self._values.items():
            if not isinstance(value, str | int | float | bool):
                self.fail(name, "a text, a number, or true or false")
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return found

    def _get(self, key: str, kind: type[T], what: str) -> T | None:
        self._asked.add(key)
        found = self._values.get(key)
        if found is not None and not isinstance(found, kind):
            self.fail(key, f"{what}, not {found!r}")
        return found


def spark_span(span_ms: int) -> str:
    """A time as Spark writes intervals; it does not know all of our words for them."""
    if span_ms % 1000:
        return f"{span_ms} milliseconds"
    return f"{span_ms // 1000} seconds"
